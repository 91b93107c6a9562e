"""One objective for every method: primal, dual and duality gap, in float64, from a method's coefficients.

    P(w, b) = 1/2 sum_j |w_j|^2 + C sum_i loss(f(x_i), y_i)       f_j(x) = w_j . phi(x) + b_j
    D(alpha) = sum_ir alpha_ir margin_ir - 1/2 sum_j |v_j|^2      v_j = sum_i beta_ij phi(x_i)
                                                                  beta_i = alpha_i . codes

with 0 <= alpha_ir <= C weight_ir (shared slack: sum_r alpha_ir <= C weight_i) and, for a free intercept,
sum_i beta_ij = 0. Methods hand over beta; alpha is solved for, clipped and scaled until it is feasible,
so D is a lower bound whatever the method did. P uses the beta as it came, with the best intercept where
that is free. gap = (P - D) / P.

Only the loss tables come from the library; nothing here knows its solvers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from apportion.costs import check_costs
from apportion.losses import LossTable, loss_table

BLOCK = 500  # rows of the kernel matrix at a time
Columns = Callable[
    [np.ndarray, np.ndarray], np.ndarray
]  # (rows, coefficients (n_support, m)) -> scores (rows, m)


class Certificate(NamedTuple):
    primal: float
    dual: float | None  # None where a method gives w alone

    @property
    def gap(self) -> float | None:
        return None if self.dual is None else (self.primal - self.dual) / self.primal


def table_for(loss: str, n_classes: int, costs: list[float] | None = None) -> LossTable:
    return loss_table(loss, check_costs(costs, np.arange(n_classes)))


def kernel_certificate(
    table: LossTable, X, y, support: np.ndarray, beta: np.ndarray, *, C: float, gamma: float, intercept: str
) -> Certificate:
    """RBF machine; `intercept` is "free" or "penalized" (a constant 1 added to the kernel)."""
    centres = X[support]
    square = np.einsum("ij,ij->i", X, X)

    def scores(rows: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), coefficients.shape[1]))
        for start in range(0, len(rows), BLOCK):
            part = rows[start : start + BLOCK]
            distance = square[part, None] + square[support] - 2 * X[part] @ centres.T
            kernel = np.exp(-gamma * np.maximum(distance, 0)) + (intercept == "penalized")
            out[start : start + BLOCK] = kernel @ coefficients
        return out

    return dual_certificate(table, C, y, support, beta, scores, free=intercept == "free")


def linear_certificate(table: LossTable, X, y, W: np.ndarray, b: np.ndarray, *, C: float) -> Certificate:
    """Linear machine with penalised intercept, known by W (m, d) and b (m,) alone."""
    scores = X @ W.T + b
    loss = sum(_losses(table, c, scores[y == c], slice(None)).sum() for c in range(table.n_classes))
    return Certificate(0.5 * float((W**2).sum() + (b**2).sum()) + C * loss, None)


def linear_dual_certificate(
    table: LossTable, X, y, support: np.ndarray, beta: np.ndarray, *, C: float
) -> Certificate:
    """Linear machine with penalised intercept, known by its dual coefficients."""
    X = (
        sp.hstack([X, np.ones((X.shape[0], 1))]).tocsr()
        if sp.issparse(X)
        else np.hstack([X, np.ones((len(X), 1))])
    )

    def scores(rows: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        return X[rows] @ (X[support].T @ coefficients)

    return dual_certificate(table, C, y, support, beta, scores, free=False)


def dual_certificate(
    table: LossTable,
    C: float,
    y: np.ndarray,
    support: np.ndarray,
    beta: np.ndarray,
    scores: Columns,
    *,
    free: bool,
) -> Certificate:
    beta = np.asarray(beta, dtype=float)
    feasible, linear_term = _feasible(table, C, y[support], beta, free)
    m = table.n_outputs
    place = np.full(len(y), -1)
    place[support] = np.arange(len(support))
    norm = norm_feasible = loss = 0.0
    hinges: list[list[tuple]] = [[] for _ in range(m)]  # of each output: (scores, sign, margin, weight)
    for c in range(table.n_classes):
        rows = np.flatnonzero(y == c)
        used = np.flatnonzero(np.abs(table.codes[c]).sum(axis=0))  # outputs the loss of class c looks at
        F, F_feasible = np.hsplit(scores(rows, np.hstack([beta[:, used], feasible[:, used]])), 2)
        own = place[rows] >= 0
        norm += (beta[np.ix_(place[rows[own]], used)] * F[own]).sum()
        norm_feasible += (feasible[np.ix_(place[rows[own]], used)] * F_feasible[own]).sum()
        if free:
            for r, (code, margin, weight) in enumerate(
                zip(table.codes[c], table.margins[c], table.weights[c], strict=True)
            ):
                j = int(np.abs(code).argmax())
                hinges[j].append((F[:, np.searchsorted(used, j)], code[j], margin, C * weight))
                assert np.count_nonzero(code) == 1, (
                    f"row {r} of class {c}: a free intercept needs one output a row"
                )
        else:
            loss += C * _losses(table, c, F, used).sum()
    if free:
        loss = sum(_best_intercept(parts)[1] for parts in hinges)
    return Certificate(float(0.5 * norm + loss), float(linear_term - 0.5 * norm_feasible))


def _losses(table: LossTable, c: int, scores: np.ndarray, used) -> np.ndarray:
    """(n,) losses of examples of class c."""
    hinge = table.weights[c] * np.maximum(table.margins[c] - scores @ table.codes[c][:, used].T, 0)
    return hinge.max(axis=1) if table.shared else hinge.sum(axis=1)


def _feasible(
    table: LossTable, C: float, y: np.ndarray, beta: np.ndarray, free: bool
) -> tuple[np.ndarray, float]:
    """The nearest feasible beta we can name, and its sum_ir alpha_ir margin_ir."""
    beta = beta.copy()
    alphas = {}
    for c in np.unique(y):
        alphas[c] = _alpha(table, c, C, beta[y == c])
        beta[y == c] = alphas[c] @ table.codes[c]
    if free:  # sum_i beta_ij = 0: the side of output j that has too much gives back a share
        up, down = np.maximum(beta, 0).sum(axis=0), np.maximum(-beta, 0).sum(axis=0)
        least = np.minimum(up, down)
        beta *= np.where(beta > 0, least / np.where(up > 0, up, 1), least / np.where(down > 0, down, 1))
        alphas = {c: beta[y == c] @ np.linalg.pinv(table.codes[c]) for c in alphas}
    return beta, float(sum((alpha @ table.margins[c]).sum() for c, alpha in alphas.items()))


def _alpha(table: LossTable, c: int, C: float, beta: np.ndarray) -> np.ndarray:
    """(n_c, R): alpha with alpha . codes = beta as nearly as the box allows."""
    codes, cap = table.codes[c], C * table.weights[c]
    alpha = beta @ np.linalg.pinv(codes)
    _, singular, right = np.linalg.svd(codes.T)
    for null in right[
        np.count_nonzero(singular > 1e-10) :
    ]:  # alpha + t null gives the same beta: move into the box
        if np.abs(null).min() < 1e-10:
            continue
        ends = np.sort(np.stack([-alpha / null, (cap - alpha) / null]), axis=0)
        low, high = ends[0].max(axis=1), ends[1].min(axis=1)
        alpha = (
            alpha
            + np.where(low > high, (low + high) / 2, np.clip(0, low, np.maximum(low, high)))[:, None] * null
        )
    alpha = np.clip(alpha, 0, cap)
    if table.shared:
        alpha *= np.minimum(1, cap[0] / np.maximum(alpha.sum(axis=1), 1e-300))[:, None]
    return alpha


def _best_intercept(parts: list[tuple]) -> tuple[float, float]:
    """min over b of sum_i weight_i [margin_i - s_i (f_i + b)]_+: a weighted median of the bends."""
    f, s, margin, weight = (
        np.concatenate([np.broadcast_to(part[field], part[0].shape) for part in parts]) for field in range(4)
    )
    bends = s * margin - f
    order = np.argsort(bends)
    slope = np.cumsum(weight[order]) - weight[s > 0].sum()  # right of each bend
    b = bends[order[min(np.searchsorted(slope, 0), len(order) - 1)]]
    return float(b), float((weight * np.maximum(margin - s * (f + b), 0)).sum())
