"""Metrics agree with loops and with scikit-learn; the scorers serve model selection on any labels."""

import doctest
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, make_scorer, recall_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.metadata_routing import get_routing_for_object

import apportion.metrics
import oracles
from apportion.metrics import (
    CostScorer,
    class_sensitivity,
    cost_savings,
    cost_scorer,
    expected_cost,
    savings_scorer,
)

LABELS = {
    "str": ["a", "b", "c"],
    "int": [3, -1, 10],
    "float": [0.5, 1.0, 2.0],
    "object": [None, "b", 3],
    "bool": [False, True],
}
MATRIX = np.array([[0.0, 1.0, 3.0], [4.0, 0.0, 0.5], [2.0, 0.0, 0.0]])


@st.composite
def decisions(draw):
    """Labels, costs as a matrix, true and predicted positions, weights."""
    labels = draw(st.sampled_from(list(LABELS.values())))
    k, n = len(labels), draw(st.integers(1, 15))
    entries = draw(st.lists(st.floats(0.1, 50), min_size=k * k, max_size=k * k))
    positions = st.lists(st.integers(0, k - 1), min_size=n, max_size=n)
    weight = draw(st.lists(st.floats(0.1, 3), min_size=n, max_size=n))
    return labels, np.reshape(entries, (k, k)) * (1 - np.eye(k)), draw(positions), draw(positions), weight


def named(labels, positions):
    return np.array([labels[c] for c in positions], dtype=object)


# ---------------------------------------------------------------- values


@given(decisions())
def test_expected_cost_is_that_of_the_loop(drawn):
    labels, matrix, true, pred, weight = drawn
    y_true, y_pred = named(labels, true), named(labels, pred)
    cost = {a: {b: matrix[i, j] for j, b in enumerate(labels)} for i, a in enumerate(labels)}
    for sw in (None, weight):
        expected = oracles.expected_cost(y_true, y_pred, cost, sw)
        frame = pd.DataFrame(matrix, index=labels, columns=labels).iloc[::-1]
        assert_allclose(expected_cost(y_true, y_pred, costs=frame, sample_weight=sw), expected)
        found = expected_cost(list(y_true), list(y_pred), costs=matrix, sample_weight=sw, labels=labels)
        assert_allclose(found, expected)


@given(decisions())
def test_every_form_of_a_vector_gives_the_same_cost(drawn):
    labels, matrix, true, pred, _ = drawn
    y_true, y_pred, theta = named(labels, true), named(labels, pred), matrix[:, -1] + 1
    by_class = dict(zip(labels, theta, strict=True))
    expected = np.mean([by_class[t] * (t != p) for t, p in zip(y_true, y_pred, strict=True)])
    square = theta[:, None] * (1 - np.eye(len(labels)))
    for form, order in (
        (by_class, None),
        (by_class, labels[::-1]),
        (pd.Series(theta, index=pd.Index(labels, dtype=object)), None),
        (theta, labels),
        (theta[::-1], labels[::-1]),
        (square, labels),
    ):
        assert_allclose(expected_cost(y_true, y_pred, costs=form, labels=order), expected, atol=1e-12)


@given(decisions())
def test_limiting_cases_are_those_of_scikit_learn(drawn):
    labels, _, true, pred, weight = drawn
    y_true, y_pred = named(labels, true), named(labels, pred)
    error = 1 - accuracy_score(true, pred, sample_weight=weight)
    assert_allclose(expected_cost(y_true, y_pred, sample_weight=weight, labels=labels), error, atol=1e-12)
    seen = sorted(set(true))  # balanced_accuracy_score would warn of classes that are only predicted
    recall = recall_score(true, pred, labels=seen, average="macro", sample_weight=weight)
    balanced = expected_cost(y_true, y_pred, costs="balanced", sample_weight=weight, labels=labels)
    assert_allclose(balanced, 1 - recall, atol=1e-12)
    sensitivity = class_sensitivity(y_true, y_pred, labels=labels, sample_weight=weight)
    assert_allclose(np.nanmean(sensitivity), recall)
    assert_array_equal(np.isnan(sensitivity), [c not in true for c in range(len(labels))])


@given(decisions())
def test_savings_compare_with_the_best_constant_decision(drawn):
    labels, matrix, true, pred, weight = drawn
    y_true, y_pred = named(labels, true), named(labels, pred)
    given_costs = {"costs": matrix, "labels": labels, "sample_weight": weight}
    always = {c: named(labels, [c] * len(true)) for c in range(len(labels))}
    constants = [expected_cost(y_true, constant, **given_costs) for constant in always.values()]
    savings, cost = cost_savings(y_true, y_pred, **given_costs), expected_cost(y_true, y_pred, **given_costs)
    assert savings <= 1
    if min(constants) > 0:
        assert_allclose(savings, 1 - cost / min(constants), atol=1e-9)
        best = always[int(np.argmin(constants))]
        assert_allclose(cost_savings(y_true, best, **given_costs), 0, atol=1e-9)


@given(decisions(), st.randoms())
def test_the_order_of_labels_and_examples_does_not_matter(drawn, random):
    labels, matrix, true, pred, weight = drawn
    order, rows = list(range(len(labels))), list(range(len(true)))
    random.shuffle(order)
    random.shuffle(rows)
    y_true, y_pred, weight = named(labels, true), named(labels, pred), np.array(weight)
    for metric in (expected_cost, cost_savings):
        assert_allclose(
            metric(
                y_true[rows],
                y_pred[rows],
                costs=matrix[np.ix_(order, order)],
                labels=[labels[c] for c in order],
                sample_weight=weight[rows],
            ),
            metric(y_true, y_pred, costs=matrix, labels=labels, sample_weight=weight),
            atol=1e-9,
        )


def test_rows_are_the_truth_and_columns_the_decision():
    assert expected_cost(["a"], ["b"], costs=[[0, 7], [2, 0]]) == 7
    assert expected_cost(["b"], ["a"], costs=[[0, 7], [2, 0]]) == 2


def test_weight_is_repetition():
    y_true, y_pred, times = list("aabbc"), list("abbcc"), [2, 1, 3, 0, 1]
    repeated = np.repeat(y_true, times), np.repeat(y_pred, times)
    for metric in (expected_cost, cost_savings):
        weighted = metric(y_true, y_pred, costs=MATRIX, sample_weight=times)
        assert_allclose(weighted, metric(*repeated, costs=MATRIX, labels=list("abc")))
    weighted = class_sensitivity(y_true, y_pred, sample_weight=times)
    assert_allclose(weighted, class_sensitivity(*repeated, labels=list("abc")))


@pytest.mark.parametrize(("y_pred", "savings"), [(["a", "a"], 1.0), (["a", "b"], 0.0)])
def test_savings_where_there_is_nothing_to_save(y_pred, savings):
    assert cost_savings(["a", "a"], y_pred, costs={"a": 2, "b": 1}) == savings


def test_sensitivity_of_a_class_without_examples_or_weight_is_unknown():
    assert_array_equal(class_sensitivity(list("aab"), list("abc")), [0.5, 0, np.nan])
    assert_array_equal(class_sensitivity(list("aab"), list("abb"), sample_weight=[1, 1, 0]), [0.5, np.nan])
    assert_array_equal(class_sensitivity([0, 1], [0, 1], labels=[1, 0, 2]), [1, 1, np.nan])


def test_a_class_the_data_lack_may_have_a_cost():
    assert expected_cost(["a", "b"], ["b", "b"], costs={"a": 4, "b": 1, "c": 100}) == 2
    assert expected_cost(["a", "b"], ["b", "b"], costs=[4, 1, 100], labels=list("abc")) == 2
    assert expected_cost(["a", "b"], ["c", "b"], costs="balanced", labels=list("abcd")) == 0.5


def test_columns_series_bools_and_mixed_lists():
    assert expected_cost(np.array([["a"], ["b"]]), np.array([["b"], ["b"]])) == 0.5
    assert expected_cost(pd.Series(["a", "b"]), pd.Categorical(["b", "b"]), costs={"a": 3, "b": 1}) == 1.5
    assert expected_cost(np.array([True, False]), [0, 0], costs={0: 1, 1: 6}) == 3
    assert expected_cost([1, "1"], ["1", "1"], costs={1: 6, "1": 1}) == 3  # not turned into strings


# ---------------------------------------------------------------- mistakes

Y = ["a", "b", "c"]
BAD = [
    (Y, ["a", "b"], {}, "y_pred has 2 entries and y_true 3; they must have the same number"),
    ([], [], {}, "y_true is empty; at least one example is needed"),
    (np.eye(3), Y, {}, "y_true has shape (3, 3); it must be one-dimensional"),
    (Y, np.eye(3), {}, "y_pred has shape (3, 3); it must be one-dimensional"),
    ([1.0, np.nan], [1.0, 2.0], {}, "y_true holds NaN, which is no label"),
    (["a", pd.NA, "b"], Y, {}, "y_true holds <NA>, which is no label"),
    (Y, pd.Series(["a", None, "b"], dtype="string"), {}, "y_pred holds <NA>, which is no label"),
    (Y, Y, {"labels": [*Y, pd.NA]}, "labels holds <NA>, which is no label"),
    (Y, ["a", "b", "z"], {"labels": Y}, "y_pred holds 'z', which is not among labels ['a', 'b', 'c']"),
    (["z", "b", "c"], Y, {"labels": Y}, "y_true holds 'z', which is not among labels"),
    (Y, Y, {"labels": ["a", "b", "c", "a"]}, "labels=['a', 'b', 'c', 'a'] names a class twice"),
    (Y, Y, {"labels": [Y]}, "labels has shape (1, 3); it must be one-dimensional"),
    (
        Y,
        [1, 2, 3],
        {},
        "y_true and y_pred mix labels of the types ['int', 'str'], which have no order; give labels=",
    ),
    (
        Y,
        Y,
        {"sample_weight": [1, 2]},
        "sample_weight has shape (2,); with 3 examples it must have shape (3,)",
    ),
    (Y, Y, {"sample_weight": [1, -2, 1]}, "sample_weight[1] is -2.0; a weight must be a finite number >= 0"),
    (Y, Y, {"sample_weight": [1, 1, np.nan]}, "sample_weight[2] is nan"),
    (Y, Y, {"sample_weight": [0, 0, 0]}, "sample_weight is zero throughout"),
]
BAD_COSTS = [
    (
        Y,
        ["a", "b", "z"],
        {"costs": dict.fromkeys(Y, 1)},
        "y_pred holds 'z', which is not among the labels of costs",
    ),
    (
        [1, 2],
        [1, 1],
        {"costs": {"1": 5, "2": 1}},
        "y_true holds 1, which is not among the labels of costs ['1', '2']",
    ),
    (
        Y,
        Y,
        {"costs": [1, 2]},
        "costs has shape (2,) and y_true and y_pred hold the 3 labels ['a', 'b', 'c']; give labels=",
    ),
    (Y, Y, {"costs": [1, 2], "labels": Y}, "costs has shape (2,); with the 3 classes"),
    (Y, Y, {"costs": [1, 2, -1]}, "the cost of class 'c' is -1.0"),
    (Y, Y, {"costs": np.ones((3, 3))}, "costs['a', 'a'] is 1.0; the diagonal must be zero"),
    (Y, Y, {"costs": "cheap"}, "costs='cheap' is not known"),
    (Y, Y, {"costs": {"a": 1, "b": 1}, "labels": Y}, "costs has no key for the class 'c'"),
    (Y, Y, {"costs": pd.Series([1, 2, 3, 4], index=list("aabc"))}, "costs names a class twice"),
    (
        Y,
        Y,
        {"costs": pd.DataFrame(MATRIX, list("abc"), list("abd"))},
        "costs has the column 'd', which is not a class",
    ),
]


@pytest.mark.parametrize(("y_true", "y_pred", "settings", "message"), BAD)
@pytest.mark.parametrize("metric", [expected_cost, cost_savings, class_sensitivity])
def test_bad_input_is_named(metric, y_true, y_pred, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        metric(y_true, y_pred, **settings)


@pytest.mark.parametrize(("y_true", "y_pred", "settings", "message"), BAD_COSTS)
@pytest.mark.parametrize("metric", [expected_cost, cost_savings])
def test_bad_costs_are_named(metric, y_true, y_pred, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        metric(y_true, y_pred, **settings)


# ---------------------------------------------------------------- scorers

THETA = {"ill": 10.0, "unsure": 3.0, "well": 1.0}
SQUARE = pd.DataFrame([[0, 2, 10], [1, 0, 3], [1, 1, 0]], index=list(THETA), columns=list(THETA), dtype=float)
FORMS = {
    "dict": THETA,
    "vector": list(THETA.values()),
    "matrix": SQUARE.to_numpy(),
    "frame": SQUARE,
    "none": None,
    "balanced": "balanced",
}


def patients(n=60):
    rng = np.random.default_rng(2)
    y = np.array(list(THETA))[np.arange(n) % 3]
    return rng.standard_normal((n, 2)) + 0.8 * np.column_stack([y == "ill", y == "well"]), y


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [cost_scorer, savings_scorer])
def test_scorer_is_its_metric_greater_is_better(make, form):
    X, y = patients()
    machine = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X[::2], y[::2])
    metric, sign = (expected_cost, -1) if make is cost_scorer else (cost_savings, 1)
    labels = list(THETA) if form in ("vector", "matrix") else None
    weight = 1.0 + np.arange(len(y)) % 4
    for sw in (None, weight):
        expected = sign * metric(y, machine.predict(X), costs=FORMS[form], labels=labels, sample_weight=sw)
        assert make(FORMS[form])(machine, X, y, sample_weight=sw) == expected
    assert make(FORMS[form])(machine, X, y) != expected  # the weights do count


@pytest.mark.parametrize("form", FORMS)
def test_grid_search_on_cost_with_string_labels(form):
    X, y = patients()
    scoring = cost_scorer(FORMS[form])
    machine = DecisionTreeClassifier(random_state=0)
    search = GridSearchCV(machine, {"max_depth": [1, 3]}, scoring=scoring, cv=3).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ == search.cv_results_["mean_test_score"].max() < 0
    assert_allclose(search.score(X, y), scoring(search.best_estimator_, X, y))


@pytest.mark.parametrize("form", FORMS)
def test_a_test_fold_may_lack_a_class(form):
    X, y = patients(12)
    lacking = np.flatnonzero(y != "unsure")[:4]
    split = [(np.setdiff1d(np.arange(12), lacking), lacking)]
    machine = make_pipeline(StandardScaler(), LogisticRegression())
    scoring = {"cost": cost_scorer(FORMS[form]), "savings": savings_scorer(FORMS[form])}
    scores = cross_validate(machine, X, y, cv=split, scoring=scoring, error_score="raise")
    fitted = clone(machine).fit(X[split[0][0]], y[split[0][0]])
    labels = list(THETA) if form in ("vector", "matrix") else None
    expected = expected_cost(y[lacking], fitted.predict(X[lacking]), costs=FORMS[form], labels=labels)
    assert scores["test_cost"] == [-expected]
    assert np.isfinite(scores["test_savings"]).all()


@pytest.mark.parametrize("form", ["dict", "frame", "none", "balanced"])
def test_a_training_fold_may_lack_a_class(form):
    X, y = patients(12)
    train, test = np.flatnonzero(y != "unsure"), np.arange(12)
    score = cost_scorer(FORMS[form])(LogisticRegression().fit(X[train], y[train]), X[test], y[test])
    assert score < 0


def test_arrays_follow_the_classes_of_the_estimator():
    X, y = [[0], [0]], [1, 0]
    always = DummyClassifier(strategy="constant", constant=1).fit(X, y)
    assert cost_scorer([5, 1])(always, X, y) == -2.5  # class 0 costs 5, and is the one got wrong


def test_arrays_need_an_estimator_with_classes():
    class Bare(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

    machine = Bare().fit([[0]], [0])
    assert cost_scorer({0: 1, 1: 5})(machine, [[0], [0]], [0, 1]) == -2.5
    with pytest.raises(
        ValueError, match=r"follow estimator\.classes_, which Bare does not have; give the costs as a dict"
    ):
        cost_scorer([1, 5])(machine, [[0], [0]], [0, 1])


@pytest.mark.parametrize("make", [cost_scorer, savings_scorer])
def test_scorer_tunes_a_threshold(make):
    X, y = make_classification(300, weights=[0.8], flip_y=0.2, random_state=0)
    costs = {0: 1, 1: 6}
    tuned = TunedThresholdClassifierCV(LogisticRegression(), scoring=make(costs), cv=3).fit(X, y)
    theirs = make_scorer(expected_cost, greater_is_better=False, costs=costs)
    plain = TunedThresholdClassifierCV(LogisticRegression(), scoring=theirs, cv=3).fit(X, y)
    assert tuned.best_threshold_ == pytest.approx(plain.best_threshold_) and tuned.best_threshold_ < 0.4


def test_scorer_can_be_pickled_cloned_and_inspected():
    X, y = patients()
    machine = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    with config_context(enable_metadata_routing=True):
        scorer = savings_scorer(SQUARE).set_score_request(sample_weight=True)
    for copy in (clone(scorer), pickle.loads(pickle.dumps(scorer))):
        assert isinstance(copy, CostScorer) and copy.savings
        assert copy(machine, X, y) == scorer(machine, X, y)
        assert get_routing_for_object(copy).score.requests == {"sample_weight": True}
    search = clone(GridSearchCV(machine, {"max_depth": [1]}, scoring=cost_scorer(THETA)))
    assert search.scoring.costs == THETA
    assert repr(cost_scorer({"a": 1})) == "CostScorer(costs={'a': 1})"


def test_metadata_routing_passes_weights_as_to_a_scorer_of_scikit_learn():
    X, y = patients()
    weight = 1.0 + np.arange(60) % 4
    machine = DecisionTreeClassifier(max_depth=1, random_state=0)
    ours, theirs = cost_scorer(THETA), make_scorer(expected_cost, greater_is_better=False, costs=THETA)

    def scores(scorer, **params):
        asked = machine.set_fit_request(sample_weight=True)
        return cross_val_score(asked, X, y, cv=KFold(3), scoring=scorer, params=params, error_score="raise")

    with config_context(enable_metadata_routing=True):
        for scorer in (ours, theirs):  # has said nothing of the weights: scikit-learn wants to be told
            with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
                scores(scorer, sample_weight=weight)
        passed = scores(ours.set_score_request(sample_weight=True), sample_weight=weight)
        assert_array_equal(passed, scores(theirs.set_score_request(sample_weight=True), sample_weight=weight))
        kept = scores(ours.set_score_request(sample_weight=False), sample_weight=weight)
        assert_array_equal(kept, scores(theirs.set_score_request(sample_weight=False), sample_weight=weight))
    assert (passed != kept).all()


def test_routing_under_another_name_and_among_several_scorers():
    X, y = patients()
    weight = 1.0 + np.arange(60) % 4
    with config_context(enable_metadata_routing=True):
        scoring = {
            "plain": cost_scorer(THETA).set_score_request(sample_weight=False),
            "weighted": cost_scorer(THETA).set_score_request(sample_weight="importance"),
        }
        machine = DecisionTreeClassifier(max_depth=1, random_state=0)
        scores = cross_validate(machine, X, y, cv=KFold(3), scoring=scoring, params={"importance": weight})
    for fold, (train, test) in enumerate(KFold(3).split(X)):
        fitted = clone(machine).fit(X[train], y[train])
        assert scores["test_plain"][fold] == cost_scorer(THETA)(fitted, X[test], y[test])
        assert scores["test_weighted"][fold] == cost_scorer(THETA)(fitted, X[test], y[test], weight[test])


def test_several_scorers_with_weights_while_routing_is_off():
    X, y = patients()
    weight = 1.0 + np.arange(60) % 4
    scoring = {"cost": cost_scorer(THETA), "savings": savings_scorer(THETA), "accuracy": "accuracy"}
    machine = DecisionTreeClassifier(random_state=0)
    search = GridSearchCV(machine, {"max_depth": [1, 2]}, scoring=scoring, refit="cost", cv=KFold(3))
    search.fit(X, y, sample_weight=weight)
    assert np.isfinite(search.cv_results_["mean_test_savings"]).all()


def test_balanced_scorer_is_balanced_accuracy():
    X, y = patients()
    machine = DecisionTreeClassifier(max_depth=2, random_state=0)
    found = cross_val_score(machine, X, y, scoring=cost_scorer("balanced"), cv=3)
    assert_allclose(found, cross_val_score(machine, X, y, scoring="balanced_accuracy", cv=3) - 1)
    fitted = machine.fit(X, y)
    assert_allclose(cost_scorer("balanced")(fitted, X, y), balanced_accuracy_score(y, fitted.predict(X)) - 1)


def test_examples_in_the_docstrings():
    outcome = doctest.testmod(apportion.metrics)
    assert outcome.failed == 0 and outcome.attempted > 10
