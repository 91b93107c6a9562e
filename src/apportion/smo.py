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
def _largest(E, grow, shrink):
    high = low = E.dtype.type(NEVER)
    for t in range(E.size):
        high = fmax(high, E[t] + grow[t])
        low = fmax(low, shrink[t] - E[t])
    return high, low


@jit
def _gains(E, row, diagonal, shrink, top, diagonal_i, gains):
    """Increase of the dual with each partner t of i, (E_i - E_t)^2 / |phi_i - phi_t|^2; returns the largest.

    In the precision of the kernel row: the division is most of the work, and in single precision twice as fast.
    """
    best, nearest = gains.dtype.type(0.0), gains.dtype.type(NEAREST)
    nothing = E.dtype.type(0.0)
    for t in range(E.size):
        gains[t] = fmax(top - E[t] + shrink[t], nothing)
    for t in range(E.size):
        gains[t] *= gains[t] / fmax(diagonal_i + diagonal[t] - (row[t] + row[t]), nearest)
        best = fmax(best, gains[t])
    return best


@jit
def _gains_by_product(E, inverse, shrink, top, gains):
    """The same from inverse_t = 1 / |phi_i - phi_t|^2."""
    best, nothing = gains.dtype.type(0.0), E.dtype.type(0.0)
    for t in range(E.size):
        gains[t] = fmax(top - E[t] + shrink[t], nothing)
    for t in range(E.size):
        gains[t] *= gains[t] * inverse[t]
        best = fmax(best, gains[t])
    return best


@jit
def _first(E, added, top):
    """The first t with E_t + added_t >= top, in vector code: no way out of the loop."""
    first = np.int32(NOWHERE)
    for t in range(E.size):
        here = np.int32(t) if E[t] + added[t] >= top else np.int32(NOWHERE)
        first = here if here < first else first
    return first


@jit
def _move(E, row_i, row_j, grow, shrink, step):
    """E after beta_i += step, beta_j -= step, and its new extremes."""
    high = low = E.dtype.type(NEVER)
    for t in range(E.size):
        e = E[t] - step * (row_i[t] - row_j[t])
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
    blocks = (n + BLOCK - 1) // BLOCK
    real = E.dtype.type
    grow = np.empty(n, E.dtype)
    shrink = np.empty(n, E.dtype)
    for t in range(n):
        grow[t] = 0.0 if beta[t] < upper[t] else NEVER
        shrink[t] = 0.0 if beta[t] > lower[t] else NEVER
    high = np.empty(blocks, E.dtype)
    low = np.empty(blocks, E.dtype)
    gains = np.empty(n, K.dtype)
    own = diagonal.astype(K.dtype)
    for q in range(blocks):
        a, z = q * BLOCK, min(n, q * BLOCK + BLOCK)
        high[q], low[q] = _largest(E[a:z], grow[a:z], shrink[a:z])
    steps = 0
    while steps < max_steps:
        q = np.argmax(high)
        top = high[q]
        if top + np.max(low) <= eps:
            break
        a, z = q * BLOCK, min(n, q * BLOCK + BLOCK)
        i = a + _first(E[a:z], grow[a:z], top)
        row_i = K[i]
        best, q = 0.0, -1
        for p in range(blocks):
            if top + low[p] > 0.0:
                a, z = p * BLOCK, min(n, p * BLOCK + BLOCK)
                if inverse.size:
                    gain = _gains_by_product(E[a:z], inverse[i, a:z], shrink[a:z], top, gains[a:z])
                else:
                    gain = _gains(E[a:z], row_i[a:z], own[a:z], shrink[a:z], top, own[i], gains[a:z])
                if gain > best:
                    best, q = gain, p
        if q < 0:
            break
        a, z = q * BLOCK, min(n, q * BLOCK + BLOCK)
        j = a + first_from(gains[a:z], best)
        step = (top - E[j]) / max(diagonal[i] + diagonal[j] - 2.0 * row_i[j], NEAREST)
        room_i, room_j = upper[i] - beta[i], beta[j] - lower[j]
        step = min(step, min(room_i, room_j))
        beta[i] = upper[i] if step == room_i else beta[i] + step
        beta[j] = lower[j] if step == room_j else beta[j] - step
        for t in (i, j):
            grow[t] = 0.0 if beta[t] < upper[t] else NEVER
            shrink[t] = 0.0 if beta[t] > lower[t] else NEVER
        row_j = K[j]
        for p in range(blocks):
            a, z = p * BLOCK, min(n, p * BLOCK + BLOCK)
            high[p], low[p] = _move(E[a:z], row_i[a:z], row_j[a:z], grow[a:z], shrink[a:z], real(step))
        steps += 1
    return steps
