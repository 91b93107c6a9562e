"""Exact kernel machines for tables whose outputs hang together: differences of scores, scores that sum to zero, shared slack.

The way to the optimum is that of working_sets.py: samples that grow, working sets solved in cache, one panel a round that brings
the scores of all examples up to date, the duality gap as the end. What differs is the working set: the variables (example, row)
in use and those that violate most, solved by pairs.py; or all those of their examples, solved by grids.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .coordinate import HUGE, TINY, feasible
from .grids import solve_grid
from .kernels import Kernel
from .pairs import NOTHING, solve_pairs
from .panels import SAMPLE_TOL, Members, nested_samples, panel, precision, workers
from .solution import Array, Watch, relative
from .threads import Each

ROOM = 500  # for violators in the first working set
CACHED = 2700  # examples in a working set at first: their kernel matrix, 30 MB, fits into the cache that cores share
PATIENCE = (
    40  # rounds after which a larger one is taken; at once where this times as many examples are in use:
)
CROWD = 3
LARGE = 10.0  # t, in units of the kernel, that calls for double precision
SPENT = 1 - 1e-12  # share of its bound from which a variable is taken to be at it


class _Table:
    """A table's codes, and those of the transfers of pairs.py: as multiples of few directions, the lines.

    Where every direction is some e_j less the mean of all, as in lee-lin-wahba, scores sum to zero: f_j is then the sum over the
    variables of line j less the mean of all such sums, which is kept beside them.
    """

    def __init__(self, codes: Array, margins: Array, shared: bool) -> None:
        self.codes, self.margins, self.shared = codes, margins, shared
        k, R, m = codes.shape
        # from the slack, row R, whose code is zero; where it is shared also from row to row
        to, off = np.triu_indices(R + 1, 1) if shared else (np.arange(R), np.full(R, R))
        padded = np.pad(codes, ((0, 0), (0, 1), (0, 0)))
        moves = (padded[:, to] - padded[:, off]).reshape(-1, m)
        largest = np.take_along_axis(moves, np.abs(moves).argmax(axis=1)[:, None], axis=1)
        largest[largest == 0] = 1.0
        # rows are compared byte by byte; + 0.0: no zeros below zero
        moves = np.ascontiguousarray(moves / largest) + 0.0
        _, some, line = np.unique(moves.view(f"V{8 * m}").ravel(), return_index=True, return_inverse=True)
        directions = moves[some]
        self.line, self.scale = np.zeros((k, R + 1, R + 1), np.intp), np.zeros((k, R + 1, R + 1))
        self.line[:, to, off], self.scale[:, to, off] = line.reshape(k, -1), largest.reshape(k, -1)
        self.square = (directions**2).sum(axis=1)  # (lines,)
        # each class has at most one row on a line, and rows on at least two thirds of the lines
        own = np.sort(self.line[:, :R, R], axis=1)
        self.grid = not shared and 3 * R >= 2 * len(directions) and bool(np.all(np.diff(own, axis=1) > 0))
        place = directions.argmax(axis=1)
        if m > 2 and np.allclose(directions, (m * np.eye(m)[place] - 1) / (m - 1)):
            self.sums = np.column_stack([place, np.full_like(place, m)])
            self.read = np.tile([m, -m], (len(place), 1)) / (m - 1)
            self.write = np.tile([m, 1.0], (len(place), 1)) / (m - 1)
        else:  # the outputs that the direction has a part in, read two by two
            directions = np.pad(directions, ((0, 0), (0, m % 2)))
            width = int(np.count_nonzero(directions, axis=1).max())
            self.sums = np.argsort(directions == 0, axis=1, kind="stable")[:, : width + width % 2]
            self.read = self.write = np.take_along_axis(directions, self.sums, axis=1)


def _transfers(at: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Targets and sources where examples share their slack: to each of N variables from what its example has left, and between two.

    `at` (N,), growing, is the example of each variable; what is left of example i has the number N + i.
    """
    target, source = [np.arange(len(at))], [len(at) + at]
    apart = 1
    while len(one := np.flatnonzero(at[apart:] == at[:-apart])):
        target.append(one)
        source.append(one + apart)
        apart += 1
    return np.concatenate(target), np.concatenate(source)


def _order(values: NDArray[np.intp]) -> NDArray[np.intp]:
    """Stable argsort of small numbers, of which numpy sorts 16 bits far faster than 64."""
    return np.argsort(values.astype(np.min_scalar_type(values.max())), kind="stable")


def _worst(violation: Array, kinds: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """The places of about `count` of the worst violators, of each kind the same share."""
    if len(kinds) <= count:
        return np.arange(len(kinds))
    if not kinds.any():
        return np.argpartition(-violation, count)[:count]
    order = np.lexsort((-violation, kinds))
    _, first, size = np.unique(kinds[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, size)
    return order[rank * len(order) < count * np.repeat(size, size)]


class _Coupled:
    """A table on a sample of the examples: scores, duals, certificate, and the rounds that improve them."""

    def __init__(
        self,
        kernel: Kernel,
        y: Members,
        upper: Array,
        table: _Table,
        t: float,
        b: Array,
        alpha: Array,
        each: Each,
        largest: int,
    ) -> None:
        self.kernel, self.y, self.t, self.b, self.alpha = kernel, y, t, b, alpha
        self.each, self.largest, self.room = each, largest, min(CACHED, largest)
        self.table, self.upper = table, upper  # (n, R)
        self.beta = self._beta(alpha, y)
        self.scores = np.zeros_like(self.beta)
        self.total = self.beta.sum(axis=1)
        self.in_set, self.rounds, self.eps = alpha > 0, 0, 0.0
        self.diagonal = np.maximum(kernel.diagonal() + t, TINY)
        self._update(self.beta)

    def _beta(self, alpha: Array, y: Members) -> Array:
        """(m, n) sum_r alpha_ir codes[y_i, r]."""
        beta = np.empty((self.table.codes.shape[2], len(y)))
        for codes, members in zip(self.table.codes, self._classes(y), strict=True):
            beta[:, members] = (alpha[members] @ codes).T
        return beta

    def _classes(self, y: Members) -> list[slice]:
        """Where the examples of each class are, of examples in the order of their classes y."""
        edges = np.searchsorted(y, np.arange(len(self.table.codes) + 1))
        return [slice(a, z) for a, z in pairwise(edges)]

    def _update(self, change: Array) -> None:
        """Scores of all examples after beta changed by `change` (m, n)."""
        rows = np.flatnonzero(change.any(axis=0))
        if len(rows):
            panel(self.kernel, rows, -change[:, rows], np.arange(len(self.beta)), self.scores, self.each)

    def certify(self) -> None:
        """Primal value and gap, and z (n, R) = margins - codes . f."""
        f = self.scores.T + (self.b + self.t * self.total)
        self.z = np.empty_like(self.alpha)
        for c, members in enumerate(self._classes(self.y)):
            self.z[members] = self.table.margins[c] - f[members] @ self.table.codes[c].T
        slack = self.upper * np.maximum(self.z, 0.0)
        hinge = float((slack.max(axis=1) if self.table.shared else slack.sum(axis=1)).sum())
        self.gap = hinge - float((self.alpha * self.z).sum())
        self.primal = 0.5 * float((self.beta * self.scores).sum() + self.t * (self.total**2).sum()) + hinge

    def violations(self) -> Array:
        """(n, R) |z| where a row could still move, -|z| where it is settled at a bound.

        With shared slack: by how much it gains on, or loses to, the other rows of the example and the slack, whose z is zero.
        """
        z, used = self.z, self.alpha > 0
        if not self.table.shared:
            moving = np.where(z > 0, self.alpha < self.upper, used)
            return np.where(moving, np.abs(z), -np.abs(z))
        bound = self.upper[:, :1]
        spent = self.alpha.sum(axis=1, keepdims=True) >= SPENT * bound
        high = np.maximum(z.max(axis=1, keepdims=True), 0.0)
        # of what can be given away
        low = np.minimum(np.where(used, z, HUGE).min(axis=1, keepdims=True), np.where(spent, HUGE, 0.0))
        alone = self.alpha >= SPENT * bound  # has all there is, and leads the others by so much
        rivals = np.maximum(np.where(alone, -HUGE, z).max(axis=1, keepdims=True), 0.0)
        violation = np.where(used, np.maximum(high - z, z - low), z - low)
        return np.where(bound > 0, np.where(alone, rivals - z, violation), -HUGE)

    def choose(self, violation: Array) -> NDArray[np.bool_]:
        """The working set (n, R): what was in it and is not far inside a bound, and the worst violators, up to as many again."""
        R = violation.shape[1]
        self.in_set &= violation > -0.2 * violation.max()
        # the worst violators may be of few kinds (class, row), whose intercepts are off; where many others have to wait, they
        # would throw the intercepts to the other side, round after round
        crowded = int(((violation > 0) | self.in_set).any(axis=1).sum()) > 2 * self.largest
        found = np.flatnonzero(((violation > 0) & ~self.in_set).ravel())
        kinds = self.y[found // R] * R + found % R if crowded else np.zeros_like(found)
        room = max(ROOM, int(self.in_set.sum()))
        self.in_set.ravel()[found[_worst(violation.ravel()[found], kinds, room)]] = True
        chosen = self.in_set.copy()
        members = np.flatnonzero(chosen.any(axis=1))
        while len(members) > CROWD * self.room and self.room < self.largest:
            self.room = min(2 * self.room, self.largest)
        rows = np.where(chosen[members], violation[members], -HUGE)
        kinds = self.y[members] * R + rows.argmax(axis=1) if crowded else np.zeros_like(members)
        kept = np.zeros(len(chosen), bool)
        kept[members[_worst(rows.max(axis=1), kinds, self.room)]] = True
        chosen &= kept[:, None]
        if self.table.shared:  # what an example has in use must be there to be given away
            chosen |= (self.alpha > 0) & chosen.any(axis=1, keepdims=True)
        return chosen

    def improve(self, tol: float) -> bool:
        """Solve the working set in cache, then bring all scores up to date with one panel; False where nothing can move."""
        violation = self.violations()
        worst = float(violation.max())
        if worst <= 0:
            return False
        self.rounds += 1
        if self.rounds % PATIENCE == 0:
            self.room = min(2 * self.room, self.largest)
        # solved to violation eps the gap is at most eps * sum(alpha), and mostly in proportion to the last; where this round cannot
        # be the last one, no tighter than what is outside the working set is worth
        goal = 0.5 * tol * self.primal / max(self.alpha.sum(), TINY * self.primal)
        goal = max(goal, 0.8 * tol * self.primal / self.gap * self.eps)
        self.eps = min(goal if goal > 0.05 * worst else 0.1 * worst, 0.3 * worst)
        chosen = self.choose(violation)
        members = np.flatnonzero(chosen.any(axis=1))
        before = self.alpha[members]
        self._solve(members, chosen, self.eps)
        change = np.zeros_like(self.beta)
        change[:, members] = self._beta(self.alpha[members] - before, self.y[members])
        self.beta += change
        self.total += change.sum(axis=1)
        self._update(change)
        return True

    def _solve(self, members: Members, chosen: NDArray[np.bool_], eps: float) -> None:
        """Maximise over the chosen variables of the members; on a grid over all of theirs."""
        if self.table.grid:
            return self._solve_grid(members, eps)
        table, R = self.table, chosen.shape[1]
        at, row = np.nonzero(chosen[members])
        example, N = members[at], len(at)
        alpha, upper = self.alpha[example, row], self.upper[example, row]
        # a: all variables, then what each of them, or with shared slack each example, has left
        if table.shared:
            bound = self.upper[members, 0]
            rest = bound - np.bincount(at, alpha, len(members))
            a = np.append(alpha, np.where(rest > NOTHING * bound, rest, 0.0))
            target, source = _transfers(at)
            owner = at[target]
        else:
            bound, a = upper, np.append(alpha, upper - alpha)
            target = owner = np.arange(N)
            source = N + target
        rows = np.append(row, np.full(len(a) - N, R))
        z = np.append(self.z[example, row], np.zeros(len(a) - N))
        line = table.line[self.y[example[target]], rows[target], rows[source]]
        order = _order(line)  # on the same line side by side
        target, source, owner = target[order], source[order], owner[order]
        lines, starts = np.unique(line[order], return_index=True)
        forms = table.square[lines], table.sums[lines], table.read[lines], table.write[lines]
        own = _order(owner)
        first = np.searchsorted(owner[own], np.arange(len(bound) + 1))
        starts = np.append(starts, len(target))
        sums = np.repeat(forms[1], np.diff(starts), axis=0).T  # (width, transfers)
        matrices = self._kernel_matrices(members, sums, at[target])
        real = precision(matrices[0], z, eps)
        scale = table.scale[self.y[example[target]], rows[target], rows[source]].astype(real)
        z = (z[target] - z[source]).astype(real)
        transfers = self.diagonal[example[target]], scale, target, source, z, starts
        solve_pairs(*matrices, *transfers, *forms, owner, first, own, a, bound, eps, 5000 + 20 * len(z))
        # at the bound itself where nothing is left
        self.alpha[example, row] = a[:N] if table.shared else np.where(a[N:] > 0, a[:N], upper)

    def _solve_grid(self, members: Members, eps: float) -> None:
        table, R = self.table, self.alpha.shape[1]
        K, h = self._lifted(self.kernel.block(members, members)), self.diagonal[members]
        y, count = self.y[members], np.arange(len(members))[:, None]
        lines = table.line[y, :R, R]  # (members, R)

        def grid(values: Array, kind: Any = float) -> NDArray[Any]:
            out = np.zeros((len(table.square), len(members)), kind)
            out[lines, count] = values
            return out

        z, upper = self.z[members], self.upper[members]
        real = precision(K, z, eps)
        a, bound = grid(self.alpha[members]), grid(upper)
        forms = table.square, table.sums, table.read, table.write
        scale = grid(table.scale[y, :R, R], real)
        solve_grid(K, h, grid(z, real), scale, *forms, a, bound, eps, 5000 + 20 * z.size)
        self.alpha[members] = a[lines, count]

    def _kernel_matrices(
        self, members: Members, sums: NDArray[np.intp], at: NDArray[np.intp]
    ) -> tuple[Array, NDArray[np.uintp], NDArray[np.uintp], NDArray[np.uint32]]:
        """K + t of the examples each sum concerns, one after the other, or of all members for all sums where that is less.

        Transfers, of the members `at`, concern the `sums` (width, transfers). Returns K, corner, edge, place of pairs.py.
        """
        concerned = np.zeros((sums.max() + 1, len(members)), bool)
        concerned[sums, at] = True
        sizes = np.count_nonzero(concerned, axis=1)
        apart = (sizes**2).sum() < len(members) ** 2
        if not apart:
            concerned[:], sizes[:] = True, len(members)
        edge = np.append(0, np.cumsum(sizes))
        corner = np.append(0, np.cumsum(sizes**2)) if apart else np.zeros_like(edge)
        if apart:
            K = np.empty(corner[-1], self.kernel.dtype)
            for some, size, start in zip(concerned, sizes, corner[:-1], strict=True):
                of_sum = members[some]
                for _ in self.kernel.blocks(of_sum, of_sum, K[start : start + size**2].reshape(size, size)):
                    pass
        else:
            K = self.kernel.block(members, members).ravel()
        place = (np.cumsum(concerned) - 1).astype(np.uint32).reshape(concerned.shape)
        edges = corner.astype(np.uintp), edge.astype(np.uintp)
        return self._lifted(K), *edges, np.ascontiguousarray(place[sums, at])

    def _lifted(self, K: Any) -> Any:
        """K + t"""
        if self.t > LARGE * self.diagonal.max():  # would drown the kernel in single precision
            K = K.astype(float)
        K += K.dtype.type(self.t)
        return K


def solve_table_kernel(
    kernel: Kernel,
    starts: Members,
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
    upper = boxes[y] * weight[:, None]
    alpha = np.zeros((n, R)) if alpha is None else feasible(alpha, upper, shared)
    table, rounds = _Table(codes, margins, shared), 0
    for members in samples:
        last = len(members) == n
        part = kernel if last else kernel.take(members)
        at_once = workers(len(members), each)
        state = _Coupled(part, y[members], upper[members], table, t, b, alpha[members], at_once, largest)
        goal = tol if last else max(tol, SAMPLE_TOL)
        while True:
            state.certify()
            if watch is not None and watch(rounds, relative(state.gap, state.primal)):
                max_iter = rounds
            if state.gap <= goal * state.primal or rounds >= max_iter or not state.improve(goal):
                break
            rounds += 1
        alpha[members] = state.alpha
        if not last:
            del part, state  # and their kernel rows, before the next take memory
    return b + t * state.total, alpha, state.primal, state.gap, rounds
