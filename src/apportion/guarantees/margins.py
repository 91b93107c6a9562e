"""Margins: how far each class is from its boundaries, and decisions along a directed graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from ..losses import LossTable, PairVotes, terms
from .machine import Array, Index, gram, positions, raw_scores, unwrap


@dataclass(frozen=True)
class PairwiseMargins:
    """Row i, column j: examples of class i against the boundary with class j. The diagonal is NaN.

    The paper's machine: w_ij = w_i / theta_i - w_j / theta_j and `lemma` is (1 + theta_i / theta_j) / |w_ij|.
    """

    classes: NDArray[Any]  # (k,)
    norms: Array  # (k, k) |w_ij|, norm of the boundary's normal
    measured: Array  # (k, k) gamma_ij; negative with an example of i on the wrong side, NaN without examples
    lemma: Array  # (k, k) lower bound where class i has no slack
    with_slack: Array  # (k, k) the same less the slack that the examples of i have: holds always


def pairwise_margins(est: Any, X: Any, y: ArrayLike) -> PairwiseMargins:
    """Distance of each class to its boundaries, measured, and the lower bounds of the margin lemma.

    Parameters
    ----------
    est : fitted machine, or a pipeline that ends in one
    X : array of shape (n, d)
        The training data, or others.
    y : array of shape (n,)

    Returns
    -------
    PairwiseMargins

    Notes
    -----
    Let lead_ij = a_ij . f + c_ij. An example of class i with slack xi has, for any multipliers lambda >= 0
    with codes_i' lambda = a_ij,

        lead_ij(x) = lambda . codes_i f + c_ij >= lambda . (margins_i - xi) + c_ij

    The best lambda comes from a linear program. For the paper's machine the right side is
    (theta_i - xi_i) / theta_i + (theta_i - xi_j) / theta_j.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from apportion import ApportionedLinearSVC
    >>> from apportion.guarantees import pairwise_margins
    >>> X, y = load_iris(return_X_y=True)
    >>> found = pairwise_margins(ApportionedLinearSVC([2, 1, 1]).fit(X, y), X, y)
    >>> bool(found.measured[0, 1] >= found.with_slack[0, 1] > 0)
    True
    """
    machine, X = unwrap(est, X)
    labels = positions(machine, y, "y")
    scores = raw_scores(machine, X, labels)
    table, k = machine.table_, len(machine.classes_)
    a, c = leads(table)
    norms = np.sqrt(np.maximum(np.einsum("ijo,op,ijp->ij", a, gram(machine, X), a), 0.0))
    multipliers = _multipliers(table, a)
    slack = np.maximum(terms(table, scores, labels), 0.0)  # (n, R)
    measured, lemma, with_slack = (np.full((k, k), np.nan) for _ in range(3))
    for i in range(k):
        own = labels == i
        for j in range(k):
            if i == j or norms[i, j] == 0:
                continue
            reach = multipliers[i, j] @ table.margins[i] + c[i, j]
            lemma[i, j] = reach / norms[i, j]
            if own.any():
                measured[i, j] = (scores[own] @ a[i, j] + c[i, j]).min() / norms[i, j]
                with_slack[i, j] = (reach - (slack[own] @ multipliers[i, j]).max()) / norms[i, j]
    np.fill_diagonal(norms, np.nan)
    return PairwiseMargins(machine.classes_, norms, measured, lemma, with_slack)


def pairwise_norms(est: Any, X: Any = None) -> tuple[float, float]:
    """The two sides of sum_{r<s} |w_r - w_s|^2 <= m |W|^2 over the m outputs; they differ by |sum_r w_r|^2.

    X is needed for kernel="precomputed" alone: the kernel matrix of the training data.
    """
    product = gram(*unwrap(est, X))
    m, square = len(product), float(np.trace(product))
    return m * square - float(product.sum()), m * square


def leads(table: LossTable) -> tuple[Array, Array]:
    """a (k, k, m), c (k, k): class i is preferred to j where a_ij . f + c_ij > 0."""
    k, m = table.n_classes, table.n_outputs
    if isinstance(table.decide, PairVotes):
        first, second = np.triu_indices(k, 1)
        share, reach = 1 / table.decide.ratio, table.decide.reach
        a, c = np.zeros((k, k, m)), np.zeros((k, k))
        a[first, second, np.arange(m)] = share[first] / reach[first] + share[second] / reach[second]
        c[first, second] = share[second] - share[first]
        return a - a.transpose(1, 0, 2), c - c.T
    offset = table.decide(np.zeros((1, m)))[0]  # (k,)
    slope = (table.decide(np.eye(m)) - offset).T  # (k, m)
    probe = np.sin(np.arange(3.0 * m)).reshape(3, m)
    if not np.allclose(table.decide(probe), probe @ slope.T + offset):
        raise ValueError(
            "the class scores of this loss table are not affine in its raw scores; its boundaries are no "
            "hyperplanes, so that margins are not defined."
        )
    return slope[:, None] - slope, offset[:, None] - offset


def _multipliers(table: LossTable, a: Array) -> Array:
    """(k, k, R) lambda >= 0 with codes_i' lambda = a_ij and lambda . margins_i largest; NaN where none is."""
    k, R = table.margins.shape
    codes = table.codes[table.weights > 0]
    # W, and so f, lies in the span of the codes: only there the equation must hold
    along = np.linalg.svd(codes.T, full_matrices=False)[0][:, : np.linalg.matrix_rank(codes)]  # (m, rank)
    found = np.full((k, k, R), np.nan)
    for i in range(k):
        rows = [(0.0, None if weight > 0 else 0.0) for weight in table.weights[i]]
        equation = along.T @ table.codes[i].T
        for j in range(k):
            if i != j:
                best = linprog(-table.margins[i], A_eq=equation, b_eq=along.T @ a[i, j], bounds=rows)
                if best.status == 0:
                    found[i, j] = best.x
    return found


# ---------------------------------------------------------------- decisions along a graph


@dataclass(frozen=True)
class DirectedGraph:
    """Class scores of a decision DAG: the round in which a class is dropped; the last one has k - 1.

    Begins with all classes in `order`; each node compares the first and the last left and drops the loser.
    """

    table: LossTable
    order: Index  # (k,)

    def __call__(self, scores: Array) -> Array:
        a, c = leads(self.table)
        n, k = len(scores), self.table.n_classes
        out = np.full((n, k), k - 1.0)
        first, last, rows = np.zeros(n, dtype=int), np.full(n, k - 1), np.arange(n)
        for step in range(k - 1):
            i, j = self.order[first], self.order[last]
            wins = np.einsum("no,no->n", a[i, j], scores) + c[i, j] > 0
            out[rows, np.where(wins, j, i)] = step
            first, last = np.where(wins, first, first + 1), np.where(wins, last - 1, last)
        return out


def ddag_predict(est: Any, X: Any, order: ArrayLike | None = None) -> NDArray[Any]:
    """Decide along a directed acyclic graph, k - 1 comparisons an example (Platt et al. 1999).

    Parameters
    ----------
    est : fitted machine, or a pipeline that ends in one
        For loss="pairwise" this is the DAGSVM: a path instead of votes. Machines with one score a class
        compare transitively: for them the path ends where `predict` does.
    X : array of shape (n, d)
    order : array of shape (k,), optional
        The labels in the order of the graph's first row; by default that of `classes_`.
    """
    machine, X = unwrap(est, X)
    classes = machine.classes_
    at = np.arange(len(classes)) if order is None else positions(machine, order, "order")
    if sorted(at.tolist()) != list(range(len(classes))):
        raise ValueError(f"order={order!r} must name each class once; the classes are {classes.tolist()}.")
    return np.asarray(classes[DirectedGraph(machine.table_, at)(machine._raw_scores(X)).argmax(axis=1)])
