"""The machines as a user meets them: geometry, limiting cases, scikit-learn's tools, interruption."""

import os
import pickle
import re
import subprocess
import sys
import textwrap
import time
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import oracles
from apportion import (
    ApportionedLinearSVC,
    ApportionedSVC,
    LossTable,
    class_sensitivity,
    cost_scorer,
    expected_cost,
)
from apportion.losses import LOSSES

MACHINES = (ApportionedLinearSVC, ApportionedSVC)


def problem(n=120, d=3, k=3, seed=0, spread=1.2):
    """Overlapping classes, each with at least one example."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(k), rng.integers(k, size=n - k))
    return rng.standard_normal((n, d)) + spread * rng.standard_normal((k, d))[y], y


def peak_of(work):
    """The most memory that arrays take while `work()` is done, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- data at the edges


@pytest.mark.parametrize("Machine", MACHINES)
def test_sparse_rows_of_very_many_columns(Machine):
    """Few rows are put into an order of their own; that must not take a dense copy of them."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((200, 2**20), density=2e-5, format="csr", rng=rng)
    y = rng.integers(3, size=200)
    machine = Machine(kernel="linear") if Machine is ApportionedSVC else Machine()
    peak = peak_of(lambda: machine.fit(sparse.vstack([X, X[:50]]).tocsr(), np.append(y, y[:50])))
    assert peak < 200 * 2**20 * 8 / 4
    weighted = clone(machine).fit(X, y, np.where(np.arange(200) < 50, 2.0, 1.0))
    assert_allclose(machine.objective_, weighted.objective_, rtol=1e-12)


@pytest.mark.parametrize("Machine", MACHINES)
@pytest.mark.parametrize("intercept", ["penalized", "free", "none"])
@pytest.mark.parametrize("n", [400, 2500])
@pytest.mark.parametrize("spread", [0.5, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_linear_machines_of_large_features(Machine, intercept, n, spread, dtype):
    """Classes that overlap are what Newton's method is good at, classes that do not what working sets are; the gap is checked."""
    X, y = problem(n, 6, spread=spread)
    size = 1e4 if dtype == np.float64 else 100
    X = (size * X).astype(dtype)
    named = {"kernel": "linear"} if Machine is ApportionedSVC else {}
    machine = Machine((1, 3, 2), intercept=intercept, **named).fit(X, y)
    beta, total = machine.dual_coef_, machine.dual_coef_.sum(axis=0)
    X = X.astype(float)
    pull = beta.T @ X[machine.support_]
    W, b = (pull if Machine is ApportionedSVC else machine.coef_), machine.intercept_
    signs, own = np.where(y[:, None] == np.arange(3), 1.0, -1.0), np.array([1.0, 3.0, 2.0])[y]
    penalty = (b**2).sum() if intercept == "penalized" else 0.0
    primal = 0.5 * (W**2).sum() + 0.5 * penalty + np.maximum(0, own[:, None] - signs * (X @ W.T + b)).sum()
    alpha = signs[machine.support_] * beta
    dual = (alpha * own[machine.support_, None]).sum() - 0.5 * (pull**2).sum()
    dual -= 0.5 * (total**2).sum() if intercept == "penalized" else 0.0
    assert -1e-9 <= alpha.min() and alpha.max() <= 1 + 1e-9
    assert intercept != "free" or np.abs(total).max() <= 1e-9 * np.abs(beta).sum()
    assert_allclose(machine.objective_, primal, rtol=1e-6)
    assert primal - dual <= 1.001e-3 * primal


def test_a_sum_of_features_too_large_for_it_is_told_and_not_pursued():
    X, y = problem(600, 6, spread=0.5)
    with pytest.warns(ConvergenceWarning, match="Scale the features"):
        machine = ApportionedSVC((1, 3, 2), kernel="linear").fit(1e8 * X, y)
    assert machine.n_iter_ < 100
    linear = ApportionedLinearSVC((1, 3, 2)).fit(1e8 * X, y)  # which keeps its w itself
    assert linear.dual_gap_ <= 1e-3


def test_a_stored_zero_is_a_zero():
    X, y = problem()
    X[np.abs(X) < 0.3] = 0.0
    plain, stored = sparse.csr_matrix(X), sparse.csr_matrix(X)
    stored[0, np.flatnonzero(X[0] == 0)] = 0.0
    stored[1, np.flatnonzero(X[1] == 0)] = 0.0
    first, second = (ApportionedLinearSVC().fit(part, y) for part in (plain, stored))
    assert_array_equal(first.coef_, second.coef_)


@pytest.mark.parametrize("rows", [60, 4500])
@pytest.mark.parametrize("Machine", MACHINES)
@pytest.mark.parametrize("absent", [(2,), (0, 3), (2, 3)])
def test_pairs_of_classes_without_weight(Machine, absent, rows):
    """The machines of the other pairs are as if those rows were not there."""
    X, y = problem(rows, k=4)
    here = ~np.isin(y, absent)
    machine = Machine(loss="pairwise").fit(X, y, here.astype(float))
    alone = Machine(loss="pairwise").fit(X[here], y[here])
    assert machine.dual_gap_ <= 1e-3
    both = [(c in alone.classes_) and (d in alone.classes_) for c in range(4) for d in range(c + 1, 4)]
    assert_allclose(machine.intercept_[both], alone.intercept_, atol=0.05)


def test_large_numbers_are_not_rounded_to_single_precision():
    """exp(-gamma |x - z|_1) of numbers that differ in the eighth digit."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1e8, (1500, 1)), np.arange(1500) % 2
    X[y == 1] = np.round(X[y == 1])
    machine = ApportionedSVC(kernel="laplacian", gamma=1.0, loss="one-vs-rest").fit(X, y)
    exact = ApportionedSVC(kernel="precomputed", loss="one-vs-rest").fit(laplacian_kernel(X, gamma=1.0), y)
    assert_allclose(machine.objective_, exact.objective_, rtol=2e-3)
    assert_allclose(
        machine.decision_function(X[:50]),
        exact.decision_function(laplacian_kernel(X[:50], X, gamma=1.0)),
        atol=0.02,
    )


@pytest.mark.parametrize("factor", [1e20, 1e40, 1e-36, 1e-42])
def test_numbers_that_have_no_room_in_single_precision(factor):
    """The kernel is the same on all scales; a linear one overflows in single precision, in double it is only hard."""
    X, y = problem(1200)
    near, far = (ApportionedSVC().fit(part, y) for part in (X, factor * X))
    assert_allclose(far.objective_, near.objective_, rtol=1e-3)
    assert np.mean(far.predict(factor * X) == near.predict(X)) > 0.98
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine = ApportionedSVC(kernel="linear", max_iter=5).fit(factor * X, y)
    assert np.isfinite(machine.dual_gap_) and np.all(np.isfinite(machine.decision_function(factor * X)))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_lengths_that_have_no_room_in_single_precision(form):
    X, y = problem(2100)
    X = form((1e25 * X).astype(np.float32))
    with pytest.warns(ConvergenceWarning):
        machine = ApportionedLinearSVC(loss="crammer-singer", intercept="free", max_iter=5).fit(X, y)
    assert np.isfinite(machine.dual_gap_) and np.all(np.isfinite(machine.coef_))


@pytest.mark.parametrize("Machine", [ApportionedLinearSVC, partial(ApportionedSVC, kernel="linear")])
def test_the_gap_of_sparse_single_precision_is_that_of_the_data(Machine):
    """Products of rows, summed up in single precision, used to be off by more than the gap that was reported."""
    rng = np.random.default_rng(0)
    X = (10 * sparse.random(900, 300, 0.3, format="csr", random_state=0)).astype(np.float32)
    y = (np.ravel(X[:, :2].sum(axis=1)) + 3 * rng.standard_normal(900) > 1).astype(int)
    single, double = (
        Machine(loss="one-vs-rest", tol=1e-9, max_iter=5000).fit(Z, y) for Z in (X, X.astype(float))
    )
    assert_allclose(single.objective_, double.objective_, rtol=2e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_that_rounding_does_not_tell_apart(dtype):
    """Income a year and a month, unscaled: the curvature is singular in single precision."""
    rng = np.random.default_rng(0)
    income = rng.lognormal(10, 0.5, 3000)
    X = np.column_stack([rng.standard_normal((3000, 2)), income, income / 12]).astype(dtype)
    y = (X[:, 0] + 0.3 * rng.standard_normal(3000) > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine = ApportionedLinearSVC([1, 5]).fit(X, y)
    assert np.isfinite(machine.dual_gap_) and expected_cost(y, machine.predict(X), costs=[1, 5]) < 0.5


@pytest.mark.parametrize("distance", [1e3, 1e5])
def test_the_certificate_of_a_free_intercept_is_of_duals_that_sum_to_zero(distance):
    rng = np.random.default_rng(0)
    y = (np.arange(3000) < 5).astype(int)
    X = 0.01 * rng.standard_normal((3000, 2)) + distance * y[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine = ApportionedLinearSVC(C=1e4, intercept="free", loss="one-vs-rest").fit(X, y)
    beta = np.zeros((3000, machine.dual_coef_.shape[1]))
    beta[machine.support_] = machine.dual_coef_
    assert np.abs(beta.sum(axis=0)).max() <= 1e-12 * np.abs(beta).sum()
    dual = np.abs(beta).sum() - 0.5 * ((X.T @ beta) ** 2).sum()
    assert machine.objective_ - dual <= (machine.dual_gap_ + 1e-9) * machine.objective_


def test_of_two_ways_the_better_machine_is_kept():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((3000, 2)), 1e5 * rng.standard_normal((3000, 2))])
    y = (X[:, 0] + 0.5 * rng.standard_normal(3000) > 0).astype(int)
    with pytest.warns(ConvergenceWarning):
        machine = ApportionedLinearSVC([1, 5], tol=1e-6, max_iter=15).fit(X, y)
    assert machine.objective_ < 7000  # the optimum is 6174; the other way ends at 61001


def test_the_gap_of_two_ways_is_not_lost_in_rounding():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((3000, 2)), 1e90 * rng.standard_normal((3000, 2))])
    y = (X[:, 0] + 0.5 * rng.standard_normal(3000) > 0).astype(int)
    with pytest.warns(ConvergenceWarning):
        machine = ApportionedLinearSVC(loss="one-vs-rest", max_iter=50).fit(X, y)
    assert machine.dual_gap_ > 1  # it was 0.0: the duals of either way are worth nothing


def test_gamma_scale_far_from_the_origin():
    X, y = problem()
    near, far = (ApportionedSVC(kernel="rbf").fit(part, y) for part in (1000 * X, 1000 * X + 1.7e9))
    assert_allclose(far._gamma, 1 / (3 * (1000 * X).var()), rtol=1e-6)
    assert_array_equal(near.predict(1000 * X), far.predict(1000 * X + 1.7e9))
    assert ApportionedSVC().fit(np.full((6, 2), 0.1), [0, 1] * 3)._gamma == 1.0


# ---------------------------------------------------------------- the paper's claim


def shares(machine, first, second):
    """How a machine divides the way from point `first` to point `second`: lengths on either side of its boundary."""
    low, high = 0.0, 1.0
    side = machine.predict(first[None])[0]
    for _ in range(60):
        middle = 0.5 * (low + high)
        if machine.predict((first + middle * (second - first))[None])[0] == side:
            low = middle
        else:
            high = middle
    return low / (1 - low)


def separable(seed=0):
    """Two classes in the plane, turned and moved, and the ends of the shortest way between their hulls."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform([-4, -2], [-1, 2], (30, 2)), rng.uniform([1, -2], [5, 2], (30, 2))
    a[:2], b[:2] = [[-1, -2], [-1, 2]], [[1, -2], [1, 2]]
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    X = np.vstack([a, b, [[-1, 0], [1, 0]]]) @ turn.T + [3.0, -1.0]
    return X[:-2], np.repeat([0, 1], 30), X[-2], X[-1]


@pytest.mark.parametrize("costs", [(1, 1), (10, 1), (1, 10), (100, 1)])
@pytest.mark.parametrize("machine", [ApportionedLinearSVC(), ApportionedSVC(kernel="linear")])
def test_the_boundary_divides_the_margin_in_the_ratio_of_the_costs(machine, costs):
    X, y, first, second = separable()
    machine = clone(machine).set_params(costs=costs, C=1e3, intercept="free", tol=1e-9).fit(X, y)
    assert_allclose(shares(machine, first, second), costs[0] / costs[1], rtol=1e-3)
    twin = SVC(kernel="linear", C=1e3, class_weight=dict(enumerate(costs)), tol=1e-8).fit(X, y)
    assert_allclose(shares(twin, first, second), 1.0, rtol=1e-3)


@pytest.mark.parametrize("loss", ["pairwise", "lee-lin-wahba"])
def test_other_losses_with_margin_power_one_divide_it_so_too(loss):
    X, y, first, second = separable()
    machine = ApportionedLinearSVC((10, 1), loss=loss, margin_power=1, C=100, intercept="free", tol=1e-7)
    assert_allclose(shares(machine.fit(X, y), first, second), 10.0, rtol=1e-3)


@pytest.mark.parametrize("loss", ["apportioned", "crammer-singer"])
@pytest.mark.parametrize("machine", [ApportionedLinearSVC(), ApportionedSVC(kernel="linear")])
def test_infinite_C_is_a_hard_margin(machine, loss):
    X, y, *_ = separable()
    hard = clone(machine).set_params(costs=(10, 1), loss=loss, C=np.inf, tol=1e-8).fit(X, y)
    soft = clone(machine).set_params(costs=(10, 1), loss=loss, C=1e5, tol=1e-8).fit(X, y)
    assert_allclose(hard.objective_, soft.objective_, rtol=1e-6)
    assert_allclose(hard.decision_function(X), soft.decision_function(X), rtol=1e-3)
    assert np.isinf(hard.C)


@pytest.mark.parametrize("loss", ["apportioned", "pairwise", "weston-watkins", "crammer-singer"])
@pytest.mark.parametrize("machine", [ApportionedLinearSVC(), ApportionedSVC(kernel="linear")])
def test_infinite_C_on_data_that_overlap_is_an_error(machine, loss):
    X, y, *_ = separable()
    y = y.copy()
    y[[5, 40]] = 1 - y[[5, 40]]
    with pytest.raises(ValueError, match=r"C=inf .*not separable.*finite C"):
        clone(machine).set_params(loss=loss, C=np.inf, max_iter=300).fit(X, y)


# ---------------------------------------------------------------- limiting cases: what is equal must come out equal


@pytest.mark.parametrize("theta", [(1, 1, 1), (1, 5, 2)])
def test_linear_apportioned_is_linear_svc_on_scaled_data(theta):
    X, y = problem()
    W, b = oracles.linear_svc_twin(X, y, theta, C=0.5)
    machine = ApportionedLinearSVC(theta, C=0.5, tol=1e-11).fit(X, y)
    assert_allclose(machine.coef_, W, rtol=1e-6, atol=1e-6)
    assert_allclose(machine.intercept_, b, rtol=1e-6, atol=1e-6)
    matrix = [[0 if j == c else theta[c] for j in range(3)] for c in range(3)]
    value = (
        oracles.primal_value(lambda f, c: oracles.apportioned(f, c, matrix)[0], X, y, 0.5, W, b) + 0.5 * b @ b
    )
    assert_allclose(machine.objective_, value, rtol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_kernel_linear_is_the_linear_machine(loss):
    X, y = problem()
    setting = {"costs": (1, 3, 2), "loss": loss, "C": 0.5, "tol": 1e-8}
    linear = ApportionedLinearSVC(**setting).fit(X, y)
    kernel = ApportionedSVC(kernel="linear", **setting).fit(X, y)
    assert_allclose(kernel.objective_, linear.objective_, rtol=1e-7)
    assert_allclose(kernel.dual_coef_.T @ kernel.support_vectors_, linear.coef_, atol=1e-3)
    assert_array_equal(kernel.predict(X), linear.predict(X))


@pytest.mark.parametrize("loss", ["apportioned", "pairwise", "crammer-singer"])
@pytest.mark.parametrize("intercept", ["penalized", "free"])
def test_precomputed_and_callable_are_the_named_kernel(loss, intercept):
    X, y = problem()
    setting = {"costs": (1, 3, 2), "loss": loss, "intercept": intercept, "tol": 1e-7}
    named = ApportionedSVC(gamma=0.4, **setting).fit(X, y)
    own = ApportionedSVC(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.4), **setting).fit(X, y)
    K = rbf_kernel(X, gamma=0.4)
    precomputed = ApportionedSVC(kernel="precomputed", **setting).fit(K, y)
    Z = problem(seed=1)[0]
    for other, data in ((own, Z), (precomputed, rbf_kernel(Z, X, gamma=0.4))):
        assert_allclose(other.objective_, named.objective_, rtol=2e-7)
        assert_allclose(other.decision_function(data), named.decision_function(Z), atol=1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "poly", "sigmoid"])
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_matrix])
def test_sparse_data_give_the_dense_machine(kernel, form):
    X, y = problem(60)
    X[np.abs(X) < 0.5] = 0
    setting = {"kernel": kernel, "gamma": 0.1, "coef0": 0.2, "degree": 2, "tol": 1e-6}
    dense = ApportionedSVC((1, 3, 2), **setting).fit(X, y)
    thin = ApportionedSVC((1, 3, 2), **setting).fit(form(X), y)
    assert_allclose(thin.objective_, dense.objective_, rtol=1e-6)
    assert sparse.issparse(thin.support_vectors_)
    for fitted in (dense, thin):
        for data in (X, form(X)):
            assert_allclose(fitted.decision_function(data), dense.decision_function(X), atol=5e-3)


@pytest.mark.parametrize("loss", ["apportioned", "weston-watkins"])
def test_sparse_data_give_the_dense_linear_machine(loss):
    X, y = problem(60)
    dense = ApportionedLinearSVC((1, 3, 2), loss=loss, tol=1e-8).fit(X, y)
    thin = ApportionedLinearSVC((1, 3, 2), loss=loss, tol=1e-8).fit(sparse.csr_matrix(X), y)
    assert_allclose(thin.coef_, dense.coef_, atol=1e-3)
    assert_allclose(thin.decision_function(sparse.csr_matrix(X)), dense.decision_function(X), atol=1e-2)


@pytest.mark.parametrize("n", [150, 1200])  # whole kernel matrix; rows in single precision
def test_free_intercept_at_equal_costs_is_that_of_libsvm(n):
    X, y = problem(n, k=2)
    tol = 1e-9 if n < 1000 else 1e-6
    machine = ApportionedSVC(C=0.7, gamma=0.5, intercept="free", tol=tol).fit(X, y)
    twin = SVC(C=0.7, gamma=0.5, tol=1e-8).fit(X, y)
    assert_allclose(machine.intercept_[1], twin.intercept_[0], atol=1e-5 if n < 1000 else 1e-3)
    assert_allclose(
        machine.decision_function(X), 2 * twin.decision_function(X), atol=1e-4 if n < 1000 else 1e-2
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("Machine", MACHINES)
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(Machine, loss):
    X, y = problem(60)
    weight = np.random.default_rng(0).integers(0, 3, 60)
    weight[:6] = 1  # some of each class
    rows = np.repeat(np.arange(60), weight)
    weighted = Machine((1, 3, 2), loss=loss, C=0.5).fit(X, y, sample_weight=weight)
    repeated = Machine((1, 3, 2), loss=loss, C=0.5).fit(X[rows], y[rows])
    assert_array_equal(weighted.decision_function(X), repeated.decision_function(X))
    assert weighted.objective_ == repeated.objective_
    assert not np.isin(weighted.support_, np.flatnonzero(weight == 0)).any()


@pytest.mark.parametrize("Machine", MACHINES)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_weight_is_repetition_on_thousands_of_rows_too(Machine, form):
    X, y = problem(1500)
    weight = np.random.default_rng(0).integers(0, 4, 1500)
    rows = np.repeat(np.arange(1500), weight)  # about 2250
    weighted = Machine((1, 3, 2), C=0.1, tol=1e-6).fit(form(X), y, sample_weight=weight)
    repeated = Machine((1, 3, 2), C=0.1, tol=1e-6).fit(form(X[rows]), y[rows])
    assert_allclose(weighted.objective_, repeated.objective_, rtol=2e-6)
    assert_allclose(weighted.decision_function(form(X)), repeated.decision_function(form(X)), atol=2e-2)


def test_the_order_of_the_rows_does_not_matter():
    X, y = problem(60)
    order = np.random.default_rng(0).permutation(60)
    for Machine in MACHINES:
        one, two = Machine((1, 3, 2)).fit(X, y), Machine((1, 3, 2)).fit(X[order], y[order])
        assert_array_equal(one.decision_function(X), two.decision_function(X))


@pytest.mark.parametrize("Machine", MACHINES)
@pytest.mark.parametrize("n", [200, 2500])
def test_threads_change_nothing(Machine, n):
    X, y = problem(n, d=4, k=4)
    one, two = (Machine((1, 3, 2, 2), n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    for attribute in ("intercept_", "dual_coef_", "support_", "objective_", "dual_gap_", "n_iter_"):
        assert_array_equal(getattr(one, attribute), getattr(two, attribute), err_msg=attribute)


@pytest.mark.parametrize("loss", ["apportioned", "crammer-singer"])
@pytest.mark.parametrize("Machine", MACHINES)
def test_warm_start_is_the_same_optimum_in_fewer_steps(Machine, loss):
    X, y = problem(2200)
    machine = Machine((1, 3, 2), loss=loss, C=0.1, tol=1e-4, warm_start=True).fit(X, y)
    cold, steps = machine.objective_, machine.n_iter_
    machine.fit(X, y)
    assert_allclose(machine.objective_, cold, rtol=1e-4)
    assert machine.n_iter_ < steps
    machine.set_params(C=0.12).fit(X, y)
    direct = Machine((1, 3, 2), loss=loss, C=0.12, tol=1e-4).fit(X, y)
    assert_allclose(machine.objective_, direct.objective_, rtol=1e-4)
    machine.fit(*problem(300, seed=1))  # other data: starts afresh
    assert machine.dual_gap_ <= 1e-4


@pytest.mark.parametrize("loss", [loss for loss in LOSSES])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_default_settings_suffice_for_scaled_data_with_a_free_intercept(form, loss):
    """ConvergenceWarning would be an error here."""
    X, y = problem(2500, d=20)
    machine = ApportionedLinearSVC((1, 3, 2), loss=loss, C=0.05, intercept="free").fit(form(X), y)
    assert machine.dual_gap_ <= 1e-3


# ---------------------------------------------------------------- single precision and memory


@pytest.mark.parametrize("loss", ["apportioned", "crammer-singer"])
@pytest.mark.parametrize("Machine", MACHINES)
def test_float32_gives_nearly_the_same_machine(Machine, loss):
    X, y = problem(2500)
    double = Machine((1, 3, 2), loss=loss, C=0.1).fit(X, y)
    single = Machine((1, 3, 2), loss=loss, C=0.1).fit(X.astype(np.float32), y)
    assert_allclose(single.objective_, double.objective_, rtol=2e-3)
    assert np.mean(single.predict(X.astype(np.float32)) == double.predict(X)) > 0.98


@pytest.mark.parametrize(
    ("loss", "intercept", "expected"),
    [
        ("one-vs-rest", "free", np.float32),
        ("weston-watkins", "penalized", np.float32),
        ("weston-watkins", "free", np.float64),
        ("crammer-singer", "free", np.float64),
    ],
)
def test_a_free_intercept_of_coupled_outputs_asks_for_double_precision(
    loss, intercept, expected, monkeypatch
):
    """In single precision the duals do not balance: shift after shift, each harder to solve than the one before."""
    from apportion import kernels

    make, asked = kernels.make_kernel, []
    monkeypatch.setattr(
        kernels, "make_kernel", lambda *a, **named: asked.append(named["dtype"]) or make(*a, **named)
    )
    X, y = problem(1100)
    machine = ApportionedSVC((1, 3, 2), loss=loss, gamma=0.3, intercept=intercept).fit(X, y)
    assert machine.dual_gap_ <= 1e-3
    assert asked == [expected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("form", "C"),
    [("rbf", 0.5), ("rbf", 500), ("laplacian", 0.5), ("laplacian", 500), ("dense", 0.5), ("csr", 0.5)],
)
def test_the_gap_holds_in_double_precision(form, C, dtype):
    """Both objectives from the public attributes of a machine that computed in single precision where it could."""
    theta = np.array([1.0, 3.0, 2.0])
    X, y = problem(2600)
    X = X.astype(dtype)
    if form in ("dense", "csr"):
        machine = ApportionedLinearSVC(theta, C=C).fit(sparse.csr_matrix(X) if form == "csr" else X, y)
        pull = machine.dual_coef_.T @ X[machine.support_].astype(float)
        scores, square, dual_square = X @ machine.coef_.T, (machine.coef_**2).sum(), (pull**2).sum()
    else:
        machine = ApportionedSVC(theta, kernel=form, gamma=0.3, C=C).fit(X, y)
        metric = {"rbf": rbf_kernel, "laplacian": laplacian_kernel}[form]
        K = metric(X.astype(float), X[machine.support_].astype(float), gamma=0.3)
        scores = K @ machine.dual_coef_
        square = dual_square = (machine.dual_coef_ * scores[machine.support_]).sum()
    signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    own = theta[y][:, None]
    hinge = np.maximum(0, own - signs * (scores + machine.intercept_)).sum()
    alpha = signs[machine.support_] * machine.dual_coef_
    assert alpha.min() >= 0 and alpha.max() <= C * (1 + 1e-9)
    total = machine.dual_coef_.sum(axis=0)
    primal = 0.5 * square + 0.5 * (machine.intercept_**2).sum() + C * hinge
    dual = (alpha * own[machine.support_]).sum() - 0.5 * dual_square - 0.5 * (total**2).sum()
    assert_allclose(machine.objective_, primal, rtol=1e-4)
    gap = (primal - dual) / primal
    assert 0 <= gap <= machine.dual_gap_ * 1.01 + 1e-6 and machine.dual_gap_ <= min(gap + 3e-4, 1e-3)
    if form in ("rbf", "laplacian") and C == 500 and machine._precision is np.float64:
        assert gap == pytest.approx(machine.dual_gap_, abs=1e-8)  # single precision of the data is no excuse


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.ascontiguousarray, sparse.csr_matrix])
def test_the_solver_sees_the_users_own_array(form, dtype, monkeypatch):
    from apportion import linear

    X, y = problem(1500)
    X, seen = form(X.astype(dtype)), []

    def spy(table, data, *args, solve=linear.solve_linear):
        seen.append(data)
        return solve(table, data, *args)

    monkeypatch.setattr(linear, "solve_linear", spy)
    ApportionedLinearSVC(C=0.1).fit(X, y)
    mine, theirs = (a.data if sparse.issparse(a) else a for a in (X, seen[0]))
    assert theirs.dtype == dtype
    assert np.shares_memory(mine, theirs)


@pytest.mark.parametrize("intercept", ["penalized", "free"])
@pytest.mark.parametrize("loss", ["apportioned", "weston-watkins"])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_single_precision_is_not_copied_to_double(form, loss, intercept):
    X, y = make_blobs(20_000, 300, centers=3, cluster_std=30, random_state=0)
    X = X.astype(np.float32)
    if form == "csr":
        X = sparse.csr_matrix(np.where(np.abs(X) > 25, X, 0))
    size = X.data.nbytes if form == "csr" else X.nbytes
    machine = ApportionedLinearSVC((1, 3, 2), loss=loss, intercept=intercept, C=1e-5, tol=1e-2)
    machine.fit(X[::4], y[::4])  # compiled
    for work in (lambda: machine.fit(X, y), lambda: machine.predict(X)):
        assert peak_of(work) < 1.5 * size  # a copy has twice the size
    assert machine.dual_gap_ <= 1e-2


def test_a_kernel_fit_needs_far_less_memory_than_the_kernel_matrix():
    n = 20_000
    X, y = make_blobs(n, 2, centers=[[0, 0], [4, 4], [-4, 4]], random_state=0)
    machine = ApportionedSVC(C=0.1, gamma=0.5, tol=1e-2, n_jobs=1, cache_size=50)
    machine.fit(X[::20], y[::20])  # compiled
    peak = peak_of(lambda: machine.fit(X, y))
    assert machine.dual_gap_ <= 1e-2
    assert peak < 50 * 2**20 + 20 * 8 * n * (2 + 3)  # the cache, and some arrays of n (features + outputs)


@pytest.mark.parametrize("kernel", ["laplacian", lambda A, B: A @ B.T])
def test_cache_size_bounds_memory_and_not_the_result(kernel):
    X, y = problem(2400)
    setting = {"kernel": kernel, "C": 0.1, "tol": 1e-3}
    roomy = ApportionedSVC(cache_size=1000, **setting).fit(X, y)
    tight = ApportionedSVC(cache_size=0.5, **setting)
    peak = peak_of(lambda: tight.fit(X, y))
    assert_allclose(tight.objective_, roomy.objective_, rtol=2e-3)
    assert peak < 2 * 8 * 2400**2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_jobs", [1, 4])
@pytest.mark.parametrize("loss", ["one-vs-rest", "pairwise", "weston-watkins"])
def test_threads_share_the_memory_of_cache_size(loss, n_jobs):
    """Columns so many that kernel rows are kept, and working sets that would fill the cache each."""
    n, d, megabytes = 8000, 30, 40
    X, y = problem(n, d, k=4, spread=0.3)
    machine = ApportionedSVC(loss=loss, C=10, gamma=0.02, n_jobs=n_jobs, cache_size=megabytes, max_iter=6)
    machine.fit(X[:2000], y[:2000])  # compiled
    peak = peak_of(lambda: machine.fit(X, y))
    assert peak < megabytes * 2**20 + (8 + 2 * n_jobs) * 8 * n * (d + 6)  # before: 28 and more of the latter


# ---------------------------------------------------------------- what a fitted machine says of itself


@pytest.mark.parametrize("loss", LOSSES)
def test_attributes_of_a_kernel_machine_add_up(loss):
    X, y = problem()
    labels = np.array(["b", "c", "a"])[y]
    machine = ApportionedSVC({"a": 2, "b": 1, "c": 3}, loss=loss, gamma=0.4).fit(X, labels)
    assert_array_equal(machine.classes_, ["a", "b", "c"])
    assert_array_equal(machine.costs_, [2, 1, 3])
    assert machine.n_features_in_ == 3
    assert_array_equal(machine.support_vectors_, X[machine.support_])
    assert machine.n_support_.sum() == len(machine.support_) == len(machine.dual_coef_)
    assert_array_equal(machine.n_support_, [np.sum(labels[machine.support_] == c) for c in "abc"])
    raw = rbf_kernel(X, machine.support_vectors_, gamma=0.4) @ machine.dual_coef_ + machine.intercept_
    assert_allclose(machine.decision_function(X), machine.table_.decide(raw), atol=1e-9)
    assert_array_equal(machine.predict(X), machine.classes_[machine.decision_function(X).argmax(axis=1)])
    # the certificate from the public attributes alone, and rows that are no support vectors add nothing
    others = np.setdiff1d(np.arange(120), machine.support_)
    without = ApportionedSVC({"a": 2, "b": 1, "c": 3}, loss=loss, gamma=0.4, tol=1e-8)
    full = clone(without).fit(X, labels)
    reduced = without.fit(X[full.support_], labels[full.support_])
    assert_allclose(reduced.objective_, full.objective_, rtol=1e-6)
    assert len(others) == 120 - len(machine.support_)


def test_attributes_of_a_linear_machine_add_up():
    X, y = problem()
    machine = ApportionedLinearSVC((1, 3, 2)).fit(X, y)
    assert machine.coef_.shape == (3, 3) and machine.intercept_.shape == (3,)
    assert_allclose(machine.dual_coef_.T @ X[machine.support_], machine.coef_, atol=1e-9)
    raw = X @ machine.coef_.T + machine.intercept_
    assert_allclose(machine.decision_function(X), raw / [1, 3, 2])


@pytest.mark.parametrize("Machine", MACHINES)
@pytest.mark.parametrize("loss", LOSSES)
def test_two_classes_have_one_score(Machine, loss):
    X, y = problem(k=2)
    machine = Machine((5, 1), loss=loss).fit(X, y)
    scores = machine.decision_function(X)
    assert scores.shape == (len(y),)
    assert_array_equal(machine.predict(X), (scores > 0).astype(int))


def test_a_table_of_the_users_own():
    X, y = problem()
    named = ApportionedLinearSVC((1, 3, 2), loss="weston-watkins", tol=1e-6).fit(X, y)
    table = named.table_
    own = LossTable(table.codes, table.margins, table.weights, table.decide)
    machine = ApportionedLinearSVC(loss=own, tol=1e-6).fit(X, y)
    assert_array_equal(machine.coef_, named.coef_)
    assert_array_equal(clone(machine).fit(X, y).predict(X), machine.predict(X))
    with pytest.raises(ValueError, match="table is for 3 classes and the data have 2"):
        machine.fit(*problem(k=2))


def test_costs_move_the_decision_the_right_way():
    X, y = problem(300)
    for Machine in MACHINES:
        for loss in LOSSES:
            low, high = (Machine({0: c, 1: 1, 2: 1}, loss=loss).fit(X, y).predict(X) for c in (1, 20))
            assert class_sensitivity(y, high)[0] >= class_sensitivity(y, low)[0]


def test_not_converged_says_how_far_and_what_to_do():
    X, y = problem(300, spread=0.2)
    pattern = (
        r"relative duality gap of [\d.e+-]+ after 2 iterations; tol=1e-08.*Scale the features, raise max_iter"
    )
    for Machine in MACHINES:
        with pytest.warns(ConvergenceWarning, match=pattern):
            machine = Machine(C=100, tol=1e-8, max_iter=2).fit(X, y)
        assert machine.dual_gap_ > 1e-8
        assert machine.n_iter_ == 2
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            machine.fit(X, y)
        assert [w.filename for w in caught] == [__file__]  # points at the user's line


def test_verbose_prints_the_gap_as_it_falls(capsys):
    X, y = problem(300)
    for Machine in MACHINES:
        Machine(verbose=1, tol=1e-4).fit(X, y)
        lines = capsys.readouterr().out.strip().splitlines()
        gaps = [float(re.search(r"relative duality gap ([\d.e+-]+)$", line).group(1)) for line in lines]
        assert lines and all(line.startswith(f"[{Machine.__name__}] iteration ") for line in lines)
        assert gaps[-1] <= 1e-4 and min(gaps) >= 0
        Machine().fit(X, y)
        assert capsys.readouterr().out == ""


# ---------------------------------------------------------------- reapportion


@pytest.mark.parametrize("loss", ["apportioned", "one-vs-rest", "pairwise", "lee-lin-wahba"])
@pytest.mark.parametrize("Machine", MACHINES)
def test_reapportioning(Machine, loss):
    X, y = problem(300)
    machine = Machine((1, 3, 2), loss=loss).fit(X, y)
    before = machine.decision_function(X)
    same = machine.reapportion((1, 3, 2))
    assert_array_equal(same.predict(X), machine.predict(X))
    scaled = machine.reapportion((7, 21, 14))  # only ratios matter
    sensitivities = []
    for cost in (0.1, 1, 4, 20, 1000):
        other = machine.reapportion({0: cost, 1: 3, 2: 2})
        assert_allclose(other.costs_, [cost, 3, 2])
        assert_array_equal(
            other.coef_ if Machine is ApportionedLinearSVC else other.dual_coef_,
            vars(machine)["coef_" if Machine is ApportionedLinearSVC else "dual_coef_"],
        )
        sensitivities.append(class_sensitivity(y, other.predict(X))[0])
    assert sensitivities == sorted(sensitivities)
    assert (
        sensitivities[-1] > sensitivities[0] or loss == "lee-lin-wahba"
    )  # which may never choose a middle class
    assert_array_equal(machine.decision_function(X), before)  # the old machine is as it was
    assert_array_equal(machine.costs_, [1, 3, 2])
    assert type(scaled) is Machine
    twice = machine.reapportion((20, 3, 2)).reapportion((1, 3, 2))
    assert_array_equal(twice.predict(X), machine.predict(X))


def test_reapportioning_divides_the_margin_anew():
    X, y, first, second = separable()
    machine = ApportionedLinearSVC((1, 1), C=1e3, intercept="free", tol=1e-9).fit(X, y)
    assert_allclose(shares(machine.reapportion((10, 1)), first, second), 10.0, rtol=1e-3)


def test_what_cannot_be_reapportioned_says_so():
    X, y = problem()
    matrix = [[0, 1, 2], [3, 0, 1], [1, 1, 0]]
    with pytest.raises(NotFittedError):
        ApportionedLinearSVC().reapportion((1, 1, 1))
    with pytest.raises(ValueError, match="one cost a class"):
        ApportionedLinearSVC().fit(X, y).reapportion(matrix)
    with pytest.raises(ValueError, match="one cost a class"):
        ApportionedLinearSVC(matrix, loss="lee-lin-wahba").fit(X, y).reapportion((1, 1, 1))
    for loss in ("weston-watkins", "crammer-singer", "reinforced"):
        with pytest.raises(ValueError, match=rf"loss='{loss}' has no margin per class"):
            ApportionedLinearSVC(loss=loss).fit(X, y).reapportion((2, 1, 1))
    with pytest.raises(ValueError, match="costs has shape"):
        ApportionedLinearSVC().fit(X, y).reapportion((1, 2))


# ---------------------------------------------------------------- scikit-learn's tools


def test_pipelines_searches_and_scores_on_cost():
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    costs = {"setosa": 1, "versicolor": 1, "virginica": 10}
    pipe = make_pipeline(StandardScaler(), ApportionedSVC(costs))
    grid = {"apportionedsvc__C": [0.1, 10], "apportionedsvc__loss": ["apportioned", "one-vs-rest"]}
    search = GridSearchCV(pipe, grid, scoring=cost_scorer(costs), cv=3).fit(X, names)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert np.all(search.cv_results_["mean_test_score"] <= 0)
    assert expected_cost(names, search.predict(X), costs=costs) < 0.3
    assert cross_val_score(pipe, X, names, cv=3).mean() > 0.8


@pytest.mark.parametrize("Machine", MACHINES)
def test_clone_params_and_repr(Machine):
    machine = Machine({0: 1, 1: 3, 2: 2}, loss="pairwise", C=3)
    copy = clone(machine)
    assert copy.get_params() == machine.get_params()
    assert not hasattr(copy.fit(*problem()), "nothing_") and not hasattr(machine, "coef_")
    assert copy.set_params(C=5).C == 5
    assert repr(machine).startswith(f"{Machine.__name__}(C=3")
    html = machine._repr_html_()
    assert Machine.__name__ in html and "pairwise" in html
    assert "Not fitted" in html and "Fitted" in copy._repr_html_()
    with pytest.raises(ValueError, match="Invalid parameter 'gama'"):
        machine.set_params(gama=1)


@pytest.mark.parametrize("Machine", MACHINES)
def test_feature_names(Machine):
    X, y = problem()
    frame = pd.DataFrame(X, columns=["size", "age", "dose"])
    machine = Machine().fit(frame, pd.Series(y, name="class"))
    assert_array_equal(machine.feature_names_in_, ["size", "age", "dose"])
    assert_array_equal(machine.predict(frame), Machine().fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        machine.predict(frame.rename(columns={"age": "height"}))
    with pytest.raises(ValueError, match="feature names"):
        machine.predict(frame[["age", "size", "dose"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        machine.predict(X)
    with pytest.raises(ValueError, match=r"X has 2 features.*expecting 3"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        machine.predict(X[:, :2])


@pytest.mark.parametrize("Machine", MACHINES)
def test_a_machine_survives_a_pickle_into_another_process(Machine, tmp_path):
    X, y = problem()
    machine = Machine((1, 3, 2), loss="pairwise").fit(X, y)
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "machine.pkl").write_bytes(pickle.dumps(machine))
    code = """
        import pickle, numpy as np
        machine = pickle.load(open("machine.pkl", "rb"))
        np.save("scores.npy", machine.decision_function(np.load("X.npy")))
        machine.reapportion((1, 1, 1)).predict(np.load("X.npy"))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, check=True)
    assert_array_equal(np.load(tmp_path / "scores.npy"), machine.decision_function(X))


def test_callbacks_see_the_iterations():
    pytest.importorskip("sklearn.callback", reason="this scikit-learn has no callbacks")

    class Counter:
        begun = ended = setups = 0

        def setup(self, estimator, context):
            type(self).setups += 1

        def on_fit_task_begin(self, *args, **kwargs):
            type(self).begun += 1

        def on_fit_task_end(self, *args, **kwargs):
            type(self).ended += 1

        def teardown(self, estimator, context):
            pass

    X, y = problem(300)
    for Machine in MACHINES:
        Counter.begun = Counter.ended = 0
        machine = Machine(tol=1e-5).set_callbacks(Counter()).fit(X, y)
        assert Counter.begun == Counter.ended > machine.n_iter_ * 0.5
        assert_array_equal(machine.predict(X), Machine(tol=1e-5).fit(X, y).predict(X))


def test_progress_bar():
    callback = pytest.importorskip("sklearn.callback", reason="this scikit-learn has no callbacks")
    pytest.importorskip("rich", reason="the progress bar is drawn by rich")
    X, y = problem(300)
    machine = ApportionedSVC().set_callbacks(callback.ProgressBar()).fit(X, y)
    assert_array_equal(machine.predict(X), ApportionedSVC().fit(X, y).predict(X))


# ---------------------------------------------------------------- interruption


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_an_interrupt_leaves_the_machine_as_it_was(nth):
    X, y = problem(2600)
    calls = 0

    def kernel(A, B):
        nonlocal calls
        calls += 1
        if calls == nth:
            raise KeyboardInterrupt
        return rbf_kernel(A, B, gamma=0.3)

    machine = ApportionedSVC(kernel=kernel)
    before = dict(vars(machine))
    with pytest.raises(KeyboardInterrupt):
        machine.fit(X, y)
    assert vars(machine) == before
    assert not hasattr(machine, "n_features_in_")
    fitted = ApportionedSVC(kernel=rbf_kernel, warm_start=True).fit(X[:200, :2], y[:200])
    fitted.set_params(kernel=kernel)
    before, calls = dict(vars(fitted)), 0
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[name] is before[name] for name in before)


def test_a_failed_fit_leaves_the_machine_as_it_was():
    X, y = problem()
    for Machine in MACHINES:
        machine = Machine((1, 3, 2)).fit(X, y)
        before = dict(vars(machine))
        for bad in ((X[:, :2], np.zeros(120)), (np.full((120, 2), np.nan), y)):
            with pytest.raises(ValueError):
                machine.fit(*bad)
            assert vars(machine).keys() == before.keys()
            assert all(vars(machine)[name] is before[name] for name in before)


@pytest.mark.parametrize(
    "machine",
    [
        "ApportionedSVC(C=1e3, gamma=5.0, tol=1e-14, max_iter=10**9, n_jobs=2)",
        "ApportionedSVC(C=1e4, gamma=0.05, tol=1e-14, max_iter=10**9)",
        "ApportionedSVC(C=1e4, gamma=0.05, loss='pairwise', tol=1e-14, max_iter=10**9, n_jobs=2)",
        "ApportionedSVC(C=1e3, loss='weston-watkins', tol=1e-14, max_iter=10**9)",
        "ApportionedLinearSVC(C=1e3, loss='crammer-singer', tol=1e-14, max_iter=10**9)",
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="signals are sent to the own process")
def test_ctrl_c_stops_a_long_fit(machine):
    code = f"""
        import os, signal, threading, time
        import numpy as np
        from apportion import ApportionedLinearSVC, ApportionedSVC

        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((6000, 10)), rng.integers(3, size=6000)
        machine = {machine}
        machine.set_params(C=1.0, tol=0.5, max_iter=100).fit(X[:2100], y[:2100])
        fitted = {machine}
        before = dict(vars(fitted))
        sent = []
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

        def interrupt():
            sent.append(time.time())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.5, interrupt).start()
        try:
            fitted.fit(X, y)
            print("finished")
        except KeyboardInterrupt:
            print("stopped", time.time() - sent[0], vars(fitted) == before)
    """
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=100, check=True
    )
    word, delay, unchanged = done.stdout.split()
    assert word == "stopped" and unchanged == "True"
    assert float(delay) < 10, f"{time.time() - start} in all"


def test_a_kernel_with_negative_eigenvalues_is_told():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 3)) + np.outer(y, [1, 0, 0])
    with pytest.warns(ConvergenceWarning, match="negative eigenvalues"):
        ApportionedSVC(kernel="sigmoid", C=10).fit(X, y)


def test_a_number_too_large_to_decide_on_is_refused():
    X, y = load_iris(return_X_y=True)
    for machine in (ApportionedLinearSVC(), ApportionedSVC()):
        with pytest.raises(ValueError, match="1e\\+120"):
            machine.fit(X, y).predict(np.full((1, 4), 1e120))
