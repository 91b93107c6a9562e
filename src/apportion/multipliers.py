"""A free intercept by the method of multipliers: that of outputs that hang together, and of linear machines outside newton.py.

Solve with a penalised intercept around a shift, move the shift to the intercept found, repeat. In the dual a free intercept is
the constraint sum_i beta_ij = 0 for each output j: the duals found are moved onto it, and the gap is taken there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .coordinate import feasible
from .losses import LossTable
from .solution import Array, Settings, Solution, relative


def free_intercept(
    solve: Callable[[float, Array | None, Array | None, float, int], Solution],
    quadratic: Callable[[Array], tuple[Array, float]],
    table: LossTable,
    y: NDArray[np.intp],
    weight: Array,
    t: float,
    settings: Settings,
    alpha: Array | None,
) -> Solution:
    """Free intercept: solve with a penalised one around a shift, move the shift, until the balanced dual certifies the gap.

    `solve(t, shift, alpha, tol, max_iter)` is the machine with a penalised intercept; `quadratic(beta)` gives its scores without
    intercept (n, m) and |W|^2.
    """
    shift: Array | None = None
    best: Solution | None = None
    rounds, tol, before = 0, 0.3 * settings.tol, np.inf
    upper = settings.C * table.weights[y] * weight[:, None]
    # a shift of a margin must be within reach of the duals
    t = max(t, float(np.abs(table.margins).max() / upper.sum()))
    in_vain = 0  # shifts in a row whose machine could not be solved, and that brought nothing
    while best is None or (best.gap > settings.tol and rounds < min(settings.max_iter, 100) and in_vain < 3):
        point = solve(t, shift, alpha, tol, settings.max_iter)
        rounds += 1
        shift, alpha = point.intercept, point.alpha
        imbalance = float(np.abs(point.beta(table, y).sum(axis=0)).max())
        t *= 4.0 if imbalance > 0.5 * before else 1.0
        before = imbalance
        balanced = balance(table, alpha, y, upper)
        if balanced is None:  # zero is a feasible point at any rate: the gap is then the primal value itself
            balanced = np.zeros_like(alpha)
        scores, square = quadratic(replace(point, alpha=balanced).beta(table, y))
        z = _terms(table, scores + shift, y)
        slack = upper * np.maximum(z, 0.0)
        hinge = float((slack.max(axis=1) if table.shared else slack.sum(axis=1)).sum())
        primal = 0.5 * square + hinge
        gap = relative(hinge - float((balanced * z).sum()), primal)
        in_vain = in_vain + 1 if point.gap > tol and best is not None and gap > 0.9 * best.gap else 0
        if best is None or gap < best.gap:
            best = Solution(balanced, shift, primal, gap, rounds)
        tol = max(0.3 * tol, 1e-2 * settings.tol)
    return replace(best, n_iter=rounds)


def _terms(table: LossTable, scores: Array, y: NDArray[np.intp]) -> Array:
    """losses.terms without an (n, R, m) array."""
    z = np.empty((len(y), table.codes.shape[1]))
    for c in range(table.n_classes):
        members = y == c
        z[members] = table.margins[c] - scores[members] @ table.codes[c].T
    return z


def balance(table: LossTable, alpha: Array, y: NDArray[np.intp], upper: Array) -> Array | None:
    """The nearest alpha within its bounds, about, with sum_i beta_ij = 0 for each output; None where there is none nearby.

    Variables inside their bounds move by the same amount within (class, row): delta = -codes . lambda, lambda by least squares.
    """
    k, R, m = table.codes.shape
    flat = table.codes.reshape(k * R, m)
    a = alpha.copy()
    size = np.abs(a).sum() + np.finfo(float).tiny
    step = np.zeros((k, R))
    for attempt in range(60):
        sums = np.zeros((k, R))
        np.add.at(sums, y, a)
        residual = sums.reshape(-1) @ flat
        if np.abs(residual).max() <= 1e-13 * size:
            return a
        if attempt < 20:
            movable = (a > 0) & (a < upper)
        else:  # not enough room inside: those at a bound too, unless the last step pushed them against it
            movable = (upper > 0) & ~((a >= upper) & (step[y] > 0)) & ~((a <= 0) & (step[y] < 0))
        counts = np.zeros((k, R))
        np.add.at(counts, y, movable.astype(float))
        normal = flat.T @ (counts.reshape(-1, 1) * flat)
        step = -(flat @ np.linalg.lstsq(normal, residual, rcond=1e-12)[0]).reshape(k, R)
        a = np.clip(a + step[y] * movable, 0.0, upper)
        if table.shared:
            a = feasible(a, upper, True)
    return None
