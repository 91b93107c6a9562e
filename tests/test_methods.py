"""The methods of the study: each equals a slow and obvious twin, and all share one search."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from apportion import check_costs, cost_scorer
from apportion.scalings import fitted_scaler
from apportion.study import rivals
from apportion.study.methods import METHODS, find_method
from apportion.study.problem import Problem

SLOW = ("apportioned", "forest", "boosting")


def data(k=3, n=120, seed=0):
    X, y = make_classification(
        n, 5, n_informative=4, n_redundant=0, n_classes=k, class_sep=1.5, flip_y=0.05, random_state=seed
    )
    return X * [1, 10, 1, 0.1, 1] + 3, y  # scales differ: a method that does not standardise shows


def costs_of(k):
    return check_costs([5.0] + [1.0] * (k - 1), range(k))


@pytest.fixture(scope="module", params=[2, 3])
def problem(request):
    X, y = data(request.param)
    return Problem(X[:80], y[:80], seed=1), X[80:], y[80:]


def splits(problem):
    return StratifiedKFold(5, shuffle=True, random_state=1).split(problem.X, problem.y)


def test_csovo_is_a_grid_search_of_svc(problem):
    """The same setting, the same cost and the same decisions as GridSearchCV over a pipeline."""
    problem, X_test, _ = problem
    costs = costs_of(problem.k)
    trained = METHODS["csovo"].train(problem, costs)
    weights = dict(enumerate(costs.theta))
    grid = {"svc__gamma": [w / 5 for w in rivals.WIDTHS["rbf"]], "svc__C": list(rivals.CS)}
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SVC(class_weight=weights)),
        grid,
        scoring=cost_scorer(costs.theta),
        cv=list(splits(problem)),
    ).fit(problem.X, problem.y)
    # the mean over folds of equal size is the mean over rows: 80 rows, 16 a fold
    assert trained.inner_cost == pytest.approx(-search.best_score_)
    chosen = {"svc__gamma": trained.params["width"] / 5, "svc__C": trained.params["C"]}
    place = search.cv_results_["params"].index(chosen)
    assert search.cv_results_["mean_test_score"][place] == pytest.approx(search.best_score_)
    twin = search.estimator.set_params(**chosen).fit(problem.X, problem.y)
    np.testing.assert_array_equal(trained.predict(X_test), twin.predict(X_test))


@pytest.mark.parametrize("kind", ["rbf", "laplacian"])
def test_csova_is_one_vs_rest_of_svc(kind):
    """Our solver with a free intercept gives the machine of OneVsRestClassifier(SVC) with weights by true class."""
    X, y = data(4, n=200)
    costs = check_costs([1.0, 8.0, 2.0, 1.0], range(4))
    part = Problem(X[:120], y[:120]).whole(X[120:])
    K, K_held = part.kernel(kind, 1.0)
    for C in (0.125, 8.0):
        machine = rivals.Apportioned("one-vs-rest", offset=None, tol=1e-6)
        decided, _ = machine(K, K_held, y[:120], costs, C, None)
        scores = np.column_stack(
            [
                SVC(kernel="precomputed", C=C, tol=1e-6)
                .fit(K, y[:120] == c, sample_weight=costs.theta[y[:120]])
                .decision_function(K_held)
                for c in range(4)
            ]
        )
        assert np.mean(decided == scores.argmax(axis=1)) == 1
        with_tolerance, _ = rivals.ONE_VS_REST(K, K_held, y[:120], costs, C, None)  # as the study runs it
        assert np.mean(with_tolerance == decided) > 0.95
    # equal costs: scikit-learn's own class
    equal = check_costs(None, range(4))
    decided, _ = rivals.Apportioned("one-vs-rest", offset=None, tol=1e-6)(
        K, K_held, y[:120], equal, 8.0, None
    )
    own = OneVsRestClassifier(SVC(kernel="precomputed", C=8.0, tol=1e-6)).fit(K, y[:120])
    np.testing.assert_array_equal(decided, own.predict(K_held))


def test_larger_grids_hold_smaller_ones(problem):
    problem, _, _ = problem
    costs = costs_of(problem.k)
    larger = {
        "csovo": "csovo2",
        "csovo2": "csovo3",
        "csova": "csova2",
        "wsvm-kpcm": "wsvm-kpcm2",
        "calibrated": "calibrated2",
    }
    for one, two in larger.items():
        assert METHODS[two].train(problem, costs).inner_cost <= METHODS[one].train(problem, costs).inner_cost


def test_weighed_columns_are_ours_learned_on_the_training_rows():
    X, y = data(3, n=90)
    part = Problem(X[:60], y[:60]).whole(X[60:])
    scale = fitted_scaler("relevance", X[:60], y[:60])
    A, B = scale.transform(X[:60]), scale.transform(X[60:])
    for kind, form in (("rbf", rbf_kernel), ("laplacian", laplacian_kernel)):
        K, K_held = part.kernel(f"{kind} weighed", 0.5)
        np.testing.assert_allclose(K, form(A, gamma=0.5 / X.shape[1]))
        np.testing.assert_allclose(K_held, form(B, A, gamma=0.5 / X.shape[1]))


@pytest.mark.parametrize("name", [name for name in METHODS if name not in SLOW])
def test_every_method_decides_better_than_one_class_for_all(name, problem):
    problem, X_test, y_test = problem
    method = METHODS[name]
    if not method.applies_to(problem.k):
        pytest.skip(f"{name} is for {method.classes} classes")
    costs = costs_of(problem.k)
    trained = method.train(problem, costs)
    decided = trained.predict(X_test)
    assert decided.shape == y_test.shape and set(decided.tolist()) <= set(range(problem.k))
    constant = min(rivals.mean_cost(costs, problem.y, np.full_like(problem.y, c)) for c in range(problem.k))
    assert trained.inner_cost <= constant
    assert rivals.mean_cost(costs, y_test, decided) < 1.2 * constant
    np.testing.assert_array_equal(decided, trained.predict(X_test.copy()))


@pytest.mark.parametrize("name", ["csova2", "logistic", "wsvm-kpcm", "cscs"])
def test_sharing_changes_nothing(name, problem):
    """A problem that served others and other costs gives what a fresh one gives."""
    problem, X_test, _ = problem
    costs = check_costs([1.0] * (problem.k - 1) + [7.0], range(problem.k))
    fresh = Problem(problem.X, problem.y, seed=1)
    shared, alone = METHODS[name].train(problem, costs), METHODS[name].train(fresh, costs)
    assert shared.params == alone.params and shared.inner_cost == alone.inner_cost
    np.testing.assert_array_equal(shared.predict(X_test), alone.predict(X_test))


def test_logistic_with_bayes_rule(problem):
    problem, X_test, _ = problem
    costs = costs_of(problem.k)
    trained = METHODS["logistic"].train(problem, costs)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=trained.params["C"], max_iter=1000))
    P = model.fit(problem.X, problem.y).predict_proba(X_test)
    risk = [[sum(p[y] * costs.matrix[y, j] for y in range(problem.k)) for j in range(problem.k)] for p in P]
    np.testing.assert_array_equal(trained.predict(X_test), np.argmin(risk, axis=1))


@pytest.mark.parametrize("ties", [False, True])
def test_bias_shift_finds_the_best_threshold(ties):
    X, y = data(2, n=100, seed=3)
    X = (X > X.mean(axis=0)).astype(float) if ties else X  # few different rows: equal scores
    problem, costs = Problem(X, y), check_costs([1.0, 4.0], range(2))
    trained = METHODS["bias-shift"].train(problem, costs)
    width, C = trained.params["width"], trained.params["C"]
    score = problem.out_of_fold(
        lambda part: (
            rivals._svc(C)
            .fit(part.kernel("rbf", width)[0], part.y)
            .decision_function(part.kernel("rbf", width)[1])
        )
    )
    every = [rivals.mean_cost(costs, y, (score > t).astype(int)) for t in np.r_[score - 1e-9, score + 1e-9]]
    assert trained.inner_cost == pytest.approx(min(every))
    assert rivals.mean_cost(costs, y, (score > trained.params["threshold"]).astype(int)) == pytest.approx(
        min(every)
    )


def test_typicality_is_low_for_an_outlier():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(30, 2)) * 0.3, [[4.0, 4.0]]])
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    u = rivals.typicality(K)
    assert u[-1] == u.min() and u[-1] < 0.3 and u[:-1].mean() > 0.5
    np.testing.assert_array_equal(rivals.typicality(np.ones((4, 4))), np.ones(4))  # one point, four times


def test_costs_may_be_a_full_matrix():
    X, y = data(3, n=90)
    matrix = np.array([[0, 1, 6.0], [1, 0, 1], [2, 1, 0]])
    problem, costs = Problem(X[:60], y[:60]), check_costs(matrix, range(3))
    for name in ("csovo", "lee-lin-wahba", "logistic", "weston-watkins"):
        trained = METHODS[name].train(problem, costs)
        assert 0 < trained.inner_cost < 2 and len(trained.predict(X[60:])) == 30
    np.testing.assert_array_equal(rivals.class_costs(costs), [3.5, 1, 1.5])


def test_as_a_classifier():
    X, y = data(2)
    names = np.array(["well", "ill"])[y]
    machine = METHODS["csovo"].make(costs={"ill": 5, "well": 1}, random_state=3).fit(X, names)
    assert machine.classes_.tolist() == ["ill", "well"] and set(machine.predict(X)) <= {"ill", "well"}
    assert machine.best_params_["kernel"] == "rbf" and machine.best_cost_ > 0
    again = METHODS["csovo"].make(costs={"ill": 5, "well": 1}, random_state=3).fit(X, names)
    np.testing.assert_array_equal(machine.predict(X), again.predict(X))


@pytest.mark.parametrize("name", ["csovo", "logistic", "bias-shift"])
def test_rows_changed_in_place_are_decided_anew(name):
    X, y = data(2)
    machine = METHODS[name].make(costs=[5, 1]).fit(X[:80], y[:80])
    rows = X[80:].copy()
    before = machine.predict(rows)
    rows[:] = rows[::-1].copy()  # permutation_importance does so
    np.testing.assert_array_equal(machine.predict(rows), before[::-1])
    assert not np.array_equal(before, before[::-1])


def test_methods_say_where_they_do_not_apply():
    X, y = data(3)
    with pytest.raises(ValueError, match="method='bias-shift' needs two classes; y has 3 classes"):
        METHODS["bias-shift"].make().fit(X, y)
    with pytest.raises(ValueError, match="method='svc' is not known; the methods are apportioned, csovo, "):
        find_method("svc")
    assert METHODS["csovo"].applies_to(2) and not METHODS["all-pairs"].applies_to(2)


@pytest.mark.parametrize("name", ["forest", "boosting"])
def test_trees_with_bayes_rule(name, monkeypatch):
    grid = {
        "forest": {"max_features": ("sqrt",), "min_samples_leaf": (2,)},
        "boosting": {"learning_rate": (0.2,), "max_leaf_nodes": (7,), "max_iter": (50,)},
    }[name]
    X, y = data(3, n=90)
    problem, costs = Problem(X[:60], y[:60]), costs_of(3)
    method = rivals.Probabilities(name, grid, getattr(rivals, name))
    trained = method(problem, costs)
    if name == "boosting":
        assert trained.params["max_iter"] in (25, 50)
    P = getattr(rivals, name)(problem.whole(X[60:]), trained.params, problem.seed, final=True)[-1][1]
    np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(trained.predict(X[60:]), rivals.bayes_rule(P, costs))
