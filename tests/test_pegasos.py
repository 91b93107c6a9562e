"""Pegasos: each fast form against its slow twin, the certificate against the dual, and the optimum in the limit."""

import numpy as np
import pytest
from scipy import sparse

import oracles
from apportion import ApportionedLinearSVC, ApportionedSVC, pegasos
from apportion.costs import check_costs
from apportion.losses import LOSSES, LossTable, loss_table

THETA = [1.0, 3.0, 0.5]
TABLES = {name: loss_table(name, check_costs(THETA, range(3))) for name in LOSSES}
MATRIX = [[0, 1, 4], [2, 0, 1], [3, 0.5, 0]]
TABLES["lee-lin-wahba, matrix"] = loss_table("lee-lin-wahba", check_costs(MATRIX, range(3)))


def blobs(n=40, d=4, seed=0):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, n)
    return draw.normal(size=(n, d)) + 0.7 * np.eye(3, d)[y], y, draw.uniform(0.2, 2.0, n)


def table_loss(table):
    """value and subgradient of any table, by loops"""

    def loss(f, y):
        z = [
            table.margins[y][r] - float(table.codes[y][r] @ np.asarray(f))
            for r in range(len(table.margins[y]))
        ]
        live = [r for r in range(len(z)) if z[r] > 0 and table.weights[y][r] > 0]
        live = [max(live, key=lambda r: z[r])] if table.shared and live else live
        slope = -sum((table.weights[y][r] * table.codes[y][r] for r in live), np.zeros(len(f)))
        hinges = [table.weights[y][r] * max(v, 0.0) for r, v in enumerate(z)]
        return (max(hinges) if table.shared else sum(hinges)), slope

    return loss


def walk(table, X, y, weight, orders, C=0.1, delay=0.0, t=1.0, **settings):
    plan = pegasos.Plan(C, len(y), t, **settings)
    steps = pegasos.new_walk(table.n_outputs, X.shape[1], delay)
    for order in orders:
        pegasos.visit(steps, table, X, y, weight, order, plan)
        pegasos.end_pass(steps)
    return steps, plan


def orders(n, passes, seed=1):
    draw = np.random.default_rng(seed)
    return [draw.permutation(n) for _ in range(passes)]


# ---------------------------------------------------------------- linear: equal to the loop


@pytest.mark.parametrize("name", TABLES)
def test_every_table_walks_as_its_loop(name):
    table, (X, y, weight) = TABLES[name], blobs()
    plan_of = orders(len(y), 3)
    slow = oracles.pegasos(table_loss(table), table.n_outputs, X, y, 0.1, plan_of, weight)
    steps, plan = walk(table, X, y, weight, plan_of)
    for average, W, b in ((False, slow.W, slow.b), (True, slow.mean_W, slow.mean_b)):
        fast = pegasos.machine(steps, plan, average)
        assert np.allclose(fast[0], W, rtol=1e-9, atol=1e-12) and np.allclose(
            fast[1], b, rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("name", ["apportioned", "one-vs-rest", "crammer-singer"])
def test_named_losses_walk_as_their_formulas(name):
    """The twin of the loss itself, not of its table."""
    cost = [[0 if j == c else THETA[c] for j in range(3)] for c in range(3)]
    X, y, weight = blobs()
    plan_of = orders(len(y), 2)
    slow = oracles.pegasos(lambda f, c: oracles.LOSSES[name](f, c, cost), 3, X, y, 0.1, plan_of, weight)
    steps, plan = walk(TABLES[name], X, y, weight, plan_of)
    assert np.allclose(pegasos.machine(steps, plan, False)[0], slow.W, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 40, 100])
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("delay", [0.0, 25.0])
def test_batches_projection_and_delay_are_those_of_the_loop(batch, project, delay):
    table, (X, y, weight) = TABLES["weston-watkins"], blobs()
    plan_of = orders(len(y), 3)
    settings = {"batch": batch, "project": project, "delay": delay}
    slow = oracles.pegasos(
        table_loss(table), 3, X, y, 0.5, plan_of, weight, intercept_scaling=2.0, **settings
    )
    steps, plan = walk(table, X, y, weight, plan_of, C=0.5, t=4.0, **settings)
    for average, W, b in ((False, slow.W, slow.b), (True, slow.mean_W, slow.mean_b)):
        fast = pegasos.machine(steps, plan, average)
        assert np.allclose(fast[0], W, rtol=1e-8, atol=1e-10) and np.allclose(
            fast[1], b, rtol=1e-8, atol=1e-10
        )


def test_the_projection_binds_in_this_test():
    """Else the test above would show nothing."""
    table, (X, y, weight) = TABLES["weston-watkins"], blobs()
    free, plan = walk(table, X, y, weight, orders(len(y), 1), C=0.5, t=4.0)
    held, _ = walk(table, X, y, weight, orders(len(y), 1), C=0.5, t=4.0, project=True)
    assert not np.allclose(free.V, held.V)
    assert np.linalg.norm(
        pegasos.machine(held, plan, False)[0]
    ) ** 2 <= held.start_loss / held.seen / plan.lam * (1 + 1e-12)


@pytest.mark.parametrize("name", ["apportioned", "pairwise", "crammer-singer"])
def test_sparse_and_single_precision_rows_walk_alike(name):
    table, (X, y, weight) = TABLES[name], blobs(d=12)
    X = np.where(np.abs(X) > 0.8, X, 0).astype(np.float32)
    plan_of = orders(len(y), 2)
    dense, _ = walk(table, X.astype(float), y, weight, plan_of, batch=3)
    for other in (
        X,
        sparse.csr_matrix(X),
        sparse.csr_matrix(X.astype(float)),
        sparse.csr_array(X.astype(float)),
    ):
        steps, _ = walk(table, other, y, weight, plan_of, batch=3)
        assert np.allclose(steps.V, dense.V, rtol=1e-6, atol=1e-9) and np.allclose(
            steps.Q, dense.Q, rtol=1e-6, atol=1e-9
        )


def test_a_walk_in_pieces_is_the_walk():
    table, (X, y, weight) = TABLES["reinforced"], blobs()
    order = orders(len(y), 1)[0]
    whole, plan = walk(table, X, y, weight, [order])
    steps = pegasos.new_walk(3, X.shape[1])
    for part in np.array_split(order, 5):
        pegasos.visit(steps, table, X, y, weight, part, plan)
    assert np.allclose(steps.V, whole.V, rtol=1e-12) and np.allclose(steps.Q, whole.Q, rtol=1e-12)
    assert steps.seen == whole.seen and steps.mass == whole.mass


# ---------------------------------------------------------------- what is claimed of it


@pytest.mark.parametrize("name", TABLES)
def test_loss_and_optimum(name):
    """Many passes come near the optimum that an interior point method finds, and the gap says how near."""
    table, (X, y, weight) = TABLES[name], blobs()
    optimum = oracles.primal_cvxpy(table, X, y, 0.1, weight)
    steps, plan = walk(table, X, y, weight, orders(len(y), 300))
    W, b = pegasos.machine(steps, plan, True)
    primal = pegasos.primal_value(table, X, y, weight, W, b, plan)
    slow = oracles.primal_value(lambda f, c: oracles.table_loss(table, f, c), X, y, 0.1, W, b, weight)
    assert np.isclose(primal, slow + 0.5 * float(b @ b), rtol=1e-12)
    assert optimum.value * (1 - 1e-9) <= primal <= 1.01 * optimum.value
    assert pegasos.lower_bound(steps, plan) <= optimum.value * (1 + 1e-9)
    assert (primal - optimum.value) / primal <= pegasos.relative_gap(primal, steps, plan) < 0.05


@pytest.mark.parametrize("settings", [{}, {"project": True}, {"delay": 60.0}, {"batch": 6}])
def test_the_lower_bound_holds_from_the_first_pass_on(settings):
    table, (X, y, weight) = TABLES["crammer-singer"], blobs()
    best = oracles.primal_cvxpy(table, X, y, 0.5, weight).value
    delay = settings.pop("delay", 0.0)
    steps, plan = walk(table, X, y, weight, [], C=0.5, delay=delay, **settings)
    bounds = []
    for order in orders(len(y), 65):
        pegasos.visit(steps, table, X, y, weight, order, plan)
        pegasos.end_pass(steps)
        bounds.append(pegasos.lower_bound(steps, plan))
    assert max(bounds) <= best * (1 + 1e-9)
    assert bounds[-1] > 0.8 * best and bounds[-1] > bounds[0]


def test_the_lower_bound_is_the_dual_value_of_the_counts():
    """One pass of a table of two classes, its dual variables written out."""
    table = loss_table("apportioned", check_costs([2.0, 1.0], range(2)))
    X, y, _ = blobs(20)
    y = y % 2
    order, C = np.arange(20), 0.3
    steps, plan = walk(table, X, y, np.ones(20), [order], C=C)
    alpha = np.zeros((20, 2))
    machine = np.zeros((2, X.shape[1] + 1))
    for t, i in enumerate(order):
        x = np.append(X[i], 1.0)
        f = C * 20 / max(t, 1) * machine @ x
        for r in range(2):
            if table.margins[y[i], r] > table.codes[y[i], r] @ f:
                alpha[i, r] = C
                machine += np.outer(table.codes[y[i], r], x)
    _, dual = oracles.primal_and_dual(table, X @ X.T + 1.0, y, C, alpha)
    assert np.isclose(pegasos.lower_bound(steps, plan), max(dual, 0.0), rtol=1e-12)
    assert dual > 0


def test_the_first_step_moves_an_example_by_its_margin():
    table = TABLES["apportioned"]
    X, y = np.full((1, 2), 3.0), np.array([1])
    plan = pegasos.Plan(10.0, 1000)
    delay = pegasos.first_delay(table, y, np.ones(1), np.array([18.0]), plan)
    steps = pegasos.new_walk(3, 2, delay)
    pegasos.visit(steps, table, X, y, np.ones(1), np.arange(1), plan)
    W, b = pegasos.machine(steps, plan, False)
    moved = table.codes[1] @ (W @ X[0] + b) / table.margins[1]
    assert np.allclose(moved, delay / (delay + 1))  # the step is 1 / (lambda (delay + 1))


def test_with_the_papers_sign_it_runs_away():
    """The published update subtracts the hinge step: the loss grows instead."""
    table, (X, y, weight) = TABLES["apportioned"], blobs()
    papers = LossTable(-table.codes, table.margins, table.weights, table.decide)
    steps, plan = walk(papers, X, y, weight, orders(len(y), 20))
    W, b = pegasos.machine(steps, plan, False)
    at_zero = pegasos.primal_value(table, X, y, weight, 0 * W, 0 * b, plan)
    assert (
        pegasos.primal_value(table, X, y, weight, -W, -b, plan)
        < at_zero
        < pegasos.primal_value(table, X, y, weight, W, b, plan)
    )


# ---------------------------------------------------------------- with a kernel


@pytest.mark.parametrize("name", TABLES)
def test_kernel_counts_are_those_of_the_loop(name):
    from apportion.dual import Settings
    from apportion.kernels import Precomputed

    table, (X, y, weight) = TABLES[name], blobs(20)
    K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    found = pegasos.solve_kernel(
        table,
        Precomputed(K, np.arange(20)),
        y,
        weight,
        Settings(C=0.7, offset=0.5, max_iter=2, tol=1e-9),
        seed=5,
    )
    plan_of = [np.random.default_rng([5, p]).permutation(20) for p in (1, 2)]
    alpha = oracles.pegasos_kernel(table, K + 0.5, y, 0.7, plan_of, weight)
    assert np.allclose(found.alpha, alpha, rtol=1e-9, atol=1e-12)
    primal, dual = oracles.primal_and_dual(table, K + 0.5, y, 0.7, alpha, weight)
    assert np.isclose(found.objective, primal, rtol=1e-9)
    assert np.isclose(found.gap, (primal - dual) / primal, rtol=1e-9)


def test_blocks_of_kernel_rows_change_nothing(monkeypatch):
    X, y, _ = blobs(150)
    settings = {"solver": "pegasos", "max_iter": 5, "random_state": 3, "tol": 1e-9}
    with pytest.warns(match="relative duality gap"):
        whole = ApportionedSVC(THETA, **settings).fit(X, y)
    monkeypatch.setattr(pegasos, "BLOCK", 7)
    with pytest.warns(match="relative duality gap"):
        parts = ApportionedSVC(THETA, cache_size=0.01, **settings).fit(X, y)
    assert np.allclose(whole.decision_function(X), parts.decision_function(X), rtol=1e-10)


@pytest.mark.parametrize("loss", ["apportioned", "crammer-singer"])
def test_the_estimator_comes_near_the_exact_machine(loss):
    X, y, weight = blobs(150)
    exact = ApportionedSVC(THETA, loss=loss, tol=1e-6).fit(X, y, weight)
    machine = ApportionedSVC(THETA, loss=loss, solver="pegasos", tol=0.02, random_state=0).fit(X, y, weight)
    assert machine.dual_gap_ <= 0.02
    assert exact.objective_ * (1 - 1e-6) <= machine.objective_ <= exact.objective_ / (1 - machine.dual_gap_)
    assert np.mean(machine.predict(X) == exact.predict(X)) > 0.95
    other = ApportionedSVC(THETA, loss=loss, solver="pegasos", tol=0.02, random_state=0).fit(X, y, weight)
    assert np.array_equal(other.dual_coef_, machine.dual_coef_)


def test_a_linear_kernel_gives_the_linear_walk():
    """Kernel counts and linear sums are one method: same orders, same machine."""
    table, (X, y, weight) = TABLES["apportioned"], blobs(60)
    from apportion.dual import Settings
    from apportion.kernels import make_kernel

    settings = Settings(C=0.2, max_iter=3, tol=1e-9)
    found = pegasos.solve_kernel(table, make_kernel(X, "linear"), y, weight, settings, seed=1)
    plan_of = [np.random.default_rng([1, p]).permutation(60) for p in (1, 2, 3)]
    steps, plan = walk(table, X, y, weight, plan_of, C=0.2)
    W, b = pegasos.machine(steps, plan, False)
    assert np.allclose(found.beta(table, y).T @ X, W, rtol=1e-9) and np.allclose(
        found.intercept, b, rtol=1e-9
    )


@pytest.mark.parametrize("settings", [{"intercept": "free"}, {"C": np.inf}])
def test_what_pegasos_cannot_do_is_said(settings):
    X, y, _ = blobs()
    with pytest.raises(ValueError, match="solver='pegasos' needs a finite C and intercept"):
        ApportionedSVC(solver="pegasos", **settings).fit(X, y)
    with pytest.raises(ValueError, match=r"solver='sgd' is not known; allowed: 'exact', 'pegasos'\."):
        ApportionedSVC(solver="sgd").fit(X, y)


def test_one_percent_in_twenty_passes():
    """A small copy of the benchmark: the same kind of data, fewer of them."""
    from sklearn.datasets import make_classification

    X, y = make_classification(5000, 20, n_informative=10, n_classes=5, class_sep=2.0, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    exact = ApportionedLinearSVC(C=0.02, tol=1e-4).fit(X, y)
    table = loss_table("apportioned", check_costs(None, range(5)))
    steps, plan = walk(table, X, y, np.ones(5000), orders(5000, 20), C=0.02)
    primal = pegasos.primal_value(table, X, y, np.ones(5000), *pegasos.machine(steps, plan, True), plan)
    assert primal <= 1.01 * exact.objective_
