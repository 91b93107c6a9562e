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

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ._jit import fmax, fmin, jit

Array = NDArray[np.float64]

BAND = 6000  # examples in the Hessian of one output
SAMPLE = 0.05  # share of the examples in the first stage
SAMPLE_TOL = 5e-3


@jit
def _smooth(scores, b, y, weight, sign, margin, box, mu, beta):  # type: ignore[no-untyped-def]
    """beta of one output; returns (hinge loss, sum U [z]_+ - alpha z, sum beta)."""
    hinge, rest, total = 0.0, 0.0, 0.0
    for i in range(scores.size):
        c = y[i]
        s, u = sign[c], box[c] * weight[i]
        z = margin[c] - s * (np.float64(scores[i]) + b)
        share = fmin(fmax(z / mu, 0.0), 1.0)
        positive = u * fmax(z, 0.0)
        hinge += positive
        rest += positive - u * share * z
        total += s * u * share
        beta[i] = s * u * share
    return hinge, rest, total


@jit
def _slope(scores, direction, b, d_b, y, weight, sign, margin, box, mu, step):  # type: ignore[no-untyped-def]
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
def _line_search(scores, direction, b, d_b, y, weight, sign, margin, box, mu, linear, quadratic, start):  # type: ignore[no-untyped-def]
    """Safeguarded Newton for the zero of linear + step * quadratic + slope(step), to a tenth of its value `start` at 0."""
    low, high, step = 0.0, -1.0, 1.0
    for _ in range(12):
        first, second = _slope(scores, direction, b, d_b, y, weight, sign, margin, box, mu, step)
        first += linear + step * quadratic
        second += quadratic
        if abs(first) <= 0.1 * abs(start):
            break
        if first > 0.0:
            high = step
        else:
            low = step
        guess = step - first / second if second > 0.0 else step + 1.0
        if high < 0.0:
            step = min(max(guess, 1.3 * step), 4.0 * step)
        elif guess <= low or guess >= high:
            step = 0.5 * (low + high)
        else:
            step = guess
    return step


@jit
def _free_intercept(scores, b, y, weight, sign, margin, box, mu):  # type: ignore[no-untyped-def]
    """b with sum_i beta_i = 0: a monotone, piecewise linear equation, by Newton within a bracket."""
    low, high = -1e300, 1e300
    for _ in range(100):
        total, slope, size = 0.0, 0.0, 0.0
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
def _band(scores, b, y, sign, margin, mu, members):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(scores.size):
        z = margin[y[i]] - sign[y[i]] * (np.float64(scores[i]) + b)
        if 0.0 < z < mu:
            members[count] = i
            count += 1
    return count


class _Stage:
    """The outputs on one set of examples."""

    def __init__(
        self, X: Any, y: Any, weight: Array, sign: Array, margin: Array, box: Array, t: float | None, W: Array, b: Array, mu: Array, each: Any
    ) -> None:
        self.X, self.y, self.weight, self.sign, self.margin, self.box = X, y, weight, sign, margin, box
        self.t, self.W, self.b, self.mu, self.each = t, W, b, mu, each
        self.m, self.n = len(sign), X.shape[0]
        self.beta = np.zeros((self.m, self.n), X.dtype)
        self.pull = np.zeros_like(W)  # sum_i beta_i x_i
        self.hinge, self.rest, self.total = np.zeros((3, self.m))
        self.scores = self.product(W)

    def product(self, W: Array) -> NDArray[Any]:
        return np.ascontiguousarray((self.X @ W.T.astype(self.X.dtype)).T)

    def output(self, j: int) -> tuple[Any, ...]:
        return self.y, self.weight, self.sign[j], self.margin[j], self.box[j], self.mu[j]

    def refresh(self, outputs: NDArray[np.intp]) -> None:
        """beta, its pull and the sums of the certificate, from scores, b and mu."""

        def one(j: int) -> None:
            if self.t is None:
                self.b[j] = _free_intercept(self.scores[j], self.b[j], *self.output(j))
            self.hinge[j], self.rest[j], self.total[j] = _smooth(self.scores[j], self.b[j], *self.output(j), self.beta[j])

        list(self.each(one, outputs))
        if len(outputs) == self.m:
            self.pull = np.asarray(self.beta @ self.X, dtype=float)
        else:
            self.pull[outputs] = self.beta[outputs] @ self.X

    @property
    def primal(self) -> Array:
        penalty = (self.b**2 / self.t) if self.t else 0.0
        return 0.5 * (self.W**2).sum(axis=1) + 0.5 * penalty + self.hinge

    @property
    def slope_b(self) -> Array:
        """Gradient in b; zero where b is free (set exactly) or absent."""
        return self.b / self.t - self.total if self.t else np.zeros(self.m)

    @property
    def mismatch(self) -> Array:
        """1/2 |w - sum beta x|^2, the constant feature included."""
        constant = self.t * self.slope_b**2 if self.t else 0.0
        return 0.5 * ((self.W - self.pull) ** 2).sum(axis=1) + 0.5 * constant

    def directions(self, outputs: NDArray[np.intp], rng: np.random.Generator) -> tuple[Array, Array]:
        d = self.X.shape[1]
        step, step_b = np.zeros((self.m, d)), np.zeros(self.m)
        members = np.empty(self.n, dtype=np.int64)
        for j in outputs:
            band = members[: _band(self.scores[j], self.b[j], self.y, self.sign[j], self.margin[j], self.mu[j], members)]
            factor = 1.0
            if len(band) > BAND:
                factor = len(band) / BAND
                band = band[rng.integers(0, len(band), BAND)]
            curvature = factor / self.mu[j] * self.box[j][self.y[band]] * self.weight[band]
            rows = self.X[band]
            weighted = rows * curvature[:, None].astype(rows.dtype)
            H = np.zeros((d + 1, d + 1))
            H[:d, :d] = weighted.T @ rows
            H[:d, d] = H[d, :d] = weighted.sum(axis=0)
            H[d, d] = curvature.sum() + (1 / self.t if self.t else 0.0)
            H[np.arange(d), np.arange(d)] += 1.0
            if self.t == 0 or H[d, d] == 0:  # no intercept, or none that the band could tell
                H[d, :d] = H[:d, d] = 0.0
                H[d, d] = 1.0
            elif self.t is None:
                H[d, d] *= 1 + 1e-10
            gradient = np.append(self.W[j] - self.pull[j], self.slope_b[j])
            full = cho_solve(cho_factor(H, check_finite=False), -gradient, check_finite=False)
            step[j], step_b[j] = full[:d], full[d]
        return step, step_b

    def newton(self, outputs: NDArray[np.intp], rng: np.random.Generator) -> None:
        step, step_b = self.directions(outputs, rng)
        moved = self.product(step)
        along = ((self.W - self.pull) * step).sum(axis=1) + self.slope_b * step_b
        linear = (self.W * step).sum(axis=1) + (self.b * step_b / self.t if self.t else 0.0)
        quadratic = (step**2).sum(axis=1) + (step_b**2 / self.t if self.t else 0.0)

        def one(j: int) -> None:
            args = self.scores[j], moved[j], self.b[j], step_b[j], *self.output(j), linear[j], quadratic[j], along[j]
            length = _line_search(*args)
            self.W[j] += length * step[j]
            self.b[j] += length * step_b[j]
            self.scores[j] += self.X.dtype.type(length) * moved[j]

        list(self.each(one, outputs))

    def improve(self, tol: float, max_iter: int, rng: np.random.Generator, watch: Any) -> int:
        everything = np.arange(self.m)
        outputs = everything
        for iteration in range(max_iter):
            self.refresh(outputs)
            gap = self.mismatch + self.rest
            primal = self.primal
            if watch is not None:
                watch(iteration + 1, float(gap.sum() / max(primal.sum(), 1e-300)))
            if gap.sum() <= tol * primal.sum():
                break
            outputs = np.flatnonzero(gap > 0.7 * tol * np.maximum(primal, primal.mean()))
            narrow = outputs[self.mismatch[outputs] < 0.5 * self.rest[outputs]]
            if len(narrow):
                goal = 0.4 * tol * primal[narrow] / np.maximum(self.rest[narrow], 1e-300)
                self.mu[narrow] *= np.clip(np.sqrt(goal), 0.15, 0.7)
                self.refresh(narrow)
            self.newton(outputs, rng)
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
    each: Callable[..., Iterable[Any]] = map,
    start: tuple[Array, Array] | None = None,
    watch: Callable[[int, float], None] | None = None,
) -> tuple[Array, Array, Array, Array, Array, int]:
    """X (n, d) dense; sign, margin, box (m, k); t: intercept_scaling^2, 0 for no intercept, None for a free one.

    Returns W (m, d), b (m,), beta (m, n), primal values (m,), gaps (m,) and the number of Newton steps.
    """
    n, d = X.shape
    m = len(sign)
    rng = np.random.default_rng(0)
    W, b = (np.zeros((m, d)), np.zeros(m)) if start is None else (start[0].copy(), start[1].copy())
    mu = np.full(m, 4.0) * np.abs(margin).max(axis=1)
    done = 0
    sample = max(int(SAMPLE * n), 20 * d)
    if start is None and sample < 0.5 * n:
        rows = np.sort(rng.permutation(n)[:sample])
        box_s = box * (n / sample)
        stage = _Stage(X[rows], y[rows], weight[rows], sign, margin, box_s, t, W, b, mu, each)
        done = stage.improve(max(tol, SAMPLE_TOL), max_iter, rng, watch)
    stage = _Stage(X, y, weight, sign, margin, box, t, W, b, mu, each)
    done += stage.improve(tol, max(max_iter - done, 1), rng, watch)
    return stage.W, stage.b, stage.beta, stage.primal, stage.mismatch + stage.rest, done
