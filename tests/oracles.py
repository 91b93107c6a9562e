"""Slow, obvious twins of the fast code, written from the formulas and never through the code they check.

losses          one function a loss, value and subgradient of one example, by loops
decisions       votes and argmax by loops
expected_cost   by a loop
primal_cvxpy    the optimum of 1/2 |W|^2 + C sum_i loss by an interior point method
linear_svc_twin the apportioned machine (p = 1, q = 0) by scikit-learn's LinearSVC
primal_and_dual both objectives at given dual variables, by loops; duality_gap is their difference
pegasos         the stochastic gradient method in its own letters: W shrunk and moved, example by example
pegasos_kernel  the same with a kernel, by counts
relevance       minus the log likelihood of a Gaussian process, and its priors, by loops
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

# ---------------------------------------------------------------- the seven losses: (value, subgradient)
# f: raw scores of one example, y: its class, cost[y][j]: what it costs to decide j, [u]_+ = max(u, 0).


def apportioned(f: Any, y: int, cost: Any, p: float = 1.0, q: float = 0.0) -> tuple[float, list[float]]:
    """sum_j theta_y^q [theta_y^p - s_yj f_j]_+, s_yj = +1 if j == y else -1"""
    k, theta_y = len(cost), _theta(cost)[y]
    value, slope = 0.0, [0.0] * k
    for j in range(k):
        sign = 1 if j == y else -1
        if theta_y**p - sign * f[j] > 0:
            value += theta_y**q * (theta_y**p - sign * f[j])
            slope[j] -= theta_y**q * sign
    return value, slope


def one_vs_rest(f: Any, y: int, cost: Any, p: float = 0.0, q: float = 1.0) -> tuple[float, list[float]]:
    """theta_y^q ([m - f_y]_+ + sum_{j != y} [m + f_j]_+), m = theta_y^p, which is 1 for the usual machine"""
    k, theta_y = len(cost), _theta(cost)[y]
    value, slope = 0.0, [0.0] * k
    if f[y] < theta_y**p:
        value += theta_y**q * (theta_y**p - f[y])
        slope[y] = -(theta_y**q)
    for j in range(k):
        if j != y and f[j] > -(theta_y**p):
            value += theta_y**q * (theta_y**p + f[j])
            slope[j] = theta_y**q
    return value, slope


def pairwise(f: Any, y: int, cost: Any, p: float = 0.0, q: float = 1.0) -> tuple[float, list[float]]:
    """sum over the pairs a < b that y is in of theta_y^q [theta_y^p - s f_ab]_+, s = +1 if y == a else -1"""
    k, theta_y = len(cost), _theta(cost)[y]
    pairs = pairs_of(k)
    value, slope = 0.0, [0.0] * len(pairs)
    for output, (a, b) in enumerate(pairs):
        if y in (a, b):
            sign = 1 if y == a else -1
            if theta_y**p - sign * f[output] > 0:
                value += theta_y**q * (theta_y**p - sign * f[output])
                slope[output] -= theta_y**q * sign
    return value, slope


def weston_watkins(f: Any, y: int, cost: Any, p: float = 0.0, q: float = 1.0) -> tuple[float, list[float]]:
    """theta_y^q sum_{j != y} [1 - (f_y - f_j)]_+"""
    k, weight = len(cost), _theta(cost)[y] ** q
    value, slope = 0.0, [0.0] * k
    for j in range(k):
        if j != y and 1 - (f[y] - f[j]) > 0:
            value += weight * (1 - (f[y] - f[j]))
            slope[y] -= weight
            slope[j] += weight
    return value, slope


def crammer_singer(f: Any, y: int, cost: Any, p: float = 0.0, q: float = 1.0) -> tuple[float, list[float]]:
    """theta_y^q [1 - min_{j != y} (f_y - f_j)]_+"""
    k, weight = len(cost), _theta(cost)[y] ** q
    worst, rival = -np.inf, -1
    for j in range(k):
        if j != y and 1 - (f[y] - f[j]) > worst:
            worst, rival = 1 - (f[y] - f[j]), j
    slope = [0.0] * k
    if worst <= 0:
        return 0.0, slope
    slope[y], slope[rival] = -weight, weight
    return weight * worst, slope


def lee_lin_wahba(f: Any, y: int, cost: Any, p: float = 0.0, q: float = 1.0) -> tuple[float, list[float]]:
    """sum_{j != y} cost_yj^q [1 + g_j]_+ on the scores made to sum to zero, g = f - mean(f)"""
    k = len(cost)
    mean = sum(f) / k
    value, slope = 0.0, [0.0] * k
    for j in range(k):
        if j != y and cost[y][j] > 0 and 1 + f[j] - mean > 0:
            weight = cost[y][j] ** q
            value += weight * (1 + f[j] - mean)
            for l in range(k):
                slope[l] += weight * ((1 if l == j else 0) - 1 / k)
    return value, slope


def reinforced(
    f: Any, y: int, cost: Any, p: float = 0.0, q: float = 1.0, gamma: float = 0.5
) -> tuple[float, list[float]]:
    """theta_y^q (gamma [k - 1 - g_y]_+ + (1 - gamma) sum_{j != y} [1 + g_j]_+), g = f - mean(f)"""
    k, weight = len(cost), _theta(cost)[y] ** q
    mean = sum(f) / k
    value, slope = 0.0, [0.0] * k
    if k - 1 - (f[y] - mean) > 0:
        value += weight * gamma * (k - 1 - (f[y] - mean))
        for l in range(k):
            slope[l] -= weight * gamma * ((1 if l == y else 0) - 1 / k)
    for j in range(k):
        if j != y and 1 + f[j] - mean > 0:
            value += weight * (1 - gamma) * (1 + f[j] - mean)
            for l in range(k):
                slope[l] += weight * (1 - gamma) * ((1 if l == j else 0) - 1 / k)
    return value, slope


LOSSES: dict[str, Callable[..., tuple[float, list[float]]]] = {
    "apportioned": apportioned,
    "one-vs-rest": one_vs_rest,
    "pairwise": pairwise,
    "weston-watkins": weston_watkins,
    "crammer-singer": crammer_singer,
    "lee-lin-wahba": lee_lin_wahba,
    "reinforced": reinforced,
}


def pairs_of(k: int) -> list[tuple[int, int]]:
    """The outputs of the pairwise machine: (0, 1), (0, 2), ..., (k - 2, k - 1)."""
    return [(a, b) for a in range(k) for b in range(a + 1, k)]


def _theta(cost: Any) -> list[float]:
    """The cost of an error on each class, where all errors on it cost the same."""
    theta = []
    for y, row in enumerate(cost):
        others = [row[j] for j in range(len(row)) if j != y]
        assert min(others) == max(others), "this loss takes one cost a class"
        theta.append(float(others[0]))
    return theta


# ---------------------------------------------------------------- decisions and what they cost


def apportioned_decision(f: Any, theta: Any, p: float = 1.0) -> int:
    """argmax_j f_j / theta_j^p, the first of equals"""
    best = 0
    for j in range(len(theta)):
        if f[j] / theta[j] ** p > f[best] / theta[best] ** p:
            best = j
    return best


def pairwise_decision(f: Any, theta: Any, p: float = 0.0, ratio: Any = None) -> int:
    """The class with most pairs won; among equals the one with the largest sum of leads, then the first.

    Pair (a, b) has its support hyperplanes at f = theta_a^p and f = -theta_b^p. The lead of a is how far f is
    past a's, less how far it is past b's, in units of the margins and divided by `ratio` (all 1: f > 0); in
    exact fractions, since the two nearly cancel where f is small.
    """
    k = len(theta)
    ratio = [1.0] * k if ratio is None else ratio
    won, leads = [0] * k, [Fraction(0)] * k
    for output, (a, b) in enumerate(pairs_of(k)):
        at, reach_a, reach_b = (Fraction(float(v)) for v in (f[output], theta[a] ** p, theta[b] ** p))
        lead = (at / reach_a - 1) / Fraction(ratio[a]) - (-at / reach_b - 1) / Fraction(ratio[b])
        won[a if lead > 0 else b] += 1
        leads[a] += lead
        leads[b] -= lead
    return max(range(k), key=lambda j: (won[j], leads[j], -j))


def expected_cost(y_true: Sequence[Any], y_pred: Sequence[Any], cost: Any, weight: Any = None) -> float:
    """Mean of cost[true][predicted]; cost is a dict of dicts."""
    total, mass = 0.0, 0.0
    for i in range(len(y_true)):
        w = 1.0 if weight is None else weight[i]
        total += w * (0.0 if y_true[i] == y_pred[i] else cost[y_true[i]][y_pred[i]])
        mass += w
    return total / mass


# ---------------------------------------------------------------- optima


class Optimum(NamedTuple):
    value: float  # primal objective at W, b, by loops over the table
    W: np.ndarray  # (m, d) weights; for a kernel, of the features L in K = L L'
    b: np.ndarray  # (m,) intercepts
    alpha: np.ndarray  # (n, R) dual variables of margin_ir - code_ir . f_i <= slack


def primal_cvxpy(
    table: Any,
    X: Any,
    y: Any,
    C: float = 1.0,
    sample_weight: Any = None,
    intercept: str = "penalized",
    intercept_scaling: float = 1.0,
    *,
    kernel: bool = False,
    accuracy: float = 1e-11,
) -> Optimum:
    """The optimum of min 1/2 |W|^2 + C sum_i sample_weight_i loss(W x_i + b, y_i), by CLARABEL.

    intercept: "penalized" adds 1/2 |b|^2 / intercept_scaling^2 (b is the weight of a constant feature of that
    value, times the value), "free" adds nothing, "none" has b = 0. kernel: X is the matrix K.
    Codes that sum to zero leave the mean of a free b open; there the method wants a larger `accuracy`.
    """
    import cvxpy as cp

    X, y = np.asarray(X, dtype=float), np.asarray(y)
    if kernel:
        X = kernel_features(X)
    (n, d), (_, R, m) = X.shape, table.codes.shape
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    W, b = cp.Variable((m, d)), cp.Variable(m)
    slack = cp.Variable((n, 1) if table.shared else (n, R), nonneg=True)
    scores = X @ W.T + np.ones((n, 1)) @ cp.reshape(b, (1, m), order="C")
    objective = 0.5 * cp.sum_squares(W)
    hinges = []
    for i in range(n):
        c = y[i]
        own = slack[i, 0] * np.ones(R) if table.shared else slack[i]
        hinges.append(table.margins[c] - table.codes[c] @ scores[i] <= own)
        row_weights = table.weights[c, :1] if table.shared else table.weights[c]
        objective += C * weight[i] * (row_weights @ slack[i])
    constraints = list(hinges)
    if intercept == "penalized":
        objective += 0.5 * cp.sum_squares(b) / intercept_scaling**2
    elif intercept == "none":
        constraints.append(b == 0)
    else:
        assert intercept == "free", intercept
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(
        solver=cp.CLARABEL,
        tol_gap_abs=accuracy,
        tol_gap_rel=accuracy,
        tol_feas=accuracy,
        tol_ktratio=1e-9,
        max_iter=200,
    )
    assert problem.status == "optimal", problem.status
    at_W, at_b = np.asarray(W.value), np.asarray(b.value)
    value = primal_value(lambda f, c: table_loss(table, f, c), X, y, C, at_W, at_b, weight)
    if intercept == "penalized":
        value += 0.5 * float(at_b @ at_b) / intercept_scaling**2
    return Optimum(value, at_W, at_b, np.array([h.dual_value for h in hinges]))


def primal_value(
    loss: Callable[[Any, int], float], X: Any, y: Any, C: float, W: Any, b: Any, sample_weight: Any = None
) -> float:
    """1/2 |W|^2 + C sum_i sample_weight_i loss(W x_i + b, y_i), by loops; nothing for b."""
    total = 0.0
    for row in W:
        for w in row:
            total += 0.5 * w * w
    for i in range(len(y)):
        f = [sum(w * x for w, x in zip(W[o], X[i], strict=True)) + b[o] for o in range(len(W))]
        total += C * (1.0 if sample_weight is None else sample_weight[i]) * loss(f, y[i])
    return float(total)


def table_loss(table: Any, f: Any, y: int) -> float:
    """sum_r weights[y, r] [margins[y, r] - codes[y, r] . f]_+, or the largest of the terms"""
    hinges = []
    for r in range(len(table.margins[y])):
        margin = table.margins[y][r]
        for o in range(len(f)):
            margin -= table.codes[y][r][o] * f[o]
        hinges.append(table.weights[y][r] * max(0.0, margin))
    return max(hinges) if table.shared else sum(hinges)


def kernel_features(K: Any) -> np.ndarray:
    """L with K = L L'; K may be singular."""
    values, vectors = np.linalg.eigh(np.asarray(K, dtype=float))
    assert values.min() > -1e-9 * max(1.0, values.max()), "the kernel matrix has a negative eigenvalue"
    return vectors * np.sqrt(np.maximum(values, 0.0))


def linear_svc_twin(X: Any, y: Any, theta: Any, C: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """W (k, d) and b (k,) of the apportioned machine with p = 1, q = 0; penalised intercept of scaling 1.

    [theta_y - s w.x]_+ = theta_y [1 - s w.(x / theta_y)]_+: output j is LinearSVC's hinge problem on the
    examples (constant feature included) divided by theta_y, with sample weight theta_y.
    """
    from sklearn.svm import LinearSVC

    X, y, theta = np.asarray(X, dtype=float), np.asarray(y), np.asarray(theta, dtype=float)
    own = theta[y]
    scaled = np.column_stack([X, np.ones(len(X))]) / own[:, None]
    weights = []
    for j in range(len(theta)):
        machine = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-10, max_iter=10**7, random_state=0)
        weights.append(machine.fit(scaled, np.where(y == j, 1, -1), sample_weight=own).coef_[0])
    found = np.array(weights)
    return found[:, :-1], found[:, -1]


def primal_and_dual(
    table: Any,
    K: Any,
    y: Any,
    C: float,
    alpha: Any,
    sample_weight: Any = None,
    b: Any = None,
    slack: float = 1e-9,
) -> tuple[float, float]:
    """The two objectives at the dual variables alpha (n, R), from the definitions.

        beta_io = sum_r alpha_ir code_iro        f_i = sum_l K_il beta_l + b
        primal  = 1/2 sum_o beta_o' K beta_o + C sum_i sample_weight_i loss(f_i, y_i)
        dual    = sum_ir alpha_ir margin_ir - 1/2 sum_o beta_o' K beta_o

    A penalised intercept is part of K (add intercept_scaling^2). `b` is a free one; then sum_i beta_io must
    be 0. Fails where alpha leaves its box by more than `slack`.
    """
    n, (R, m) = len(y), table.codes.shape[1:]
    beta = [[0.0] * m for _ in range(n)]
    linear = 0.0
    for i in range(n):
        sw = 1.0 if sample_weight is None else sample_weight[i]
        for r in range(R):
            upper = C * sw * table.weights[y[i]][r]
            assert -slack <= alpha[i][r] <= upper + slack, (
                f"alpha[{i}, {r}] = {alpha[i][r]} not in [0, {upper}]"
            )
            linear += alpha[i][r] * table.margins[y[i]][r]
            for o in range(m):
                beta[i][o] += alpha[i][r] * table.codes[y[i]][r][o]
        if table.shared:
            upper = C * sw * table.weights[y[i]][0]
            assert sum(alpha[i]) <= upper + slack, f"sum of alpha[{i}] = {sum(alpha[i])} > {upper}"
    if b is not None:
        for o in range(m):
            total = sum(beta[i][o] for i in range(n))
            assert abs(total) <= slack * n, f"sum of beta[:, {o}] = {total}, not 0"
    quadratic, hinge = 0.0, 0.0
    for i in range(n):
        f = [0.0 if b is None else float(b[o]) for o in range(m)]
        for o in range(m):
            for l in range(n):
                f[o] += K[i][l] * beta[l][o]
                quadratic += beta[i][o] * K[i][l] * beta[l][o]
        hinge += (1.0 if sample_weight is None else sample_weight[i]) * table_loss(table, f, y[i])
    return float(0.5 * quadratic + C * hinge), float(linear - 0.5 * quadratic)


def duality_gap(table: Any, K: Any, y: Any, C: float, alpha: Any, **settings: Any) -> float:
    """Primal less dual at the dual variables alpha; the settings are those of `primal_and_dual`."""
    primal, dual = primal_and_dual(table, K, y, C, alpha, **settings)
    return primal - dual


# ---------------------------------------------------------------- stochastic gradient


class Pegasos(NamedTuple):
    W: np.ndarray  # (m, d) the last machine
    b: np.ndarray  # (m,) its intercepts
    mean_W: np.ndarray  # (m, d) mean of all, the machine after t examples with weight delay + t
    mean_b: np.ndarray  # (m,)


def pegasos(
    loss: Callable[[Any, int], tuple[float, list[float]]],
    n_outputs: int,
    X: Any,
    y: Any,
    C: float,
    orders: Sequence[Any],
    weight: Any = None,
    *,
    intercept_scaling: float = 1.0,
    batch: int = 1,
    delay: float = 0.0,
    project: bool = False,
) -> Pegasos:
    """Pegasos on lambda/2 |W|^2 + 1/n sum_i weight_i loss, lambda = 1 / (n C), as a loop over batches.

        W <- (1 - eta lambda) W - eta mean over the batch of weight_i (subgradient of the loss) x_i',  eta = 1 / (lambda t)

    t counts batches, after `delay` examples that were not there; loss(f, y) returns value and subgradient.
    Projection: onto |W|^2 <= (mean loss at zero of the examples seen) / lambda.
    """
    (n, d), m = np.shape(X), n_outputs
    s = intercept_scaling
    lam = 1.0 / (n * C)
    W, total, mass = np.zeros((m, d + 1)), np.zeros((m, d + 1)), 0.0
    seen, start = 0, 0.0
    for order in orders:
        for first in range(0, n, batch):
            members = order[first : first + batch]
            t = (seen + len(members) + delay) / len(members)
            step = np.zeros((m, d + 1))
            for i in members:
                x = np.append(np.asarray(X[i], dtype=float), s)
                w = 1.0 if weight is None else weight[i]
                slope = loss([float(W[o] @ x) for o in range(m)], y[i])[1]
                step -= w * np.outer(slope, x) / len(members)
                start += w * loss([0.0] * m, y[i])[0]
            W = (1 - 1 / t) * W + step / (lam * t)
            seen += len(members)
            if project:
                radius = np.sqrt(start / seen / lam)
                W *= min(1.0, radius / max(float(np.linalg.norm(W)), 1e-300))
            total += len(members) * (seen + delay) * W
            mass += len(members) * (seen + delay)
    mean = total / mass
    return Pegasos(W[:, :-1], s * W[:, -1], mean[:, :-1], s * mean[:, -1])


def pegasos_kernel(
    table: Any, K: Any, y: Any, C: float, orders: Sequence[Any], weight: Any = None
) -> np.ndarray:
    """Kernel Pegasos as the paper has it, with the box put right: the dual variables alpha (n, R) = C n / t * counts.

    counts_ir grows by weight_i weights_r when example i is drawn and violates row r (shared slack: its worst row).
    """
    n, R = len(y), len(table.margins[0])
    counts = np.zeros((n, R))
    t = 0
    for order in orders:
        for i in order:
            z = []
            for r in range(R):
                f = 0.0
                for l in range(n):
                    for q in range(R):
                        if counts[l, q]:
                            code = table.codes[y[i]][r] @ table.codes[y[l]][q]
                            f += C * n / max(t, 1) * counts[l, q] * code * K[i][l]
                z.append(table.margins[y[i]][r] - f)
            t += 1
            for r in range(R):
                if z[r] > 0 and (not table.shared or r == int(np.argmax(z))):
                    counts[i, r] += (1.0 if weight is None else weight[i]) * table.weights[y[i]][r]
    return C * n / t * counts


# ---------------------------------------------------------------- how much each column tells


def relevance(v: Any, X: Any, Y: Any) -> float:
    """-log N(Y_1; 0, K) - ... - log N(Y_m; 0, K) but for a constant, K_ij = s exp(-1/d sum_c (w_c (x_ic - x_jc))^2) + [i = j] t,
    beside the priors: log w about its mean N(0, 1) m times, that mean N(0, 1/.5), log s N(0, 1/.05), log t N(-1, 1/.05).
    """
    (n, d), m = X.shape, Y.shape[1]
    w, s, t = [math.exp(a) for a in v[:d]], math.exp(v[d]), math.exp(v[d + 1])
    K = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            K[i, j] = s * math.exp(-sum((w[c] * (X[i, c] - X[j, c])) ** 2 for c in range(d)) / d)
            K[i, j] += t if i == j else 0
    value = sum(0.5 * y @ np.linalg.solve(K, y) + 0.5 * np.linalg.slogdet(K)[1] for y in Y.T)
    mean = sum(v[:d]) / d
    value += sum(0.5 * m * (a - mean) ** 2 for a in v[:d])
    return float(value + 0.25 * mean**2 + 0.025 * v[d] ** 2 + 0.025 * (v[d + 1] + 1) ** 2)
