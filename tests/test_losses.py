"""The tables say what the formulas of the losses say: values, slopes, decisions, optima."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from apportion.costs import check_costs
from apportion.losses import (
    LOSSES,
    LossTable,
    PerClass,
    loss_table,
    reinforced,
    subgradient,
    terms,
    value,
)
from make_golden import solve

POWERED = ("apportioned", "one-vs-rest", "pairwise")  # losses with a margin power in the loss itself
SETTINGS = [(loss, None, None) for loss in LOSSES]
SETTINGS += [(loss, p, q) for loss in POWERED for p, q in ((0.5, 0.5), (1.0, 1.0), (0.0, 0.0), (-0.3, 2.0))]
SETTINGS += [(loss, None, 0.5) for loss in LOSSES if loss not in POWERED] + [("lee-lin-wahba", 1.0, 0.5)]

floats = st.floats(-8, 8, allow_subnormal=False)
thetas = st.lists(st.floats(0.2, 10), min_size=2, max_size=5)


def table_of(loss, theta, p=None, q=None, ratio=None):
    costs = check_costs(theta, np.arange(len(theta)))
    return loss_table(loss, costs, margin_power=p, slack_power=q, ratio=ratio)


def oracle_of(loss, theta, p=None, q=None):
    """(f, y) -> value, slope of the slow twin with the same powers."""
    matrix = check_costs(theta, np.arange(len(theta))).matrix.tolist()
    powers = {name: power for name, power in (("p", p), ("q", q)) if power is not None}
    return lambda f, y: oracles.LOSSES[loss](f, y, matrix, **powers)


@st.composite
def problems(draw, losses=tuple(LOSSES)):
    """A loss, costs, two score vectors and a class."""
    loss, theta = draw(st.sampled_from(losses)), draw(thetas)
    m = table_of(loss, theta).n_outputs
    scores = st.lists(floats, min_size=m, max_size=m)
    return loss, theta, np.array(draw(scores)), np.array(draw(scores)), draw(st.integers(0, len(theta) - 1))


def at(table, f, y):
    return value(table, np.asarray(f, dtype=float)[None], np.array([y]))[0]


def decision(table, f):
    return int(table.decide(np.asarray(f, dtype=float)[None])[0].argmax())


# ---------------------------------------------------------------- values and slopes


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize(("loss", "p", "q"), SETTINGS)
def test_value_and_subgradient_are_those_of_the_formula(loss, p, q, k):
    rng = np.random.default_rng(k)
    theta = rng.choice([0.5, 1.0, 2.0, 5.0], k)
    table, oracle = table_of(loss, theta, p, q), oracle_of(loss, theta, p, q)
    F, y = 2 * rng.standard_normal((40, table.n_outputs)), rng.integers(k, size=40)
    expected = [oracle(f, c) for f, c in zip(F, y, strict=True)]
    assert_allclose(value(table, F, y), [v for v, _ in expected], atol=1e-12)
    assert_allclose(subgradient(table, F, y), [g for _, g in expected], atol=1e-12)
    by_table = [oracles.table_loss(table, f, c) for f, c in zip(F, y, strict=True)]
    assert_allclose(value(table, F, y), by_table, atol=1e-12)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_lee_lin_wahba_on_a_cost_matrix(q):
    matrix = [[0.0, 1.0, 3.0], [4.0, 0.0, 0.5], [2.0, 0.0, 0.0]]  # deciding 1 for 2 is free, for every power
    table, oracle = table_of("lee-lin-wahba", matrix, q=q), oracle_of("lee-lin-wahba", matrix, q=q)
    rng = np.random.default_rng(0)
    F, y = 2 * rng.standard_normal((40, 3)), rng.integers(3, size=40)
    expected = [oracle(f, c) for f, c in zip(F, y, strict=True)]
    assert_allclose(value(table, F, y), [v for v, _ in expected], atol=1e-12)
    assert_allclose(subgradient(table, F, y), [g for _, g in expected], atol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_reinforcement(gamma):
    theta = [1.0, 4.0, 2.0, 0.5]
    costs = check_costs(theta, np.arange(4))
    table = reinforced(costs, reinforcement=gamma)
    rng = np.random.default_rng(1)
    F, y = 3 * rng.standard_normal((40, 4)), rng.integers(4, size=40)
    expected = [oracles.reinforced(f, c, costs.matrix, gamma=gamma) for f, c in zip(F, y, strict=True)]
    assert_allclose(value(table, F, y), [v for v, _ in expected], atol=1e-12)
    assert_allclose(subgradient(table, F, y), [g for _, g in expected], atol=1e-12)
    if gamma == 0:
        assert_allclose(value(table, F, y), value(table_of("lee-lin-wahba", theta), F, y), atol=1e-12)


def test_terms_are_the_margins_less_the_scores():
    table = table_of("apportioned", [2.0, 5.0])
    assert_array_equal(
        terms(table, np.array([[0.5, -1.0], [0.5, -1.0]]), np.array([0, 1])), [[1.5, 1], [5.5, 6]]
    )


@given(problems())
def test_subgradient_inequality(problem):
    loss, theta, f, g, y = problem
    table = table_of(loss, theta)
    slope = subgradient(table, f[None], np.array([y]))[0]
    below = at(table, f, y) + slope @ (g - f)
    assert at(table, g, y) >= below - 1e-9 * (1 + abs(below))


# ---------------------------------------------------------------- facts about the losses


@given(problems(("apportioned", "one-vs-rest")), st.sampled_from([None, 0.0, 0.25, 1.0]))
def test_apportioned_loss_is_at_least_the_cost(problem, p):
    """loss(f, y) >= theta_y [argmax of the class scores is not y], whenever the powers add to one."""
    loss, theta, f, _, y = problem
    table = table_of(loss, theta, p, None if p is None else 1 - p)
    error = decision(table, f) != y
    assert at(table, f, y) >= theta[y] * error - 1e-9


def test_the_bound_is_tight_and_is_not_trivial():
    table = table_of("apportioned", [3.0, 1.0])
    assert at(table, [0.0, -3.0], 0) == 3.0  # the decision hangs between the classes: the loss is the cost
    assert at(table, [3.0, -3.0], 0) == 0.0
    assert decision(table, [-0.1, 0.0]) == 1 and at(table, [-0.1, 0.0], 0) > 3.0


@given(problems(("apportioned",)))
def test_equal_costs_are_one_vs_rest(problem):
    _, theta, f, _, y = problem
    equal = np.ones(len(theta))
    assert at(table_of("apportioned", equal), f, y) == at(table_of("one-vs-rest", equal), f, y)
    assert decision(table_of("apportioned", equal), f) == decision(table_of("one-vs-rest", equal), f)


@given(problems(POWERED), st.floats(0.1, 10), st.floats(-1, 2), st.floats(-1, 2))
def test_scaling(problem, c, p, q):
    """loss(c theta; c^p f) = c^(p + q) loss(theta; f), and the decision stays."""
    loss, theta, f, _, y = problem
    table, scaled = table_of(loss, theta, p, q), table_of(loss, c * np.array(theta), p, q)
    assert_allclose(at(scaled, c**p * f, y), c ** (p + q) * at(table, f, y), rtol=1e-9, atol=1e-9)
    assert_allclose(scaled.decide(c**p * f[None]), table.decide(f[None]), rtol=1e-9, atol=1e-9)


@given(problems(("weston-watkins", "crammer-singer", "lee-lin-wahba", "reinforced")), st.floats(-5, 5))
def test_only_differences_of_scores_count(problem, shift):
    loss, theta, f, _, y = problem
    table = table_of(loss, theta)
    assert_allclose(at(table, f + shift, y), at(table, f, y), rtol=1e-9, atol=1e-9)
    assert_allclose(table.codes.sum(axis=2), 0, atol=1e-12)


@given(problems(tuple(loss for loss in LOSSES if loss != "pairwise")), st.randoms())
def test_permuting_the_classes_permutes_the_loss(problem, random):
    loss, theta, f, _, y = problem
    order = list(range(len(theta)))
    random.shuffle(order)  # class order[c] is called c afterwards
    table, permuted = table_of(loss, theta), table_of(loss, np.array(theta)[order])
    assert_allclose(at(permuted, f[order], order.index(y)), at(table, f, y), rtol=1e-12, atol=1e-12)
    assert_allclose(permuted.decide(f[None][:, order]), table.decide(f[None])[:, order], rtol=1e-12)


@given(problems(("pairwise",)), st.randoms())
def test_permuting_the_classes_permutes_the_pairs(problem, random):
    loss, theta, f, _, y = problem
    assume(np.abs(f).min() > 0)  # a pair without a lead goes to its second class, whichever that is
    order = list(range(len(theta)))
    random.shuffle(order)
    score = {pair: s for pair, s in zip(oracles.pairs_of(len(theta)), f, strict=True)}
    g = [
        score[order[a], order[b]] if order[a] < order[b] else -score[order[b], order[a]]
        for a, b in oracles.pairs_of(len(theta))
    ]
    table, permuted = table_of(loss, theta), table_of(loss, np.array(theta)[order])
    assert_allclose(at(permuted, g, order.index(y)), at(table, f, y), rtol=1e-12, atol=1e-12)
    assert_allclose(permuted.decide(np.array([g])), table.decide(f[None])[:, order], rtol=1e-9, atol=1e-12)


@given(problems(("weston-watkins",)))
def test_crammer_singer_is_the_largest_term_of_weston_watkins(problem):
    _, theta, f, _, y = problem
    largest, summed = at(table_of("crammer-singer", theta), f, y), at(table_of("weston-watkins", theta), f, y)
    assert largest <= summed + 1e-12
    assert summed <= (len(theta) - 1) * largest + 1e-9


def test_two_classes_make_the_difference_losses_one():
    rng = np.random.default_rng(3)
    F, y = rng.standard_normal((30, 2)), rng.integers(2, size=30)
    losses = [value(table_of(loss, [1.0, 3.0]), F, y) for loss in ("weston-watkins", "crammer-singer")]
    losses.append(value(table_of("pairwise", [1.0, 3.0]), F[:, :1] - F[:, 1:], y))
    assert_allclose(losses[0], losses[1])
    assert_allclose(losses[0], losses[2])


# ---------------------------------------------------------------- decisions


@given(problems(("apportioned",)), st.sampled_from([0.0, 0.5, 1.0]))
def test_apportioned_decision(problem, p):
    _, theta, f, _, _ = problem
    scores = np.sort(f / np.array(theta) ** p)
    assume(scores[-1] - scores[-2] > 1e-9)
    assert decision(table_of("apportioned", theta, p), f) == oracles.apportioned_decision(f, theta, p)


@given(problems(("pairwise",)), st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.data())
def test_pairwise_decision(problem, p, anew, data):
    _, theta, f, _, _ = problem
    k = len(theta)
    ratio = data.draw(st.lists(st.floats(0.2, 5), min_size=k, max_size=k)) if anew else None
    table = table_of("pairwise", theta, p, ratio=None if ratio is None else np.array(ratio))
    ranked = np.sort(table.decide(f[None])[0])
    assume(ranked[-1] - ranked[-2] > 1e-9)
    expected = oracles.pairwise_decision(f, theta, p, ratio)
    if anew:  # the boundaries lie elsewhere than at zero: stay off them by more than rounding
        assume(all(oracles.pairwise_decision(f + e, theta, p, ratio) == expected for e in (-1e-9, 1e-9)))
    assert decision(table, f) == expected


def test_a_cycle_of_votes_goes_to_the_largest_lead():
    """0 beats 1, 1 beats 2, 2 beats 0: one vote each."""
    table = table_of("pairwise", [1.0, 1.0, 1.0])
    for f, winner in (([3.0, -1.0, 1.0], 0), ([1.0, -1.0, 3.0], 1), ([1.0, -3.0, 1.0], 2)):
        assert decision(table, f) == winner == oracles.pairwise_decision(f, [1, 1, 1])


@pytest.mark.parametrize(("small", "large"), [(1e-6, 1e9), (1e-300, 1e300)])
def test_more_votes_beat_any_lead(small, large):
    table = table_of("pairwise", [1.0, 1.0, 1.0])
    assert decision(table, [small, small, large]) == 0  # class 0 wins both its pairs by a hair
    assert decision(table, [-small, large, small]) == 1
    assert decision(table, [large, -small, -small]) == 2


@given(problems(("apportioned",)), st.data())
def test_reapportioned_boundary_divides_the_way_between_the_support_hyperplanes(problem, data):
    """Class j has its hyperplane at f_j = theta_j; the score compared is (f_j / theta_j - 1) / ratio_j."""
    _, theta, f, _, _ = problem
    k = len(theta)
    ratio = np.array(data.draw(st.lists(st.floats(0.2, 5), min_size=k, max_size=k)))
    compared = [(f[j] / theta[j] - 1) / ratio[j] for j in range(k)]
    assume(np.diff(np.sort(compared))[-1] > 1e-9)
    assert decision(table_of("apportioned", theta, 1.0, ratio=ratio), f) == int(np.argmax(compared))


def test_lee_lin_wahba_cuts_between_the_vertices_in_the_ratio_of_the_costs():
    """Vertex j of the simplex is f_j = k - 1, f_l = -1; the cut is theta_i : theta_j, by power or ratio."""
    theta = np.array([1.0, 4.0, 2.0])
    vertex = 3 * np.eye(3) - 1
    for table in (table_of("lee-lin-wahba", theta, 1.0), table_of("lee-lin-wahba", np.ones(3), ratio=theta)):
        for i, j in ((0, 1), (1, 2), (0, 2)):
            cut = theta[i] / (theta[i] + theta[j])  # class i keeps the way from its vertex up to here
            assert decision(table, (1 - cut + 1e-6) * vertex[i] + (cut - 1e-6) * vertex[j]) == i
            assert decision(table, (1 - cut - 1e-6) * vertex[i] + (cut + 1e-6) * vertex[j]) == j


# ---------------------------------------------------------------- optima

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def golden_name(case):
    kind = "rbf" if case["gamma"] else case["intercept"]
    form = "-weighted" * bool(case["sample_weight"]) + "-matrix" * isinstance(case["costs"][0], list)
    return f"{case['loss']}-{kind}{form}" + f"-{case['margin_power']}" * (case["margin_power"] is not None)


def test_every_loss_has_golden_cases():
    assert {case["loss"] for case in GOLDEN["cases"]} == set(LOSSES) == set(oracles.LOSSES)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=golden_name)
def test_golden_five_points(case):
    X, y = np.array(GOLDEN["X"]), np.array(GOLDEN["y"])
    powers = {"p": case["margin_power"], "q": case["slack_power"]}
    table, oracle = (
        table_of(case["loss"], case["costs"], **powers),
        oracle_of(case["loss"], case["costs"], **powers),
    )
    alpha, b, sw = np.array(case["alpha"]), np.array(case["b"]), case["sample_weight"]

    # the dual variables certify the optimum of the table's problem
    K = rbf_kernel(X, gamma=case["gamma"]) if case["gamma"] else X @ X.T
    if case["intercept"] == "penalized":
        K = K + case["intercept_scaling"] ** 2
    free = b if case["intercept"] == "free" else None
    primal, dual = oracles.primal_and_dual(table, K, y, case["C"], alpha, sw, free, slack=1e-8)
    assert_allclose([primal, dual], case["value"], rtol=2e-6)

    # W and b reach it by the formula of the loss
    if not case["gamma"]:
        at_optimum = oracles.primal_value(lambda f, c: oracle(f, c)[0], X, y, case["C"], case["W"], b, sw)
        if case["intercept"] == "penalized":
            at_optimum += 0.5 * b @ b / case["intercept_scaling"] ** 2
        assert_allclose(at_optimum, case["value"], rtol=1e-8)

    # and the script still gives these numbers
    assert_allclose(solve(case).value, case["value"], rtol=1e-7)


def blobs(n=30, k=3):
    rng = np.random.default_rng(5)
    y = np.arange(n) % k
    return rng.standard_normal((n, 2)) + 1.2 * np.eye(k)[y][:, :2], y


def test_a_table_stays_what_it_was_when_it_was_checked():
    codes, margins, weights = np.ones((2, 1, 1)), np.ones((2, 1)), np.ones((2, 1))
    codes[0] = -1.0
    table = LossTable(codes, margins, weights, lambda f: np.column_stack([-f, f]))
    codes[:], margins[:], weights[:] = np.nan, np.nan, -1.0
    assert np.all(np.isfinite(table.codes)) and table.margins.min() == table.weights.min() == 1.0


def test_apportioned_machine_is_linear_svc_on_examples_divided_by_their_cost():
    X, y = blobs()
    theta = [1.0, 5.0, 2.0]
    best = oracles.primal_cvxpy(table_of("apportioned", theta), X, y, C=0.5)
    W, b = oracles.linear_svc_twin(X, y, theta, C=0.5)
    assert_allclose(W, best.W, atol=1e-5)
    assert_allclose(b, best.b, atol=1e-5)


@pytest.mark.parametrize("intercept", ["penalized", "free", "none"])
def test_the_problem_in_kernel_form_has_the_same_optimum(intercept):
    X, y = blobs(15)
    table = table_of("crammer-singer", [1.0, 5.0, 2.0])
    linear = oracles.primal_cvxpy(table, X, y, 0.7, intercept=intercept, intercept_scaling=1.5)
    kernel = oracles.primal_cvxpy(
        table, X @ X.T, y, 0.7, intercept=intercept, intercept_scaling=1.5, kernel=True
    )
    assert_allclose(kernel.value, linear.value, rtol=1e-7)


def test_weight_two_is_the_example_twice_and_weight_zero_none():
    X, y = blobs(12)
    table = table_of("weston-watkins", [1.0, 5.0, 2.0])
    times = np.array([2, 1, 0, 1] * 3)
    weighted = oracles.primal_cvxpy(table, X, y, 0.7, sample_weight=times)
    repeated = oracles.primal_cvxpy(table, np.repeat(X, times, axis=0), np.repeat(y, times), 0.7)
    assert_allclose(weighted.value, repeated.value, rtol=1e-7)


def test_costs_times_c_and_C_times_c_give_weights_times_c():
    """W(c theta, c C) = c W(theta, C) for p = 1, q = 0."""
    X, y = blobs(15)
    theta = np.array([1.0, 5.0, 2.0])
    one = oracles.primal_cvxpy(table_of("apportioned", theta), X, y, 0.5)
    three = oracles.primal_cvxpy(table_of("apportioned", 3 * theta), X, y, 1.5)
    assert_allclose(three.W, 3 * one.W, atol=1e-4)
    assert_allclose(three.value, 9 * one.value, rtol=1e-7)


def test_gap_is_positive_away_from_the_optimum_and_fails_outside_the_box():
    X, y = blobs(12)
    table = table_of("apportioned", [1.0, 5.0, 2.0])
    K = X @ X.T + 1
    best = oracles.primal_cvxpy(table, X, y, 0.5)
    assert abs(oracles.duality_gap(table, K, y, 0.5, np.clip(best.alpha, 0, 0.5))) < 1e-6 * best.value
    assert oracles.duality_gap(table, K, y, 0.5, np.full((12, 3), 0.25)) > 1e-3
    with pytest.raises(AssertionError, match=r"alpha\[0, 0\] = 0\.6 not in \[0, 0\.5\]"):
        oracles.duality_gap(table, K, y, 0.5, np.full((12, 3), 0.6))


# ---------------------------------------------------------------- tables and mistakes


@pytest.mark.parametrize("loss", LOSSES)
def test_shapes(loss):
    k = 4
    table = table_of(loss, [1.0, 2.0, 3.0, 4.0])
    assert (table.n_classes, table.n_outputs) == (k, 6 if loss == "pairwise" else k)
    assert table.codes.shape[:2] == table.margins.shape == table.weights.shape
    assert table.decide(np.zeros((7, table.n_outputs))).shape == (7, k)
    assert table.shared == (loss == "crammer-singer")


def test_a_table_of_ones_own_is_taken_as_it_is():
    costs = check_costs(None, [0, 1])
    own = LossTable([[[1]], [[-1]]], [[1], [1]], [[2], [1]], lambda f: np.hstack([f, -f]))
    assert loss_table(own, costs) is own
    assert_array_equal(value(own, np.array([[0.5], [0.5]]), np.array([0, 1])), [1.0, 1.5])
    assert own.codes.dtype == np.float64


def table_arrays(**changes):
    arrays = {
        "codes": np.ones((2, 3, 1)),
        "margins": np.ones((2, 3)),
        "weights": np.ones((2, 3)),
        "decide": PerClass(np.ones(2), np.zeros(2)),
    }
    return {**arrays, **changes}


BAD_TABLES = [
    ({"codes": np.ones((2, 3))}, "codes of a loss table must have shape (k, R, m); got (2, 3)"),
    ({"codes": np.full((2, 3, 1), np.nan)}, "codes of a loss table must be finite"),
    ({"margins": np.full((2, 3), np.inf)}, "margins of a loss table must be finite"),
    ({"margins": np.ones((2, 2))}, "margins of a loss table must have shape (2, 3) as codes say; got (2, 2)"),
    ({"weights": np.ones(3)}, "weights of a loss table must have shape (2, 3) as codes say; got (3,)"),
    ({"weights": -np.ones((2, 3))}, "weights of a loss table must be >= 0; the least is -1.0"),
    ({"weights": np.zeros((2, 3))}, "weights of a loss table are all zero"),
    ({"weights": np.arange(6.0).reshape(2, 3), "shared": True}, "the rows of a class share one weight"),
    ({"decide": None}, "decide of a loss table must be a function of raw scores; got None"),
    (
        {"decide": np.abs},
        "must make (n, 2) finite class scores of (n, 1) raw ones; of [[0.0], [1.0]] it made",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_TABLES)
def test_bad_tables_are_named(changes, message):
    LossTable(**table_arrays())
    with pytest.raises(ValueError, match=re.escape(message)):
        LossTable(**table_arrays(**changes))


VECTOR = [1.0, 2.0, 3.0]
MATRIX = [[0, 1, 2], [3, 0, 3], [1, 1, 0]]
OWN = LossTable(**table_arrays())
BAD_LOSSES = [
    ("hinge", VECTOR, {}, "loss='hinge' is not known; allowed: ['apportioned', 'crammer-singer'"),
    (None, VECTOR, {}, "loss=None is not known"),
    (["apportioned"], VECTOR, {}, "loss=['apportioned'] is not known"),
    (OWN, VECTOR, {}, "the loss table is for 2 classes and the data have 3"),
    (OWN, [1, 2], {"margin_power": 1}, "margin_power and slack_power belong to the losses by name"),
    (OWN, [1, 2], {"slack_power": 1}, "margin_power and slack_power belong to the losses by name"),
    (OWN, [1, 2], {"ratio": np.ones(2)}, "loss='a table of your own' has no margin per class"),
    ("apportioned", VECTOR, {"margin_power": "1"}, "margin_power='1' must be None or a finite number"),
    ("apportioned", VECTOR, {"margin_power": True}, "margin_power=True must be None or a finite number"),
    ("apportioned", VECTOR, {"slack_power": np.nan}, "slack_power=nan must be None or a finite number"),
    ("apportioned", VECTOR, {"slack_power": np.inf}, "slack_power=inf must be None or a finite number"),
    (
        "weston-watkins",
        VECTOR,
        {"margin_power": 1},
        "margin_power=1.0 has no meaning for loss='weston-watkins'",
    ),
    (
        "crammer-singer",
        VECTOR,
        {"margin_power": 1},
        "margin_power=1.0 has no meaning for loss='crammer-singer'",
    ),
    ("reinforced", VECTOR, {"margin_power": 1}, "margin_power=1.0 has no meaning for loss='reinforced'"),
    ("weston-watkins", VECTOR, {"ratio": np.ones(3)}, "loss='weston-watkins' has no margin per class"),
    ("crammer-singer", VECTOR, {"ratio": np.ones(3)}, "loss='crammer-singer' has no margin per class"),
    ("reinforced", VECTOR, {"ratio": np.ones(3)}, "loss='reinforced' has no margin per class"),
    ("lee-lin-wahba", MATRIX, {"margin_power": 1}, "lee-lin-wahba with margin_power=1.0"),
]
BAD_LOSSES += [
    (loss, MATRIX, {}, f"loss={loss!r} takes one cost a class") for loss in LOSSES if loss != "lee-lin-wahba"
]


@pytest.mark.parametrize(("loss", "costs", "settings", "message"), BAD_LOSSES)
def test_bad_losses_are_named(loss, costs, settings, message):
    checked = check_costs(costs, np.arange(len(costs)))
    with pytest.raises(ValueError, match=re.escape(message)):
        loss_table(loss, checked, **settings)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, np.nan])
def test_bad_reinforcement_is_named(gamma):
    with pytest.raises(ValueError, match=re.escape(f"reinforcement={gamma} must lie in [0, 1]")):
        reinforced(check_costs(VECTOR, np.arange(3)), reinforcement=gamma)
