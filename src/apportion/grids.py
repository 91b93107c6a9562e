"""Working sets in which each example has a variable on nearly every line, solved in cache: two examples at a time, on all lines.

A step begins as in pairs.py: with the variable of largest gradient on the line whose turn it is, and the one on this line that,
beside it, adds most to the dual. Then the two examples, whose kernel rows have been read, move on all other lines as well: in
lee-lin-wahba most of their variables there are off their best place too. The variables lie on a grid, lines by examples, so that
kernel rows are read as they are.
"""

from __future__ import annotations

import numpy as np

from ._jit import NOWHERE, first_from, fmax, fmin, jit
from .pairs import ALIKE, FAR, NOTHING, TINY, both

SHARE = 0.25  # of the largest gradient on the line whose turn it is: variables of less stay where they are


@jit
def _read(base, at, scale, line, p, first, q, second, total, floor, ceiling, now):
    """now = base[at] - scale[line] (p total[first] + q total[second]).

    Returns the largest |now| of the variables that can follow it.
    """
    largest = now.dtype.type(0.0)
    for t in range(np.uintp(total.shape[1])):
        new = base[at, t] - scale[line, t] * (p * total[first, t] + q * total[second, t])
        now[0, t] = new
        new = fmin(fmax(new, floor[line, t]), ceiling[line, t])
        largest = fmax(largest, fmax(new, -new))
    return largest


@jit
def _first(now, floor, ceiling, line, least):
    """The first variable of the line that can follow a gradient of at least that size; as first_from."""
    first = np.int32(NOWHERE)
    for t in range(np.uintp(now.shape[1])):
        free = fmin(fmax(now[0, t], floor[line, t]), ceiling[line, t])
        here = np.int32(t) if fmax(free, -free) >= least else np.int32(NOWHERE)
        first = here if here < first else first
    return np.intp(first)


@jit
def _gains(now, floor, ceiling, K, i, scale, line, diagonal, share, length, loss, gains):
    """As in pairs.py, with row = scale[line] K[i] and h = scale[line]^2 diagonal; returns the largest."""
    best, least = gains.dtype.type(0.0), gains.dtype.type(ALIKE)
    for t in range(np.uintp(gains.size)):
        row, h = scale[line, t] * K[i, t], scale[line, t] * scale[line, t] * diagonal[t]
        gain = fmin(fmax(now[0, t] - share * row, floor[line, t]), ceiling[line, t])
        gains[t] = gain * (gain / fmax(length * h - loss * (row * row), least))
        best = fmax(best, gains[t])  # as it was rounded there, or it would not be found again
    return best


@jit
def _add(total, at, K, i, d, j, e):
    """total[at] += d K[i] + e K[j]."""
    for t in range(np.uintp(total.shape[1])):
        total[at, t] += d * K[i, t] + e * K[j, t]


@jit
def _mark(line, t, a, upper, floor, ceiling):
    """In which directions the variable can go."""
    floor[line, t] = -FAR if a[line, t] > 0.0 else 0.0
    ceiling[line, t] = FAR if a[line, t] < upper[line, t] else 0.0


@jit
def _room(line, t, up, a, upper):
    return upper[line, t] - a[line, t] if up else a[line, t]


@jit
def _move(line, t, up, length, a, upper):
    """Up or down by `length`, to the bound if next to nothing would stay. Returns the change."""
    before = a[line, t]
    if _room(line, t, up, a, upper) - length <= NOTHING * upper[line, t]:
        a[line, t] = upper[line, t] if up else 0.0
    else:
        a[line, t] += length if up else -length
    return a[line, t] - before


@jit
def _step(line, i, j, v, w, H, L, q, a, upper):
    """The best step of i along its gradient v, which it can follow, and of j, whose gradient is w. Returns both changes."""
    up, up_j = v > 0.0, w > q * v / H
    room, room_j = _room(line, i, up, a, upper), _room(line, j, up_j, a, upper)
    side, side_j = 1.0 if up else -1.0, 1.0 if up_j else -1.0
    if i == j or room_j == 0.0:
        return _move(line, i, up, min(side * v / H, room), a, upper), 0.0
    d, e = both(side * v, side_j * w, H, L, side * side_j * q, room, room_j)
    return _move(line, i, up, d, a, upper), _move(line, j, up_j, e, a, upper)


@jit
def solve_grid(K, diagonal, z, scale, square, sums, read, write, a, upper, eps, max_steps):
    """Maximise over 0 <= a <= upper until no variable has a gradient of more than eps that it can follow; changes a.

    All of a, upper, z and scale are (lines, examples of the kernel matrix K with its `diagonal`); upper is zero where there is no
    variable, z the gradient at the start. Codes are `scale` times the direction of the line, of length square[l]^(1/2); sums, read
    and write are those of pairs.py.

    Returns the number of steps.
    """
    lines, n = z.shape
    real, step = K.dtype.type, z.dtype.type
    floor, ceiling = np.empty((lines, n), K.dtype), np.empty((lines, n), K.dtype)
    h, gains, now = diagonal.astype(K.dtype), np.empty(n, K.dtype), np.empty((1, n), z.dtype)
    total = np.zeros((sums.max() + 1, n), z.dtype)
    # of the two examples: what these sums are there, and what is to be added to them of the kernel rows
    at_i, at_j = np.empty(len(total)), np.empty(len(total))
    of_i, of_j = np.empty(len(total)), np.empty(len(total))
    for line in range(lines):
        for t in range(n):
            _mark(line, t, a, upper, floor, ceiling)
    turn, quiet, steps = -1, 0, 0
    while quiet < lines and steps < max_steps:
        turn = turn + 1 if turn + 1 < lines else 0
        most = step(0.0)
        for c in range(0, sums.shape[1], 2):
            base, at = (z, turn) if c == 0 else (now, 0)
            first = step(read[turn, c]), sums[turn, c]
            second = step(read[turn, c + 1]), sums[turn, c + 1]
            most = _read(base, at, scale, turn, *first, *second, total, floor, ceiling, now)
        if most <= eps:
            quiet += 1
            continue
        quiet = 0
        steps += 1
        i = _first(now, floor, ceiling, turn, most)
        v, length = now[0, i], scale[turn, i] * square[turn]
        H = max(real(scale[turn, i] * length * h[i]), real(TINY))
        floor[turn, i], ceiling[turn, i] = 0.0, 0.0  # not its own partner
        rates = real(length * v / H), real(square[turn] / H), real((length / H) ** 2)
        best = _gains(now, floor, ceiling, K, i, scale, turn, h, *rates, gains)
        _mark(turn, i, a, upper, floor, ceiling)
        j = first_from(gains, best, np.uintp(0), np.uintp(n)) if best > 0.0 else i
        for c in range(len(total)):
            at_i[c], at_j[c], of_i[c], of_j[c] = total[c, i], total[c, j], 0.0, 0.0
        near, least = float(K[i, j]), SHARE * most
        for line in range(lines):
            v, w = float(z[line, i]), float(z[line, j])
            for c in range(sums.shape[1]):
                v -= scale[line, i] * read[line, c] * at_i[sums[line, c]]
                w -= scale[line, j] * read[line, c] * at_j[sums[line, c]]
            free_i = abs(min(max(v, floor[line, i]), ceiling[line, i]))
            free_j = abs(min(max(w, floor[line, j]), ceiling[line, j]))
            if max(free_i, free_j) <= least:
                continue
            H = max(scale[line, i] ** 2 * square[line] * diagonal[i], TINY)
            L = max(scale[line, j] ** 2 * square[line] * diagonal[j], TINY)
            q = scale[line, i] * scale[line, j] * square[line] * near
            if free_i >= free_j:
                d, e = _step(line, i, j, v, w, H, L, q, a, upper)
            else:
                e, d = _step(line, j, i, w, v, L, H, q, a, upper)
            _mark(line, i, a, upper, floor, ceiling)
            _mark(line, j, a, upper, floor, ceiling)
            d, e = d * scale[line, i], e * scale[line, j]
            for c in range(sums.shape[1]):
                s, share = sums[line, c], write[line, c]
                at_i[s] += share * (d * diagonal[i] + e * near)
                at_j[s] += share * (d * near + e * diagonal[j])
                of_i[s] += share * d
                of_j[s] += share * e
        for c in range(len(total)):
            if of_i[c] != 0.0 or of_j[c] != 0.0:
                _add(total, c, K, i, step(of_i[c]), j, step(of_j[c]))
    return steps
