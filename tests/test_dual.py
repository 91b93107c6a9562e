"""The solver reaches the optimum of every table on every route, and its certificate is the true one."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC
from threadpoolctl import threadpool_info

import oracles
from apportion import ApportionedSVC
from apportion.costs import check_costs
from apportion.coupled import _Coupled, _Table
from apportion.dual import solve_kernel
from apportion.kernels import Precomputed, Remembered, make_kernel
from apportion.linear import solve_linear
from apportion.losses import LOSSES, LossTable, loss_table, value
from apportion.pairs import solve_pairs
from apportion.solution import Settings
from apportion.threads import threads

THETA = [1.0, 4.0, 2.0]
MATRIX = [[0.0, 1.0, 3.0], [4.0, 0.0, 0.5], [2.0, 0.0, 0.0]]
OFFSETS = {
    "penalized": 1.0,
    "scaled": 9.0,
    "free": None,
    "none": 0.0,
}  # squared value of the constant feature


def first_scores(scores):
    """Class scores of a table whose decision is of no interest here."""
    return np.pad(scores, ((0, 0), (0, 3)))[:, :3]


def own_tables():
    """Tables no loss by name gives: codes of many sizes, one output a row, several, and shared slack."""
    rng = np.random.default_rng(5)
    apart = np.zeros((3, 2, 2))
    apart[:, 0, 0], apart[:, 1, 1] = [2.0, -1.5, -0.3], [-0.5, 0.7, -3.0]
    margins, weights = [[1.0, 2.0], [0.5, 1.0], [3.0, -0.2]], [[1.0, 2.0], [0.3, 1.0], [0.0, 1.5]]
    unit, others = np.eye(3), [[1, 2], [0, 2], [0, 1]]
    mixed = rng.uniform(0.5, 2, (3, 2, 1)) * unit[:, None] - rng.uniform(0.5, 2, (3, 2, 1)) * unit[others]
    return {
        "own-apart": LossTable(apart, margins, weights, first_scores),
        "own-mixed": LossTable(mixed, rng.uniform(0.2, 2, (3, 2)), rng.uniform(0.3, 2, (3, 2)), first_scores),
        "own-shared": LossTable(
            mixed,
            rng.uniform(0.2, 2, (3, 2)),
            np.repeat([[1.0], [3.0], [0.5]], 2, axis=1),
            first_scores,
            shared=True,
        ),
    }


TABLES = {loss: loss_table(loss, check_costs(THETA, range(3))) for loss in LOSSES}
TABLES["lee-lin-wahba-matrix"] = loss_table("lee-lin-wahba", check_costs(MATRIX, range(3)))
TABLES["apportioned-half"] = loss_table(
    "apportioned", check_costs(THETA, range(3)), margin_power=0.5, slack_power=0.5
)
TABLES |= own_tables()


def problem(n, d=4, k=3, seed=0):
    """Overlapping classes; each has at least one example."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(k), rng.integers(k, size=n - k))
    X = rng.standard_normal((n, d)) + 1.5 * rng.standard_normal((k, d))[y]
    return X, y, rng.uniform(0.2, 3.0, n)


def objectives(table, y, weight, settings, solution, X=None, K=None):
    """Primal value at the solution's coefficients and dual value at its alpha, from the definitions."""
    C, t, alpha, b = settings.C, settings.offset, solution.alpha, solution.intercept
    upper = C * weight[:, None] * table.weights[y]
    assert alpha.min() >= 0 and np.all(alpha <= upper * (1 + 1e-9))
    if table.shared:
        assert np.all(alpha.sum(axis=1) <= upper[:, 0] * (1 + 1e-9))
    beta = np.einsum("ir,irm->im", alpha, table.codes[y])
    sums = beta.sum(axis=0)
    if X is not None:
        scores, square = X @ solution.coef.T, (solution.coef**2).sum()
        dual_square = ((X.T @ beta) ** 2).sum()
    else:
        scores = K @ beta
        square = dual_square = (beta * scores).sum()
    if t is None:
        assert_allclose(sums, 0, atol=1e-9 * np.abs(beta).sum())
    elif t == 0:
        assert_array_equal(b, 0)
    else:
        square += (b**2).sum() / t
        dual_square += t * (sums**2).sum()
    primal = 0.5 * square + C * (weight * value(table, scores + b, y)).sum()
    return primal, (alpha * table.margins[y]).sum() - 0.5 * dual_square


def assert_certified(table, y, weight, settings, solution, **data):
    """The objective and the gap are what the solution's own numbers give, and the gap is within tol."""
    primal, dual = objectives(table, y, weight, settings, solution, **data)
    assert_allclose(solution.objective, primal, rtol=1e-9)
    assert_allclose(solution.gap, (primal - dual) / primal, rtol=1e-4, atol=1e-9)
    assert 0 <= solution.gap <= settings.tol
    return primal


# ---------------------------------------------------------------- the optimum


@pytest.mark.parametrize("intercept", OFFSETS)
@pytest.mark.parametrize("name", TABLES)
def test_every_table_reaches_the_optimum_on_every_route(name, intercept):
    table, (X, y, weight) = TABLES[name], problem(40, seed=21)
    t = OFFSETS[intercept]
    form = {
        "intercept": "penalized" if intercept == "scaled" else intercept,
        "intercept_scaling": np.sqrt(t or 1.0),
        "accuracy": 1e-8,
    }
    settings = Settings(C=0.7, offset=t, tol=1e-6, max_iter=2000)
    best = oracles.primal_cvxpy(table, X, y, 0.7, weight, **form).value
    for data in (X, sparse.csr_matrix(X)):
        solution = solve_linear(table, data, y, weight, settings)
        assert_allclose(assert_certified(table, y, weight, settings, solution, X=X), best, rtol=1e-5)
    solution = solve_kernel(table, make_kernel(X, "linear"), y, weight, settings)
    assert_allclose(assert_certified(table, y, weight, settings, solution, K=X @ X.T), best, rtol=1e-5)
    K = rbf_kernel(X, gamma=0.3)
    best = oracles.primal_cvxpy(table, K, y, 0.7, weight, **form, kernel=True).value
    solution = solve_kernel(table, make_kernel(X, "rbf", gamma=0.3), y, weight, settings)
    assert_allclose(assert_certified(table, y, weight, settings, solution, K=K), best, rtol=1e-5)


@pytest.mark.parametrize("name", ["apportioned", "crammer-singer", "lee-lin-wahba-matrix", "own-apart"])
@pytest.mark.parametrize("C", [1e-3, 30.0])
def test_small_and_large_C_reach_the_optimum(name, C):
    table, (X, y, weight) = TABLES[name], problem(40, seed=1)
    for t, intercept in ((1.0, "penalized"), (None, "free")):
        settings = Settings(C=C, offset=t, tol=1e-6, max_iter=5000)
        best = oracles.primal_cvxpy(table, X, y, C, weight, intercept, accuracy=1e-8).value
        solution = solve_linear(table, X, y, weight, settings)
        assert_allclose(assert_certified(table, y, weight, settings, solution, X=X), best, rtol=1e-5)


GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['loss']}-{case['intercept']}")
def test_golden_cases(case):
    X, y = np.array(GOLDEN["X"]), np.array(GOLDEN["y"])
    powers = {name: case[name] for name in ("margin_power", "slack_power")}
    table = loss_table(case["loss"], check_costs(case["costs"], range(3)), **powers)
    t = {"penalized": case["intercept_scaling"] ** 2, "free": None, "none": 0.0}[case["intercept"]]
    weight = np.ones(5) if case["sample_weight"] is None else np.array(case["sample_weight"])
    settings = Settings(C=case["C"], offset=t, tol=1e-11, max_iter=100_000)
    if case["gamma"] is None:
        solution = solve_linear(table, X, y, weight, settings)
        # the weights are unique; codes that sum to zero leave their mean over the outputs at zero
        assert_allclose(solution.coef, case["W"], atol=2e-5)
    else:
        solution = solve_kernel(table, make_kernel(X, "rbf", gamma=case["gamma"]), y, weight, settings)
    assert_allclose(solution.objective, case["value"], rtol=1e-9)
    if case["intercept"] == "penalized":  # a free one need not be unique
        assert_allclose(solution.intercept, case["b"], atol=2e-5)


# ---------------------------------------------------------------- thousands of examples


@pytest.mark.parametrize("intercept", OFFSETS)
@pytest.mark.parametrize("form", ["dense", "csr", "wide", "kernel"])
@pytest.mark.parametrize("name", ["apportioned", "own-apart", "own-mixed", "own-shared"])
def test_thousands_of_examples_are_certified(name, form, intercept):
    """A duality gap computed here from the definitions proves the optimum, whatever way the solver went."""
    table, (X, y, weight) = TABLES[name], problem(2500, seed=2)
    settings = Settings(
        C=0.05, offset=OFFSETS[intercept], tol=1e-5, max_iter=500 if form == "kernel" else 100_000
    )
    if form == "kernel":
        X, y, weight = X[:2400], y[:2400], weight[:2400]
        solution = solve_kernel(table, make_kernel(X, "rbf", gamma=0.2), y, weight, settings)
        assert_certified(table, y, weight, settings, solution, K=rbf_kernel(X, gamma=0.2))
        return
    if form == "wide":  # more than a fifth as many features as examples
        X = np.column_stack([X, 0.05 * np.random.default_rng(0).standard_normal((2500, 520))])
        settings.tol = 1e-3
    solution = solve_linear(table, sparse.csr_matrix(X) if form == "csr" else X, y, weight, settings)
    assert_certified(table, y, weight, settings, solution, X=X)


@pytest.mark.parametrize("name", [name for name in TABLES if not name.startswith("own")])
def test_three_routes_agree_on_thousands_of_examples(name):
    table, (X, y, weight) = TABLES[name], problem(2300, d=3, seed=3)
    settings = Settings(C=0.02, tol=3e-6, max_iter=100_000)
    dense = solve_linear(table, X, y, weight, settings)
    csr = solve_linear(table, sparse.csr_matrix(X), y, weight, settings)
    kernel = solve_kernel(table, make_kernel(X, "linear"), y, weight, settings)
    assert_allclose([csr.objective, kernel.objective], dense.objective, rtol=1e-5)
    # W is within sqrt(2 gap * objective) of the optimum, as the objective is strongly convex in it
    reach = 2 * np.sqrt(2 * settings.tol * dense.objective)
    for other in (csr.coef, kernel.beta(table, y).T @ X):
        assert np.linalg.norm(other - dense.coef) <= reach


def optimum_class_by_class(table, X, y, weight, C):
    """min 1/2 |W|^2 + C sum_i weight_i loss(W x_i + b, y_i) with free b, in few expressions."""
    import cvxpy as cp

    m = table.n_outputs
    W, b = cp.Variable((m, X.shape[1])), cp.Variable((1, m))
    objective = 0.5 * cp.sum_squares(W)
    for c in range(table.n_classes):
        own = y == c
        scores = X[own] @ W.T + np.ones((own.sum(), 1)) @ b
        hinges = cp.pos(table.margins[c][None, :] - scores @ table.codes[c].T)  # (n_c, R)
        loss = table.weights[c, 0] * cp.max(hinges, axis=1) if table.shared else hinges @ table.weights[c]
        objective += C * weight[own] @ loss
    return float(cp.Problem(cp.Minimize(objective)).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("name", ["apportioned", "weston-watkins", "crammer-singer"])
def test_thousands_of_examples_reach_the_optimum_of_an_interior_point_method(name):
    table, (X, y, weight) = TABLES[name], problem(2100, d=2, seed=4)
    best = optimum_class_by_class(table, X, y, weight, 0.05)
    for data in (X, sparse.csr_matrix(X)):
        settings = Settings(C=0.05, offset=None, tol=3e-6, max_iter=100_000)
        solution = solve_linear(table, data, y, weight, settings)
        assert_allclose(solution.objective, best, rtol=1e-5)


@pytest.mark.parametrize("k", [2, 9, 12])
@pytest.mark.parametrize("loss", ["apportioned", "pairwise", "weston-watkins"])
def test_many_outputs_are_certified(loss, k):
    """Outputs are solved eight at a time on CSR: fewer, one more, and a group that is not full."""
    X, y, weight = problem(2200, d=6, k=k, seed=5)
    table = loss_table(loss, check_costs(np.linspace(1, 3, k), range(k)))
    for data, max_iter in ((X, 500), (sparse.csr_matrix(X), 100_000)):
        settings = Settings(C=0.05, tol=1e-4, max_iter=max_iter)
        solution = solve_linear(table, data, y, weight, settings)
        assert_certified(table, y, weight, settings, solution, X=X)


def test_a_working_set_that_the_cache_bounds_reaches_the_optimum():
    X, y = load_digits(return_X_y=True)
    kernel, y = make_kernel((X[:900] - 5) / 5, gamma=0.01), y[:900]
    settings = Settings(C=10, tol=1e-3, max_iter=100, cache_size=4)
    assert settings.largest < 600
    for loss in ("reinforced", "crammer-singer"):
        table = loss_table(loss, check_costs(None, range(10)))
        solution = solve_kernel(table, kernel, y, np.ones(900), settings)
        assert solution.gap <= 1e-3


@pytest.mark.parametrize("offset", [None, 1.0, 0.0], ids=["free", "penalized", "none"])
def test_violators_of_one_side_do_not_throw_the_intercept_to_and_fro(offset):
    """Classes that overlap, and sets that hold few of the violators: once solved, all others used to be on the wrong side."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 2000)
    X = 1.2 * rng.normal(size=(5, 6))[y] + rng.normal(size=(2000, 6))
    table = loss_table("one-vs-rest", check_costs([1, 2, 5, 10, 1], range(5)))
    settings = Settings(C=1.0, offset=offset, tol=1e-3, max_iter=60, cache_size=0.15)
    assert settings.largest == 100
    assert solve_kernel(table, make_kernel(X, gamma=0.1), y, np.ones(2000), settings).gap <= 1e-3


@pytest.mark.parametrize("loss", ["weston-watkins", "crammer-singer", "reinforced"])
def test_violators_of_few_kinds_do_not_throw_the_intercepts_about(loss):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 4000)
    X = 1.2 * rng.normal(size=(4, 6))[y] + rng.normal(size=(4000, 6))
    table = loss_table(loss, check_costs([1, 2, 5, 10], range(4)))
    settings = Settings(C=1.0, tol=1e-2, max_iter=150, cache_size=2)
    assert 10 * settings.largest < 4000  # after 200 rounds the gap used to be 0.47 and more
    assert solve_kernel(table, make_kernel(X, gamma=0.1), y, np.ones(4000), settings).gap <= 1e-2


@pytest.mark.parametrize("loss", ["one-vs-rest", "weston-watkins"])
def test_long_ascents_report_between_certificates_and_stop_there_when_told(loss, monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2500)
    X = sparse.csr_matrix(rng.normal(size=(3, 5))[y] + rng.normal(size=(2500, 5)))
    table, weight = loss_table(loss, check_costs([1, 2, 5], range(3))), np.ones(2500)
    silent = solve_linear(table, X, y, weight, Settings(C=1.0))
    monkeypatch.setattr("apportion.coordinate.NEWS", -1.0)  # seconds: after every sweep
    news = []
    told = solve_linear(table, X, y, weight, Settings(C=1.0, watch=lambda *at: news.append(at)))
    assert [at for at, _ in news] == list(range(1, silent.n_iter + 1))
    assert_array_equal(told.alpha, silent.alpha)
    cut = solve_linear(table, X, y, weight, Settings(C=1.0, watch=lambda at, gap: at == 2))
    assert cut.n_iter == 2 and cut.gap == pytest.approx(news[1][1]) and cut.gap > 1e-3


def test_a_working_set_grows_where_it_is_too_small_to_get_on(monkeypatch):
    X, y = load_digits(return_X_y=True)
    kernel, y = make_kernel((X[:900] - 5) / 5, gamma=0.01), y[:900]
    table = loss_table("lee-lin-wahba", check_costs(None, range(10)))
    monkeypatch.setattr("apportion.coupled.CACHED", 50)
    solution = solve_kernel(table, kernel, y, np.ones(900), Settings(C=10, tol=1e-3, max_iter=300))
    assert solution.gap <= 1e-3
    monkeypatch.setattr("apportion.coupled.PATIENCE", 10**6)
    solution = solve_kernel(table, kernel, y, np.ones(900), Settings(C=10, tol=1e-3, max_iter=300))
    assert solution.gap > 1e-3


def random_working_set(seed, form, size=40, rows=4, dtype=np.float64):
    """Kernel matrix, codes (opposite, orthogonal and zero ones among them), the code of each row (size, rows), margins."""
    rng = np.random.default_rng(seed)
    K = rbf_kernel(rng.normal(size=(size, 3)), gamma=0.3) * rng.uniform(0.5, 2, size)[:, None]
    K = ((K + K.T) / 2 + 2 * np.eye(size)).astype(dtype)
    codes = np.vstack([np.eye(3), -np.eye(3)[:1], [[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]]])
    if form == "centred":
        codes = (
            np.vstack([np.eye(3), -np.eye(3), 0.5 * np.eye(3)])
            - np.repeat([1 / 3, -1 / 3, 1 / 6], 3)[:, None]
        )
    code = np.array([rng.permutation(len(codes))[:rows] for _ in range(size)])  # (size, rows)
    if form == "differences":  # of 30 outputs, of which an example concerns few
        own, other = rng.integers(0, 30, size), np.array([rng.permutation(30)[:rows] for _ in range(size)])
        codes = (np.eye(30)[own][:, None] - np.eye(30)[other]).reshape(-1, 30)
        code = np.arange(size * rows).reshape(size, rows)
    return rng, K, codes, code, rng.uniform(0.2, 2, (size, rows))


def gradient(K, codes, code, margins, a):
    """z = margins - code . f by loops over pairs of variables; all arrays (examples, rows) but K and codes."""
    z = margins.copy()
    for i, r in np.ndindex(*a.shape):
        for j, s in np.ndindex(*a.shape):
            z[i, r] -= K[i, j] * (codes[code[i, r]] @ codes[code[j, s]]) * a[j, s]
    return z


def solved_to_the_end(state, some, chosen, eps):
    """The alpha that the solver leaves as it is: a call ends after so many steps, near the optimum or not."""
    for _ in range(20):
        found = state.alpha.copy()
        state._solve(some, chosen, eps)
        if np.array_equal(found, state.alpha):
            return found
        state.scores[:] = 0.0
        state._update(state._beta(state.alpha, state.y))
        state.certify()
    pytest.fail("it does not come to an end")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", ["mixed", "centred", "differences"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_transfers_reach_the_conditions_of_the_optimum(seed, dtype, form, shared, monkeypatch):
    corners: list[np.ndarray] = []
    monkeypatch.setattr(
        "apportion.coupled.solve_pairs", lambda *args: corners.append(args[1]) or solve_pairs(*args)
    )
    rng, K, codes, code, margins = random_working_set(seed, form, dtype=dtype)
    size, rows = code.shape
    chosen = rng.random((size, rows)) < 0.8
    upper = rng.choice([0.0, 0.05, 0.5, 5.0], (size, 1 if shared else rows)) * np.ones((size, rows))
    share = (
        rng.dirichlet(np.ones(rows + 1), size)[:, :rows] if shared else rng.choice([0.3, 1.0], upper.shape)
    )
    start = upper * share * rng.integers(0, 2, upper.shape) * chosen
    # every example a class of its own
    state = _Coupled(
        Precomputed(K, np.arange(size), dtype),
        np.arange(size),
        upper,
        _Table(codes[code], margins, shared),
        0.0,
        np.zeros(codes.shape[1]),
        start.copy(),
        map,
        size,
    )
    state.certify()
    assert_allclose(state.z, gradient(K, codes, code, margins, start), atol=1e-4)
    eps = 1e-8 if dtype is np.float64 else 1e-4
    some = np.flatnonzero(chosen.any(axis=1))
    found = solved_to_the_end(state, some, chosen, eps)
    # a kernel matrix for each output, or one for all
    assert all(np.any(corner) == (form == "differences") for corner in corners)
    assert np.any(found != start) and np.all(found >= 0) and np.all(found[~chosen] == 0)
    true = gradient(K, codes, code, margins, found)
    if not shared:
        assert np.all(found <= upper)
        assert np.all(true[chosen & (found < upper)] <= 2 * eps)
        assert np.all(true[found > 0] >= -2 * eps)
        return
    bound = upper[:, 0]
    assert np.all(found.sum(axis=1) <= bound * (1 + 1e-12))
    for i in some[bound[some] > 0]:
        low = min(true[i][found[i] > 0], default=np.inf)
        if found[i].sum() < bound[i] * (1 - 1e-9):
            low = min(low, 0.0)
        assert max(0.0, *true[i][chosen[i]]) <= low + 2 * eps


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(
    ("dtype", "eps"), [(np.float64, 1e-8), (np.float32, 1e-4), (np.float32, 1e-6)]
)  # the last: single precision kernel values, double all else
@pytest.mark.parametrize("seed", range(5))
def test_pairs_on_all_lines_reach_the_conditions_of_the_optimum(seed, dtype, eps, centred):
    rng, K, *_ = random_working_set(seed, "mixed", dtype=dtype)
    size, rows = len(K), 3
    lines = np.eye(4) - 0.25 * centred
    codes = np.vstack([lines, -lines, 0.5 * lines])
    line = np.array([rng.permutation(4)[:rows] for _ in range(size)])  # each example is on three of the four
    code = line + 4 * rng.integers(0, 3, line.shape)
    margins, upper = rng.uniform(0.2, 2, line.shape), rng.choice([0.0, 0.05, 0.5, 5.0], line.shape)
    start = upper * rng.choice([0.0, 0.3, 1.0], upper.shape)
    table = _Table(codes[code], margins, shared=False)
    assert table.grid
    kernel = Precomputed(K, np.arange(size), dtype)
    state = _Coupled(kernel, np.arange(size), upper, table, 0.0, np.zeros(4), start.copy(), map, size)
    state.certify()
    some = rng.permutation(size)[:30]
    found = solved_to_the_end(state, some, np.ones(line.shape, bool), eps)
    others = np.setdiff1d(np.arange(size), some)
    assert np.any(found != start) and np.array_equal(found[others], start[others])
    true = gradient(K, codes, code, margins, found)[some]
    found, upper = found[some], upper[some]
    assert np.all((found >= 0) & (found <= upper))
    assert np.all(true[found < upper] <= 2 * eps) and np.all(true[found > 0] >= -2 * eps)


def test_pairs_end_where_a_gradient_is_the_tolerance_as_single_precision_rounds_it():
    """Up, here: a line whose gradient is above eps, though not above float32(eps), was passed over for ever."""
    eps = 0.3
    assert float(np.float32(eps)) > eps
    codes = np.zeros((2, 1, 4))
    codes[0, 0], codes[1, 0] = [1, -1, 0, 0], [0, 0, 1, -1]
    table = _Table(codes, np.array([[1.0], [eps]]), shared=False)
    kernel, y = Precomputed(np.eye(4, dtype=np.float32), np.arange(4), np.float32), np.array([0, 0, 1, 1])
    state = _Coupled(kernel, y, np.ones((4, 1)), table, 0.0, np.zeros(4), np.zeros((4, 1)), map, 4)
    assert not table.grid
    state.certify()
    state._solve(np.arange(4), np.ones((4, 1), bool), eps)
    # 1 - 2 a = 0 for the first class; of the second at most eps is left
    assert_allclose(state.alpha[:2], 0.5, atol=eps / 2)
    assert np.all(0.3 - 2 * state.alpha[2:] <= eps)


def test_coupled_tables_on_more_outputs_than_a_cache_line_holds():
    X, y, weight = problem(2200, d=5, k=11, seed=6)
    for loss in ("crammer-singer", "lee-lin-wahba"):
        table = loss_table(loss, check_costs(np.linspace(1, 3, 11), range(11)))
        settings = Settings(C=0.05, tol=1e-4, max_iter=100_000)
        solution = solve_linear(table, sparse.csr_matrix(X), y, weight, settings)
        assert_certified(table, y, weight, settings, solution, X=X)


# ---------------------------------------------------------------- the certificate


@pytest.mark.parametrize("tol", [0.1, 1e-3])
@pytest.mark.parametrize("intercept", ["penalized", "free"])
@pytest.mark.parametrize("name", ["apportioned", "pairwise", "reinforced", "crammer-singer", "own-shared"])
def test_the_gap_reported_is_the_gap_by_loops(name, intercept, tol):
    """Also where the solver stops far from the optimum."""
    table, (X, y, weight) = TABLES[name], problem(40, seed=7)
    K = rbf_kernel(X, gamma=0.2)
    t = OFFSETS[intercept]
    solution = solve_kernel(
        table, make_kernel(X, "rbf", gamma=0.2), y, weight, Settings(C=5.0, offset=t, tol=tol, max_iter=2000)
    )
    b = solution.intercept if t is None else None
    primal, dual = oracles.primal_and_dual(table, K + (t or 0.0), y, 5.0, solution.alpha, weight, b)
    assert_allclose(solution.objective, primal, rtol=1e-9)
    assert_allclose(solution.gap, (primal - dual) / primal, rtol=1e-6, atol=1e-11)
    assert solution.gap <= tol


@pytest.mark.parametrize("form", ["dense", "csr", "kernel"])
@pytest.mark.parametrize("name", ["apportioned", "weston-watkins", "crammer-singer"])
def test_a_fit_cut_short_reports_its_true_gap(name, form):
    table, (X, y, weight) = TABLES[name], problem(2500, seed=8)
    settings = Settings(C=1.0, tol=1e-9, max_iter=2)
    if form == "kernel":
        solution = solve_kernel(table, make_kernel(X, "rbf", gamma=0.3), y, weight, settings)
        primal, dual = objectives(table, y, weight, settings, solution, K=rbf_kernel(X, gamma=0.3))
    else:
        solution = solve_linear(table, sparse.csr_matrix(X) if form == "csr" else X, y, weight, settings)
        primal, dual = objectives(table, y, weight, settings, solution, X=X)
    assert_allclose(solution.objective, primal, rtol=1e-9)
    assert_allclose(solution.gap, (primal - dual) / primal, rtol=1e-6)
    assert solution.gap > settings.tol


def test_watch_sees_the_gap_that_is_reported_and_never_a_negative_one():
    X, y, weight = problem(2500, seed=9)
    for name in ("apportioned", "crammer-singer"):
        for data in (X, sparse.csr_matrix(X)):
            seen = []
            settings = Settings(
                C=0.1, tol=1e-4, max_iter=5000, watch=lambda turn, gap, seen=seen: seen.append(gap)
            )
            solution = solve_linear(TABLES[name], data, y, weight, settings)
            assert seen and min(seen) >= 0
            assert_allclose(min(seen), solution.gap, rtol=0.2, atol=1e-12)


# ---------------------------------------------------------------- limiting cases


def test_free_intercept_is_that_of_libsvm_at_equal_costs():
    X, y, _ = problem(300, d=3, k=2, seed=10)
    table = loss_table("one-vs-rest", check_costs(None, range(2)))
    twin = SVC(C=0.8, kernel="rbf", gamma=0.4, tol=1e-8).fit(X, y)
    K = rbf_kernel(X, gamma=0.4)
    beta = np.zeros(300)
    beta[twin.support_] = twin.dual_coef_[0]
    hinge = np.maximum(0, 1 - np.where(y == 1, 1, -1) * twin.decision_function(X)).sum()
    primal = 0.5 * beta @ K @ beta + 0.8 * hinge
    solution = solve_kernel(
        table, make_kernel(X, "rbf", gamma=0.4), y, np.ones(300), Settings(C=0.8, offset=None, tol=1e-9)
    )
    assert_allclose(solution.intercept, [-twin.intercept_[0], twin.intercept_[0]], atol=1e-6)
    assert_allclose(solution.objective, 2 * primal, rtol=1e-7)  # two outputs, each the negative of the other


@pytest.mark.parametrize("name", ["apportioned", "own-mixed", "crammer-singer"])
@pytest.mark.parametrize("n", [60, 2400])
def test_a_warm_start_gives_the_same_optimum_in_fewer_steps(name, n):
    table, (X, y, weight) = TABLES[name], problem(n, seed=11)
    for data in (X, sparse.csr_matrix(X)):
        settings = Settings(C=0.1, tol=1e-5, max_iter=50_000)
        cold = solve_linear(table, data, y, weight, settings)
        warm = solve_linear(table, data, y, weight, settings, cold.alpha)
        assert warm.n_iter < cold.n_iter or cold.n_iter <= 1
        assert_certified(table, y, weight, settings, warm, X=X)
        near = solve_linear(table, data, y, weight, Settings(C=0.11, tol=1e-5, max_iter=50_000), cold.alpha)
        direct = solve_linear(table, data, y, weight, Settings(C=0.11, tol=1e-5, max_iter=50_000))
        assert_allclose(near.objective, direct.objective, rtol=2e-5)


@pytest.mark.parametrize("intercept", OFFSETS)
@pytest.mark.parametrize("form", ["dense", "csr", "kernel"])
@pytest.mark.parametrize("name", ["apportioned", "pairwise", "crammer-singer"])
def test_threads_change_no_bit(name, form, intercept):
    X, y, weight = problem(2600, d=5, k=10, seed=12)
    loss = name
    table = loss_table(loss, check_costs(np.linspace(1, 4, 10), range(10)))
    found = []
    for n_jobs in (1, 2):
        settings = Settings(C=0.1, offset=OFFSETS[intercept], tol=1e-2, n_jobs=n_jobs)
        if form == "kernel":
            found.append(solve_kernel(table, make_kernel(X, "rbf", gamma=0.2), y, weight, settings))
        else:
            data = sparse.csr_matrix(X) if form == "csr" else X
            found.append(solve_linear(table, data, y, weight, settings))
    one, two = found
    for attribute in ("alpha", "intercept", "objective", "gap", "n_iter"):
        assert_array_equal(getattr(one, attribute), getattr(two, attribute), err_msg=attribute)
    if form != "kernel":
        assert_array_equal(one.coef, two.coef)


def test_an_error_in_one_thread_ends_the_work_of_all():
    done = []

    def work(item):
        if item == 3:
            raise RuntimeError("item 3")
        time.sleep(1e-3)
        done.append(item)

    with threads(2) as each:
        assert list(each(abs, range(-5, 5))) == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]
        assert list(each(abs, [])) == []
        with pytest.raises(RuntimeError, match="item 3"):
            each(work, range(10_000))
        assert len(done) < 100
        assert list(each(abs, [-1])) == [1]  # and the threads are there for the next


def test_matrix_products_get_their_threads_back_when_the_last_fit_ends():
    def limits():
        return {library["filepath"]: library["num_threads"] for library in threadpool_info()}

    before = limits()
    first, second = threads(1), threads(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # the fits of two threads overlap: the first to begin ends first
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    assert blas and all(library["num_threads"] == 1 for library in blas)
    second.__exit__(None, None, None)
    assert limits() == before


def test_pairs_of_classes_share_the_cache(monkeypatch):
    sizes = []

    class Watched(Remembered):
        def __init__(self, source, megabytes):
            sizes.append(megabytes)
            super().__init__(source, megabytes)

    monkeypatch.setattr("apportion.dual.Remembered", Watched)
    monkeypatch.setattr("apportion.kernels.Remembered", Watched)
    monkeypatch.setattr("apportion.dual.cpu_count", lambda: 2)
    X = np.random.default_rng(0).standard_normal((300, 30))
    ApportionedSVC(loss="pairwise", kernel="laplacian", n_jobs=2, cache_size=10).fit(X, np.arange(300) % 3)
    assert (
        len(sizes) > 2 and max(sizes[1:]) == 2.5  # half of the cache, shared by two
    )  # the first is that of the data, which only lends its source


def test_a_small_cache_shared_by_pairs_of_classes_gives_the_same_with_any_threads(monkeypatch):
    monkeypatch.setattr("apportion.dual.cpu_count", lambda: 2)
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 5
    X = rng.standard_normal((3000, 40)) + 0.6 * rng.standard_normal((5, 40))[y]
    one, two = (ApportionedSVC(loss="pairwise", cache_size=1, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    assert_array_equal(one.dual_coef_, two.dual_coef_)
    assert one.objective_ == two.objective_


def test_rows_of_zeros_and_examples_of_weight_zero_are_no_trouble():
    X, y, weight = problem(2400, seed=13)
    X[::7], weight[::5] = 0.0, 0.0
    for name in ("apportioned", "crammer-singer", "own-mixed"):
        for intercept in ("penalized", "none"):
            settings = Settings(C=0.05, offset=OFFSETS[intercept], tol=1e-4, max_iter=100_000)
            for data in (X, sparse.csr_matrix(X)):
                solution = solve_linear(TABLES[name], data, y, weight, settings)
                assert_certified(TABLES[name], y, weight, settings, solution, X=X)
