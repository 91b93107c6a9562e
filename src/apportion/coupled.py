"""Exact kernel machines for tables whose outputs hang together: differences of scores, scores that sum to zero, shared slack.

The way to the optimum is that of working_sets.py: samples that grow, working sets solved in cache, one panel a round that brings
the scores of all examples up to date, the duality gap as the end. What differs is the working set:

    few rows still move    the variables (example, row) themselves: Q_uv = (K + t)[example_u, example_v] code_u . code_v, by SMO
    many, or shared slack  the examples that violate most, one after the other, each with all its rows (coordinate.py)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._jit import jit
from .coordinate import HUGE, TINY, feasible, solve_example
from .kernels import Kernel
from .solution import Array, Watch
from .threads import Each
from .working_sets import NEVER, NO_INVERSE, SAMPLE_TOL, nested_samples, panel, smo

WORKING = 1500  # examples in a working set, at first
STUCK = 0.9  # share of the gap that is left after a round that calls for a larger one
SWEEPS = 30  # over it, at most
GOAL = 0.05  # share of the worst violation that it is solved to
VARIABLES = 6000  # in a working set of single rows
ROOM = 500  # for violators in the first of them


@jit
def _improve_members(
    K, scores, y, h, weight, codes, margins, boxes, gram, shared, t, b, total, alpha, beta, goal
):
    """Sweeps over a working set with kernel matrix K and scores (m, size) until none violates by more than goal.

    A sweep passes over examples whose violation is small beside the worst of the sweep before: an update costs far more than
    a look.
    """
    size, R, m = y.size, codes.shape[1], codes.shape[2]
    f, step, z, before, upper = np.empty(m), np.empty(m), np.empty(R), np.empty(R), np.empty(R)
    last = HUGE
    for _ in range(SWEEPS):
        worst = 0.0
        for i in range(size):
            c_i = y[i]
            for c in range(m):
                f[c] = scores[c, i] + b[c] + t * total[c]
            for r in range(R):
                upper[r] = boxes[c_i, r] * weight[i]
            violation = solve_example(
                f, codes[c_i], margins[c_i], upper, gram[c_i], h[i], shared, alpha[i], z, before, step
            )
            worst = max(worst, violation)
            if violation <= 0.1 * last and last < HUGE:
                alpha[i] = before  # not now
                continue
            row = K[i]
            for c in range(m):
                v = step[c]
                if v != 0.0:
                    total[c] += v
                    beta[c, i] += v
                    target = scores[c]
                    for q in range(size):
                        target[q] += v * row[q]
        if worst <= goal:
            break
        last = worst


@jit
def _pair_matrix(K, t, gram, example, kind):
    """Q (N + 1, N + 1) of N variables: Q_uv = (K + t)[example_u, example_v] gram[kind_u, kind_v]; the last is a dummy."""
    size = example.size
    Q = np.zeros((size + 1, size + 1), K.dtype)
    for u in range(size):
        row, products, out = K[example[u]], gram[kind[u]], Q[u]
        for v in range(size):
            out[v] = (row[example[v]] + t) * products[kind[v]]
    return Q


class _Coupled:
    """A table on a sample of the examples: scores, duals, certificate, and the two ways to improve them."""

    def __init__(
        self,
        kernel: Kernel,
        y: Any,
        weight: Array,
        table: Any,
        t: float,
        b: Array,
        alpha: Array,
        each: Each,
        largest: int,
    ) -> None:
        self.kernel, self.y, self.weight, self.t, self.b, self.alpha, self.each = (
            kernel,
            y,
            weight,
            t,
            b,
            alpha,
            each,
        )
        self.codes, self.margins, self.boxes, self.shared = table
        self.examples, self.variables, self.largest = min(WORKING, largest), min(VARIABLES, largest), largest
        self.last_gap = HUGE
        self.upper = self.boxes[y] * weight[:, None]  # (n, R)
        self.beta = np.empty((self.codes.shape[2], kernel.n))
        for c in range(len(self.codes)):
            self.beta[:, y == c] = (alpha[y == c] @ self.codes[c]).T
        self.scores = np.zeros_like(self.beta)
        self.total = self.beta.sum(axis=1)
        self.in_set = alpha > 0
        self.diagonal = np.maximum(kernel.diagonal() + t, TINY)
        self.rng = np.random.default_rng(0)
        self._update(np.flatnonzero(self.beta.any(axis=0)), self.beta)

    def _update(self, rows: Any, change: Array) -> None:
        """Scores of all examples after beta changed by `change` (m, n) on `rows`."""
        if len(rows):
            panel(self.kernel, rows, -change[:, rows], np.arange(len(self.beta)), self.scores, self.each)

    def certify(self) -> None:
        """Primal value and gap, and z (n, R) = margins - codes . f."""
        f = self.scores.T + (self.b + self.t * self.total)
        self.z = np.empty_like(self.alpha)
        for c in range(len(self.codes)):
            members = self.y == c
            self.z[members] = self.margins[c] - f[members] @ self.codes[c].T
        slack = self.upper * np.maximum(self.z, 0.0)
        hinge = float((slack.max(axis=1) if self.shared else slack.sum(axis=1)).sum())
        self.gap = hinge - float((self.alpha * self.z).sum())
        self.primal = 0.5 * float((self.beta * self.scores).sum() + self.t * (self.total**2).sum()) + hinge

    def improve(self, tol: float) -> None:
        """Few rows that still move: all of them at once. Many, or rows tied by shared slack: the worst examples in turn."""
        if self.shared:
            spent = self.alpha.sum(axis=1) >= self.upper[:, 0] * (1 - 1e-12)
            high = np.maximum(self.z.max(axis=1), 0.0)
            low = np.minimum(np.where(self.alpha > 0, self.z, HUGE).min(axis=1), np.where(spent, HUGE, 0.0))
            self._improve_examples(np.where(low < HUGE, np.maximum(high - low, 0.0), 0.0), tol)
            return
        moving = ((self.z > 0) & (self.alpha < self.upper)) | ((self.z < 0) & (self.alpha > 0))
        violation = np.where(moving, np.abs(self.z), -np.abs(self.z))
        free = (self.alpha > 0) & (self.alpha < self.upper)
        if np.count_nonzero(free | (violation > 0.01 * violation.max())) > self.variables:
            self._improve_examples(np.maximum(violation.max(axis=1), 0.0), tol)
        else:
            self._improve_rows(violation, tol)

    def _eps(self, worst: float, tol: float) -> float:
        return float(
            np.clip(0.5 * tol * self.primal / max(self.alpha.sum(), TINY), 0.01 * worst, 0.3 * worst)
        )

    def _improve_rows(self, violation: Array, tol: float) -> None:
        """The rows in use and the worst violators, as variables of one problem that SMO solves in cache."""
        worst = float(violation.max())
        self.in_set &= violation > -0.2 * worst
        found = np.flatnonzero(((violation > 0) & ~self.in_set).ravel())
        room = max(ROOM, 2 * int(self.in_set.sum()))
        if len(found) > room:
            found = found[np.argpartition(-violation.ravel()[found], room)[:room]]
        self.in_set.ravel()[found] = True
        chosen = np.flatnonzero(self.in_set.ravel())
        if len(chosen) > self.variables:
            chosen = np.sort(
                chosen[np.argpartition(-violation.ravel()[chosen], self.variables)[: self.variables]]
            )
        R = self.alpha.shape[1]
        example, row = chosen // R, chosen % R
        members, inner = np.unique(example, return_inverse=True)
        kind = self.y[example] * R + row
        flat = self.codes.reshape(-1, self.codes.shape[2])
        K = self.kernel.block(members, members)
        Q = _pair_matrix(K, K.dtype.type(self.t), (flat @ flat.T).astype(K.dtype), inner, kind)
        before = self.alpha.ravel()[chosen]
        a, z = np.append(before, 0.0), np.append(self.z.ravel()[chosen], 0.0)
        lower = np.append(np.zeros(len(chosen)), NEVER)
        upper = np.append(self.upper.ravel()[chosen], -NEVER)
        diagonal = np.ascontiguousarray(np.diagonal(Q), dtype=float)
        smo(Q, diagonal, a, z, lower, upper, self._eps(worst, tol), 10_000 + 20 * len(chosen), NO_INVERSE)
        self.alpha.ravel()[chosen] = a[:-1]
        delta = (a[:-1] - before)[:, None] * flat[kind]  # (N, m)
        change = np.zeros_like(self.beta)
        np.add.at(change.T, example, delta)
        self.beta += change
        self.total += delta.sum(axis=0)
        self._update(np.flatnonzero(change.any(axis=0)), change)

    def _improve_examples(self, violation: Array, tol: float) -> None:
        """The examples that violate most, violation (n,), one after the other."""
        if self.gap > STUCK * self.last_gap:  # what one working set mends, the next one spoils
            self.examples = min(2 * self.examples, self.largest)
        self.last_gap = self.gap
        chosen = np.flatnonzero(violation > 0)
        if len(chosen) > self.examples:
            chosen = chosen[np.argpartition(-violation[chosen], self.examples)[: self.examples]]
        chosen = self.rng.permutation(chosen)
        gram = np.einsum("krm,ksm->krs", self.codes, self.codes)
        alpha, inner = self.alpha[chosen], np.zeros((len(self.beta), len(chosen)))
        fixed = (
            self.y[chosen],
            self.diagonal[chosen],
            self.weight[chosen],
            self.codes,
            self.margins,
            self.boxes,
            gram,
        )
        state = self.total, alpha, inner, max(GOAL * violation.max(), self._eps(violation.max(), tol))
        K = self.kernel.block(chosen, chosen)
        _improve_members(K, self.scores[:, chosen], *fixed, self.shared, self.t, self.b, *state)
        self.in_set = self.alpha > 0
        self.alpha[chosen] = alpha
        change = np.zeros_like(self.beta)
        change[:, chosen] = inner
        self.beta += change
        self._update(np.flatnonzero(change.any(axis=0)), change)


def solve_table_kernel(
    kernel: Kernel,
    starts: NDArray[np.intp],
    weight: Array,
    codes: Array,
    margins: Array,
    boxes: Array,
    shared: bool,
    t: float,
    *,
    tol: float,
    max_iter: int,
    each: Each = map,
    largest: int = 8000,
    shift: Array | None = None,
    alpha: Array | None = None,
    watch: Watch | None = None,
) -> tuple[Array, Array, float, float, int]:
    """Any table on a kernel over examples sorted by class. Returns intercepts (m,), alpha (n, R), primal, gap and rounds."""
    n, (k, R, m) = kernel.n, codes.shape
    y = np.repeat(np.arange(k), np.diff(starts))
    b = np.zeros(m) if shift is None else shift
    samples = nested_samples(starts) if alpha is None else [np.arange(n)]
    alpha = np.zeros((n, R)) if alpha is None else feasible(alpha, boxes[y] * weight[:, None], shared)
    table, rounds = (codes, margins, boxes, shared), 0
    for members in samples:
        last = len(members) == n
        part = kernel if last else kernel.take(members)
        state = _Coupled(part, y[members], weight[members], table, t, b, alpha[members], each, largest)
        goal = tol if last else max(tol, SAMPLE_TOL)
        while True:
            state.certify()
            if watch is not None:
                watch(rounds, state.gap / max(state.primal, TINY))
            if state.gap <= goal * state.primal or rounds >= max_iter:
                break
            state.improve(goal)
            rounds += 1
        alpha[members] = state.alpha
    return b + t * state.total, alpha, state.primal, state.gap, rounds
