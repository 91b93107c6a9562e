"""How much each column tells about the classes: kernel widths, one a column, learned from the training rows.

The classes, written as codes Y (n, m), are taken for values of a Gaussian process with noise,

    K_ij = s exp(-1/d sum_c w_c^2 (x_ic - x_jc)^2) + [i = j] t

and the weights w of the d columns, the size s and the noise t are those that make Y likeliest; the w stay near one common value
unless the rows say otherwise:

    min  1/2 tr(Y' K^-1 Y) + m/2 log|K| + m/2 sum_c (log w_c - mean log w)^2 + priors of mean log w, log s and log t

A column of small weight hardly counts in distances. With G = (m K^-1 - K^-1 Y Y' K^-1) / 2 the derivative by a parameter p is
sum_ij G_ij dK_ij/dp. This is automatic relevance determination: Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, sections 5.1 and 5.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

from .fitting import stratified

Array = NDArray[np.float64]

ROWS = 400  # enough to learn by; K^-1 takes the third power of their number
STEPS = 25
# mean and precision of normal priors
MEAN_WEIGHT, SIZE, NOISE = (0.0, 0.5), (0.0, 0.05), (-1.0, 0.05)
# of log w, log s and log t: within these K is positive definite whatever the rows
WEIGHTS, SIZES, NOISES = (-4.0, 4.0), (-4.0, 4.0), (-6.0, 2.0)


def relevance(X: Array, y: NDArray[Any], weight: Array | None = None) -> Array:
    """(d,) weights of the columns, of mean square 1.

    X (n, d) has columns of mean 0 and variance 1; y (n,) are the classes, of any names; `weight` (n,) is that of the rows, None: 1
    each. More than `ROWS` rows are drawn from.
    """
    d, rows = X.shape[1], drawn(y, ROWS, weight)
    found = minimize(
        likelihood,
        np.append(np.zeros(d), [SIZE[0], NOISE[0]]),
        args=(np.asarray(X[rows], dtype=float), codes(y[rows])),
        jac=True,
        method="L-BFGS-B",
        bounds=[WEIGHTS] * d + [SIZES, NOISES],
        options={"maxiter": STEPS},
    )
    w = np.exp(found.x[:d])
    return np.asarray(w / np.sqrt(np.mean(w**2)))


def drawn(y: NDArray[Any], count: int, weight: Array | None = None) -> NDArray[np.intp]:
    """About `count` rows to learn by, or all; each class by its share where there are not too many classes for that.

    Of rows with weights as many are drawn, each as often as its weight says: a light one not at all, a heavy one again and again.
    """
    rng = np.random.default_rng(0)
    if weight is not None:
        mixed = rng.permutation(len(y))
        mixed = mixed[np.argsort(y[mixed], kind="stable")]
        size, share = min(count, len(y)), np.cumsum(weight[mixed])
        return np.sort(mixed[np.searchsorted(share, (np.arange(size) + 0.5) / size * share[-1])])
    few = 2 * len(np.unique(y)) <= count
    return np.sort(stratified(y, count, 0) if few else rng.permutation(len(y))[:count])


def codes(y: NDArray[Any]) -> Array:
    """(n, m) a column a class, of mean zero; for two classes one column says it all."""
    Y = (y[:, None] == np.unique(y)) * 1.0
    Y -= Y.mean(axis=0)
    return 2 * Y[:, 1:] if Y.shape[1] == 2 else Y


def likelihood(v: Array, X: Array, Y: Array) -> tuple[float, Array]:
    """What is minimised, as a function of v = (log w, log s, log t), and its gradient."""
    (n, d), m = X.shape, Y.shape[1]
    size, noise = np.exp(v[d:])
    Z = X * np.exp(v[:d])
    square = (Z**2).sum(axis=1)
    signal = size * np.exp(-np.maximum(square[:, None] + square - 2 * Z @ Z.T, 0.0) / d)
    factor, _ = dpotrf(signal + noise * np.eye(n), lower=1)
    inverse, _ = dpotri(factor, lower=1)  # its lower half
    inverse += np.tril(inverse, -1).T
    A = inverse @ Y
    value = 0.5 * float((Y * A).sum()) + m * float(np.log(np.diag(factor)).sum())
    G = 0.5 * (m * inverse - A @ A.T)
    # dK/dlog w_c = -2/d (z_ic - z_jc)^2 signal_ij, whose sum with G is that of z_ic^2 H_ij and z_ic H_ij z_jc
    H = G * signal
    gradient = np.empty_like(v)
    gradient[:d] = -4 / d * (H.sum(axis=1) @ Z**2 - (Z * (H @ Z)).sum(axis=0))
    gradient[d:] = H.sum(), noise * np.trace(G)
    # the priors
    mean = v[:d].mean()
    apart = v[:d] - mean
    away = np.array([mean, *v[d:]]) - [MEAN_WEIGHT[0], SIZE[0], NOISE[0]]
    precision = np.array([MEAN_WEIGHT[1], SIZE[1], NOISE[1]])
    value += 0.5 * m * float(apart @ apart) + 0.5 * float(precision @ away**2)
    gradient[:d] += m * apart + precision[0] * away[0] / d
    gradient[d:] += precision[1:] * away[1:]
    return value, gradient
