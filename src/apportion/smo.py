"""SMO: one binary problem in cache, two examples at a time, the second chosen for what the pair adds to the dual.

    max  sum_i beta_i s_i mu_i - 1/2 beta' K beta,      lower <= beta <= upper,  sum(beta) kept

With its gradient E_i = s_i mu_i - (K beta)_i a pair (i, j) can still gain where beta_i can grow, beta_j can shrink, and E_i > E_j.
"""

from __future__ import annotations

import numpy as np

from ._jit import NOWHERE, first_from, fmax, jit

NEVER = -1e30  # added to E it keeps an example from being chosen
BLOCK = 512  # examples a partial maximum is kept for
NEAREST = 1e-12  # |phi_i - phi_t|^2 is taken to be no less
NO_INVERSE = np.empty((0, 0), np.float32)


@jit
def _largest(E, grow, shrink, a, z):
    high = low = E.dtype.type(NEVER)
    for t in range(a, z):
        high = fmax(high, E[t] + grow[t])
        low = fmax(low, shrink[t] - E[t])
    return high, low


@jit
def _gains(E, K, i, diagonal, shrink, top, a, z, gains):
    """Increase of the dual with each partner t of i, (E_i - E_t)^2 / |phi_i - phi_t|^2; returns the largest.

    In the precision of the kernel: the division is most of the work, and in single precision twice as fast.
    """
    best, nearest = gains.dtype.type(0.0), gains.dtype.type(NEAREST)
    nothing, own = E.dtype.type(0.0), diagonal[i]
    for t in range(a, z):
        gains[t] = fmax(top - E[t] + shrink[t], nothing)
    for t in range(a, z):
        gains[t] *= gains[t] / fmax(own + diagonal[t] - (K[i, t] + K[i, t]), nearest)
        best = fmax(best, gains[t])
    return best


@jit
def _gains_by_product(E, inverse, i, shrink, top, a, z, gains):
    """The same from inverse_t = 1 / |phi_i - phi_t|^2."""
    best, nothing = gains.dtype.type(0.0), E.dtype.type(0.0)
    for t in range(a, z):
        gains[t] = fmax(top - E[t] + shrink[t], nothing)
    for t in range(a, z):
        gains[t] *= gains[t] * inverse[i, t]
        best = fmax(best, gains[t])
    return best


@jit
def _first(E, added, top, a, z):
    """The first t with E_t + added_t >= top; as first_from."""
    first = np.int32(NOWHERE)
    for t in range(a, z):
        here = np.int32(t) if E[t] + added[t] >= top else np.int32(NOWHERE)
        first = here if here < first else first
    return np.intp(first)


@jit
def _move(E, K, i, j, grow, shrink, step, a, z):
    """E after beta_i += step, beta_j -= step, and its new extremes."""
    high = low = E.dtype.type(NEVER)
    for t in range(a, z):
        e = E[t] - step * (K[i, t] - K[j, t])
        E[t] = e
        high = fmax(high, e + grow[t])
        low = fmax(low, shrink[t] - e)
    return high, low


@jit
def smo(K, diagonal, beta, E, lower, upper, eps, max_steps, inverse):
    """Maximise over beta with sum(beta) kept, until no pair violates by more than eps. Changes beta and E.

    `inverse` (n, n) holds 1 / |phi_i - phi_t|^2 where one matrix serves many problems, else `NO_INVERSE`.
    """
    n = beta.size
    if n == 0:
        return 0
    real = E.dtype.type
    grow = np.empty(n, E.dtype)
    shrink = np.empty(n, E.dtype)
    for t in range(n):
        grow[t] = 0.0 if beta[t] < upper[t] else NEVER
        shrink[t] = 0.0 if beta[t] > lower[t] else NEVER
    edges = np.minimum(np.arange(0, n + BLOCK, BLOCK), n).astype(np.uintp)
    blocks = edges.size - 1
    high = np.empty(blocks, E.dtype)
    low = np.empty(blocks, E.dtype)
    gains = np.empty(n, K.dtype)
    own = diagonal.astype(K.dtype)
    for p in range(blocks):
        high[p], low[p] = _largest(E, grow, shrink, edges[p], edges[p + 1])
    steps = 0
    while steps < max_steps:
        q, lowest = 0, low[0]
        for p in range(1, blocks):
            q = p if high[p] > high[q] else q
            lowest = max(lowest, low[p])
        top = high[q]
        if top + lowest <= eps:
            break
        i = _first(E, grow, top, edges[q], edges[q + 1])
        best, q = 0.0, -1
        for p in range(blocks):
            if top + low[p] > 0.0:
                a, z = edges[p], edges[p + 1]
                if inverse.size:
                    gain = _gains_by_product(E, inverse, i, shrink, top, a, z, gains)
                else:
                    gain = _gains(E, K, i, own, shrink, top, a, z, gains)
                if gain > best:
                    best, q = gain, p
        if q < 0:
            break
        j = first_from(gains, best, edges[q], edges[q + 1])
        step = (top - E[j]) / max(diagonal[i] + diagonal[j] - 2.0 * K[i, j], NEAREST)
        room_i, room_j = upper[i] - beta[i], beta[j] - lower[j]
        step = min(step, min(room_i, room_j))
        beta[i] = upper[i] if step == room_i else beta[i] + step
        beta[j] = lower[j] if step == room_j else beta[j] - step
        for t in (i, j):
            grow[t] = 0.0 if beta[t] < upper[t] else NEVER
            shrink[t] = 0.0 if beta[t] > lower[t] else NEVER
        for p in range(blocks):
            high[p], low[p] = _move(E, K, i, j, grow, shrink, real(step), edges[p], edges[p + 1])
        steps += 1
    return steps
