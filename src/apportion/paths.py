"""One binary machine for many C, on a kernel matrix that is there as a whole: the work of a search.

For each C of a growing series, with s = sign, mu = margin, w = weight of example i:

    min  1/2 |v|^2 + 1/2 b^2 + C sum_i w_i [mu_i - s_i (v . phi(x_i) + b)]_+

As in working_sets.py the penalised intercept is a dummy example, the last of the matrix, so that SMO solves each problem. The
solution for one C, stretched as far as pays (a line search along alpha, at most to the new bounds), starts the next: examples at
their bound mostly stay there. The relative duality gap stops each, and is returned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._jit import fmax, jit
from .smo import NEAREST, NEVER, smo

Array = NDArray[np.float64]

# SMO's tolerance at first, and its factor while the gap is too large
FIRST_VIOLATION, NEXT_VIOLATION = 0.1, 0.4
INVERSE_ROWS = 800  # more rows have no inverse: it would not stay in cache


class Gram(NamedTuple):
    """A kernel matrix with the dummy example of the intercept, made once for all machines on these examples."""

    K: Array  # (n + 1, n + 1)
    # (n + 1, n + 1) 1 / |phi_i - phi_t|^2; empty where it would not stay in cache
    inverse: NDArray[np.float32]


def with_intercept(K: Array, rows: NDArray[np.intp]) -> Gram:
    """The Gram matrix of some `rows` of the kernel matrix K."""
    return Gram(*_with_intercept(K, rows, len(rows) <= INVERSE_ROWS))


@jit
def _with_intercept(K, rows, inverted):
    n = rows.size
    padded = np.empty((n + 1, n + 1))
    for i in range(n):
        row, source = padded[i], K[rows[i]]
        for j in range(n):
            row[j] = source[rows[j]]
        row[n] = 0.0
    padded[n] = 0.0
    padded[n, n] = 1.0
    inverse = np.empty((n + 1, n + 1) if inverted else (0, 0), np.float32)
    diagonal = np.diag(padded)
    for i in range(len(inverse)):
        _invert(padded[i], diagonal, diagonal[i], inverse[i])
    return padded, inverse


@jit
def _invert(row, diagonal, diagonal_i, inverse):
    for t in range(row.size):
        inverse[t] = 1.0 / fmax(diagonal_i + diagonal[t] - 2.0 * row[t], NEAREST)


def hinge_path(
    gram: Gram,
    sign: Array,
    margin: Array,
    weight: Array,
    Cs: Array,
    tol: float = 1e-2,
    max_steps: int = 100_000,
) -> tuple[Array, Array, Array]:
    """The machines for each of the growing Cs.

    Returns
    -------
    beta : array of shape (n_Cs, n)
        Scores of other examples are ``K(X, training) @ beta[c] + b[c]``.
    b : array of shape (n_Cs,)
    gap : array of shape (n_Cs,)
        (primal - dual) / primal, at most `tol` unless SMO ran out of its `max_steps` for this C.
    """
    beta, b, gap = np.empty((len(Cs), len(sign))), np.empty(len(Cs)), np.empty(len(Cs))
    _hinge_path(gram.K, gram.inverse, sign, margin, weight, Cs, tol, max_steps, beta, b, gap)
    return beta, b, gap


@jit
def _certify(E, beta, sign, margin, bound):
    """Relative duality gap and intercept from beta and E = s mu - K beta, the dummy example last."""
    n = sign.size
    b = E[n]  # the dummy's K beta is -b, and its s mu is zero
    gap, hinge, quadratic = 0.0, 0.0, -beta[n] * E[n]
    for i in range(n):
        z = sign[i] * (E[i] - b)
        slack = bound[i] * max(z, 0.0)
        gap += slack - sign[i] * beta[i] * z
        hinge += slack
        quadratic += beta[i] * (sign[i] * margin[i] - E[i])
    return gap / max(hinge + 0.5 * quadratic, 1e-300), b


@jit
def _stretch(E, beta, sign, margin, most):
    """beta *= r, and E with it, r in [1, most] the maximiser of the dual sum alpha mu r - 1/2 r^2 beta' K beta."""
    n = sign.size
    linear, quadratic = 0.0, -beta[n] * E[n]
    for i in range(n):
        linear += sign[i] * beta[i] * margin[i]
        quadratic += beta[i] * (sign[i] * margin[i] - E[i])
    r = min(max(linear / quadratic, 1.0), most) if quadratic > 0.0 else 1.0
    for i in range(n):
        beta[i] *= r
        E[i] = sign[i] * margin[i] - r * (sign[i] * margin[i] - E[i])
    beta[n] *= r
    E[n] *= r


@jit
def _hinge_path(K, inverse, sign, margin, weight, Cs, tol, max_steps, betas, bs, gaps):
    n = sign.size
    diagonal = np.empty(n + 1)
    for i in range(n + 1):
        diagonal[i] = K[i, i]
    beta, E, lower, upper = np.zeros(n + 1), np.zeros(n + 1), np.empty(n + 1), np.empty(n + 1)
    E[:n] = sign * margin
    lower[n], upper[n] = NEVER, -NEVER
    for c in range(Cs.size):
        if c > 0:
            _stretch(E, beta, sign, margin, Cs[c] / Cs[c - 1])
        bound = Cs[c] * weight
        for i in range(n):
            lower[i] = 0.0 if sign[i] > 0.0 else -bound[i]
            upper[i] = bound[i] if sign[i] > 0.0 else 0.0
        violation, steps = FIRST_VIOLATION, 0
        while True:
            steps += smo(K, diagonal, beta, E, lower, upper, violation, max_steps - steps, inverse)
            gaps[c], bs[c] = _certify(E, beta, sign, margin, bound)
            if gaps[c] <= tol or steps >= max_steps or violation < 1e-12:
                break
            violation *= NEXT_VIOLATION
        betas[c] = beta[:n]
