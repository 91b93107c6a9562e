"""Dense linear machines with many more examples than features: smoothed Newton on all outputs at once.

For tables whose outputs share no slack. The hinge of output j is smoothed over a width mu_j,

    hinge_mu(z) = 0 (z <= 0),  z^2 / 2 mu (0 < z < mu),  z - mu / 2 (z >= mu),        z_i = margin_i - sign_i (w . x_i + b),

and each iterate has a dual feasible partner alpha_i = U_i clip(z_i / mu, 0, 1), hence a certificate:

    primal - dual = 1/2 |w - sum_i beta_i x_i|^2 + sum_i (U_i [z_i]_+ - alpha_i z_i),  beta_i = sign_i alpha_i,

the first part for Newton's method to close, the second in proportion to mu. mu shrinks with the gap. Scores and gradients of all
outputs are matrix products; the Hessian I + 1/mu sum_{0 < z_i < mu} U_i x_i x_i' is taken over a sample of its band. A first
solution on a small sample of the examples saves most of the passes over all of them.

The intercept is one more feature of value sqrt(t) (penalised), or has no penalty and is set exactly at each step (free), so that
sum_i beta_i = 0 and the certificate holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ._jit import fmax, fmin, jit
from .solution import Array, Watch
from .threads import Each

Members = NDArray[np.intp]

BAND = 6000  # examples in the Hessian of one output
SAMPLE = 0.05  # share of the examples in the first stage
SAMPLE_TOL = 5e-3
CHUNK = 2000  # examples of a product
FEW = 0.05  # a share of the examples: so few are gathered rather than all passed over
REDUCED = 4000  # examples near the margin that a reduced problem holds


@jit
def _smooth(scores, b, y, weight, sign, margin, box, mu, beta):
    """beta of one output; returns (hinge loss, sum U [z]_+ - alpha z, sum beta, examples in the band)."""
    hinge, rest, total, band = 0.0, 0.0, 0.0, 0.0
    for i in range(scores.size):
        c = y[i]
        s, u = sign[c], box[c] * weight[i]
        z = margin[c] - s * (np.float64(scores[i]) + b)
        share = fmin(fmax(z / mu, 0.0), 1.0)
        positive = u * fmax(z, 0.0)
        hinge += positive
        rest += positive - u * share * z
        total += s * u * share
        band += 1.0 if 0.0 < z < mu else 0.0
        beta[i] = s * u * share
    return hinge, rest, total, band


@jit
def _slope(scores, direction, b, d_b, y, weight, sign, margin, box, mu, step):
    """First and second derivative of the smoothed hinge loss along scores + step * direction."""
    first, second = 0.0, 0.0
    for i in range(scores.size):
        c = y[i]
        s, u = sign[c], box[c] * weight[i]
        d = s * (np.float64(direction[i]) + d_b)
        z = margin[c] - s * (np.float64(scores[i]) + b) - step * d
        first -= u * fmin(fmax(z / mu, 0.0), 1.0) * d
        second += u * d * d / mu if 0.0 < z < mu else 0.0
    return first, second


@jit
def _line_search(scores, direction, b, d_b, y, weight, sign, margin, box, mu, linear, quadratic, start):
    """A step at which linear + step * quadratic + slope(step), the derivative along the way, is a tenth of its value `start` at 0.

    Newton within a bracket; in doubt its lower end, where the derivative is still negative and the objective has only gone down.
    """
    low, high, step = 0.0, -1.0, 1.0
    for turn in range(60):
        first, second = _slope(scores, direction, b, d_b, y, weight, sign, margin, box, mu, step)
        first += linear + step * quadratic
        second += quadratic
        if abs(first) <= 0.1 * abs(start):
            return step
        if first > 0.0:
            high = step
        else:
            low = step
        if turn > 10 and low > 0.0:
            break
        guess = step - first / second if second > 0.0 else 2.0 * step
        if high < 0.0:
            step = min(max(guess, 1.3 * step), 4.0 * step)
        elif low < guess < high and turn % 3 < 2:
            step = guess
        else:
            step = 0.5 * (low + high)
    return low


@jit
def _free_intercept(scores, b, y, weight, sign, margin, box, mu, fixed):
    """b with sum_i beta_i + fixed = 0: a monotone, piecewise linear equation, by Newton within a bracket."""
    low, high = -1e300, 1e300
    for _ in range(100):
        total, slope, size = fixed, 0.0, abs(fixed)
        for i in range(scores.size):
            c = y[i]
            s, u = sign[c], box[c] * weight[i]
            z = margin[c] - s * (np.float64(scores[i]) + b)
            alpha = u * fmin(fmax(z / mu, 0.0), 1.0)
            total += s * alpha
            size += alpha
            slope += u / mu if 0.0 < z < mu else 0.0
        if abs(total) <= 1e-13 * size:
            break
        if total > 0.0:
            low = b
        else:
            high = b
        guess = b + total / slope if slope > 0.0 else (b + mu if total > 0.0 else b - mu)
        if low > -1e300 and high < 1e300 and (guess <= low or guess >= high):
            guess = 0.5 * (low + high)
        if guess == b:
            break
        b = guess
    return b


@jit
def _band(scores, b, y, sign, margin, mu, members):
    count = 0
    for i in range(scores.size):
        z = margin[y[i]] - sign[y[i]] * (np.float64(scores[i]) + b)
        if 0.0 < z < mu:
            members[count] = i
            count += 1
    return count


@jit
def _from_band(scores, b, y, sign, margin, mu, distance):
    """|z - mu / 2|: how far each example is from the middle of the band."""
    for i in range(scores.size):
        z = margin[y[i]] - sign[y[i]] * (np.float64(scores[i]) + b)
        distance[i] = abs(z - 0.5 * mu)


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

    def __init__(
        self, problem: _Outputs, W: Array, b: Array, mu: Array, each: Each, pull: Any = 0.0, total: Any = 0.0
    ) -> None:
        self.problem, self.W, self.b, self.mu, self.each = problem, W, b, mu, each
        # sum of beta x and of beta over the examples left out
        self.fixed_pull, self.fixed_total = pull, total
        self.m, self.n = len(problem.sign), problem.X.shape[0]
        self.beta = np.zeros((self.m, self.n), problem.X.dtype)
        self.pull = np.zeros_like(W) + pull  # sum_i beta_i x_i
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
        return p.y, p.weight, p.sign[j], p.margin[j], p.box[j], self.mu[j]

    def refresh(self, outputs: Members) -> None:
        """beta, its pull and the sums of the certificate, from scores, b and mu."""
        X, fixed, anew = self.problem.X, np.broadcast_to(self.fixed_total, self.m), np.zeros(self.m, bool)

        def one(j: int) -> None:
            if self.problem.t is None:
                self.b[j] = _free_intercept(self.scores[j], self.b[j], *self.output(j), fixed[j])
            before = self.beta[j].copy()
            self.hinge[j], self.rest[j], total, self.band[j] = _smooth(
                self.scores[j], self.b[j], *self.output(j), self.beta[j]
            )
            self.total[j] = total + fixed[j]
            changed = np.flatnonzero(self.beta[j] != before)
            if len(changed) < FEW * self.n:  # near the end most stay at their bounds
                self.pull[j] += (self.beta[j, changed] - before[changed]) @ X[changed]
            else:
                anew[j] = True

        list(self.each(one, outputs))
        if anew.any():
            fixed_pull = np.broadcast_to(self.fixed_pull, self.W.shape)[anew]
            self.pull[anew] = self.pull_of(self.beta if anew.all() else self.beta[anew]) + fixed_pull

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

    def newton_step(self, j: int, rng: np.random.Generator) -> tuple[Array, float]:
        """-H^{-1} gradient of output j, H over a sample of its band."""
        p, d, t = self.problem, self.W.shape[1], self.problem.t
        members = np.empty(self.n, dtype=np.int64)
        band = members[: _band(self.scores[j], self.b[j], p.y, p.sign[j], p.margin[j], self.mu[j], members)]
        factor = max(1.0, len(band) / BAND)
        if factor > 1:
            band = band[rng.integers(0, len(band), BAND)]
        curvature = factor / self.mu[j] * p.box[j][p.y[band]] * p.weight[band]
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
        gradient = np.append(self.W[j] - self.pull[j], self.slope_b[j])
        full = cho_solve(cho_factor(H, check_finite=False), -gradient, check_finite=False)
        return full[:d], float(full[d])

    def reduced_step(self, j: int, rng: np.random.Generator, goal: float) -> tuple[Array, float]:
        """The way to the solution on the examples nearest to the margin, all others held: their pull is kept."""
        p = self.problem
        distance = np.empty(self.n)
        _from_band(self.scores[j], self.b[j], p.y, p.sign[j], p.margin[j], self.mu[j], distance)
        some = distance[:: max(1, self.n // 10_000)]  # their quantile serves, unless too many are equal
        near = np.flatnonzero(distance <= np.partition(some, at := len(some) * REDUCED // self.n)[at])
        if len(near) > 2 * REDUCED:
            near = np.argpartition(distance, REDUCED)[:REDUCED]
        here = p.part(near, slice(j, j + 1))
        pull = self.pull[j : j + 1] - self.beta[j : j + 1, near] @ here.X
        total = self.total[j] - self.beta[j, near].sum(dtype=float)
        W, b = self.W[j : j + 1].copy(), self.b[j : j + 1].copy()
        stage = _Stage(here, W, b, self.mu[j : j + 1].copy(), map, pull, total)
        stage.improve(np.array([goal]), 50, rng)
        self.next_mu[j] = stage.mu[0]
        return stage.W[0] - self.W[j], float(stage.b[0] - self.b[j])

    def advance(self, outputs: Members, rng: np.random.Generator, goal: Array) -> None:
        """One step and line search of each of the outputs."""
        step, step_b = np.zeros_like(self.W), np.zeros(self.m)
        self.next_mu = self.mu.copy()
        seeds = rng.integers(0, 2**63, self.m)

        def one(j: int) -> None:
            own = np.random.default_rng(seeds[j])
            if self.n > 4 * REDUCED and self.band[j] < REDUCED // 4:
                step[j], step_b[j] = self.reduced_step(j, own, goal[j])
            else:
                step[j], step_b[j] = self.newton_step(j, own)

        list(self.each(one, outputs))
        moved = dict(zip(outputs, self.product(step[outputs]), strict=True))
        t = self.problem.t
        along = ((self.W - self.pull) * step).sum(axis=1) + self.slope_b * step_b
        linear = ((self.W - self.fixed_pull) * step).sum(axis=1) - np.asarray(self.fixed_total) * step_b
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
                along[j],
            )
            length = _line_search(*args)
            if length == 0.0:  # too many kinks in too little room
                self.next_mu[j] *= 4
            self.W[j] += length * step[j]
            self.b[j] += length * step_b[j]
            self.scores[j] += self.problem.X.dtype.type(length) * moved[j]

        list(self.each(search, outputs))
        self.mu = self.next_mu

    def improve(
        self, goal: Array | float, max_iter: int, rng: np.random.Generator, watch: Watch | None = None
    ) -> int:
        """Until the gaps are within goal (m,), or within a share goal of the primal value in all. Returns the number of steps."""
        outputs = np.arange(self.m)
        for iteration in range(max_iter):
            self.refresh(outputs)
            gap, primal = self.mismatch + self.rest, self.primal
            limit = goal if isinstance(goal, np.ndarray) else 0.8 * goal * np.maximum(primal, primal.mean())
            if watch is not None:
                watch(iteration + 1, float(gap.sum() / max(primal.sum(), 1e-300)))
            outputs = np.flatnonzero(gap > limit)
            if not len(outputs) or (not isinstance(goal, np.ndarray) and gap.sum() <= goal * primal.sum()):
                break
            narrow = outputs[self.mismatch[outputs] < 0.5 * self.rest[outputs]]
            if len(narrow):
                factor = np.sqrt(0.4 * limit[narrow] / np.maximum(self.rest[narrow], 1e-300))
                self.mu[narrow] *= np.clip(factor, 0.15, 0.7)
                self.refresh(narrow)
            self.advance(outputs, rng, np.maximum(0.3 * limit, 0.03 * gap))
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
        done = stage.improve(max(tol, SAMPLE_TOL), max_iter, rng, watch)
        mu = stage.mu
    stage = _Stage(problem, W, b, mu, each)
    done += stage.improve(tol, max(max_iter - done, 1), rng, watch)
    return (
        stage.W,
        stage.b,
        np.asarray(stage.beta, dtype=float),
        stage.primal,
        stage.mismatch + stage.rest,
        done,
    )
