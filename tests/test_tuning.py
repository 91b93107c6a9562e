"""ApportionedSVCCV: what it chooses, how it averages, what it does with time, and what it says to bad input."""

import itertools
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import parallel_config
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from apportion import (
    ApportionedSVC,
    ApportionedSVCCV,
    candidates,
    check_costs,
    expected_cost,
    paths,
    tuning,
)
from apportion.calibration import calibrate, decide, temperature
from apportion.fitting import CallbackContext, stratified
from apportion.losses import loss_table
from apportion.paths import hinge_path, with_intercept
from apportion.scalings import fitted_scaler
from apportion.search import KernelChoice, LossChoice, held_out_scores, kernel_matrices

SMALL = {"kernels": ("rbf",), "gammas": (0.05, 0.2), "Cs": (1, 10), "scaling": "standard", "n_machines": 3}


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def fitted(iris):
    return ApportionedSVCCV({"setosa": 1, "versicolor": 1, "virginica": 5}, **SMALL).fit(*iris)


# ---------------------------------------------------------------- the path over C


@pytest.mark.parametrize(
    ("p", "q", "most"), [(0.0, 1.0, 800), (1.0, 0.0, 800), (0.5, 0.5, 800), (0.5, 0.5, 0)]
)
def test_a_path_meets_the_exact_machine_at_every_C(p, q, most, monkeypatch):
    monkeypatch.setattr(paths, "INVERSE_ROWS", most)
    X, y = make_classification(120, 5, random_state=0, flip_y=0.1)
    K, theta, Cs = rbf_kernel(X, gamma=0.2), np.array([1.0, 5.0]), np.array([0.1, 1.0, 30.0])
    sign = np.where(y == 0, 1.0, -1.0)
    beta, b, gap = hinge_path(
        with_intercept(K, np.arange(len(K))), sign, theta[y] ** p, theta[y] ** q, Cs, tol=1e-5
    )
    assert gap.max() <= 1e-5
    for c, C in enumerate(Cs):
        exact = ApportionedSVC(
            [1, 5], margin_power=p, slack_power=q, kernel="precomputed", C=C, tol=1e-7
        ).fit(K, y)
        ours, theirs = K @ beta[c] + b[c], exact._raw_scores(K)[:, 0]
        assert np.abs(ours - theirs).max() < 0.03 * np.abs(theirs).max()
        hinges = np.maximum(theta[y] ** p - sign * ours, 0)
        objective = 0.5 * (beta[c] @ K @ beta[c] + b[c] ** 2) + C * (theta[y] ** q @ hinges)
        # the estimator holds both mirrored outputs
        assert 2 * objective == pytest.approx(exact.objective_, rel=1e-4)


def test_ranks_of_two_values_are_not_tried():
    rng = np.random.default_rng(0)
    X, y = rng.integers(2, size=(80, 6)), rng.integers(2, size=80)
    small = {**SMALL, "scaling": ("standard", "quantile")}
    assert set(ApportionedSVCCV(**small).fit(X, y).cv_results_["param_scaling"]) == {"standard"}
    X[0, 0] = 2
    assert set(ApportionedSVCCV(**small).fit(X, y).cv_results_["param_scaling"]) == {"standard", "quantile"}


@pytest.mark.parametrize("columns", [1, tuning.RELEVANCE_COLUMNS + 1])
def test_weights_of_one_column_or_very_many_are_not_learned(columns):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.normal(size=(40, columns)) + y[:, None]
    small = {**SMALL, "scaling": ("standard", "relevance")}
    assert set(ApportionedSVCCV(**small).fit(X, y).cv_results_["param_scaling"]) == {"standard"}
    small["scaling"] = "relevance"  # unless asked for
    assert set(ApportionedSVCCV(**small).fit(X, y).cv_results_["param_scaling"]) == {"relevance"}


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
def test_kernel_matrices_are_those_of_scikit_learn(kernel):
    A, B = np.random.default_rng(0).normal(size=(7, 3)), np.random.default_rng(1).normal(size=(4, 3))
    form = {"rbf": rbf_kernel, "laplacian": laplacian_kernel, "linear": lambda a, b, gamma: a @ b.T}[kernel]
    K, K_test = kernel_matrices(KernelChoice("none", kernel, 0.3), A, B)
    np.testing.assert_allclose(K, form(A, A, gamma=0.3), atol=1e-12)
    np.testing.assert_allclose(K_test, form(B, A, gamma=0.3), atol=1e-12)


@pytest.mark.parametrize("loss", ["apportioned", "pairwise", "lee-lin-wahba"])
def test_held_out_scores_decide_as_the_machine_does(iris, loss):
    X, y = StandardScaler().fit_transform(iris[0]), np.unique(iris[1], return_inverse=True)[1]
    costs = check_costs([1, 1, 5], np.arange(3))
    train, test = next(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    choice = LossChoice(loss, 0.0, 1.0)
    scores = held_out_scores(
        KernelChoice("none", "rbf", 0.2),
        [choice],
        np.array([2.0]),
        costs,
        X[train],
        y[train],
        np.ones(len(train)),
        X[test],
    )
    machine = ApportionedSVC([1, 1, 5], loss=loss, margin_power=0, slack_power=1, gamma=0.2, C=2).fit(
        X[train], y[train]
    )
    assert np.mean(scores[0, 0].argmax(axis=1) == machine.predict(X[test])) > 0.95


# ---------------------------------------------------------------- calibration


def test_temperature_is_the_best_of_a_fine_grid():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    scores, weight = 3 * np.eye(3)[y] + 2 * rng.normal(size=(200, 3)), rng.uniform(0.5, 2, size=200)

    def loss(a):
        z = a * scores
        return float(weight @ (np.log(np.exp(z).sum(axis=1)) - z[np.arange(200), y]) / weight.sum())

    a, least = temperature(scores, y, weight)
    assert least == pytest.approx(loss(a))
    assert least <= min(loss(t) for t in np.geomspace(0.01, 10, 200)) * 1.02


def test_calibration_recovers_probabilities_and_trusts_the_machine_without_data():
    rng = np.random.default_rng(0)
    S, theta = rng.normal(size=(20_000, 3)), np.array([1.0, 5.0, 2.0])
    logits = 2 * S + [0.0, 1.0, -1.0] - np.log(theta)
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (P.cumsum(axis=1) < rng.uniform(size=(len(S), 1))).sum(axis=1)
    np.testing.assert_allclose(calibrate(S, y, np.ones(len(S)), theta)(S), P, atol=0.03)
    nothing = calibrate(S[:3], y[:3], np.full(3, 1e-9), theta)(S)
    costs = check_costs(theta, np.arange(3))
    np.testing.assert_array_equal(decide(nothing, costs), S.argmax(axis=1))


def test_decisions_are_those_of_least_expected_cost():
    rng = np.random.default_rng(0)
    P, matrix = rng.dirichlet(np.ones(4), size=50), rng.uniform(1, 9, size=(4, 4)) * (1 - np.eye(4))
    expected = [min(range(4), key=lambda j: sum(p[c] * matrix[c, j] for c in range(4))) for p in P]
    assert decide(P, check_costs(matrix, np.arange(4))).tolist() == expected


# ---------------------------------------------------------------- the estimator


def test_predictions_are_the_bayes_rule_on_the_average(fitted, iris):
    X, _ = iris
    P = fitted.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    costs = check_costs(fitted.costs_, fitted.classes_)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[decide(P, costs)])
    assert fitted.dual_gap_ <= 1e-3
    assert len(fitted.machines_) == 3
    assert (
        fitted.best_params_
        == fitted.cv_results_["params"][int(np.argmin(fitted.cv_results_["rank_criterion"]))]
    )


def test_held_out_probabilities_are_of_rows_not_seen(fitted, iris):
    _, y = iris
    assert fitted.held_out_proba_.shape == (150, 3)
    assert fitted.held_out_rows_.tolist() == list(range(150))
    costs = check_costs(fitted.costs_, fitted.classes_)
    decided = fitted.classes_[decide(fitted.held_out_proba_, costs)]
    assert fitted.best_cost_ == pytest.approx(expected_cost(y, decided, costs=fitted.costs))


def test_results_read_as_those_of_scikit_learn(fitted):
    results = fitted.cv_results_
    n = len(results["params"])
    splits = np.array([results[f"split{s}_test_score"] for s in range(5)])
    np.testing.assert_allclose(results["mean_test_score"], splits.mean(axis=0))
    assert np.all(results["mean_test_score"] <= 0)
    assert {len(v) for v in results.values()} == {n}
    assert fitted.best_score_ == results["mean_test_score"][fitted.best_index_]
    assert results["params"][fitted.best_index_] == fitted.best_params_
    best = results["rank_test_score"] == 1
    assert np.all(results["mean_test_score"][best] == results["mean_test_score"].max()) and best.any()
    names = "fit_time", "score_time", "test_score"
    assert {f"{what}_{name}" for what in ("mean", "std") for name in names} <= results.keys()
    assert np.all(results["mean_fit_time"] > 0)
    assert {p["loss"] for p in results["params"]} == {"apportioned", "pairwise", "lee-lin-wahba"}
    assert results["param_C"].tolist() == [p["C"] for p in results["params"]]


def test_equal_data_give_equal_machines_with_any_number_of_jobs(iris):
    X, y = iris
    one = ApportionedSVCCV([1, 1, 5], **SMALL).fit(X, y).predict_proba(X)
    two = ApportionedSVCCV([1, 1, 5], n_jobs=2, **SMALL).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])  # ray's is a multiprocessing backend
def test_any_backend_of_joblib_serves(iris, backend):
    X, y = iris
    small = {**SMALL, "losses": ("apportioned",), "kernels": ("linear",)}
    one = ApportionedSVCCV([1, 1, 5], **small).fit(X, y)
    with parallel_config(backend, n_jobs=2):
        two = ApportionedSVCCV([1, 1, 5], **small).fit(X, y)
    np.testing.assert_array_equal(one.held_out_proba_, two.held_out_proba_)


def test_it_costs_less_than_the_untuned_machine():
    X, y = load_breast_cancer(return_X_y=True)
    A, B, a, b = train_test_split(X, y, stratify=y, random_state=0, test_size=0.5)
    costs = {0: 10, 1: 1}
    tuned = ApportionedSVCCV(costs, kernels=("rbf", "linear")).fit(A, a)
    scale = StandardScaler().fit(A)
    plain = ApportionedSVC(costs).fit(scale.transform(A), a)
    ours = expected_cost(b, tuned.predict(B), costs=costs)
    assert ours < expected_cost(b, plain.predict(scale.transform(B)), costs=costs)


def test_reapportion_decides_anew_with_the_same_probabilities(fitted, iris):
    X, _ = iris
    other = fitted.reapportion({"setosa": 1, "versicolor": 50, "virginica": 1})
    np.testing.assert_array_equal(other.predict_proba(X), fitted.predict_proba(X))
    assert (other.predict(X) == "versicolor").sum() > (fitted.predict(X) == "versicolor").sum()
    np.testing.assert_array_equal(fitted.reapportion(fitted.costs).predict(X), fitted.predict(X))


def test_a_cost_matrix_enters_the_decision(iris):
    X, y = iris
    matrix = np.array([[0, 1, 1], [1, 0, 40], [1, 1, 0]])
    machine = ApportionedSVCCV(matrix, **SMALL).fit(X, y)
    errors = (y == "versicolor") & (machine.predict(X) == "virginica")
    assert errors.sum() == 0
    np.testing.assert_array_equal(
        machine.predict(X), machine.classes_[np.argmin(machine.predict_proba(X) @ matrix, axis=1)]
    )


def test_sparse_data_have_linear_candidates(iris):
    X, y = iris
    machine = ApportionedSVCCV([1, 1, 5], Cs=(0.1, 1, 10)).fit(sparse.csr_matrix(X), y)
    assert {p["scaling"] for p in machine.cv_results_["params"]} == {"standard"}
    assert {p["kernel"] for p in machine.cv_results_["params"]} == {"linear"}
    assert np.mean(machine.predict(sparse.csr_matrix(X)) == y) > 0.9


def test_weights_count_and_rows_without_weight_are_not_there(iris):
    X, y = iris
    weight = np.ones(150)
    weight[y == "setosa"] = 0
    machine = ApportionedSVCCV({"versicolor": 1, "virginica": 5}, **SMALL).fit(X, y, sample_weight=weight)
    assert machine.classes_.tolist() == ["versicolor", "virginica"]
    assert machine.held_out_rows_.tolist() == list(range(50, 150))
    np.testing.assert_array_equal(
        machine.predict(X[50:]), ApportionedSVCCV([1, 5], **SMALL).fit(X[50:], y[50:]).predict(X[50:])
    )


def test_a_sample_is_searched_and_all_rows_are_fitted(monkeypatch):
    monkeypatch.setattr(tuning, "SEARCH_ROWS", 200)
    X, y = make_classification(600, 6, random_state=0)
    machine = ApportionedSVCCV([1, 5], **SMALL).fit(X, y)
    assert len(machine.held_out_rows_) == 200
    assert max(m[-1].support_.max() for m in machine.machines_) > 300
    assert np.mean(machine.predict(X) == y) > 0.7


@pytest.mark.parametrize("size", [19, 20, 21, 22, 30])
def test_a_sample_may_leave_out_as_little_as_one_row(size):
    y = np.append(np.arange(20) % 3, 7)  # and a class of one row
    rows = stratified(y, size, 0)
    assert len(np.unique(rows)) == len(rows) and (len(rows) == 21 or len(rows) == size)


def test_a_fit_on_one_row_more_than_is_searched(iris, monkeypatch):
    monkeypatch.setattr(tuning, "SEARCH_ROWS", len(iris[1]) - 1)
    machine = ApportionedSVCCV(kernels=("linear",), Cs=(1.0,), losses=("apportioned",)).fit(*iris)
    assert len(machine.held_out_rows_) == len(iris[1])


def test_too_many_rows_for_kernels_have_nystroem_features_and_it_says_so(monkeypatch):
    monkeypatch.setattr(candidates, "KERNEL_ROWS", 300)
    monkeypatch.setattr(candidates, "COMPONENTS", 40)
    X, y = make_classification(400, 6, random_state=0)
    with pytest.warns(UserWarning, match="Nystroem"):
        machine = ApportionedSVCCV([1, 5], **SMALL).fit(X, y)
    assert [type(step).__name__ for _, step in machine.machines_[0].steps[1:]] == [
        "Nystroem",
        "ApportionedLinearSVC",
    ]
    assert machine.predict(X).shape == (400,)
    with config_context(transform_output="pandas"), pytest.warns(UserWarning, match="Nystroem"):
        other = ApportionedSVCCV([1, 5], **SMALL).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(other.predict_proba(X), machine.predict_proba(X))


def test_scalings_are_learned_from_rows_by_their_weights(iris, monkeypatch):
    X, y = iris[0] + 1e-6 * np.arange(len(iris[1]))[:, None], iris[1]  # no two rows are equal
    weight = np.random.default_rng(0).uniform(0.1, 2, len(y))
    given = []

    def spy(scaling, X, y, weight):
        given.append((X, weight))
        return fitted_scaler(scaling, X, y, weight)

    monkeypatch.setattr(candidates, "fitted_scaler", spy)
    machine = ApportionedSVCCV([1, 1, 5], **SMALL).fit(X, y, weight)
    assert len(given) == machine.n_splits_ + 1  # each fold, and all rows
    of_row = dict(zip(map(bytes, X), weight / weight.mean(), strict=True))
    for rows, weights in given:
        np.testing.assert_allclose(weights, [of_row[bytes(row)] for row in rows])


def test_time_is_kept_and_what_was_found_is_used(iris):
    X, y = iris
    start = time.monotonic()
    machine = ApportionedSVCCV([1, 1, 5], max_time=1e-6).fit(X, y)
    spent = time.monotonic() - start
    assert len(machine.machines_) == 1
    assert len({(p["kernel"], p["gamma"], p["scaling"]) for p in machine.cv_results_["params"]}) == 1
    full = ApportionedSVCCV([1, 1, 5]).fit(X, y)
    assert spent < time.monotonic() - start
    assert len(full.machines_) == 30


def test_a_race_that_is_cut_short_leaves_time_for_its_winners(iris, monkeypatch):
    """By the clock of this test a task takes a second: of ten seconds more than one kernel is made the best of."""
    now = [0.0]
    monkeypatch.setattr(candidates.time, "monotonic", lambda: now[0])

    def scores(kernel, losses, Cs, costs, train, y, weight, test):
        now[0] += 1
        return np.zeros((len(losses), len(Cs), test.shape[0], 3), np.float32)

    monkeypatch.setattr(candidates, "held_out_scores", scores)
    y = np.unique(iris[1], return_inverse=True)[1]
    clock = candidates.Clock(ApportionedSVCCV(), 0.0, candidates.n_tasks(27, 5))
    splits = list(StratifiedKFold(5).split(iris[0], y))
    costs = check_costs([1, 1, 5], np.arange(3))
    search = candidates.Search(costs, iris[0], y, np.ones(150), splits, 1, clock)
    kernels = {KernelChoice("none", "rbf", float(g)): np.array([1.0]) for g in range(27)}
    search.run(kernels, [LossChoice("apportioned", 1.0, 0.0)], 40.0)
    assert len(search.found) == 6  # 12 of 27 kernels in 23 s, 6 of these on three folds more
    assert 40 <= now[0] <= 42


def test_where_a_machine_of_all_rows_takes_too_long_those_searched_have_to_do(monkeypatch):
    X, y = make_classification(5000, 20, flip_y=0.1, random_state=0)
    some = {"kernels": ("rbf",), "gammas": (0.05,), "Cs": (1,), "powers": ((0, 1),), "scaling": "standard"}
    watch = CallbackContext._watch
    monkeypatch.setattr(  # the time is up after the first round
        CallbackContext,
        "_watch",
        lambda self, *told: watch(self, *told) or self.estimator._deadline is not None,
    )
    monkeypatch.setattr(candidates, "time", SimpleNamespace(monotonic=lambda: 0.0))
    now = itertools.count()
    monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with pytest.warns(
        UserWarning, match="max_time=2 is too short for a machine on all 5000 rows: .* the 2000 rows"
    ):
        machine = ApportionedSVCCV([1, 5], max_time=2, **some).fit(X, y)
    few = ApportionedSVCCV([1, 5], **some).fit(X, y).machines_[0][-1]
    only = machine.machines_[0][-1]
    assert only.support_.max() < 2000 and only.dual_gap_ <= few.tol and "_deadline" not in vars(only)
    assert np.mean(machine.predict(X) == y) > 0.7


def test_folds_are_scaled_when_they_are_needed(iris, monkeypatch):
    """Learning weights takes time: for no fold after the deadline, and for no more of them than a kernel is tried on."""
    learned = []
    monkeypatch.setattr(
        "apportion.scalings.relevance",
        lambda X, y, weight: learned.append(len(y)) or np.full(X.shape[1], 1e6),
    )
    some = {**SMALL, "scaling": ("standard", "relevance"), "gammas": (0.2,)}
    ApportionedSVCCV(max_time=1e-6, **some).fit(*iris)
    assert learned == []
    # rows a million times as far apart tell nothing: these kernels are dropped after two folds
    some = {**SMALL, "scaling": ("relevance", "standard"), "gammas": (0.05, 0.2, 0.8)}
    ApportionedSVCCV(refit=False, **some).fit(*iris)
    assert learned == [120, 120]


def test_progress_counts_every_task(iris):
    seen = []
    machine = ApportionedSVCCV([1, 1, 5], **SMALL)
    machine._progress = lambda done, total: seen.append((done, total))
    machine.fit(*iris)
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert (
        len({total for _, total in seen}) == 1
    )  # the machines of pairs and the last fits are counted from the start
    assert seen[-1][0] == seen[-1][1]


def test_progress_of_a_search_that_is_cut_short_comes_to_its_end_once(iris):
    for limit in (1e-6, 0.5):
        seen = []
        machine = ApportionedSVCCV([1, 1, 5], max_time=limit)
        machine._progress = lambda done, total, seen=seen: seen.append((done, total))
        machine.fit(*iris)
        assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
        totals = [total for _, total in seen]
        assert totals == sorted(totals, reverse=True)
        assert [done == total for done, total in seen] == [False] * (len(seen) - 1) + [True]


def test_verbose_says_how_long_it_will_take(iris, capsys):
    ApportionedSVCCV(verbose=1, **SMALL).fit(*iris)
    assert "s left" in capsys.readouterr().out


def test_a_search_without_refit_has_results_and_no_predictions(iris):
    machine = ApportionedSVCCV(refit=False, **SMALL).fit(*iris)
    assert machine.cv_results_["params"]
    with pytest.raises(ValueError, match="refit=False"):
        machine.predict(iris[0])


def test_an_interrupted_fit_leaves_the_estimator_as_it_was(fitted, iris):
    machine = clone(fitted)
    machine.fit(*iris)
    before = dict(vars(machine))

    def stop(done, total):
        raise KeyboardInterrupt

    machine._progress = stop
    with pytest.raises(KeyboardInterrupt):
        machine.fit(*iris)
    assert vars(machine).keys() - {"_progress"} == before.keys()
    assert machine.machines_ is before["machines_"]


def test_it_may_be_searched_over_itself(iris):
    search = GridSearchCV(ApportionedSVCCV([1, 1, 5], **SMALL), {"n_machines": [1, 2]}, cv=2).fit(*iris)
    assert search.best_params_["n_machines"] in (1, 2)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kernels": ("cubic",)}, "kernels=.*allowed"),
        ({"kernels": ()}, "kernels="),
        ({"kernels": "rbf"}, "kernels='rbf'.*tuple"),
        ({"losses": ("hinge",)}, "losses="),
        ({"scaling": "log"}, "scaling='log'"),
        ({"Cs": (1, -1)}, "Cs="),
        ({"Cs": ()}, "Cs="),
        ({"gammas": [0]}, "gammas="),
        ({"gammas": {"rbf": [1]}}, "gammas=.*'laplacian'"),
        ({"powers": (1, 0)}, "powers="),
        ({"powers": [("a", 1)]}, "powers="),
        ({"n_machines": 0}, "n_machines=0"),
        ({"n_machines": "few"}, "n_machines='few'"),
        ({"max_time": 0}, "max_time=0"),
        ({"cv": 1}, "cv=1"),
        ({"cv": [([0, 1], [2]), ([0, 2], [1])]}, "cv="),
        ({"costs": [1, 2]}, "costs"),
        ({"costs": "unfair"}, "costs='unfair'"),
    ],
)
def test_bad_parameters_are_named(iris, params, message):
    with pytest.raises(ValueError, match=message):
        ApportionedSVCCV(**params).fit(*iris)


@pytest.mark.parametrize("costs", [np.array([1.0, 2.0, 5.0]), np.array([[0, 1, 2], [3, 0, 1], [4, 5, 0]])])
def test_the_units_of_costs_and_weights_do_not_matter(iris, costs):
    X, y = iris
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    plain = ApportionedSVCCV(costs, **SMALL).fit(X, y, sample_weight=weight)
    other = ApportionedSVCCV(1e6 * costs, **SMALL).fit(X, y, sample_weight=1e-6 * weight)
    np.testing.assert_allclose(other.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    assert other.best_cost_ == pytest.approx(1e6 * plain.best_cost_)
    for name in ("mean_test_score", "criterion"):
        np.testing.assert_allclose(other.cv_results_[name], 1e6 * plain.cv_results_[name], rtol=1e-6)


def test_splits_are_of_the_rows_that_were_given(iris, monkeypatch):
    """Not of those that are left when rows without weight are dropped, or of the sample that is searched."""
    X, y = iris
    folds = np.arange(len(y)) % 3
    weight = np.where(np.arange(len(y)) % 10 == 9, 0.0, 1.0)
    kept = weight > 0
    some = ApportionedSVCCV(**SMALL, cv=PredefinedSplit(folds)).fit(X, y, sample_weight=weight)
    only = ApportionedSVCCV(**SMALL, cv=PredefinedSplit(folds[kept])).fit(X[kept], y[kept])
    np.testing.assert_array_equal(some.held_out_rows_, np.flatnonzero(kept))
    np.testing.assert_array_equal(some.held_out_proba_, only.held_out_proba_)
    monkeypatch.setattr(tuning, "SEARCH_ROWS", 90)
    sampled = ApportionedSVCCV(**SMALL, cv=list(PredefinedSplit(folds).split())).fit(X, y)
    assert len(sampled.held_out_rows_) == 90 and sampled.n_splits_ == 3


def test_a_machine_far_from_its_optimum_is_told(iris):
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    with pytest.warns(ConvergenceWarning, match="relative duality gap"):
        ApportionedSVCCV(kernels=("linear",), Cs=(100.0,), scaling="none").fit(sparse.csr_matrix(1e5 * X), y)


def test_reapportion_tells_what_its_decisions_cost(iris):
    machine = ApportionedSVCCV([1, 1, 1], **SMALL).fit(*iris)
    other = machine.reapportion([1, 1, 50])
    found = check_costs([1, 1, 50], machine.classes_)
    truth = np.searchsorted(machine.classes_, iris[1][machine.held_out_rows_])
    decided = np.argmax(machine.held_out_proba_ * [1, 1, 50], axis=1)
    assert other.best_cost_ == pytest.approx(found.matrix[truth, decided].mean())
    assert machine.best_cost_ != other.best_cost_


def test_sparse_rows_for_a_machine_of_dense_ones(fitted, iris):
    with pytest.raises(TypeError, match="dense data is required"):
        fitted.predict(sparse.csr_matrix(iris[0]))


def test_one_class_is_not_enough(iris):
    with pytest.raises(ValueError, match="at least 2 classes"):
        ApportionedSVCCV(**SMALL).fit(iris[0], ["a"] * 150)


def test_tables_of_the_search_are_the_losses_own():
    costs = check_costs([1.0, 2.0, 5.0], np.arange(3))
    ours, theirs = (
        LossChoice("pairwise", 0.5, 0.5).table(costs),
        loss_table("pairwise", costs, margin_power=0.5, slack_power=0.5),
    )
    np.testing.assert_array_equal(ours.margins, theirs.margins)
    np.testing.assert_array_equal(ours.weights, theirs.weights)


@parametrize_with_checks([ApportionedSVCCV(Cs=(1,), gammas=(0.5,), powers=((0, 1),), n_machines=2, cv=2)])
def test_estimator_checks(estimator, check):
    check(estimator)


def test_each_row_with_a_class_of_its_own_is_refused():
    with pytest.raises(
        ValueError, match="y has a class of its own for each of the 3 rows that count, and cv="
    ):
        ApportionedSVCCV().fit(np.eye(3), [0, 1, 2])


def test_a_fold_without_a_row_to_train_on_is_refused(iris):
    X, y = iris
    weight = np.ones(len(y))
    weight[::2] = 0
    with pytest.raises(ValueError, match="leaves a fold no row to train on"):
        ApportionedSVCCV(cv=PredefinedSplit(np.arange(len(y)) % 2), **SMALL).fit(X, y, weight)


def test_what_the_user_has_set_for_transformers_changes_nothing(iris):
    X, y = iris[0][::2], iris[1][::2]
    some = {**SMALL, "scaling": ("standard", "quantile", "relevance"), "n_machines": 8}
    expected = ApportionedSVCCV(**some).fit(X, y).predict_proba(X)
    with config_context(transform_output="pandas"):
        np.testing.assert_array_equal(ApportionedSVCCV(**some).fit(X, y).predict_proba(X), expected)


def test_copies_of_the_data_go_with_the_search(iris, monkeypatch):
    searches = []
    monkeypatch.setattr(
        tuning, "Search", lambda *given: searches.append(candidates.Search(*given)) or searches[-1]
    )
    kept = []
    choose = ApportionedSVCCV._choose
    monkeypatch.setattr(
        ApportionedSVCCV, "_choose", lambda *given: kept.append(len(searches[0].scaled)) or choose(*given)
    )
    ApportionedSVCCV(**SMALL).fit(*iris)
    assert kept == [0]
