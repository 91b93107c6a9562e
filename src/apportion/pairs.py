"""Working sets of tables whose outputs hang together, solved in cache: two steps at a time.

A variable (example, row of the table) has a code and a gradient of the dual, z = margin - code . f. It grows at the cost of what is
left of its bound; with shared slack, of what the example has left, or of another of its rows. Such a transfer has the gradient
and the code of its target, less those of its source. Two of lengths d and e gain

    v d + w e - 1/2 (H d^2 + 2 q d e + L e^2)

with v, w their gradients, H, L their curvatures, q what the one takes from the gradient of the other: kernel value times
product of codes. The first is the step of largest gradient. With d at its best for each e the second adds

    1/2 (w - q v / H)^2 / (L - q^2 / H)

to v^2 / (2 H), and is chosen to add most. That is what pays: neighbours undo each other's steps, and one at a time they need
many more.
"""

from __future__ import annotations

import numpy as np

from ._jit import NOWHERE, first_from, fmax, fmin, jit

FAR, TINY = 1e30, 1e-12
WORTH = 0.5  # lines whose largest gradient is under this share of the largest of the last turn wait
ALIKE = 1e-6  # L - q^2 / H is taken to be no less than this share of L
NOTHING = 1e-14  # share of a bound that is rounding


@jit
def both(v, w, H, L, q, room_d, room_e):
    """The best d in [0, room_d] and e in [0, room_e], v > 0; one after the other where they are cut."""
    det = max(H * L - q * q, ALIKE * H * L)
    d = min(max((L * v - q * w) / det, 0.0), room_d)
    free = (w - q * d) / L
    e = min(max(free, 0.0), room_e)
    if e != free:
        d = min(max((v - q * e) / H, 0.0), room_d)
    return d, e


@jit
def _read(base, scale, p, first, q, second, total, floor, ceiling, a, z, now):
    """now = base - scale (p total[first] + q total[second]) from a to z.

    Returns the largest |now| of the variables that can follow it.
    """
    largest = now.dtype.type(0.0)
    for t in range(a, z):
        new = base[t] - scale[t] * (p * total[first[t]] + q * total[second[t]])
        now[t] = new
        new = fmin(fmax(new, floor[t]), ceiling[t])
        largest = fmax(largest, fmax(new, -new))
    return largest


@jit
def _gains(now, floor, ceiling, row, h, share, length, loss, a, z, gains):
    """gains = (w - q v / H)^2 / (L / H - (q / H)^2), zero where the second step would leave its bounds; returns the largest.

    share * row = q v / H, loss * row^2 = (q / H)^2, length * h = L / H.
    """
    best, least = gains.dtype.type(0.0), gains.dtype.type(ALIKE)
    for t in range(a, z):
        gains[t] = fmin(fmax(now[t] - share * row[t], floor[t]), ceiling[t])
    for t in range(a, z):
        gains[t] *= gains[t] / fmax(length * h[t] - loss * (row[t] * row[t]), least)
        best = fmax(best, gains[t])
    return best


@jit
def _first_gradient(now, floor, ceiling, least, a, z):
    """The first variable that can follow a gradient of at least that size; as first_from."""
    first = np.int32(NOWHERE)
    for t in range(a, z):
        free = fmin(fmax(now[t], floor[t]), ceiling[t])
        here = np.int32(t) if fmax(free, -free) >= least else np.int32(NOWHERE)
        first = here if here < first else first
    return np.intp(first)


@jit
def _row(corner, edge, s, place):
    """Where K holds the row of the example at `place` of sum s: its kernel value with that at place t is K[_row + t]."""
    return corner[s] + (place - edge[s]) * (edge[s + 1] - edge[s]) - edge[s]


@jit
def _gather(K, row, place, scale, a, z, out):
    for t in range(a, z):
        out[t] = scale[t] * K[row + place[t]]


@jit
def _add(total, a, z, K, i, d, j, e):
    """total += d K[i + ..] + e K[j + ..] from a to z."""
    for t in range(a, z):
        total[t] += d * K[i + t] + e * K[j + t]


@jit
def _mark(t, a, target, source, floor, ceiling):
    """In which directions transfer t can go."""
    floor[t] = -FAR if a[target[t]] > 0.0 else 0.0
    ceiling[t] = FAR if a[source[t]] > 0.0 else 0.0


@jit
def _move(t, side, step, a, target, source, nothing):
    """`step` from the source of transfer t to its target, or back where side < 0; all if next to nothing would stay.

    Returns the change.
    """
    to, off = (target[t], source[t]) if side > 0.0 else (source[t], target[t])
    step = a[off] if a[off] - step <= nothing else step
    a[off] -= step
    a[to] += step
    return side * step


@jit
def solve_pairs(
    K,
    corner,
    edge,
    place,
    diagonal,
    scale,
    target,
    source,
    z,
    starts,
    square,
    sums,
    read,
    write,
    owner,
    first,
    own,
    a,
    bound,
    eps,
    max_steps,
):
    """Maximise over a >= 0 until no transfer has a gradient of more than eps that it can follow; changes a.

    Transfer t, of an example whose kernel value with itself is diagonal[t], moves something from a[source[t]] to a[target[t]], as
    long as there is any, or back; its gradient at the start is z[t]. Those that draw on the same have the same owner o: they are
    own[first[o]] .. own[first[o + 1] - 1], and bound[o] is what they have to share.

    Transfers starts[l] .. starts[l + 1] - 1 lie on line l: their codes are `scale` times its direction, of length square[l]^(1/2).
    Lines take turns, a step of two transfers each. What the scores of the examples have changed by since the start is kept as few
    sums, of which line l concerns sums[l]: its direction . f is read[l] . these, and a step adds write[l] to them. So a
    step costs as much as the line has transfers, not all of them. A line that has little to gain lets its turn pass.

    A sum is kept for those examples only that have a transfer it concerns: sum s in edge[s] .. edge[s + 1] - 1 of one array, where
    transfer t finds its example in place[r, t] for the r-th sum of its line. The kernel matrix of these examples begins at
    K[corner[s]]; all sums may share one.

    Returns the number of steps.
    """
    size, lines, real, step = z.size, starts.size - 1, K.dtype.type, z.dtype.type
    floor, ceiling, h = np.empty(size, K.dtype), np.empty(size, K.dtype), np.empty(size, K.dtype)
    row, gains, now = np.empty(size, K.dtype), np.empty(size, K.dtype), np.empty(size, z.dtype)
    total = np.zeros(edge[-1], z.dtype)
    for line in range(lines):
        for t in range(starts[line], starts[line + 1]):
            h[t] = diagonal[t] * square[line] * scale[t] ** 2
            _mark(t, a, target, source, floor, ceiling)
    line, quiet, steps, least, largest = -1, 0, 0, step(0.0), step(0.0)
    while quiet < lines and steps < max_steps:
        line += 1
        if line == lines:
            line, least, largest = 0, step(WORTH) * largest, step(0.0)
        s, t, most = np.uintp(starts[line]), np.uintp(starts[line + 1]), step(0.0)
        for r in range(0, sums.shape[1], 2):
            p, q = step(read[line, r]), step(read[line, r + 1])
            base = z if r == 0 else now
            most = _read(base, scale, p, place[r], q, place[r + 1], total, floor, ceiling, s, t, now)
        largest = max(largest, most)
        quiet = quiet + 1 if most <= eps else 0
        if most <= eps or most < least:
            continue
        steps += 1
        i = _first_gradient(now, floor, ceiling, most, s, t)
        v, H, length = now[i], max(h[i], real(TINY)), scale[i] * square[line]
        floor[i], ceiling[i] = 0.0, 0.0  # not its own partner
        _gather(K, _row(corner, edge, sums[line, 0], place[0, i]), place[0], scale, s, t, row)
        rates = real(length * v / H), real(1.0 / H), real((length / H) ** 2)
        best = _gains(now, floor, ceiling, row, h, *rates, s, t, gains)
        side_i = 1.0 if v > 0.0 else -1.0
        room_i = a[source[i]] if v > 0.0 else a[target[i]]
        d, e, j = min(abs(v) / H, room_i), 0.0, i
        if best > 0.0:
            other = first_from(gains, best, s, t)
            if owner[other] != owner[i]:
                j = other
                w, L, q = now[j], max(h[j], real(TINY)), length * row[j]
                side_j = 1.0 if w > q * v / H else -1.0
                room_j = a[source[j]] if side_j > 0.0 else a[target[j]]
                d, e = both(side_i * v, side_j * w, H, L, side_i * side_j * q, room_i, room_j)
                e = _move(j, side_j, e, a, target, source, NOTHING * bound[owner[j]])
        d = _move(i, side_i, d, a, target, source, NOTHING * bound[owner[i]])
        for o in (owner[i], owner[j]):
            for t in range(first[o], first[o + 1]):
                _mark(own[t], a, target, source, floor, ceiling)
        d, e = d * scale[i], e * scale[j]
        for r in range(sums.shape[1]):
            p, one = write[line, r], sums[line, r]
            row_i, row_j = _row(corner, edge, one, place[r, i]), _row(corner, edge, one, place[r, j])
            _add(total, edge[one], edge[one + 1], K, row_i, step(p * d), row_j, step(p * e))
    return steps
