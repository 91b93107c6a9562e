"""What must hold for every problem: laws checked on problems that hypothesis draws."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from apportion import ApportionedLinearSVC, ApportionedSVC, expected_cost
from apportion.costs import check_costs
from apportion.dual import Settings, solve_kernel
from apportion.kernels import make_kernel
from apportion.linear import solve_linear
from apportion.losses import LOSSES, loss_table, value

few = settings(max_examples=60)
losses = st.sampled_from(tuple(LOSSES))
intercepts = st.sampled_from(["penalized", "free", "none"])
OFFSETS = {"penalized": 1.0, "free": None, "none": 0.0}


@st.composite
def problems(draw, max_classes=4):
    """X (n, d), y with every class at least once, costs theta and C."""
    k, d = draw(st.integers(2, max_classes)), draw(st.integers(1, 3))
    n = draw(st.integers(k, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y = rng.permutation(np.append(np.arange(k), rng.integers(k, size=n - k)))
    X = rng.standard_normal((n, d)) + draw(st.sampled_from([0.0, 1.0, 4.0])) * rng.standard_normal((k, d))[y]
    if draw(st.booleans()):
        X = np.round(X)  # rows that are equal, columns that are constant
    theta = np.array(draw(st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0, 5.0, 20.0]), min_size=k, max_size=k)))
    return X, y, theta, draw(st.sampled_from([0.01, 0.3, 1.0, 10.0]))


def solve(problem, loss="apportioned", tol=1e-9, offset=1.0, weight=None, rbf=False, max_iter=5000, **powers):
    X, y, theta, C = problem
    table = loss_table(loss, check_costs(theta, np.arange(len(theta))), **powers)
    weight = np.ones(len(y)) if weight is None else weight
    asked = Settings(C=C, offset=offset, tol=tol, max_iter=max_iter)
    if rbf:
        return table, solve_kernel(table, make_kernel(X, "rbf", gamma=0.5), y, weight, asked)
    return table, solve_linear(table, X, y, weight, asked)


@few
@given(problems(), st.sampled_from([0.2, 3.0, 50.0]))
def test_scaling_all_costs_scales_the_machine(problem, c):
    """W(c theta, c C) = c W(theta, C): margins and box grow alike."""
    X, y, theta, C = problem
    _, one = solve(problem)
    _, other = solve((X, y, c * theta, c * C))
    assert_allclose(other.objective, c**2 * one.objective, rtol=1e-7)
    reach = np.sqrt(1e-8 * one.objective)  # |W - W*| <= sqrt(2 gap objective)
    assert_allclose(other.coef / c, one.coef, atol=reach)
    assert_allclose(other.intercept / c, one.intercept, atol=reach)


@few
@given(problems(), losses, intercepts, st.randoms(use_true_random=False))
def test_names_of_the_classes_do_not_matter(problem, loss, intercept, random):
    X, y, theta, C = problem
    names = np.arange(len(theta))
    random.shuffle(names)
    renamed = np.empty_like(theta)
    renamed[names] = theta  # class c is called names[c]
    _, one = solve(problem, loss, 1e-7, OFFSETS[intercept])
    _, other = solve((X, names[y], renamed, C), loss, 1e-7, OFFSETS[intercept])
    assert_allclose(other.objective, one.objective, rtol=5e-7, atol=1e-12)
    if loss not in ("pairwise",):  # whose outputs are pairs
        reach = np.sqrt(4e-7 * one.objective)
        assert_allclose(other.coef[names], one.coef, atol=reach)


@few
@given(problems(), losses, intercepts, st.data())
def test_weight_is_repetition(problem, loss, intercept, data):
    X, y, theta, C = problem
    weight = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(y), max_size=len(y))))
    rows = np.repeat(np.arange(len(y)), weight)
    _, weighted = solve(problem, loss, 1e-7, OFFSETS[intercept], weight.astype(float), rbf=True)
    _, repeated = solve((X[rows], y[rows], theta, C), loss, 1e-7, OFFSETS[intercept], rbf=True)
    assert_allclose(weighted.objective, repeated.objective, rtol=5e-7, atol=1e-12)


@few
@given(problems(), losses)
def test_machines_take_weight_for_repetition_exactly(problem, loss):
    X, y, theta, C = problem
    weight = 1 + np.arange(len(y)) % 3
    rows = np.repeat(np.arange(len(y)), weight)
    machine = ApportionedSVC(theta, loss=loss, C=C, gamma=0.5, tol=0.1)
    scores = machine.fit(X, y, sample_weight=weight).decision_function(X)
    assert_array_equal(machine.fit(X[rows], y[rows]).decision_function(X), scores)


@few
@given(problems(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0]), intercepts)
def test_at_equal_costs_of_one_the_machine_is_one_vs_rest(problem, p, q, intercept):
    X, y, theta, C = problem
    equal = (X, y, np.ones_like(theta), C)
    _, one = solve(equal, "apportioned", offset=OFFSETS[intercept], margin_power=p, slack_power=q)
    _, other = solve(equal, "one-vs-rest", offset=OFFSETS[intercept])
    assert_array_equal(one.coef, other.coef)
    assert_array_equal(one.intercept, other.intercept)


@few
@given(problems(), st.sampled_from([ApportionedLinearSVC, ApportionedSVC]))
def test_the_surrogate_bounds_the_cost(problem, Machine):
    """loss(f, y) >= theta_y where the decision is wrong, so the hinge part of the objective bounds the cost."""
    X, y, theta, C = problem
    machine = Machine(theta, C=C, tol=0.01).fit(X, y)
    cost = expected_cost(y, machine.predict(X), costs=theta) * len(y)
    assert C * cost <= machine.objective_ * (1 + 1e-9)


@given(
    problems(), st.sampled_from(["apportioned", "one-vs-rest", "lee-lin-wahba", "crammer-singer"]), st.data()
)
def test_every_loss_of_scores_bounds_the_cost_of_the_decision(problem, loss, data):
    """At the default powers; a decision by these scores that is wrong costs no more than the loss."""
    _, y, theta, _ = problem
    table = loss_table(loss, check_costs(theta, np.arange(len(theta))))
    m = table.n_outputs
    F = np.array(data.draw(st.lists(st.floats(-30, 30), min_size=m, max_size=m)))[None]
    if loss == "lee-lin-wahba":
        F = F - F.mean()
    wrong = int(table.decide(F)[0].argmax()) != y[0]
    assert value(table, F, y[:1])[0] >= wrong * theta[y[0]] * (1 - 1e-9) - 1e-12


@few
@given(problems(), losses, intercepts, st.booleans(), st.sampled_from([1, 2, 5, 5000]))
@example(
    (np.array([[-0.13], [0.64]]), np.array([0, 1]), np.array([0.1, 0.5]), 0.01),
    "weston-watkins",
    "free",
    False,
    1,
)
@example(
    (np.array([[1.6], [0.47], [0.77]]), np.array([2, 0, 1]), np.array([2.0, 5.0, 2.0]), 0.01),
    "crammer-singer",
    "none",
    False,
    5000,
)
def test_the_gap_is_never_negative_and_bounds_the_distance(problem, loss, intercept, rbf, max_iter):
    """Also where the solver is stopped early."""
    _, rough = solve(problem, loss, 1e-6, OFFSETS[intercept], rbf=rbf, max_iter=max_iter)
    _, best = solve(problem, loss, 1e-9, OFFSETS[intercept], rbf=rbf)
    assert rough.gap >= 0
    assert best.gap <= 1e-9
    # dual of the one <= optimum <= primal of the other
    assert rough.objective * (1 - rough.gap) <= best.objective * (1 + 1e-9) + 1e-12
    assert best.objective * (1 - best.gap) <= rough.objective * (1 + 1e-9) + 1e-12


@few
@given(problems(), losses)
def test_a_dearer_price_of_slack_never_lowers_the_optimum(problem, loss):
    X, y, theta, C = problem
    _, one = solve(problem, loss, 1e-7)
    _, other = solve((X, y, theta, 2 * C), loss, 1e-7)
    assert one.objective <= other.objective * (1 + 2e-7)
    assert other.objective <= 2 * one.objective * (1 + 2e-7)
