"""Exact kernel machines for tables whose outputs do not share slack: m binary problems on the same examples, solved together.

For output j, with s = sign, mu = margin, U = upper bound of example i, b_j the intercept:

    max  sum_i alpha_i mu_i - 1/2 beta' K beta,   beta_i = s_i alpha_i,   0 <= alpha_i <= U_i,
    sum_i beta_i = 0                          free intercept
    ... - 1/2 t (sum_i beta_i)^2              penalised intercept: t = intercept_scaling^2; none: t = 0

The last two are the first with one dummy example more, whose kernel is t with itself and zero with all others: its beta is
-sum_i beta_i. So one pairwise solver (SMO with second-order choice) serves the three.

State: E[j, i] = s_i mu_i - (K beta_j)_i. Example i violates its conditions when beta_i can grow and E_i > b, or shrink and E_i < b.

The way to the optimum:
1. Samples that grow by a factor of four, each warm-started from the one before.
2. In rounds: every output takes its support vectors and its worst violators as working set, builds their small kernel matrix,
   and solves that problem in cache.
3. Then the kernel rows of all examples that changed in any output are computed once, panel by panel, and update E of all outputs.
4. Until the duality gap sum_i U_i [z_i]_+ - alpha_i z_i, z_i = mu_i - s_i f_i, is small enough.

No matrix of size n x n is stored. Tiles have fixed sizes: the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._jit import fmax, jit
from .kernels import Kernel, Remembered

Array = NDArray[np.float64]

NEVER = -1e300  # added to E it keeps an example from being chosen
BLOCK = 256  # examples a partial maximum is kept for
ROWS, COLUMNS = 240, 1000  # a panel tile stays in the second-level cache; not powers of two, which collide there


@dataclass
class BinaryOutputs:
    """m binary problems on n examples sorted by class."""

    kernel: Kernel
    starts: NDArray[np.intp]  # (k + 1,): class c holds examples starts[c] .. starts[c + 1] - 1
    sign: Array  # (m, k)
    margin: Array  # (m, k)
    box: Array  # (m, k): upper bound of alpha for an example of weight 1
    weight: Array  # (n,): sample weights
    offset: float | None  # t: None = free intercept

    def take(self, index: NDArray[np.intp]) -> BinaryOutputs:
        starts = np.searchsorted(index, self.starts)
        return BinaryOutputs(
            self.kernel.take(index), starts, self.sign, self.margin, self.box, self.weight[index], self.offset
        )

    @property
    def labels(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


# ---------------------------------------------------------------- in cache: one output on its working set


@jit
def _largest(E, grow, shrink):  # type: ignore[no-untyped-def]
    high, low = NEVER, NEVER
    for t in range(E.size):
        high = fmax(high, E[t] + grow[t])
        low = fmax(low, shrink[t] - E[t])
    return high, low


@jit
def _gain(E, row, diagonal, shrink, top, diagonal_i):  # type: ignore[no-untyped-def]
    """Largest increase of the dual over partners t of i: (E_i - E_t)^2 / |phi_i - phi_t|^2."""
    best = 0.0
    for t in range(E.size):
        lead = fmax(top - E[t] + shrink[t], 0.0)
        best = fmax(best, lead * lead / fmax(diagonal_i + diagonal[t] - 2.0 * row[t], 1e-12))
    return best


@jit
def _move(E, row_i, row_j, grow, shrink, step):  # type: ignore[no-untyped-def]
    """E after beta_i += step, beta_j -= step, and its new extremes."""
    high, low = NEVER, NEVER
    for t in range(E.size):
        e = E[t] - step * (row_i[t] - row_j[t])
        E[t] = e
        high = fmax(high, e + grow[t])
        low = fmax(low, shrink[t] - e)
    return high, low


@jit
def _smo(K, diagonal, beta, E, lower, upper, eps, max_steps):  # type: ignore[no-untyped-def]
    """Maximise over beta with sum(beta) kept, until no pair violates by more than eps. Changes beta and E. Returns b, steps."""
    n = beta.size
    blocks = (n + BLOCK - 1) // BLOCK
    grow = np.empty(n)
    shrink = np.empty(n)
    for t in range(n):
        grow[t] = 0.0 if beta[t] < upper[t] else NEVER
        shrink[t] = 0.0 if beta[t] > lower[t] else NEVER
    high = np.empty(blocks)
    low = np.empty(blocks)
    for q in range(blocks):
        a, z = q * BLOCK, min(n, q * BLOCK + BLOCK)
        high[q], low[q] = _largest(E[a:z], grow[a:z], shrink[a:z])
    steps = 0
    while steps < max_steps:
        q = np.argmax(high)
        top = high[q]
        if top + np.max(low) <= eps:
            break
        i = q * BLOCK
        while E[i] + grow[i] < top:
            i += 1
        row_i = K[i]
        best, q = 0.0, -1
        for p in range(blocks):
            if top + low[p] > 0.0:
                a, z = p * BLOCK, min(n, p * BLOCK + BLOCK)
                gain = _gain(E[a:z], row_i[a:z], diagonal[a:z], shrink[a:z], top, diagonal[i])
                if gain > best:
                    best, q = gain, p
        if q < 0:
            break
        j, best = -1, 0.0
        for t in range(q * BLOCK, min(n, q * BLOCK + BLOCK)):
            lead = top - E[t]
            if shrink[t] == 0.0 and lead > 0.0:
                gain = lead * lead / max(diagonal[i] + diagonal[t] - 2.0 * row_i[t], 1e-12)
                if gain > best:
                    best, j = gain, t
        if j < 0:
            break
        step = (top - E[j]) / max(diagonal[i] + diagonal[j] - 2.0 * row_i[j], 1e-12)
        room_i, room_j = upper[i] - beta[i], beta[j] - lower[j]
        step = min(step, min(room_i, room_j))
        beta[i] = upper[i] if step == room_i else beta[i] + step
        beta[j] = lower[j] if step == room_j else beta[j] - step
        for t in (i, j):
            grow[t] = 0.0 if beta[t] < upper[t] else NEVER
            shrink[t] = 0.0 if beta[t] > lower[t] else NEVER
        row_j = K[j]
        for p in range(blocks):
            a, z = p * BLOCK, min(n, p * BLOCK + BLOCK)
            high[p], low[p] = _move(E[a:z], row_i[a:z], row_j[a:z], grow[a:z], shrink[a:z], step)
        steps += 1
    total, count = 0.0, 0
    for t in range(n):
        if grow[t] == 0.0 and shrink[t] == 0.0:
            total += E[t]
            count += 1
    return (total / count if count else 0.5 * (np.max(high) - np.max(low))), steps


# ---------------------------------------------------------------- over all examples


@jit
def _scan(beta, E, b, starts, sign, margin, box, weight, violation):  # type: ignore[no-untyped-def]
    """violation[i] of the conditions at intercept b; returns the gap, the hinge loss, beta' K beta and the largest violation."""
    gap, hinge, quadratic, worst = 0.0, 0.0, 0.0, 0.0
    for c in range(starts.size - 1):
        s, mu, u = sign[c], margin[c], box[c]
        for i in range(starts[c], starts[c + 1]):
            upper = u * weight[i]
            alpha = s * beta[i]
            z = s * (E[i] - b)  # = margin - sign * score
            slack = upper * max(z, 0.0)
            gap += slack - alpha * z
            hinge += slack
            quadratic += alpha * (mu - s * E[i])
            v = z if alpha < upper else min(z, 0.0)
            v = max(v, 0.0) if alpha <= 0.0 else abs(v)
            violation[i] = v
            worst = max(worst, v)
    return gap, hinge, quadratic, worst


@jit
def _axpy4(total, v0, v1, v2, v3, p0, p1, p2, p3):  # type: ignore[no-untyped-def]
    for c in range(total.size):
        total[c] += v0 * p0[c] + v1 * p1[c] + v2 * p2[c] + v3 * p3[c]


@jit
def _axpy(total, v, p):  # type: ignore[no-untyped-def]
    for c in range(total.size):
        total[c] += v * p[c]


@jit
def _subtract(E, total):  # type: ignore[no-untyped-def]
    for c in range(total.size):
        E[c] -= total[c]


@jit
def _apply(step, tile, E, outputs, columns):  # type: ignore[no-untyped-def]
    """E[outputs, columns] -= step @ tile, skipping the many zeros of step: an output changes few of the rows."""
    total = np.empty(tile.shape[1], tile.dtype)
    rows = np.empty(tile.shape[0] + 3, np.int64)
    for r in range(outputs.size):
        v, count = step[r], 0
        for q in range(v.size):
            if v[q] != 0.0:
                rows[count] = q
                count += 1
        if count == 0:
            continue
        total[:] = 0.0
        q = 0
        while q + 4 <= count:
            i0, i1, i2, i3 = rows[q], rows[q + 1], rows[q + 2], rows[q + 3]
            _axpy4(total, v[i0], v[i1], v[i2], v[i3], tile[i0], tile[i1], tile[i2], tile[i3])
            q += 4
        while q < count:
            _axpy(total, v[rows[q]], tile[rows[q]])
            q += 1
        target = E[outputs[r]]
        for c in range(columns.size):
            target[columns[c]] -= total[c]


class _Outputs:
    """The state of the m outputs on one sample, and the rounds that improve it."""

    def __init__(self, problem: BinaryOutputs, beta: Array, E: Array, b: Array, each: Callable[..., Iterable[Any]]) -> None:
        self.problem, self.beta, self.E, self.b, self.each = problem, beta, E, b, each
        m, n = beta.shape
        self.labels = problem.labels
        self.diagonal = problem.kernel.diagonal()
        self.violation = np.empty((m, n))
        self.gap, self.hinge, self.quadratic, self.worst = np.full((4, m), np.inf)
        self.in_set = beta != 0

    def scan(self, outputs: Iterable[int]) -> None:
        p = self.problem

        def one(j: int) -> None:
            if p.offset is not None:
                self.b[j] = p.offset * self.beta[j].sum()
            self.gap[j], self.hinge[j], self.quadratic[j], self.worst[j] = _scan(
                self.beta[j], self.E[j], self.b[j], p.starts, p.sign[j], p.margin[j], p.box[j], p.weight, self.violation[j]
            )
            if p.offset:
                self.quadratic[j] += self.b[j] ** 2 / p.offset

        list(self.each(one, outputs))

    @property
    def primal(self) -> Array:
        return 0.5 * self.quadratic + self.hinge

    def unfinished(self, tol: float) -> NDArray[np.intp]:
        """Outputs whose gap is over their share of what the whole may leave."""
        if self.gap.sum() <= tol * self.primal.sum():
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(self.gap > 0.9 * tol * np.maximum(self.primal, self.primal.mean()))

    def working_set(self, j: int) -> NDArray[np.intp]:
        """Support vectors that are not far inside their bounds, and the worst violators: as many as the set holds already."""
        v, inside = self.violation[j], self.in_set[j]
        if inside.any():
            settled = np.abs(self.E[j] - self.b[j]) > 0.2 * self.worst[j]
            inside &= ~(settled & (v == 0.0) & ((self.beta[j] == 0.0) | self._at_upper(j)))
        candidates = np.flatnonzero(~inside & (v > 0.0))
        room = max(64, int(inside.sum()))
        if len(candidates) > room:
            candidates = candidates[np.argpartition(-v[candidates], room)[:room]]
        inside[candidates] = True
        return np.flatnonzero(inside)

    def _at_upper(self, j: int) -> NDArray[np.bool_]:
        return np.abs(self.beta[j]) >= self.problem.box[j][self.labels] * self.problem.weight

    def solve(self, j: int, members: NDArray[np.intp], eps: float, K: Any = None) -> NDArray[np.intp]:
        """Solve output j on `members`; returns those that changed. E is right on `members` afterwards, elsewhere not yet."""
        p, size = self.problem, len(members)
        dummy = int(p.offset is not None)
        if K is None or dummy:
            inner = p.kernel.block(members, members) if K is None else K
            K = inner
            if dummy:
                K = np.zeros((size + 1, size + 1), inner.dtype)
                K[:size, :size] = inner
                K[size, size] = p.offset
        labels = self.labels[members]
        sign = p.sign[j][labels]
        upper = p.box[j][labels] * p.weight[members]
        lower = np.where(sign > 0, 0.0, -upper)
        upper = np.where(sign > 0, upper, 0.0)
        beta, E, diagonal = self.beta[j, members], self.E[j, members], self.diagonal[members]
        if dummy:
            rest = -self.beta[j].sum()
            beta, E = np.append(beta, rest), np.append(E, -p.offset * rest)
            lower, upper = np.append(lower, NEVER), np.append(upper, -NEVER)
            diagonal = np.append(diagonal, p.offset)
        self.b[j], _ = _smo(K, diagonal, beta, E, lower, upper, eps, 1000 + 100 * size)
        beta = beta[:size]
        delta = beta - self.beta[j, members]
        self.beta[j, members] = beta
        changed = delta != 0
        self._delta[j] = members[changed], delta[changed]
        return members[changed]

    def round(self, outputs: NDArray[np.intp], tol: float, K: Any = None) -> None:
        """One working set for each of `outputs`, then one panel over all rows that changed."""
        self._delta: dict[int, tuple[NDArray[np.intp], Array]] = {}
        share = tol * np.maximum(self.primal, self.primal.mean())

        def one(j: int) -> None:
            members = self.working_set(j) if K is None else np.arange(self.beta.shape[1])
            alphas = max(np.abs(self.beta[j]).sum(), 1e-300)
            self.solve(j, members, max(0.01 * self.worst[j], 0.5 * share[j] / alphas), K)

        list(self.each(one, outputs))
        rows = np.unique(np.concatenate([self._delta[j][0] for j in outputs]))
        if not len(rows):
            return
        step = np.zeros((len(outputs), len(rows)), K.dtype if K is not None else np.float32)
        for r, j in enumerate(outputs):
            step[r, np.searchsorted(rows, self._delta[j][0])] = self._delta[j][1]
        panel(self.problem.kernel, rows, step, outputs, self.E, slice(0, self.beta.shape[1]), self.each)


def panel(
    kernel: Kernel,
    rows: NDArray[np.intp],
    step: Block,
    outputs: NDArray[np.intp],
    E: Array,
    columns: Any,
    each: Callable[..., Iterable[Any]],
) -> None:
    """E[outputs, columns] -= step @ K[rows, columns], tile by tile; each kernel value is computed once for all outputs."""
    if isinstance(kernel, Remembered):
        kernel.remember(rows)
    every = np.arange(kernel.n)[columns]

    def one(start: int) -> None:
        cols = every[start : start + COLUMNS]
        where = slice(cols[0], cols[-1] + 1) if isinstance(columns, slice) else cols
        for r in range(0, len(rows), ROWS):
            _apply(step[:, r : r + ROWS], kernel.block(rows[r : r + ROWS], where), E, outputs, cols)

    list(each(one, range(0, len(every), COLUMNS)))


Block = NDArray[Any]


def solve_binary_outputs(problem, tol, max_iter, each, beta=None, trace=None):
    n, m = problem.kernel.n, len(problem.sign)
    labels = problem.labels
    E = (problem.sign * problem.margin)[:, labels].copy()
    b = np.zeros(m)
    rng = np.random.default_rng(0)
    if beta is None:
        beta = np.zeros((m, n))
        levels = nested_samples(problem.starts, rng)
    else:
        levels = [np.arange(n)]
    done = 0
    for depth, members in enumerate(levels):
        last = depth == len(levels) - 1
        sub = problem if last else problem.take(members)
        state = _Outputs(sub, beta[:, members], E[:, members], b, each)
        goal = tol if last else max(tol, LEVEL_TOL)
        state.scan(range(m))
        if depth == 0 and len(members) <= 3000:
            K = sub.kernel.block(np.arange(len(members)), np.arange(len(members)))
            def first(j):
                state._delta = {}
                
                state.solve(j, np.arange(len(members)), FIRST_EPS, K)
            state._delta = {}
            def one(j):
                state.solve(j, np.arange(len(members)), FIRST_EPS if not last else 1e-3, K)
            list(each(one, range(m)))
            # E right on all
            rows = np.arange(len(members))
            state.E = (problem.sign * problem.margin)[:, sub.labels] - state.beta @ K
            state.scan(range(m)); done += 1
        while len(active := state.unfinished(goal)) and done < max_iter:
            state.round(active, goal)
            state.scan(active)
            done += 1
            if trace is not None: trace.append((len(members), len(active), state.gap.sum()/state.primal.sum(), state.in_set.sum(1).mean(), np.any(state.beta!=0,axis=0).sum()))
        beta[:, members], E[:, members] = state.beta, state.E
        if not last:
            fresh = np.setdiff1d(levels[depth + 1], members, assume_unique=True)
            rows = np.flatnonzero(beta.any(axis=0))
            panel(problem.kernel, rows, beta[:, rows].astype(np.float32), np.arange(m), E, fresh, each)
    return beta, E, b, state, done

LEVEL_TOL = 0.03
FIRST_EPS = 0.1
SMALLEST = 1500
def nested_samples(starts, rng):
    n = starts[-1]
    orders = [rng.permutation(np.arange(a, z)) for a, z in zip(starts[:-1], starts[1:])]
    sizes = [n]
    while sizes[0] > 1.5*SMALLEST:
        nxt = sizes[0]//4
        sizes.insert(0, nxt if nxt > 1.5*SMALLEST else SMALLEST)
    return [np.sort(np.concatenate([o[: int(np.ceil(len(o) * s / n))] for o in orders])) for s in sizes]
