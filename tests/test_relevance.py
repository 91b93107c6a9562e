"""What each column tells: the likelihood and its gradient, and the weights that come of it."""

import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.optimize import approx_fprime

import oracles
from apportion import ApportionedSVCCV
from apportion.relevance import ROWS, codes, drawn, likelihood, relevance
from apportion.scalings import SCALINGS, fitted_scaler

COSTS = {"no": 1, "yes": 5}


@pytest.fixture(scope="module")
def few_columns_tell():
    """Two of 20 columns tell the classes apart, on a circle."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    return X, np.where(X[:, 3] ** 2 + X[:, 7] ** 2 > 1.4, "yes", "no")


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_likelihood_is_that_of_loops_and_so_is_its_gradient(k):
    rng = np.random.default_rng(k)
    X, Y = rng.normal(size=(25, 4)), codes(rng.permutation(np.arange(25) % k))
    assert Y.shape == (25, 1 if k == 2 else k)
    for _ in range(3):
        v = rng.normal(size=6)
        value, gradient = likelihood(v, X, Y)
        assert value == pytest.approx(oracles.relevance(v, X, Y), rel=1e-10)
        np.testing.assert_allclose(
            gradient, approx_fprime(v, lambda u: oracles.relevance(u, X, Y)), atol=1e-4, rtol=1e-4
        )


def test_columns_that_tell_weigh_more(few_columns_tell):
    X, y = few_columns_tell
    w = relevance(X, (y == "yes").astype(int))
    assert sorted(np.argsort(w)[-2:]) == [3, 7]
    assert w[[3, 7]].min() > 4 * np.delete(w, [3, 7]).max()
    assert np.mean(w**2) == pytest.approx(1)


def test_weights_go_with_their_columns(few_columns_tell):
    X, y = few_columns_tell[0], (few_columns_tell[1] == "yes").astype(int)
    order = np.random.default_rng(1).permutation(20)
    np.testing.assert_allclose(relevance(X[:, order], y), relevance(X, y)[order], rtol=1e-3)


@pytest.mark.parametrize("k", [2, 40, 450])
def test_of_more_rows_so_many_are_drawn(k, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "apportion.relevance.likelihood", lambda v, X, Y: seen.append(X) or likelihood(v, X, Y)
    )
    X = np.random.default_rng(2).normal(size=(3 * ROWS, 6))
    y = np.argsort(np.argsort(X[:, 0])) * k // len(X)
    w = relevance(X, y)
    assert w.argmax() == 0
    assert seen[0].shape == (ROWS, 6)
    assert {tuple(row) for row in seen[0]} <= {tuple(row) for row in X}
    np.testing.assert_array_equal(w, relevance(X, y))


def test_names_of_the_classes_do_not_matter():
    """A class may be missing from the rows of a fold."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    X[:, 1] += y
    for names in ([0, 1, 2], [0, 2, 5], [4, 1, 9], ["b", "a", "c"]):
        np.testing.assert_allclose(relevance(X, np.array(names)[y]), relevance(X, y), rtol=1e-3)
    two = y < 2
    np.testing.assert_array_equal(relevance(X[two], 2 * y[two]), relevance(X[two], y[two]))


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
def test_weights_of_any_rows_are_finite(X):
    for y in (np.arange(30) % 2, np.arange(30) % 7, np.append(np.zeros(29, int), 1), np.zeros(30, int)):
        w = relevance(X, y)
        assert w.shape == X.shape[1:] and np.all(np.isfinite(w)) and np.all(w > 0)


@pytest.mark.parametrize("k", [2, 5])
def test_rows_are_drawn_as_often_as_their_weights_say(k):
    rng = np.random.default_rng(k)
    y, weight = rng.permutation(np.arange(200) % k), rng.integers(0, 4, 200).astype(float)
    rows = drawn(y, 400, weight)
    assert len(rows) == 200
    times, share = np.bincount(rows, minlength=200), 200 * weight / weight.sum()
    assert np.all((np.floor(share) <= times) & (times <= np.ceil(share)))
    assert np.all(np.abs(np.bincount(y[rows]) - np.bincount(y, weights=share)) <= 1)
    assert len(drawn(y, 50, weight)) == 50


def test_rows_of_hardly_any_weight_teach_nothing(few_columns_tell):
    """Two thirds of the rows have classes that two other columns tell, and next to no weight."""
    X, y = few_columns_tell[0], (few_columns_tell[1] == "yes").astype(int)
    light = np.arange(300) % 3 > 0
    wrong = np.where(light, X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4, y).astype(int)
    weight = np.where(light, 1e-9, 1.0)
    assert sorted(np.argsort(relevance(X, wrong, weight))[-2:]) == [3, 7]
    assert sorted(np.argsort(relevance(X, wrong))[-2:]) == [0, 1]


def test_columns_have_mean_0_and_spread_1_by_the_weights_of_rows(few_columns_tell):
    X, y = few_columns_tell
    weight = np.random.default_rng(0).uniform(0.1, 2, len(y))
    X, mean = X + 3, np.average(X + 3, axis=0, weights=weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    np.testing.assert_allclose(fitted_scaler("standard", X, y, weight).transform(X), (X - mean) / spread)
    Z = fitted_scaler("standard", sparse.csr_array(X), y, weight).transform(sparse.csr_array(X))
    np.testing.assert_allclose(Z.toarray(), X / spread)


def test_equal_weights_are_none(few_columns_tell):
    X, y = few_columns_tell
    for scaling in SCALINGS:
        plain, weighed = (fitted_scaler(scaling, X, y, weight) for weight in (None, np.full(300, 0.3)))
        np.testing.assert_array_equal(plain.transform(X), weighed.transform(X))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scalers_give_arrays_whatever_the_user_has_set_for_transformers(few_columns_tell, scaling):
    X, y = few_columns_tell
    expected = fitted_scaler(scaling, X, y).transform(X)
    with sklearn.config_context(transform_output="pandas"):
        found = fitted_scaler(scaling, X, y).transform(X)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected)


def test_the_scaler_weighs_columns_of_variance_one(few_columns_tell):
    X, y = 5 * few_columns_tell[0] + 2, (few_columns_tell[1] == "yes").astype(int)
    Z = fitted_scaler("relevance", X, y).transform(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(Z.std(axis=0), relevance((X - X.mean(axis=0)) / X.std(axis=0), y))


def test_it_pays_where_few_columns_tell(few_columns_tell):
    X, y = few_columns_tell
    some = {"kernels": ("rbf",), "Cs": (1, 10), "powers": ((0, 1),)}
    ours = ApportionedSVCCV(COSTS, **some).fit(X, y)
    assert ours.best_params_["scaling"] == "relevance"
    without = ApportionedSVCCV(COSTS, **some, scaling=("standard", "quantile")).fit(X, y)
    assert ours.best_cost_ < 0.6 * without.best_cost_
