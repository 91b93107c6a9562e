"""Along which directions the classes change: ridge regression, its gradients, and the metric that comes of them."""

import numpy as np
import pytest

import oracles
from apportion import ApportionedSVCCV
from apportion.directions import NOISES, ROUNDS, ROWS, directions, outer_gradients, ridge
from apportion.relevance import codes
from apportion.scalings import Scalings

COSTS = {"no": 1, "yes": 5}


@pytest.fixture(scope="module")
def one_mixture_tells():
    """Of ten columns the sum of the first five tells the classes apart: whether it is near zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 10))
    return X, np.where(np.abs(X[:, :5].sum(axis=1)) < 1.5, "yes", "no")


def problem(k, n=20, d=4):
    rng = np.random.default_rng(k)
    A = rng.normal(size=(d, d))
    return rng.normal(size=(n, d)), codes(rng.permutation(np.arange(n) % k)), (A + A.T) / 2


@pytest.mark.parametrize("k", [2, 3])
def test_ridge_takes_the_noise_that_errs_least_on_rows_left_out(k):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, Y, _ = problem(k)
        K = np.exp(-np.linalg.norm(X[:, None] - X, axis=2) / rng.uniform(0.5, 5))
        errors = [np.sum(oracles.left_out(K, Y, noise) ** 2) for noise in NOISES]
        best = NOISES[np.argmin(errors)]
        np.testing.assert_allclose(ridge(K, Y), np.linalg.solve(K + best * np.eye(len(K)), Y), atol=1e-8)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_gradients_are_those_of_differences(k):
    X, Y, root = problem(k)
    K = np.exp(-np.linalg.norm((X[:, None] - X) @ root, axis=2) / np.sqrt(2 * X.shape[1]))
    expected = oracles.outer_gradients(X, ridge(K, Y), root)
    np.testing.assert_allclose(
        outer_gradients(X, Y, root), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max()
    )


def test_a_mixture_that_tells_is_found(one_mixture_tells):
    X, y = one_mixture_tells
    root = directions(X, y, np.ones(10))
    values, V = np.linalg.eigh(root @ root)
    mixture = np.append(np.ones(5), np.zeros(5)) / np.sqrt(5)
    assert abs(V[:, -1] @ mixture) > 0.98
    assert values[-1] > 5 * values[-2]


def test_the_root_is_symmetric_and_its_square_has_trace_d(one_mixture_tells):
    X, y = one_mixture_tells
    root = directions(X, y, np.linspace(0.5, 2, 10))
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    assert np.trace(root @ root) == pytest.approx(10)
    assert np.linalg.eigvalsh(root).min() > 0.1  # no direction is lost


def test_mixtures_go_with_their_columns(one_mixture_tells):
    X, y = one_mixture_tells
    order, weights = np.random.default_rng(1).permutation(10), np.linspace(0.5, 2, 10)
    turned = directions(X, y, weights)[np.ix_(order, order)]
    np.testing.assert_allclose(directions(X[:, order], y, weights[order]), turned, atol=1e-6)


@pytest.mark.parametrize("k", [2, 40, ROWS])
def test_of_more_rows_so_many_are_drawn(k, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "apportion.directions.outer_gradients",
        lambda X, Y, root: seen.append(X) or outer_gradients(X, Y, root),
    )
    X = np.random.default_rng(2).normal(size=(2 * ROWS, 3))
    y = np.argsort(np.argsort(X[:, 0])) * k // len(X)
    root = directions(X, y, np.ones(3))
    assert [rows.shape for rows in seen] == [(ROWS, 3)] * ROUNDS
    assert {tuple(row) for row in seen[0]} <= {tuple(row) for row in X}
    np.testing.assert_array_equal(root, directions(X, y, np.ones(3)))


def test_names_of_the_classes_do_not_matter():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    X[:, 1] += y
    for names in ([0, 2, 5], [4, 1, 9], ["b", "a", "c"]):
        np.testing.assert_allclose(
            directions(X, np.array(names)[y], np.ones(4)), directions(X, y, np.ones(4)), atol=1e-8
        )


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((30, 3)),
        np.repeat(np.eye(3), 10, axis=0),
        np.ones((30, 1)) * np.arange(30)[:, None],
        np.random.default_rng(0).normal(size=(30, 200)),
        1e3 * np.random.default_rng(0).normal(size=(30, 4)),  # as rows of a fold may be
    ],
    ids=["constant", "equal rows", "one column", "wide", "far apart"],
)
def test_directions_of_any_rows_are_finite(X):
    d = X.shape[1]
    for y in (np.arange(30) % 2, np.arange(30) % 7, np.append(np.zeros(29, int), 1), np.zeros(30, int)):
        root = directions(X, y, np.ones(d))
        assert root.shape == (d, d) and np.all(np.isfinite(root))
        assert np.trace(root @ root) == pytest.approx(d)


def test_the_scaler_turns_columns_of_variance_one(one_mixture_tells):
    X, y = 5 * one_mixture_tells[0] + 2, one_mixture_tells[1]
    scalings = Scalings(X, y)
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = standard @ directions(standard, y, scalings.weights)
    np.testing.assert_allclose(scalings.fitted("directions").transform(X), expected, atol=1e-8)
    np.testing.assert_allclose(
        scalings.fitted("directions").transform(X.astype(np.float32)), expected, atol=1e-4
    )


def test_weights_are_learned_once(one_mixture_tells, monkeypatch):
    learned = []
    monkeypatch.setattr(
        "apportion.scalings.relevance", lambda X, y, weight: learned.append(len(y)) or np.ones(X.shape[1])
    )
    scalings = Scalings(*one_mixture_tells)
    for scaling in ("relevance", "directions", "relevance"):
        scalings.fitted(scaling)
    assert learned == [300]


def test_it_pays_where_a_mixture_tells(one_mixture_tells):
    X, y = one_mixture_tells
    some = {"kernels": ("rbf",), "Cs": (1, 10), "powers": ((0, 1),)}
    ours = ApportionedSVCCV(COSTS, **some).fit(X, y)
    assert ours.best_params_["scaling"] == "directions"
    without = ApportionedSVCCV(COSTS, **some, scaling=("standard", "quantile", "relevance")).fit(X, y)
    assert ours.best_cost_ < 0.6 * without.best_cost_
