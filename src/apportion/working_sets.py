"""Exact kernel machines for tables whose outputs do not share slack: m binary problems on the same examples, solved together.

For output j, with s = sign, mu = margin, U = upper bound of example i, b_j the intercept:

    max  sum_i alpha_i mu_i - 1/2 beta' K beta,   beta_i = s_i alpha_i,   0 <= alpha_i <= U_i,
    sum_i beta_i = 0                          free intercept
    ... - 1/2 t (sum_i beta_i)^2              penalised intercept: t = intercept_scaling^2; none: t = 0

The last two are the first with one dummy example more, whose kernel is t with itself and zero with all others: its beta is
-sum_i beta_i. So one pairwise solver, smo.py, serves the three.

State: E[j, i] = s_i mu_i - (K beta_j)_i. Example i violates its conditions when beta_i can grow and E_i > b, or shrink and E_i < b.

The way to the optimum:
1. Samples that grow by a factor of four, each warm-started from the one before.
2. In rounds: every output takes as working set what it had in it, but for examples that have settled far inside their bound, and
   its worst violators, builds their small kernel matrix, and solves that problem in cache. Where nearly all violators want beta to
   move the same way, it takes those nearest to moving the other way too: alone they would throw the intercept from one side to the
   other, round after round.
3. Then the kernel rows of all examples that changed in any output are computed once, panel by panel, and update E of all outputs.
4. Until the duality gap sum_i U_i [z_i]_+ - alpha_i z_i, z_i = mu_i - s_i f_i, is small enough.

Only the smallest samples have a kernel matrix of their own. Tiles have fixed sizes: the result does not depend on the number of
threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._jit import fmax, jit
from .kernels import Kernel
from .panels import SAMPLE_TOL, WHOLE, Members, nested_samples, panel, precision, workers
from .smo import NEVER, NO_INVERSE, smo
from .solution import Array, Watch
from .threads import Each, Room, go_on

SCANNED = 1_000_000  # threads do not pay for a scan of fewer numbers
LOPSIDED = 0.05  # fewer violators of one side than this share of the room, and both sides are filled


@dataclass
class BinaryOutputs:
    """m binary problems on n examples sorted by class."""

    kernel: Kernel
    starts: Members  # (k + 1,): class c holds examples starts[c] .. starts[c + 1] - 1
    sign: Array  # (m, k)
    margin: Array  # (m, k)
    box: Array  # (m, k): upper bound of alpha for an example of weight 1
    weight: Array  # (n,): sample weights
    offset: float | None  # t: None = free intercept
    room: Room  # for the kernel matrices of working sets

    def take(self, index: Members) -> BinaryOutputs:
        starts = np.searchsorted(index, self.starts)
        kernel, weight = self.kernel.take(index), self.weight[index]
        return replace(self, kernel=kernel, starts=starts, weight=weight)

    @property
    def largest(self) -> int:
        """Members of a working set: with the dummy example their kernel matrix fits into the room."""
        return self.room.side - 1

    @property
    def labels(self) -> Members:
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


@jit
def _sum_inside(beta, E, weight, s, u):
    """Sum of E over the examples of a class inside their bounds, and their number."""
    total, count = 0.0, 0.0
    for i in range(E.size):
        alpha = s * beta[i]
        inside = 1.0 if (alpha > 0.0) & (alpha < u * weight[i]) else 0.0
        total += inside * E[i]
        count += inside
    return total, count


@jit
def _middle(beta, E, starts, sign, box, weight):
    """The free intercept: the mean of E over examples inside their bounds; where there is none, between the two extremes."""
    total, count, high, low = 0.0, 0.0, NEVER, -NEVER
    for c in range(starts.size - 1):
        p, q = starts[c], starts[c + 1]
        of_class = _sum_inside(beta[p:q], E[p:q], weight[p:q], sign[c], box[c])
        total += of_class[0]
        count += of_class[1]
    if count > 0.0:
        return total / count
    for c in range(starts.size - 1):
        s = sign[c]
        for i in range(starts[c], starts[c + 1]):
            alpha, upper = s * beta[i], box[c] * weight[i]
            if (s > 0.0 and alpha < upper) or (s < 0.0 and alpha > 0.0):
                high = max(high, E[i])
            if (s < 0.0 and alpha < upper) or (s > 0.0 and alpha > 0.0):
                low = min(low, E[i])
    if high == NEVER or low == -NEVER:  # one side only: any intercept beyond it is optimal
        return high if low == -NEVER else low
    return 0.5 * (high + low)


@jit
def _scan_class(beta, E, weight, b, s, mu, u, violation):
    """What one class adds to the sums of _scan."""
    gap, hinge, quadratic, used, worst = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(E.size):
        alpha, upper, z = s * beta[i], u * weight[i], s * (E[i] - b)
        slack, size = upper * fmax(z, 0.0), fmax(z, -z)
        gap += slack - alpha * z
        hinge += slack
        quadratic += alpha * (mu - s * E[i])
        used += alpha
        room = upper - alpha if z > 0.0 else alpha
        v = size if room > 0.0 else -size
        violation[i] = v
        worst = fmax(worst, v)
    return gap, hinge, quadratic, used, worst


@jit
def _scan(beta, E, b, starts, sign, margin, box, weight, violation):
    """Gap, hinge loss, beta' K beta, sum of alpha and largest violation at intercept b.

    violation[i] = |z_i| where example i could still move, -|z_i| where it is settled at a bound, z = margin - sign * score.
    """
    gap, hinge, quadratic, used, worst = 0.0, 0.0, 0.0, 0.0, 0.0
    for c in range(starts.size - 1):
        p, q = starts[c], starts[c + 1]
        part = beta[p:q], E[p:q], weight[p:q], b, sign[c], margin[c], box[c], violation[p:q]
        of_class = _scan_class(*part)
        gap += of_class[0]
        hinge += of_class[1]
        quadratic += of_class[2]
        used += of_class[3]
        worst = max(worst, of_class[4])
    return gap, hinge, quadratic, used, worst


@jit
def _candidates(violation, inside, least):
    """Those of a working set that stay, above `least`, and the violators outside it; brings `inside` up to date."""
    n = violation.size
    stay, outside = np.empty(n, np.intp), np.empty(n, np.intp)
    a = b = 0
    for i in range(n):
        v = violation[i]
        inside[i] &= v > least
        stay[a] = outside[b] = i
        a += inside[i]
        b += (not inside[i]) & (v > 0.0)
    return stay[:a], outside[:b]


@jit
def _solve_set(K, E, members, beta, diagonal, rest, offset, labels, sign, box, weight, eps, changed, delta):
    """SMO on some of the examples of an output, whose kernel matrix is K and whose gradient is E.

    A K with one row more holds the dummy example of kernel `offset` with beta `rest`. Changes beta; returns the members whose beta
    changed, and by how much.
    """
    q, size = members.size, len(K)
    lower, upper, before, own = np.zeros(size), np.zeros(size), np.empty(size), np.empty(size)
    for t in range(q):
        i = members[t]
        c = labels[i]
        if sign[c] > 0.0:
            upper[t] = box[c] * weight[i]
        else:
            lower[t] = -box[c] * weight[i]
        before[t], own[t] = beta[i], diagonal[i]
    if size > q:
        lower[q], upper[q], before[q], own[q] = NEVER, -NEVER, rest, offset
    after = before.copy()
    smo(K, own, after, E, lower, upper, eps, 10_000 + 100 * q, NO_INVERSE)
    count = 0
    for t in range(q):
        changed[count], delta[count] = members[t], after[t] - before[t]
        count += after[t] != before[t]
        beta[members[t]] = after[t]
    return count


class _Sample:
    """The m outputs on some of the examples, and the rounds that improve them."""

    def __init__(self, problem: BinaryOutputs, beta: Array, each: Each) -> None:
        self.problem, self.beta, self.each = problem, beta, each
        m, n = beta.shape
        # [:, labels] would lie column by column
        self.E = (problem.sign * problem.margin).take(problem.labels, axis=1)
        rows = np.flatnonzero(beta.any(axis=0))
        if len(rows):
            panel(problem.kernel, rows, beta.take(rows, axis=1), np.arange(m), self.E, each)
        self.b, self.gap, self.hinge, self.quadratic, self.used, self.worst = np.zeros((6, m))
        self.violation = np.empty((m, n))
        self.in_set = beta != 0
        self.labels = problem.labels
        self.diagonal = problem.kernel.diagonal()
        self.dummy = int(problem.offset is not None)
        self.whole: NDArray[Any] | None = None
        if n <= 1.5 * WHOLE:
            self.whole = np.empty((n + self.dummy, n + self.dummy), problem.kernel.dtype)
            self.fill(self.whole, np.arange(n))
        self.scan(np.arange(m))

    @property
    def primal(self) -> Array:
        return 0.5 * self.quadratic + self.hinge

    @property
    def relative_gap(self) -> float:
        return float(self.gap.sum() / max(self.primal.sum(), np.finfo(float).tiny))

    def scan(self, outputs: Members) -> None:
        """Intercept, certificate and violations of the outputs from beta and E."""
        p = self.problem

        def one(j: int) -> None:
            if p.offset is None:
                self.b[j] = _middle(self.beta[j], self.E[j], p.starts, p.sign[j], p.box[j], p.weight)
            else:
                self.b[j] = p.offset * self.beta[j].sum()
            self.gap[j], self.hinge[j], self.quadratic[j], self.used[j], self.worst[j] = _scan(
                self.beta[j],
                self.E[j],
                self.b[j],
                p.starts,
                p.sign[j],
                p.margin[j],
                p.box[j],
                p.weight,
                self.violation[j],
            )
            if p.offset:
                self.quadratic[j] += self.b[j] ** 2 / p.offset

        list((map if self.beta.size < SCANNED else self.each)(one, outputs))

    def unfinished(self, tol: float) -> Members:
        """The outputs with the largest gaps, so many that the others may stay as they are."""
        allowed = tol * self.primal.sum()
        if self.gap.sum() <= allowed:
            return np.empty(0, dtype=np.intp)
        order = np.argsort(self.gap)
        return np.sort(order[np.cumsum(self.gap[order]) > 0.7 * allowed])

    def working_set(self, j: int) -> Members:
        """What is in it already and not far inside its bound, and the worst violators, up to four times as many."""
        v, inside, largest = self.violation[j], self.in_set[j], self.problem.largest
        stay, candidates = _candidates(v, inside, -0.2 * self.worst[j])
        room = max(64, 4 * len(stay))
        if len(candidates) > room:
            growing = np.count_nonzero(self.E[j].take(candidates) > self.b[j])
            if min(growing, len(candidates) - growing) < LOPSIDED * room:
                candidates = self.extremes(j, np.flatnonzero(~inside), room)
            else:
                candidates = candidates[np.argpartition(-v.take(candidates), room)[:room]]
        inside[candidates] = True
        members = np.sort(np.concatenate([stay, candidates]))
        return members if len(members) <= largest else self.extremes(j, members, largest)

    def extremes(self, j: int, pool: Members, count: int) -> Members:
        """Of the pool, those whose beta most wants to grow and to shrink, half of `count` each, whether they violate or not."""
        p, E = self.problem, self.E[j, pool]
        labels = self.labels[pool]
        sign = p.sign[j][labels]
        alpha, upper = sign * self.beta[j, pool], p.box[j][labels] * p.weight[pool]
        up, down = alpha < upper, alpha > 0.0
        grow, shrink = np.where(sign > 0, up, down), np.where(sign > 0, down, up)
        chosen = [
            side[np.argpartition(-rank, count // 2)[: count // 2]] if len(side) > count // 2 else side
            for side, rank in ((pool[grow], E[grow]), (pool[shrink], -E[shrink]))
        ]
        return np.union1d(*chosen)

    def solve(self, j: int, eps: float) -> tuple[Members, Array]:
        """Solve output j on its working set; returns the members that changed, and by how much."""
        if self.whole is not None:
            return self._solve_on(self.whole, j, np.arange(self.problem.kernel.n), eps)
        members = self.working_set(j)
        with self.problem.room.square(len(members) + self.dummy, self.problem.kernel.dtype) as K:
            self.fill(K, members)
            return self._solve_on(K, j, members, eps)

    def fill(self, K: NDArray[Any], members: Members) -> None:
        """Write the kernel values of the members, and of the dummy example after them, into K."""
        p = self.problem
        # row and column of the dummy are at first computed as another's: cheaper than a copy of the rest
        examples = np.append(members, members[: self.dummy])
        for _ in p.kernel.blocks(examples, examples, K):
            pass
        if self.dummy:
            K[-1] = K[:, -1] = 0.0
            K[-1, -1] = p.offset

    def _solve_on(self, K: Any, j: int, members: Members, eps: float) -> tuple[Members, Array]:
        """The same for given members, whose kernel matrix is K."""
        p, whole = self.problem, self.whole
        beta, E, rest, offset = self.beta[j], self.E[j].take(members), 0.0, 0.0
        if p.offset is not None:  # the dummy example
            rest, offset = -beta.sum(), p.offset
            E = np.append(E, -offset * rest)
        E = E.astype(precision(K, E, eps))
        changed, delta = np.empty(len(members), np.intp), np.empty(len(members))
        count = _solve_set(
            K,
            E,
            members,
            beta,
            self.diagonal,
            rest,
            offset,
            self.labels,
            p.sign[j],
            p.box[j],
            p.weight,
            eps,
            changed,
            delta,
        )
        changed, delta = changed[:count], delta[:count]
        if whole is not None:
            step = np.zeros(len(whole), whole.dtype)
            step[changed] = delta
            self.E[j] -= (whole @ step)[: len(members)]
        return changed, delta

    def round(self, outputs: Members, tol: float) -> None:
        """Solve each output on its working set, then bring the scores of all examples up to date with one panel."""
        # a problem solved to violation eps has a gap of about eps * sum(alpha); never tighter than the outside is worth
        share = 0.5 * tol * np.maximum(self.primal, self.primal.mean())
        eps = np.clip(share / np.maximum(self.used, share), 0.01 * self.worst, 0.3 * self.worst)
        changes = list(self.each(lambda j: self.solve(j, eps[j]), outputs))
        changed = np.zeros(self.beta.shape[1], dtype=bool)
        for members, _ in changes:
            changed[members] = True
        rows = np.flatnonzero(changed)
        if self.whole is None and len(rows):
            step = np.zeros((len(outputs), len(rows)))
            for r, (members, delta) in enumerate(changes):
                step[r, np.searchsorted(rows, members)] = delta
            panel(self.problem.kernel, rows, step, outputs, self.E, self.each)
        self.scan(outputs)


def solve_binary_outputs(
    problem: BinaryOutputs,
    *,
    tol: float,
    max_iter: int,
    each: Each = map,
    beta: Array | None = None,
    watch: Watch | None = None,
) -> tuple[Array, Array, Array, Array, int]:
    """Solve to a relative duality gap of `tol`, from `beta` (m, n) where it is given.

    Returns beta (m, n), intercepts (m,), primal values (m,), gaps (m,) and the number of rounds.
    """
    m, n = len(problem.sign), problem.kernel.n
    samples = nested_samples(problem.starts) if beta is None else [np.arange(n)]
    beta = np.zeros((m, n)) if beta is None else beta.copy()
    rounds = 0
    for members in samples:
        last = len(members) == n
        part = problem if last else problem.take(members)
        sample = _Sample(part, beta.take(members, axis=1), workers(len(members), each))
        goal = tol if last else max(tol, SAMPLE_TOL)
        while len(active := sample.unfinished(goal)) and rounds < max_iter:
            go_on()
            sample.round(active, goal)
            rounds += 1
            if watch is not None and watch(rounds, sample.relative_gap):
                max_iter = rounds
        beta[:, members] = sample.beta
        if not last:
            del part, sample  # and most of their kernel rows, before the next take memory
    return beta, sample.b, sample.primal, sample.gap, rounds
