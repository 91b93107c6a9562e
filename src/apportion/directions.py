"""Along which directions the classes change: a metric of the columns, learned from the training rows.

The classes, written as codes Y (n, m), are fitted by ridge regression with a kernel of distances under a metric M (d, d),

    f(x) = sum_i a_i exp(-r(x, x_i) / s),    r(x, z)^2 = (x - z)' M (x - z),    (K + t I) a = Y,    s^2 = 2 d

and the metric becomes the root of the sum, over rows and columns of f, of the outer products of its gradients, of trace d,

    M  <-  (sum_i grad f(x_i) grad f(x_i)')^1/2,    grad f(x) = -M sum_i a_i exp(-r(x, x_i) / s) / (s r(x, x_i)) (x - x_i)

with a small share of the identity, a few times over. Distances hardly count directions then along which nothing changes. The
noise t is the one that predicts rows best that are left out. After Radhakrishnan, Beaglehole, Pandit and Belkin, Mechanism for
feature learning in neural networks and backpropagation-free machine learning models, Science 383, 2024.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .relevance import codes, drawn

Array = NDArray[np.float64]

ROWS = 600  # enough to learn by; a round takes the third power of their number
ROUNDS = 3
NOISES = np.geomspace(1e-3, 1e2, 11)
ALIKE = 0.05  # share of the metric in which all directions count the same
NEAR = 1e-6  # rows that are closer have no direction


def directions(X: Array, y: NDArray[Any], weights: Array, weight: Array | None = None) -> Array:
    """(d, d) symmetric root of the metric: distances between rows of X @ root are those that tell.

    X (n, d) has columns of mean 0 and variance 1; y (n,) are the classes, of any names; `weights` (d,) of the columns are where it
    starts; `weight` (n,) is that of the rows, None: 1 each. More than `ROWS` rows are drawn from.
    """
    rows, root = drawn(y, ROWS, weight), np.diag(weights)
    X, Y = np.asarray(X[rows], dtype=float), codes(y[rows])
    for _ in range(ROUNDS):
        values, V = np.linalg.eigh(outer_gradients(X, Y, root))
        share = np.sqrt(np.maximum(values, 0.0))
        if not share.sum() > 0:  # nothing changes anywhere
            break
        share *= (1 - ALIKE) / share.mean()
        root = (V * np.sqrt(share + ALIKE)) @ V.T
    return root


def outer_gradients(X: Array, Y: Array, root: Array) -> Array:
    """(d, d) sum of the outer products of the gradients of f, fitted to codes Y (n, m), at the rows X (n, d)."""
    Z, scale = X @ root, np.sqrt(2 * X.shape[1])
    square = (Z**2).sum(axis=1)
    r = np.sqrt(np.maximum(square[:, None] + square - 2 * Z @ Z.T, NEAR**2))
    np.fill_diagonal(r, NEAR)
    K = np.exp(-r / scale)
    A, pull = ridge(K, Y), K / r
    np.fill_diagonal(pull, 0.0)
    total = np.zeros_like(root)
    for a in A.T:
        slope = (pull @ (a[:, None] * X) - X * (pull @ a)[:, None]) @ root @ root.T / scale
        total += slope.T @ slope
    return total


def ridge(K: Array, Y: Array) -> Array:
    """(n, m) coefficients A = (K + t I)^-1 Y; t errs least on rows left out, whose errors are a_i / (K + t I)^-1_ii."""
    values, V = np.linalg.eigh(K)
    turned, best, least = V.T @ Y, np.zeros_like(Y), np.inf
    for noise in NOISES:
        inverse = 1 / (np.maximum(values, 0.0) + noise)
        A = V @ (inverse[:, None] * turned)
        error = float(((A / (V**2 @ inverse)[:, None]) ** 2).sum())
        if error < least:
            best, least = A, error
    return best
