"""Pegasos, the paper's stochastic gradient method put right: for every loss table, linear and with a kernel.

    min  lambda/2 |W|^2 + 1/n sum_i weight_i loss(W x_i, y_i),        lambda = 1 / (n C)

is the machine of the exact solvers divided by n C; the intercept is the weight of a constant feature of value sqrt(t). The t-th
example, of class y, steps against a subgradient (the paper subtracts what must be added here):

    W_t = (1 - 1/t) W_{t-1} + 1/(lambda t) u_t x_t'        u_t = weight_t sum_r weights[y, r] [z_r > 0] codes[y, r]
                                                           z_r = margins[y, r] - codes[y, r] . W_{t-1} x_t

With shared slack u_t is the term of the largest z_r alone. Nothing has to be shrunk: W_t = V_t / (lambda t) with the plain sum
V_t = sum_s u_s x_s', and with a kernel V is a count for each example and row of the table.

Start    W_t = V_t / (lambda (delay + t)): as if `delay` examples had been seen at W = 0. Zero is Pegasos as published, whose first
         steps, of length n C, are far too long where n C is large.
Batches  of b examples read one W; t counts examples, so their steps have the size 1 / (lambda t / b) of a mean over the batch.
Average  of the W_t with weights delay + t, which is sum_t V_t up to a factor, and sum_t V_t = t V_t - Q_t with the one more sum
         Q_t = sum_s (s - 1) u_s x_s'. Weights that grow with t give O(1 / (lambda T)) without a logarithm (Lacoste-Julien,
         Schmidt, Bach 2012).
Ball     The optimum has |W|^2 <= mean loss at zero / lambda; projecting onto that ball is optional, as in the original.
Gap      A pass visits each example once. So the steps of the passes s + 1 .. p are dual variables that lie in their box,
         alpha_ir = C / (p - s) * (weights of the steps of example i in row r), and their dual value

             C / (p - s) * (weights times margins of all steps) - 1/2 |C / (p - s) (V_p - V_s)|^2

         is a lower bound on the optimum. It needs V and a number, no alpha: streams are certified too. The first passes are the
         worst, so V is remembered at the last two s = 2^j.

Shalev-Shwartz, Singer, Srebro, Cotter: Pegasos, Mathematical Programming 127 (2011).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ._jit import LANES, jit, prefetch
from .kernels import Kernel
from .losses import LossTable
from .products import squared_lengths
from .rows import row_add, row_prefetch, row_scores
from .solution import Array, Settings, Solution

AHEAD = 8  # rows asked for before their turn
SCORED = 10_000  # examples whose scores are held at a time
BLOCK = 64  # kernel rows computed at a time
HUGE = 1e300


@dataclass(frozen=True)
class Rows:
    """A loss table with the codes as lists of their non-zero entries, as the compiled loops read it."""

    places: NDArray[np.intp]  # (k, R, q) outputs
    values: Array  # (k, R, q); zero beyond the end of a list
    margins: Array  # (k, R)
    weights: Array  # (k, R)
    shared: bool

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.places, self.values, self.margins, self.weights, self.shared


def rows_of(table: LossTable) -> Rows:
    """The table in the form of the compiled loops."""
    filled = table.codes != 0
    q = max(int(filled.sum(axis=2).max()), 1)
    places = np.argsort(~filled, axis=2, kind="stable")[:, :, :q]  # the non-zero ones first, in their order
    values = np.take_along_axis(table.codes, places, axis=2)
    return Rows(
        np.ascontiguousarray(places), np.ascontiguousarray(values), table.margins, table.weights, table.shared
    )


@jit
def _step(f, centre, scale, weight, c, places, values, margins, weights, shared, u, counts):
    """u (m,) of one example of class c with scores scale (f + centre); counts (R,) += the weights of its violated rows.

    Returns the sum of weight * margin over them.
    """
    for j in range(u.size):
        u[j] = 0.0
    promise, worst, high = 0.0, -1, 0.0
    for r in range(margins.shape[1]):
        z = margins[c, r]
        for s in range(places.shape[2]):
            j = places[c, r, s]
            z -= values[c, r, s] * scale * (f[j] + centre[j])
        if z <= high or weights[c, r] == 0.0:
            continue
        if shared:
            worst, high = r, z
        else:
            promise += _violated(c, r, weight, places, values, margins, weights, u, counts)
    if worst >= 0:
        promise = _violated(c, worst, weight, places, values, margins, weights, u, counts)
    return promise


@jit
def _violated(c, r, weight, places, values, margins, weights, u, counts):
    amount = weight * weights[c, r]
    counts[r] += amount
    for s in range(places.shape[2]):
        u[places[c, r, s]] += amount * values[c, r, s]
    return amount * margins[c, r]


@jit
def _total_loss(F, y, weight, places, values, margins, weights, shared):
    """sum_i weight_i loss(F_i, y_i)"""
    total = 0.0
    for i in range(y.size):
        c, largest = y[i], 0.0
        for r in range(margins.shape[1]):
            z = margins[c, r]
            for s in range(places.shape[2]):
                z -= values[c, r, s] * F[i, places[c, r, s]]
            hinge = weights[c, r] * max(z, 0.0)
            largest = max(largest, hinge) if shared else largest + hinge
        total += weight[i] * largest
    return total


# ---------------------------------------------------------------- the linear machine


@dataclass(frozen=True)
class Plan:
    """What a run of linear Pegasos asks for."""

    C: float
    n: float  # examples of a pass
    offset: float = 1.0  # t: squared value of the constant feature; 0 = no intercept
    batch: int = 1
    project: bool = False

    @property
    def lam(self) -> float:
        return 1.0 / (self.n * self.C)


@dataclass
class Walk:
    """Where a run of linear Pegasos stands. The last column of V and Q belongs to the constant feature, as if its value were 1."""

    V: Array  # (m, d + 1) sum of the steps u x'
    Q: Array  # (m, d + 1) the same, each step times the examples seen before it
    delay: float = 0.0
    seen: float = 0.0  # examples
    mass: float = 0.0  # sum of the weights of the average
    promise: float = 0.0  # sum of weight * margin over the steps
    start_loss: float = 0.0  # loss at W = 0 of the examples seen
    passes: int = 0
    marks: list[tuple[int, float, Array]] = field(default_factory=list)  # (passes, promise, V) at 2^j passes


def new_walk(n_outputs: int, n_features: int, delay: float = 0.0) -> Walk:
    """At W = 0, nothing seen."""
    return Walk(np.zeros((n_outputs, n_features + 1)), np.zeros((n_outputs, n_features + 1)), delay)


def first_delay(table: LossTable, y: NDArray[np.intp], weight: Array, squares: Array, plan: Plan) -> float:
    """The delay with which the first step moves the scores of an example by its margin, on average.

    At W = 0 every row with a positive margin is violated, and with shared slack one of them: a step of 1 / (lambda delay) changes
    codes[y, r] . f by |x|^2 codes[y, r] . u / (lambda delay). squares (n,): |x_i|^2.
    """
    force = table.weights * (table.margins > 0)
    if table.shared:
        first = np.argmax(force * table.margins, axis=1)
        force = force * (np.arange(force.shape[1]) == first[:, None])
    u = np.einsum("kr,krm->km", force, table.codes)
    moved = np.einsum("krm,km->kr", table.codes, u) / np.where(table.margins > 0, table.margins, np.inf)
    return float(np.mean(weight * (squares + plan.offset) * moved.max(axis=1)[y])) / plan.lam


@jit
def _square(v):
    total = 0.0
    for j in range(v.size):
        total += v[j] * v[j]
    return total


@jit
def _shrink(v, q, rho, before):
    """v becomes rho v from here on, after `before` examples; the sum of v over time stays seen * v - q."""
    for j in range(v.size):
        q[j] -= before * (1.0 - rho) * v[j]
        v[j] *= rho


@jit
def _walk(
    X,
    y,
    weight,
    order,
    squares,
    places,
    values,
    margins,
    weights,
    shared,
    at_zero,
    lam,
    t,
    batch,
    project,
    V,
    c,
    Q,
    q,
    state,
):
    """Visit the examples in `order`. V, Q (groups, ..) as rows.py lays them out, c, q (m,) for the constant feature.

    state: delay, seen, mass, promise, start_loss, and what the projections shrank V by.
    """
    delay, seen, mass, promise, start_loss, shrunk = state[0], state[1], state[2], state[3], state[4], 1.0
    groups, lanes = V.shape[0], c.size // V.shape[0]
    scores, later, steps = (
        np.empty((groups, lanes)),
        np.empty((groups, lanes)),
        np.empty((batch, groups, lanes)),
    )
    f, late, flat = scores.reshape(c.size), later.reshape(c.size), steps.reshape(batch, c.size)
    centre, counts = np.empty(c.size), np.zeros(margins.shape[1])
    reach = HUGE  # no more than this is |V|
    n = order.size
    for first in range(0, n, batch):
        last = min(first + batch, n)
        clock = seen + delay
        scale = 1.0 / (lam * clock) if clock > 0.0 else 0.0
        for j in range(c.size):
            centre[j] = t * c[j]
        for p in range(first, last):
            i = order[p]
            if p + AHEAD < n:
                row_prefetch(X, order[p + AHEAD])
                prefetch(y, order[p + AHEAD])
                prefetch(weight, order[p + AHEAD])
            row_scores(X, i, V, scores)
            promise += _step(
                f,
                centre,
                scale,
                weight[i],
                y[i],
                places,
                values,
                margins,
                weights,
                shared,
                flat[p - first],
                counts,
            )
            start_loss += weight[i] * at_zero[y[i]]
        for p in range(first, last):
            i, u, length = order[p], flat[p - first], 0.0
            for j in range(c.size):
                late[j] = seen * u[j]
                c[j] += u[j]
                q[j] += late[j]
                length += u[j] * u[j]
            if length > 0.0:
                row_add(X, i, V, steps[p - first])
                row_add(X, i, Q, later)
                if project:
                    reach += np.sqrt(length * (squares[i] + t))
        before, seen = seen, seen + (last - first)
        if project and start_loss > 0.0:
            limit = np.sqrt(start_loss / (seen * lam)) * lam * (seen + delay)
            if reach > limit:
                reach = np.sqrt(_square(V.reshape(V.size)) + t * _square(c))
            if reach > limit:
                rho = limit / reach
                _shrink(V.reshape(V.size), Q.reshape(Q.size), rho, before)
                _shrink(c, q, rho, before)
                promise, shrunk, reach = promise * rho, shrunk * rho, limit
        mass += (last - first) * (seen + delay)
    state[1], state[2], state[3], state[4], state[5] = seen, mass, promise, start_loss, shrunk


def _laid_out(A: Array, csr: bool) -> tuple[Array, Array]:
    """(m, d + 1) as the compiled loops take it: dense (1, m, d), CSR (groups, d, LANES); and the last column."""
    m, d = A.shape[0], A.shape[1] - 1
    if not csr:
        return np.array(A[None, :, :-1], order="C"), A[:, -1].copy()  # a copy, also of one output
    groups = -(-m // LANES)
    wide = np.zeros((groups * LANES, d + 1))
    wide[:m] = A
    return np.ascontiguousarray(wide[:, :-1].reshape(groups, LANES, d).transpose(0, 2, 1)), wide[:, -1].copy()


def _gathered(A: Array, c: Array, m: int, csr: bool) -> Array:
    """The way back."""
    columns = A.transpose(0, 2, 1).reshape(-1, A.shape[1])[:m] if csr else A[0]
    return np.column_stack([columns, c[:m]])


def visit(
    walk: Walk,
    table: LossTable,
    X: Any,
    y: NDArray[np.intp],
    weight: Array,
    order: NDArray[np.intp],
    plan: Plan,
) -> None:
    """One step for each example in `order`, in batches; the walk is moved in place."""
    csr = sparse.issparse(X)
    rows = rows_of(table)
    (V, c), (Q, q) = _laid_out(walk.V, csr), _laid_out(walk.Q, csr)
    at_zero = np.array([_zero_loss(table, k) for k in range(table.n_classes)])
    state = np.array([walk.delay, walk.seen, walk.mass, walk.promise, walk.start_loss, 1.0])
    squares = squared_lengths(X) if plan.project else np.empty(0)
    data = (X.data, X.indices, X.indptr) if csr else X
    batch = min(plan.batch, max(len(order), 1))
    settings = (at_zero, plan.lam, plan.offset, batch, plan.project)
    _walk(data, y, weight, order, squares, *rows.arrays, *settings, V, c, Q, q, state)
    walk.V, walk.Q = _gathered(V, c, len(walk.V), csr), _gathered(Q, q, len(walk.V), csr)
    _, walk.seen, walk.mass, walk.promise, walk.start_loss, shrunk = state.tolist()
    if shrunk != 1.0:  # a projection scales all steps before it
        walk.marks = [(p, promise * shrunk, marked * shrunk) for p, promise, marked in walk.marks]


def _zero_loss(table: LossTable, k: int) -> float:
    hinges = table.weights[k] * np.maximum(table.margins[k], 0.0)
    return float(hinges.max() if table.shared else hinges.sum())


def end_pass(walk: Walk) -> None:
    """Every example of the pass has been visited once more."""
    walk.passes += 1
    if walk.passes & (walk.passes - 1) == 0:
        walk.marks = [*walk.marks[-1:], (walk.passes, walk.promise, walk.V.copy())]


def machine(walk: Walk, plan: Plan, average: bool) -> tuple[Array, Array]:
    """W (m, d) and intercepts (m,): of the last step, or the average."""
    if walk.seen == 0.0:
        W = np.zeros_like(walk.V)
    elif average:
        W = (walk.seen * walk.V - walk.Q) / (plan.lam * walk.mass)
    else:
        W = walk.V / (plan.lam * (walk.seen + walk.delay))
    return W[:, :-1], plan.offset * W[:, -1]


def primal_value(
    table: LossTable, X: Any, y: NDArray[np.intp], weight: Array, W: Array, b: Array, plan: Plan
) -> float:
    """1/2 |W|^2 + C sum_i weight_i loss, the intercept's penalty included."""
    return penalty(W, b, plan) + plan.C * total_loss(table, X, y, weight, W, b)


def penalty(W: Array, b: Array, plan: Plan) -> float:
    """1/2 |W|^2, the constant feature included."""
    return 0.5 * (float((W**2).sum()) + (float((b**2).sum()) / plan.offset if plan.offset else 0.0))


def total_loss(table: LossTable, X: Any, y: NDArray[np.intp], weight: Array, W: Array, b: Array) -> float:
    """sum_i weight_i loss(W x_i + b, y_i)"""
    rows = rows_of(table)
    total = 0.0
    for i in range(0, len(y), SCORED):
        part = slice(i, i + SCORED)
        F = np.asarray(X[part] @ W.T, dtype=float) + b
        total += _total_loss(F, y[part], weight[part], *rows.arrays)
    return total


def lower_bound(walk: Walk, plan: Plan) -> float:
    """The best dual value of the steps of the last passes, up to now, which must be the end of a pass."""
    best = 0.0  # alpha = 0
    for passes, promise, V in [(0, 0.0, np.zeros_like(walk.V)), *walk.marks]:
        if passes < walk.passes:
            share = plan.C / (walk.passes - passes)
            W = share * (walk.V - V)
            square = float((W[:, :-1] ** 2).sum()) + plan.offset * float((W[:, -1] ** 2).sum())
            best = max(best, share * (walk.promise - promise) - 0.5 * square)
    return best


def relative_gap(primal: float, walk: Walk, plan: Plan) -> float:
    """(primal - lower bound) / primal"""
    return max(primal - lower_bound(walk, plan), 0.0) / max(primal, np.finfo(float).tiny)


# ---------------------------------------------------------------- the kernel machine


@jit
def _walk_block(K, at, y, weight, places, values, margins, weights, shared, lam, t, seen, G, U, c, counts):
    """Visit the examples `at` (b,), whose kernel values among themselves are K (b, b).

    G (b, m): their scores times lambda t, moved in place; U (b, m): their steps; c (m,): the sum of all steps; counts (n, R).
    """
    m = c.size
    centre, promise = np.empty(m), 0.0
    for p in range(at.size):
        i = at[p]
        scale = 1.0 / (lam * seen) if seen > 0.0 else 0.0
        for j in range(m):
            centre[j] = t * c[j]
        promise += _step(
            G[p], centre, scale, weight[i], y[i], places, values, margins, weights, shared, U[p], counts[i]
        )
        for j in range(m):
            if U[p, j] != 0.0:
                c[j] += U[p, j]
                for l in range(at.size):
                    G[l, j] += K[p, l] * U[p, j]
        seen += 1.0
    return promise


def solve_kernel(
    table: LossTable, kernel: Kernel, y: NDArray[np.intp], sample_weight: Array, settings: Settings, seed: int
) -> Solution:
    """Kernel Pegasos: alpha = C n / t times the counts of the steps. Passes until the relative duality gap is at most tol.

    The scores of all examples are kept; the kernel rows of 64 examples are computed at a time, the steps are still one by one.
    """
    n, (R, m) = len(y), table.codes.shape[1:]
    t, lam = settings.offset, 1.0 / (n * settings.C)
    assert t is not None, "Pegasos has no free intercept"
    rows = rows_of(table)
    counts, beta, G, c = np.zeros((n, R)), np.zeros((n, m)), np.zeros((n, m)), np.zeros(m)
    whole = kernel.block(slice(None), slice(None)) if 8 * n * n <= settings.cache_size * 2**20 else None
    promise = 0.0
    for passes in range(1, settings.max_iter + 1):
        order = np.random.default_rng([seed, passes]).permutation(n)
        for first in range(0, n, BLOCK):
            at = order[first : first + BLOCK]
            K = kernel.block(at, slice(None)) if whole is None else whole[at]
            U, seen = np.zeros((len(at), m)), float((passes - 1) * n + first)
            near = np.ascontiguousarray(K[:, at], dtype=float)
            promise += _walk_block(
                near, at, y, sample_weight, *rows.arrays, lam, t, seen, G[at], U, c, counts
            )
            beta[at] += U
            lively = U.any(axis=1)
            G += K[lively].T @ U[lively]
        scale = 1.0 / (lam * passes * n)
        square = scale**2 * (float((beta * G).sum()) + t * float(c @ c))
        primal = 0.5 * square + settings.C * _total_loss(scale * (G + t * c), y, sample_weight, *rows.arrays)
        gap = (primal - (scale * promise - 0.5 * square)) / max(primal, np.finfo(float).tiny)
        if settings.watch is not None:
            settings.watch(passes, gap)
        if gap <= settings.tol:
            break
    return Solution(scale * counts, scale * t * c, primal, max(gap, 0.0), passes)
