"""Dense linear machines with many more examples than features: smoothed Newton on all outputs at once.

For tables whose outputs share no slack. The hinge of output j is smoothed over a width mu_j, around a centre c_i of each example,

    [z]_+  ~  max_a  a z - mu/2 (a - c)^2,  0 <= a <= 1,        z_i = margin_i - sign_i (w . x_i + b),

and each iterate has a dual feasible partner alpha_i = U_i a_i, a_i = clip(c_i + z_i / mu, 0, 1), hence a certificate:

    primal - dual = 1/2 |w - sum_i beta_i x_i|^2 + sum_i (U_i [z_i]_+ - alpha_i z_i),  beta_i = sign_i alpha_i,

the first part for Newton's method to close, the second in proportion to mu |a - c|. At first c = 0, and mu shrinks. Once the band,
the examples with 0 < a < 1, holds about as many as there are features, they can all come to the margin, where z = 0: then c
moves to the a found as well (the method of multipliers), and mu need not become so small that the band changes with every step.

Scores and gradients of all outputs are matrix products; the Hessian I + 1/mu sum_band U_i x_i x_i' is taken over a sample of the
band. A first solution on a small sample of the examples saves most of the passes over all of them.

The intercept is one more feature of value sqrt(t) (penalised), or has no penalty and is set exactly at each step (free), so that
sum_i beta_i = 0 and the certificate holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from . import smoothing
from .parts import balanced
from .products import pull
from .solution import Array, Watch
from .threads import Each

Members = NDArray[np.intp]

BAND = 6000  # examples in the Hessian of one output
SAMPLE = 0.05  # share of the examples in the first stage
SAMPLE_TOL, SAMPLE_STEPS = 5e-3, 50
CHUNK = 2000  # examples of a product
FEW = 0.05  # a share of the examples: so few are gathered rather than all passed over
REDUCED = 4000  # examples near the margin that a reduced problem holds
WIDTH = 0.05  # of the smoothing, in margins, that the first stage leaves at least


@dataclass
class _Outputs:
    """m binary problems on n examples; sign, margin, box (m, k)."""

    X: Any  # (n, d)
    y: NDArray[np.intp]
    weight: Array
    sign: Array
    margin: Array
    box: Array
    t: float | None

    def part(self, rows: NDArray[np.intp], outputs: slice, scale: float = 1.0) -> _Outputs:
        classes = self.sign[outputs], self.margin[outputs], scale * self.box[outputs]
        return _Outputs(self.X[rows], self.y[rows], self.weight[rows], *classes, self.t)


class _Stage:
    """Iterates W, b and their certificate on one set of examples; the others pull by a fixed amount."""

    def __init__(self, problem: _Outputs, W: Array, b: Array, mu: Array, each: Each) -> None:
        self.problem, self.W, self.b, self.mu, self.each = problem, W, b, mu, each
        self.m, self.n = len(problem.sign), problem.X.shape[0]
        # of the examples left out: sum of beta x and of beta
        self.fixed_pull, self.fixed_total = np.zeros_like(W), np.zeros(self.m)
        self.beta = np.zeros((self.m, self.n), problem.X.dtype)
        self.centre = np.zeros((self.m, self.n), np.float32)
        self.pull = np.zeros_like(W)  # sum_i beta_i x_i
        self.hinge, self.rest, self.total, self.band = np.zeros((4, self.m))
        self.scores = self.product(W)

    def product(self, W: Array) -> NDArray[Any]:
        """W X' (m, n), chunk by chunk."""
        X = self.problem.X
        W, out = W.astype(X.dtype), np.empty((len(W), self.n), X.dtype)

        def one(start: int) -> None:
            np.matmul(W, X[start : start + CHUNK].T, out=out[:, start : start + CHUNK])

        list(self.each(one, range(0, self.n, CHUNK)))
        return out

    def pull_of(self, beta: NDArray[Any]) -> Array:
        """beta X (m, d), summed up chunk by chunk, always in the same order."""
        X = self.problem.X
        chunks = self.each(
            lambda start: beta[:, start : start + CHUNK] @ X[start : start + CHUNK], range(0, self.n, CHUNK)
        )
        return np.sum(list(chunks), axis=0, dtype=float)

    def output(self, j: int) -> tuple[Any, ...]:
        p = self.problem
        return self.centre[j], p.y, p.weight, p.sign[j], p.margin[j], p.box[j], self.mu[j]

    def place(self, j: int) -> tuple[Any, ...]:
        """What the place of each example in the band of output j follows from."""
        p = self.problem
        return self.scores[j], self.b[j], self.centre[j], p.y, p.sign[j], p.margin[j], self.mu[j]

    def refresh(self, outputs: Members) -> None:
        """beta, its pull and the sums of the certificate, from scores, b, mu and centre."""
        X, anew = self.problem.X, np.zeros(self.m, bool)

        def one(j: int) -> None:
            if self.problem.t is None:
                self.b[j] = smoothing.free_intercept(
                    self.scores[j], self.b[j], *self.output(j), self.fixed_total[j]
                )
            before = self.beta[j].copy()
            self.hinge[j], self.rest[j], total, self.band[j] = smoothing.smooth(
                self.scores[j], self.b[j], *self.output(j), self.beta[j]
            )
            self.total[j] = total + self.fixed_total[j]
            changed = np.flatnonzero(self.beta[j] != before)
            if len(changed) < FEW * self.n:  # near the end most stay at their bounds
                self.pull[j] += (self.beta[j, changed] - before[changed]) @ X[changed]
            else:
                anew[j] = True

        list(self.each(one, outputs))
        if anew.any():
            self.pull[anew] = (
                self.pull_of(self.beta if anew.all() else self.beta[anew]) + self.fixed_pull[anew]
            )

    @property
    def primal(self) -> Array:
        penalty = (self.b**2 / self.problem.t) if self.problem.t else 0.0
        return 0.5 * (self.W**2).sum(axis=1) + 0.5 * penalty + self.hinge

    @property
    def slope_b(self) -> Array:
        """Gradient in b; zero where b is free (set exactly) or absent."""
        return self.b / self.problem.t - self.total if self.problem.t else np.zeros(self.m)

    @property
    def mismatch(self) -> Array:
        """1/2 |w - sum beta x|^2, the constant feature included."""
        constant = self.problem.t * self.slope_b**2 if self.problem.t else 0.0
        return 0.5 * ((self.W - self.pull) ** 2).sum(axis=1) + 0.5 * constant

    @property
    def reducible(self) -> NDArray[np.bool_]:
        """(m,) outputs near their solution with so few examples in the band that a small problem tells the step."""
        few = (self.n > 4 * REDUCED) & (self.band < REDUCED // 8)
        return few & (self.mismatch < 0.1 * self.primal)

    def newton_step(self, j: int, rng: np.random.Generator, mu: float, recentre: bool) -> tuple[Array, float]:
        """-H^{-1} gradient of output j, H over a sample of its band, for a width mu and, where told, for its centres moved.

        Of a smoothing that changes the band is taken as it was: a follows c + z / mu beyond 0 and 1, and the step brings z down.
        """
        p, d, t = self.problem, self.W.shape[1], self.problem.t
        members = np.empty(self.n, dtype=np.int64)
        band = members[: smoothing.find_band(*self.place(j), members)]
        gradient = np.append(self.W[j] - self.pull[j], self.slope_b[j])
        ahead = self.mu[j] / mu - (0.0 if recentre else 1.0)  # change of a as a multiple of a - c
        if ahead:
            centre = p.sign[j][p.y[band]] * p.box[j][p.y[band]] * p.weight[band] * self.centre[j, band]
            change = ahead * (self.beta[j, band] - centre)
            for at in range(0, len(band), CHUNK):  # the band may be all examples
                gradient[:d] -= change[at : at + CHUNK] @ p.X[band[at : at + CHUNK]]
            gradient[d] -= change.sum() if t != 0 else 0.0
        factor = max(1.0, len(band) / BAND)
        if factor > 1:
            band = band[rng.integers(0, len(band), BAND)]
        curvature = factor / mu * p.box[j][p.y[band]] * p.weight[band]
        rows, root = p.X[band], np.sqrt(curvature).astype(p.X.dtype)
        rows *= root[:, None]
        H = np.zeros((d + 1, d + 1))
        H[:d, :d] = rows.T @ rows  # of one matrix with itself: half the work
        H[:d, d] = H[d, :d] = root @ rows
        H[d, d] = curvature.sum() + (1 / t if t else 0.0)
        H[np.arange(d), np.arange(d)] += 1.0
        if t == 0 or H[d, d] == 0:  # no intercept, or none that the band could tell
            H[d, :d] = H[:d, d] = 0.0
            H[d, d] = 1.0
        elif t is None:
            H[d, d] *= 1 + 1e-10
        ridge = np.finfo(p.X.dtype).eps * np.trace(H)
        while True:
            try:
                full = cho_solve(cho_factor(H, check_finite=False), -gradient, check_finite=False)
                return full[:d], float(full[d])
            except np.linalg.LinAlgError:
                # columns that rounding does not tell apart: a shorter step, still downhill
                H[np.arange(d + 1), np.arange(d + 1)] += ridge
                ridge *= 10

    def reduced_step(self, j: int, rng: np.random.Generator, goal: float) -> tuple[Array, float]:
        """The way to the solution on the examples nearest to the margin, all others held: their pull is kept.

        The output goes on with the smoothing that the reduced problem came to.
        """
        distance = np.empty(self.n)
        smoothing.from_band(*self.place(j), distance)
        some = distance[:: max(1, self.n // 10_000)]  # their quantile serves, unless too many are equal
        near = np.flatnonzero(distance <= np.partition(some, at := len(some) * REDUCED // self.n)[at])
        if len(near) > 2 * REDUCED:
            near = np.argpartition(distance, REDUCED)[:REDUCED]
        own = slice(j, j + 1)
        here = self.problem.part(near, own)
        stage = _Stage(here, self.W[own].copy(), self.b[own].copy(), self.mu[own].copy(), map)
        stage.centre = self.centre[own, near]
        stage.fixed_pull = self.pull[own] - self.beta[own, near] @ here.X
        stage.fixed_total = self.total[own] - self.beta[own, near].sum(dtype=float)
        stage.pull += stage.fixed_pull
        stage.improve(np.array([goal]), 50, rng)
        self.mu[j], self.centre[j, near] = stage.mu[0], stage.centre[0]
        return stage.W[0] - self.W[j], float(stage.b[0] - self.b[j])

    def advance(
        self, outputs: Members, mu: Array, recentre: NDArray[np.bool_], rng: np.random.Generator, goal: Array
    ) -> None:
        """One step and line search of each of the outputs, whose widths become mu (m,), and whose centres move where told."""
        step, step_b = np.zeros_like(self.W), np.zeros(self.m)
        seeds, reducible = rng.integers(0, 2**63, self.m), self.reducible
        changed = outputs[(reducible | recentre | (mu < self.mu))[outputs]]

        def one(j: int) -> None:
            own = np.random.default_rng(seeds[j])
            if reducible[j]:
                step[j], step_b[j] = self.reduced_step(j, own, goal[j])
                return
            step[j], step_b[j] = self.newton_step(j, own, mu[j], recentre[j])
            if recentre[j]:
                smoothing.recentre(*self.place(j))
            self.mu[j] = mu[j]

        def along() -> Array:
            """Slope of the smoothed objectives along the steps."""
            return ((self.W - self.pull) * step).sum(axis=1) + self.slope_b * step_b

        list(self.each(one, outputs))
        self.refresh(changed)
        for j in changed[along()[changed] >= 0]:  # the smoothing changed too much
            step[j], step_b[j] = self.newton_step(j, rng, self.mu[j], False)
        start = along()
        moved = dict(zip(outputs, self.product(step[outputs]), strict=True))
        t = self.problem.t
        linear = ((self.W - self.fixed_pull) * step).sum(axis=1) - self.fixed_total * step_b
        linear = linear + (self.b * step_b / t if t else 0.0)
        quadratic = (step**2).sum(axis=1) + (step_b**2 / t if t else 0.0)

        def search(j: int) -> None:
            args = (
                self.scores[j],
                moved[j],
                self.b[j],
                step_b[j],
                *self.output(j),
                linear[j],
                quadratic[j],
                start[j],
            )
            length = smoothing.line_search(*args)
            if length == 0.0:  # too many kinks in too little room
                self.mu[j] *= 4
            self.W[j] += length * step[j]
            self.b[j] += length * step_b[j]
            self.scores[j] += self.problem.X.dtype.type(length) * moved[j]

        list(self.each(search, outputs))

    def improve(
        self,
        goal: Array | float,
        max_iter: int,
        rng: np.random.Generator,
        watch: Watch | None = None,
        before: int = 0,
    ) -> int:
        """Until the gaps are within goal (m,), or within a share goal of the primal value in all. Returns the number of steps.

        `watch` is told how many there were with those `before`.
        """
        outputs = np.arange(self.m)
        for iteration in range(max_iter):
            self.refresh(outputs)
            gap, primal = self.mismatch + self.rest, self.primal
            limit = goal if isinstance(goal, np.ndarray) else 0.8 * goal * np.maximum(primal, primal.mean())
            late = watch is not None and watch(
                before + iteration + 1, float(gap.sum() / max(primal.sum(), 1e-300))
            )
            outputs = np.flatnonzero(gap > limit)
            if (
                late
                or not len(outputs)
                or (not isinstance(goal, np.ndarray) and gap.sum() <= goal * primal.sum())
            ):
                break
            solved = (self.mismatch < 0.5 * self.rest) & ~self.reducible
            recentre = solved & (self.band < 1.5 * self.W.shape[1])
            narrower = np.clip(np.sqrt(0.4 * limit / np.maximum(self.rest, 1e-300)), 0.15, 0.7)
            mu = np.where(solved, np.where(recentre, 0.5, narrower), 1.0) * self.mu
            self.advance(outputs, mu, recentre, rng, np.maximum(0.3 * limit, 0.03 * gap))
        else:
            self.refresh(np.arange(self.m))
        return iteration + 1


def solve_newton(
    X: Any,
    y: NDArray[np.intp],
    weight: Array,
    sign: Array,
    margin: Array,
    box: Array,
    t: float | None,
    *,
    tol: float,
    max_iter: int,
    each: Each = map,
    start: tuple[Array, Array] | None = None,
    watch: Watch | None = None,
) -> tuple[Array, Array, Array, Array, Array, int]:
    """X (n, d) dense; sign, margin, box (m, k); t: intercept_scaling^2, 0 for no intercept, None for a free one.

    Returns W (m, d), b (m,), beta (m, n), primal values (m,), gaps (m,) and the number of steps.
    """
    n, d = X.shape
    m = len(sign)
    rng = np.random.default_rng(0)
    W, b = (np.zeros((m, d)), np.zeros(m)) if start is None else (start[0].copy(), start[1].copy())
    mu = np.full(m, 4.0) * np.abs(margin).max(axis=1)
    problem = _Outputs(X, y, weight, sign, margin, box, t)
    done = 0
    sample = max(int(SAMPLE * n), 20 * d)
    if start is None and sample < 0.5 * n:
        rows = np.sort(rng.permutation(n)[:sample])
        stage = _Stage(problem.part(rows, slice(None), n / sample), W, b, mu, each)
        done = stage.improve(max(tol, SAMPLE_TOL), min(max_iter, SAMPLE_STEPS), rng, watch)
        mu = np.maximum(stage.mu, WIDTH * np.abs(margin).max(axis=1))
    stage = _Stage(problem, W, b, mu, each)
    done += stage.improve(tol, max(max_iter - done, 1), rng, watch, done)
    primal, gap = stage.primal, stage.mismatch + stage.rest
    # a bound that single precision has rounded up is a bound
    beta = sign[:, y] * np.minimum(np.abs(stage.beta, dtype=float), box[:, y] * weight)
    if t is None:  # rounding leaves sum(beta) at almost zero; the certificate is of a beta whose sum is zero
        beta = balanced(beta)
        margins = np.array([np.abs(beta[j]) @ margin[j][y] for j in range(m)])
        gap = np.maximum(gap, primal - (margins - 0.5 * (pull(X, beta.T) ** 2).sum(axis=1)))
    return stage.W, stage.b, beta, primal, gap, done
