"""What a solver is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .losses import LossTable

Array = NDArray[np.float64]
# called with (rounds done, relative gap); where it answers true, no other round begins
Watch = Callable[[int, float], bool]


@dataclass
class Solution:
    """What a solver found, and how far from the optimum it can be at most."""

    alpha: Array  # (n, R) dual variables
    intercept: Array  # (m,)
    objective: float  # primal value
    gap: float  # (primal - dual) / primal
    n_iter: int
    coef: Array | None = None  # (m, d), linear machines

    @property
    def used(self) -> NDArray[np.intp]:
        """The examples with a non-zero dual variable; mostly few."""
        return np.flatnonzero(self.alpha @ np.ones(self.alpha.shape[1]))  # none is negative

    def beta(self, table: LossTable, y: NDArray[np.intp]) -> Array:
        """(n, m): sum_r alpha_ir codes[y_i, r], the coefficients of phi(x_i)."""
        beta = np.zeros((len(y), table.n_outputs))
        used = self.used
        for c in range(table.n_classes):
            members = used[y[used] == c]
            beta[members] = self.alpha[members] @ table.codes[c]
        return beta

    def blur(self, table: LossTable, y: NDArray[np.intp], bound: Array, rounding: float) -> float:
        """What kernel values that are off by `rounding` hide of the gap; `bound` (n,) is C times the weights of the examples.

        Independent errors leave a score of output j off by e_j of spread rounding |beta_j|. Where alpha is at a bound they
        cancel on average; an example inside, at its margin, has a slack of max(e, 0), which costs its bound times 0.4 spread.
        """
        used = self.used
        y, bound, part = y[used], bound[used], replace(self, alpha=self.alpha[used])
        spread = rounding * np.linalg.norm(part.beta(table, y), axis=0)  # (m,)
        hidden = 0.0
        for c in range(table.n_classes):
            alpha, most = part.alpha[y == c], bound[y == c, None] * table.weights[c]  # (n_c, R)
            inside = (alpha > 0) & (alpha < most)
            hidden += float((inside * most).sum(axis=0) @ np.sqrt(table.codes[c] ** 2 @ spread**2))
        return 0.4 * hidden / max(self.objective, np.finfo(float).tiny)


@dataclass
class Settings:
    """What a fit asks of the solver."""

    C: float = 1.0
    offset: float | None = 1.0  # t: squared value of the constant feature; 0 = no intercept, None = free
    tol: float = 1e-3
    max_iter: int = 1000
    n_jobs: int = 1
    cache_size: float = 1000.0  # megabytes
    watch: Watch | None = None

    @property
    def largest(self) -> int:
        """Members of a working set: their kernel matrix fits into half of the cache."""
        return max(int(np.sqrt(self.cache_size * 2**20 / 16)), 100)


def relative(gap: float, primal: float) -> float:
    """The gap as a share of the primal value."""
    return float(max(gap, 0.0) / max(primal, np.finfo(float).tiny))
