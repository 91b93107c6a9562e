"""The linear machine on data that lie in P parts: rounds of local dual ascent, put together by a small exact program.

    min  1/2 |W|^2 + sum_p f_p(W),      f_p(W) = C sum_{i in p} weight_i loss(W x_i, y_i)

The intercept is the last column of W, the weight of a constant feature sqrt(t). Any alpha of part p within its bounds is an atom,
(pull, gain) = (sum alpha code x, sum alpha margin), and every atom bounds the loss of its part from below, everywhere:

    f_p(W) >= gain - <pull, W>.

In a round each part is sent two points of the size of W, and sends two atoms and its loss back:

    cut     at `query`: the rows violated there, all at their bounds. Its loss gives the primal value.
    ascent  local dual coordinate ascent as in CoCoA+ (Ma et al. 2015), from where it stopped last: the dual in which the others
            do as this part does,  max_alpha  gain - <centre, pull> - sigma/2 |pull|^2,   centre = W - sigma * (its own pull in W).

The atoms are put together by the dual of the bounds they give, whose points are all feasible in the dual of the machine:

    max  sum_pa share_pa gain_pa - 1/2 |sum_pa share_pa pull_pa|^2,      share_p >= 0, sum_a share_pa <= 1.

This is a table of shared slack with one example a part (rows = atoms, code = pull, margin = gain), so the solver of tables solves
it. Its value is the dual value. CoCoA+ adds the updates of all parts, which is one of its feasible points; the best one takes a
fraction of the rounds. All that counts is here, where the rounds are put together: a part that is lost loses no more than the start
of its next ascent. Outputs that share no slack have shares of their own.

Where W is so large that the atoms of all parts take too much room, parts form teams, whose atoms are the sums of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import coordinate
from .losses import LossTable
from .parts import binary_parts
from .solution import Array, Watch

ROWS = 8192  # examples whose scores are held at a time
LOCAL_ITER = 10  # sweeps of the local ascent in a round, at most
ATOMS = 20  # kept for each team, at most
LEAST = 6  # and at least: fewer teams where there is no room for so many
ROOM = 2**30  # bytes that all atoms may take
# the way of the query from the best point to the minimum of the bounds, after a success and a failure
FARTHER, NEARER = 1.1, 0.4


@dataclass(frozen=True)
class Problem:
    """What every part is told once."""

    table: LossTable
    C: float
    t: float  # squared value of the constant feature; 0 = no intercept
    binary: tuple[Array, Array, Array] | None = field(init=False)  # see _binary

    def __post_init__(self) -> None:
        object.__setattr__(self, "binary", _binary(self.table, self.C))

    @property
    def blocks(self) -> int:
        """B: the outputs, where each is a problem of its own; else 1."""
        return 1 if self.binary is None else self.table.n_outputs


def _binary(table: LossTable, C: float) -> tuple[Array, Array, Array] | None:
    """sign, margin and box (m, k) of outputs that share no slack; a class that takes no part in one has no room to move there."""
    parts = binary_parts(table)
    if parts is None:
        return None
    shape = table.n_outputs, table.n_classes
    sign, box, margin = np.zeros(shape), np.zeros(shape), np.full(shape, -np.abs(table.margins).max() - 1.0)
    for part in parts:
        at = np.ix_(part.outputs, part.classes)
        sign[at], margin[at], box[at] = part.sign, part.margin, C * part.weight
    return sign, margin, box


# ---------------------------------------------------------------- one part


@dataclass
class Part:
    """The examples of a part, and the alpha at which its last ascent stopped: a warm start, nothing else."""

    X: Any  # (n, d) dense or CSR
    y: NDArray[np.intp]  # (n,)
    weight: Array  # (n,)
    problem: Problem
    alpha: Array | None = None  # (n, m) of binary outputs, else (n, R)

    def __sizeof__(self) -> int:
        """Bytes, alpha included: a scheduler that knows them leaves a part where it is."""
        arrays = (self.X.data, self.X.indices) if sparse.issparse(self.X) else (self.X,)
        rows = self.problem.table.codes.shape[1 if self.problem.binary is None else 2]
        return sum(array.nbytes for array in arrays) + (2 + rows) * 8 * len(self.y)


@dataclass
class Task:
    """What a part is sent."""

    query: Array  # (m, d + 1)
    centre: Array  # (m, d + 1)
    sigma: float
    tol: float  # relative gap of the local ascent
    max_iter: int


@dataclass
class Answer:
    """What a part sends back: its loss at the query, and two atoms."""

    loss: Array  # (B,)
    pulls: Array  # (2, m, d + 1)
    gains: Array  # (2, B)

    def __add__(self, other: Answer) -> Answer:
        return Answer(self.loss + other.loss, self.pulls + other.pulls, self.gains + other.gains)


def answer(part: Part, task: Task) -> Answer:
    """A round of one part."""
    loss, cut, cut_gain = _cut(part, task.query)
    ascent, ascent_gain = _ascend(part, task)
    return Answer(loss, np.stack([cut, ascent]), np.stack([cut_gain, ascent_gain]))


def _cut(part: Part, W: Array) -> tuple[Array, Array, Array]:
    """Loss (B,) at W, and the atom of the rows that are violated there."""
    problem, d = part.problem, part.X.shape[1]
    root = np.sqrt(problem.t)
    loss, gain, pull = np.zeros(problem.blocks), np.zeros(problem.blocks), np.zeros_like(W)
    for start in range(0, len(part.y), ROWS):
        rows = slice(start, start + ROWS)
        X, y, weight = part.X[rows], part.y[rows], part.weight[rows, None]
        scores = np.asarray(X @ W[:, :d].T, dtype=float) + root * W[:, d]
        if problem.binary is None:
            beta, here, got = _violated(problem, scores, y, weight)
        else:
            sign, margin, box = (array.T[y] for array in problem.binary)
            z = margin - sign * scores
            alpha = np.where(z > 0, box * weight, 0.0)
            beta, here, got = sign * alpha, (alpha * z).sum(axis=0), (alpha * margin).sum(axis=0)
        loss += here
        gain += got
        pull[:, :d] += np.asarray(X.T @ beta).T
        pull[:, d] += root * beta.sum(axis=0)
    return loss, pull, gain


def _violated(problem: Problem, scores: Array, y: NDArray[np.intp], weight: Array) -> tuple[Array, Any, Any]:
    """beta (n, m), loss and gain of the violated rows, all at their bounds; with shared slack of the worst one."""
    table, beta, loss, gain = problem.table, np.zeros_like(scores), 0.0, 0.0
    for c in np.unique(y):
        members = y == c
        z = table.margins[c] - scores[members] @ table.codes[c].T
        alpha = np.where(z > 0, problem.C * table.weights[c] * weight[members], 0.0)
        if table.shared:
            alpha *= np.arange(z.shape[1]) == z.argmax(axis=1)[:, None]
        beta[members] = alpha @ table.codes[c]
        loss += float((alpha * z).sum())
        gain += float((alpha @ table.margins[c]).sum())
    return beta, loss, gain


def _ascend(part: Part, task: Task) -> tuple[Array, Array]:
    """The atom of the local ascent. In the variables sigma * alpha it is a machine of its own around `centre`."""
    problem, sigma, d = part.problem, task.sigma, part.X.shape[1]
    table, t = problem.table, problem.t
    root = np.sqrt(t)
    base, shift = task.centre[:, :d], root * task.centre[:, d]
    warm = None if part.alpha is None else sigma * part.alpha
    W, b = np.empty_like(base), np.empty_like(shift)
    if problem.binary is None:
        W, b, scaled, *_ = coordinate.solve_table(
            part.X,
            part.y,
            part.weight,
            table.codes,
            table.margins,
            sigma * problem.C * table.weights,
            table.shared,
            t,
            tol=task.tol,
            max_iter=task.max_iter,
            shift=shift,
            base=base,
            alpha=warm,
        )
        gain = np.array([(scaled * table.margins[part.y]).sum()])
    else:
        sign, margin, box = problem.binary
        scaled = np.empty((len(part.y), len(sign)))
        for start in range(0, len(sign), coordinate.LANES):
            own = slice(start, start + coordinate.LANES)
            W[own], b[own], scaled[:, own], *_ = coordinate.solve_outputs(
                part.X,
                part.y,
                part.weight,
                sign[own],
                margin[own],
                sigma * box[own],
                t,
                tol=task.tol,
                max_iter=task.max_iter,
                shift=shift[own],
                base=base[own],
                alpha=None if warm is None else warm[:, own],
            )
        gain = (scaled * margin.T[part.y]).sum(axis=0)
    part.alpha = scaled / sigma
    constant = (b - shift) / root if root else np.zeros_like(b)
    return np.column_stack([W - base, constant]) / sigma, gain / sigma


# ---------------------------------------------------------------- all parts


def make_teams(problem: Problem, n_features: int, n_parts: int) -> list[NDArray[np.intp]]:
    """The parts in teams; one each, where there is room."""
    size = 8 * problem.table.n_outputs * (n_features + 1)
    n_teams = int(np.clip(ROOM // (LEAST * size), 1, n_parts))
    return np.array_split(np.arange(n_parts), n_teams)


class Rounds:
    """Where the answers of the teams are put together: `tasks` go out to each part of a team, `take` gets the summed answers."""

    def __init__(self, problem: Problem, n_features: int, team_sizes: Sequence[int]) -> None:
        self.problem, self.team_sizes = problem, np.asarray(team_sizes)
        self.shape = problem.table.n_outputs, n_features + 1
        B, T = problem.blocks, len(team_sizes)
        D = self.shape[0] * self.shape[1] // B
        self.keep = int(np.clip(ROOM // (8 * B * D * T), LEAST, ATOMS)) // 2 * 2  # they come in twos
        self.count = 0  # of the atoms there are; the arrays have room for all that will be
        self.pulls: Array = np.empty((B, self.keep, T, D))
        self.gains: Array = np.zeros((B, self.keep, T))
        self.shares: Array = np.zeros((B, self.keep, T))
        self.own: Array = np.zeros((B, T, D))  # sum of share * pull of each team
        self.best: Array = np.zeros((B, D))
        self.reach: Array = np.full(B, 0.5)
        self.primals: Array = np.full(B, np.inf)
        self.duals: Array = np.zeros(B)
        self.sigma = max(0.5 * self.team_sizes.sum(), 1.0)
        self.n_iter = 0

    @property
    def primal(self) -> float:
        return float(self.primals.sum())

    @property
    def dual(self) -> float:
        return float(self.duals.sum())

    @property
    def gap(self) -> float:
        """(primal - dual) / primal, of the best points met."""
        if not self.n_iter:
            return 1.0
        return float(max(self.primal - self.dual, 0.0) / max(self.primal, np.finfo(float).tiny))

    @property
    def machine(self) -> Array:
        """(m, d + 1): the best point met."""
        return self.best.reshape(self.shape)

    @property
    def query(self) -> Array:
        """(B, D) between the best point met and the minimum of the bounds, where the cuts of all parts meet."""
        return self.best + self.reach[:, None] * (self.own.sum(axis=1) - self.best)

    def tasks(self, max_iter: int = LOCAL_ITER) -> list[Task]:
        """One for each team."""
        query, W = self.query.reshape(self.shape), self.own.sum(axis=1)
        share = self.sigma / self.team_sizes  # the parts of a team are taken to pull alike
        centres = [(W - share[team] * self.own[:, team]).reshape(self.shape) for team in range(len(share))]
        return [Task(query, centre, self.sigma, 0.1 * self.gap, max_iter) for centre in centres]

    def take(self, answers: Sequence[Answer], tol: float) -> None:
        """The answers of all teams; the bounds are put together anew unless the gap is within tol."""
        B, query = self.problem.blocks, self.query
        primals = 0.5 * (query**2).sum(axis=1) + sum(a.loss for a in answers)
        better = primals < self.primals
        self.reach = np.clip(np.where(better, FARTHER, NEARER) * self.reach, 0.02, 1.0)
        self.primals, self.best = (
            np.minimum(primals, self.primals),
            np.where(better[:, None], query, self.best),
        )
        self.n_iter += 1
        if self.gap <= tol:
            return
        slots = self._make_room()
        for team, got in enumerate(answers):
            self.pulls[:, slots, team] = got.pulls.reshape(2, B, -1).swapaxes(0, 1)
            self.gains[:, slots, team] = got.gains.T
        for b in range(B):
            self._put_together(b, max(0.1 * self.gap, 0.03 * tol))

    def _make_room(self) -> NDArray[np.intp]:
        """Two slots for atoms. When all are taken, the point that all atoms make up goes into the first, and the oldest go."""
        if self.count + 2 <= self.keep:
            self.count += 2
            return np.arange(self.count - 2, self.count)
        self.pulls[:, 0], self.gains[:, 0] = self.own, (self.shares * self.gains).sum(axis=1)
        self.shares[:, 0], self.shares[:, 1:] = 1.0, 0.0
        return 1 + np.arange(2 * self.n_iter, 2 * self.n_iter + 2) % (self.keep - 1)

    def _put_together(self, b: int, tol: float) -> None:
        """Shares, sums and dual value of block b."""
        A, (T, D) = self.count, self.own[b].shape
        pulls, gains = self.pulls[b, :A], self.gains[b, :A]
        codes: Any = pulls
        if D > A * T:  # the same products in fewer dimensions
            flat = pulls.reshape(A * T, D)
            gram = flat @ flat.T
            gram[np.diag_indices(A * T)] += 1e-13 * np.trace(gram) + 1e-300
            codes = np.linalg.cholesky(gram).reshape(A, T, A * T)
        _, _, shares, *_ = coordinate.solve_table(
            np.ones((T, 1)),
            np.arange(T),
            np.ones(T),
            np.ascontiguousarray(codes.swapaxes(0, 1)),
            np.ascontiguousarray(gains.T),
            np.ones((T, A)),
            True,
            0.0,
            tol=tol,
            max_iter=1000,
            alpha=self.shares[b, :A].T,
        )
        own = np.einsum("ta,atd->td", shares, pulls)
        dual = float((shares.T * gains).sum() - 0.5 * (own.sum(axis=0) ** 2).sum())
        if dual >= self.duals[b]:
            self.shares[b, :A], self.own[b], self.duals[b] = shares.T, own, dual


def solve_parts(parts: Sequence[Part], *, tol: float, max_iter: int, watch: Watch | None = None) -> Rounds:
    """All rounds in this process, one part after the other."""
    problem, d = parts[0].problem, parts[0].X.shape[1]
    teams = make_teams(problem, d, len(parts))
    rounds = Rounds(problem, d, [len(team) for team in teams])
    while rounds.gap > tol and rounds.n_iter < max_iter:
        answers = [
            reduce(Answer.__add__, (answer(parts[p], task) for p in team))
            for team, task in zip(teams, rounds.tasks(), strict=True)
        ]
        rounds.take(answers, tol)
        if watch is not None:
            watch(rounds.n_iter, rounds.gap)
    return rounds
