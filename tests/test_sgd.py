"""ApportionedSGDClassifier as a user meets it: near the exact machine, in pieces, stopped early, and what it refuses."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from apportion import ApportionedLinearSVC, ApportionedSGDClassifier, cost_scorer, expected_cost
from apportion.costs import check_costs
from apportion.losses import LOSSES, loss_table

COSTS = {"a": 5, "b": 1, "c": 2}


def table(n=3000, seed=0):
    X, y = make_classification(
        n, 10, n_informative=6, n_classes=3, class_sep=1.5, flip_y=0.05, random_state=seed
    )
    return StandardScaler().fit_transform(X), np.array(["a", "b", "c"])[y]


@pytest.mark.parametrize("loss", LOSSES)
def test_near_the_exact_machine_and_certified(loss):
    X, y = table()
    exact = ApportionedLinearSVC(COSTS, loss=loss, C=0.01, tol=1e-5, max_iter=10_000).fit(X, y)
    machine = ApportionedSGDClassifier(COSTS, loss=loss, C=0.01, max_iter=100, random_state=0).fit(X, y)
    assert exact.objective_ * (1 - 1e-5) <= machine.objective_ <= 1.01 * exact.objective_
    assert (machine.objective_ - exact.objective_) / machine.objective_ <= machine.dual_gap_ < 0.05
    assert np.mean(machine.predict(X) == exact.predict(X)) > 0.97
    assert machine.n_iter_ == 100 and machine.t_ == 100 * len(y)


@pytest.mark.parametrize(
    "settings", [{"batch_size": 16}, {"projection": True}, {"delay": 0}, {"intercept": "none"}]
)
def test_every_setting_comes_near(settings):
    X, y = table()
    intercept = {key: settings[key] for key in settings if key == "intercept"}
    exact = ApportionedLinearSVC(COSTS, C=0.01, tol=1e-4, **intercept).fit(X, y)
    machine = ApportionedSGDClassifier(COSTS, C=0.01, max_iter=50, random_state=0, **settings).fit(X, y)
    assert machine.objective_ <= 1.02 * exact.objective_ and machine.dual_gap_ < 0.1


def test_the_average_is_nearer_than_the_last():
    X, y = table()
    last, mean = (
        ApportionedSGDClassifier(COSTS, C=0.1, max_iter=5, average=average, random_state=0).fit(X, y)
        for average in (False, True)
    )
    assert mean.objective_ < last.objective_


def test_a_full_cost_matrix_and_a_table_of_ones_own():
    X, y = table()
    matrix = [[0, 5, 1], [1, 0, 1], [2, 9, 0]]
    exact = ApportionedLinearSVC(matrix, loss="lee-lin-wahba", C=0.01).fit(X, y)
    machine = ApportionedSGDClassifier(matrix, loss="lee-lin-wahba", C=0.01, random_state=0).fit(X, y)
    assert machine.objective_ <= 1.02 * exact.objective_ and machine.costs_.shape == (3, 3)
    own = loss_table("reinforced", check_costs([5, 1, 2], ["a", "b", "c"]))
    by_name = ApportionedSGDClassifier(COSTS, loss="reinforced", C=0.01, random_state=0).fit(X, y)
    by_table = ApportionedSGDClassifier(COSTS, loss=own, C=0.01, random_state=0).fit(X, y)
    assert np.array_equal(by_name.coef_, by_table.coef_)


def test_sparse_and_dense_agree():
    X, y = table()
    X = np.where(np.abs(X) > 0.7, X, 0)
    dense = ApportionedSGDClassifier(COSTS, C=0.01, max_iter=3, random_state=0).fit(X, y)
    for form in (sparse.csr_matrix(X), sparse.csc_array(X)):
        machine = ApportionedSGDClassifier(COSTS, C=0.01, max_iter=3, random_state=0).fit(form, y)
        assert np.allclose(machine.coef_, dense.coef_, rtol=1e-8, atol=1e-10)
        assert np.array_equal(machine.predict(form), dense.predict(X))


def test_weights_are_repetitions_in_the_objective():
    X, y = table(2000)
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    often = np.repeat(np.arange(len(y)), weight)
    weighted = ApportionedSGDClassifier(COSTS, C=0.01, max_iter=60, random_state=0).fit(X, y, weight)
    repeated = ApportionedSGDClassifier(COSTS, C=0.01, max_iter=60, random_state=0).fit(X[often], y[often])
    assert np.isclose(weighted.objective_, repeated.objective_, rtol=0.01)
    assert np.mean(weighted.predict(X) == repeated.predict(X)) > 0.97
    few, some = np.arange(200), weight[:200]  # few examples: exactly
    a = ApportionedSGDClassifier(COSTS, random_state=0).fit(X[few], y[few], some)
    b = ApportionedSGDClassifier(COSTS, random_state=0).fit(
        np.repeat(X[few], some, 0), np.repeat(y[few], some)
    )
    assert np.allclose(a.coef_, b.coef_, rtol=1e-12)


def test_equal_seeds_equal_machines():
    X, y = table()
    fits = [
        ApportionedSGDClassifier(COSTS, C=0.1, max_iter=2, random_state=seed).fit(X, y) for seed in (1, 1, 2)
    ]
    assert np.array_equal(fits[0].coef_, fits[1].coef_) and not np.array_equal(fits[0].coef_, fits[2].coef_)


# ---------------------------------------------------------------- in pieces


def test_one_piece_is_one_pass():
    X, y = table()
    whole = ApportionedSGDClassifier(COSTS, C=0.1, max_iter=1, random_state=0).fit(X, y)
    piece = ApportionedSGDClassifier(COSTS, C=0.1, random_state=0).partial_fit(X, y, ["a", "b", "c"])
    assert np.array_equal(whole.coef_, piece.coef_) and np.array_equal(whole.intercept_, piece.intercept_)
    assert piece.n_iter_ == 1 and piece.t_ == len(y) and not hasattr(piece, "dual_gap_")


def test_pieces_come_near_the_exact_machine():
    X, y = table()
    exact = ApportionedLinearSVC(COSTS, C=0.01).fit(X, y)
    machine = ApportionedSGDClassifier(COSTS, C=0.01, n_total=len(y), random_state=0)
    for _ in range(20):
        for part in np.array_split(np.arange(len(y)), 7):
            machine.partial_fit(X[part], y[part], classes=list(COSTS))
    assert machine.n_iter_ == 140 and machine.t_ == 20 * len(y)
    assert np.mean(machine.predict(X) == exact.predict(X)) > 0.97
    gap = np.linalg.norm(machine.coef_ - exact.coef_) / np.linalg.norm(exact.coef_)
    assert gap < 0.1


def test_a_piece_without_some_class_and_after_a_fit():
    X, y = table()
    only = y == "b"
    machine = ApportionedSGDClassifier(COSTS, C=0.01, random_state=0).partial_fit(
        X[only], y[only], list(COSTS)
    )
    assert set(machine.predict(X)) <= set(COSTS) and machine.class_weight_total_.tolist() == [
        0,
        only.sum(),
        0,
    ]
    fitted = ApportionedSGDClassifier(COSTS, C=0.01, max_iter=2, random_state=0).fit(X, y)
    assert hasattr(fitted, "dual_gap_")
    fitted.partial_fit(X, y)
    thrice = ApportionedSGDClassifier(COSTS, C=0.01, max_iter=3, random_state=0).fit(X, y)
    assert np.array_equal(fitted.coef_, thrice.coef_)
    assert not hasattr(fitted, "dual_gap_")  # it was that of another machine


def test_a_piece_changes_no_other_machine():
    """Two classes, pairwise: one output, whose weights must not be shared with the machine of other costs."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 3)), np.arange(200) % 2
    machine = ApportionedSGDClassifier(loss="pairwise", n_total=400).partial_fit(X, y, classes=[0, 1])
    other = machine.reapportion([1, 10])
    before = other._steps["V"].copy(), machine._steps["V"]
    machine.partial_fit(X + 1, y)
    np.testing.assert_array_equal(other._steps["V"], before[0])
    assert np.any(machine._steps["V"] != before[0])


def test_dense_and_sparse_pieces_mix():
    X, y = table(600)
    a = ApportionedSGDClassifier(COSTS, C=0.01, random_state=0).partial_fit(X[:300], y[:300], list(COSTS))
    b = clone(a).partial_fit(X[:300], y[:300], list(COSTS))
    a.partial_fit(X[300:], y[300:])
    b.partial_fit(sparse.csr_array(X[300:]), y[300:])
    assert np.allclose(a.coef_, b.coef_, rtol=1e-9)


# ---------------------------------------------------------------- early stopping, tools


def test_early_stopping_keeps_the_cheapest_machine():
    X, y = table()
    machine = ApportionedSGDClassifier(
        COSTS, loss="one-vs-rest", C=1.0, max_iter=60, early_stopping=True, n_iter_no_change=2, random_state=0
    ).fit(X, y)
    costs = machine.validation_costs_
    assert len(costs) == machine.n_iter_ < 60
    assert costs.argmin() == len(costs) - 3  # two passes without a smaller one
    # the machine kept is that of the best pass: a run that ends there is the same
    short = clone(machine).set_params(max_iter=int(costs.argmin()) + 1).fit(X, y)
    assert np.array_equal(short.coef_, machine.coef_)
    held = sum(np.ceil(0.1 * np.sum(y == name)) for name in COSTS)
    assert machine.t_ == machine.n_iter_ * (len(y) - held)


def test_validation_cost_is_the_expected_cost():
    """Of every class the share, rounded up, and the decisions of the machine as it is."""
    X, y = table(400)
    machine = ApportionedSGDClassifier(
        COSTS, C=0.1, max_iter=1, early_stopping=True, validation_fraction=0.25, random_state=7
    )
    held = {}
    original = ApportionedSGDClassifier._held_out

    def spy(self, labels, draw):
        held["rows"] = original(self, labels, draw)
        return held["rows"]

    machine._held_out = spy.__get__(machine)
    machine.fit(X, y)
    order = np.lexsort((*X.T[::-1], np.unique(y, return_inverse=True)[1]))  # few examples are sorted
    out = order[held["rows"][1]]
    assert np.isclose(
        machine.validation_costs_[0], expected_cost(y[out], machine.predict(X[out]), costs=COSTS)
    )
    for name in COSTS:
        assert np.sum(y[out] == name) == np.ceil(0.25 * np.sum(y == name))


def test_in_a_search_and_a_pipeline():
    X, y = table(800)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), ApportionedSGDClassifier(COSTS, random_state=0)),
        {"apportionedsgdclassifier__C": [1e-3, 1e-1]},
        scoring=cost_scorer(COSTS),
        cv=3,
    ).fit(X, y)
    assert -search.best_score_ < 0.6
    machine = search.best_estimator_[-1]
    cheap = machine.reapportion({"a": 1, "b": 1, "c": 1})
    assert cheap.predict(X).tolist() != machine.predict(X).tolist()


def test_balanced_costs_and_one_cost_a_class():
    X, y = table()
    keep = (y != "a") | (np.arange(len(y)) % 5 == 0)
    machine = ApportionedSGDClassifier("balanced", C=0.01, random_state=0).fit(X[keep], y[keep])
    counts = np.unique(y[keep], return_counts=True)[1]
    assert np.allclose(machine.costs_, keep.sum() / (3 * counts))


def test_verbose_says_how_the_gap_falls(capsys):
    X, y = table(500)
    machine = ApportionedSGDClassifier(COSTS, C=0.1, max_iter=3, verbose=1, random_state=0).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[2].endswith(f"gap {machine.dual_gap_:.2e}")


# ---------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"C": 0}, r"C=0 must be a number > 0\."),
        ({"C": np.inf}, r"C=inf must be a number > 0\."),
        ({"intercept": "free"}, r"intercept='free' is not known; allowed: 'penalized', 'none'\."),
        ({"max_iter": 0}, r"max_iter=0 must be an integer >= 1\."),
        ({"batch_size": 2.5}, r"batch_size=2\.5 must be an integer >= 1\."),
        ({"delay": "long"}, r"delay='long' is not known; allowed: 'auto' or a number >= 0\."),
        ({"delay": -1}, r"delay=-1 must be a number >= 0\."),
        ({"validation_fraction": 1.5}, r"validation_fraction=1\.5 must lie between 0 and 1\."),
        ({"average": "yes"}, r"average='yes' must be True or False\."),
        ({"projection": 1}, r"projection=1 must be True or False\."),
        ({"n_total": 0}, r"n_total=0 must be an integer >= 1\."),
        ({"n_iter_no_change": 0}, r"n_iter_no_change=0 must be an integer >= 1\."),
        ({"costs": {"a": 1, "b": 2}}, "costs has no key for the class 'c'"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    X, y = table(60)
    with pytest.raises(ValueError, match=message):
        ApportionedSGDClassifier(**settings).fit(X, y)
    with pytest.raises(ValueError, match=message):
        ApportionedSGDClassifier(**settings).partial_fit(X, y, ["a", "b", "c"])


def test_bad_pieces_are_named_and_change_nothing():
    X, y = table(60)
    new = ApportionedSGDClassifier(COSTS)
    with pytest.raises(ValueError, match="classes must be given in the first call of partial_fit"):
        new.partial_fit(X, y)
    assert not hasattr(new, "classes_") and not hasattr(new, "_steps")
    with pytest.raises(ValueError, match="costs='balanced' needs to know how many"):
        ApportionedSGDClassifier("balanced").partial_fit(X, y, ["a", "b", "c"])
    with pytest.raises(ValueError, match="needs at least 2 classes"):
        ApportionedSGDClassifier().partial_fit(X, y, ["a"])
    machine = ApportionedSGDClassifier(COSTS, random_state=0).partial_fit(X, y, ["a", "b", "c"])
    before = machine.coef_.copy()
    with pytest.raises(ValueError, match=r"y holds 'd', which is not among the classes \['a', 'b', 'c'\]"):
        machine.partial_fit(X, np.where(y == "a", "d", y))
    with pytest.raises(ValueError, match="are not those of the calls before"):
        machine.partial_fit(X, y, ["a", "b"])
    with pytest.raises(ValueError, match="X has 9 features"):
        machine.partial_fit(X[:, :9], y)
    with pytest.raises(ValueError, match="NaN"):
        machine.partial_fit(np.where(X > 1, np.nan, X), y)
    assert np.array_equal(machine.coef_, before) and machine.n_iter_ == 1


def test_nothing_to_hold_out():
    with pytest.raises(ValueError, match="early_stopping=True needs a class with two different examples"):
        ApportionedSGDClassifier(early_stopping=True).fit([[0.0], [1.0]], [0, 1])
