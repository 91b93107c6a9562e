"""Working sets of tables whose outputs hang together, solved in cache: two steps at a time.

A variable (example, row of the table) has a code and a gradient of the dual, z = margin - code . f. A step moves a variable or,
with shared slack, moves something from one row of an example to another. Two steps of lengths d and e gain

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
ALIKE = 1e-6  # L - q^2 / H is taken to be no less than this share of L
NOTHING = 1e-14  # share of a bound that is rounding


@jit
def _both(v, w, H, L, q, room_d, room_e):
    """The best d in [0, room_d] and e in [0, room_e], v > 0; one after the other where they are cut."""
    det = max(H * L - q * q, ALIKE * H * L)
    d = min(max((L * v - q * w) / det, 0.0), room_d)
    free = (w - q * d) / L
    e = min(max(free, 0.0), room_e)
    if e != free:
        d = min(max((v - q * e) / H, 0.0), room_d)
    return d, e


# ---------------------------------------------------------------- each variable in an interval of its own


@jit
def _read(base, scale, example, p, first, q, second, floor, ceiling, z):
    """z = base - scale (p first + q second)[example]; returns the largest |z| of the variables that can follow it."""
    largest = z.dtype.type(0.0)
    for t in range(z.size):
        new = base[t] - scale[t] * (p * first[example[t]] + q * second[example[t]])
        z[t] = new
        new = fmin(fmax(new, floor[t]), ceiling[t])
        largest = fmax(largest, fmax(new, -new))
    return largest


@jit
def _gains(z, floor, ceiling, row, h, share, length, loss, gains):
    """gains = (w - q v / H)^2 / (L / H - (q / H)^2), zero where the second step would leave its bounds; returns the largest.

    share * row = q v / H, loss * row^2 = (q / H)^2, length * h = L / H.
    """
    best, least = gains.dtype.type(0.0), gains.dtype.type(ALIKE)
    for t in range(z.size):
        gains[t] = fmin(fmax(z[t] - share * row[t], floor[t]), ceiling[t])
    for t in range(z.size):
        gains[t] *= gains[t] / fmax(length * h[t] - loss * (row[t] * row[t]), least)
        best = fmax(best, gains[t])
    return best


@jit
def _first_gradient(z, floor, ceiling, least):
    """The first variable that can follow a gradient of at least that size; as first_from."""
    first = np.int32(NOWHERE)
    for t in range(z.size):
        free = fmin(fmax(z[t], floor[t]), ceiling[t])
        here = np.int32(t) if fmax(free, -free) >= least else np.int32(NOWHERE)
        first = here if here < first else first
    return first


@jit
def _gather(row, example, scale, out):
    for t in range(out.size):
        out[t] = scale[t] * row[example[t]]


@jit
def _add(total, d, row, e, other):
    for t in range(total.size):
        total[t] += d * row[t] + e * other[t]


@jit
def _mark(t, a, upper, floor, ceiling):
    floor[t] = -FAR if a[t] > 0.0 else 0.0
    ceiling[t] = FAR if a[t] < upper[t] else 0.0


@jit
def _move(t, side, step, a, upper, floor, ceiling):
    """a[t] += side * step, to the bound itself where it is that far; returns the change."""
    before = a[t]
    if side > 0.0:
        a[t] = upper[t] if step >= upper[t] - before else before + step
    else:
        a[t] = 0.0 if step >= before else before - step
    _mark(t, a, upper, floor, ceiling)
    return a[t] - before


@jit
def solve_box(K, diagonal, example, scale, starts, square, sums, read, write, a, z, upper, eps, max_steps):
    """Maximise over 0 <= a <= upper until no variable has a gradient of more than eps that it can follow; changes a.

    Lines take turns, a step of two variables each. Variables starts[l] .. starts[l + 1] - 1 lie on line l, their codes are
    scale (N,) times its direction, of length square[l]^(1/2); they belong to `example` (N,) of the kernel matrix K with its
    `diagonal`; z (N,) is their gradient at the start. What their examples' scores have changed by since is kept as few sums, of
    which line l concerns sums[l]: its direction . f is read[l] . these, and a step adds write[l] to them. So a step
    costs as much as the line has variables, not all of them.

    Returns the number of steps.
    """
    size, lines, real, step = a.size, starts.size - 1, K.dtype.type, z.dtype.type
    floor, ceiling, h = np.empty(size, K.dtype), np.empty(size, K.dtype), np.empty(size, K.dtype)
    row, gains, now = np.empty(size, K.dtype), np.empty(size, K.dtype), np.empty(size, z.dtype)
    total = np.zeros((sums.max() + 1, len(K)), z.dtype)
    for line in range(lines):
        for t in range(starts[line], starts[line + 1]):
            h[t] = diagonal[example[t]] * square[line] * scale[t] ** 2
            _mark(t, a, upper, floor, ceiling)
    line, quiet, steps = -1, 0, 0
    while quiet < lines and steps < max_steps:
        line = line + 1 if line + 1 < lines else 0
        s, t = starts[line], starts[line + 1]
        here, side, base, most = example[s:t], scale[s:t], z[s:t], step(0.0)
        for r in range(0, sums.shape[1], 2):
            p, q = step(read[line, r]), step(read[line, r + 1])
            first, second = total[sums[line, r]], total[sums[line, r + 1]]
            most = _read(base, side, here, p, first, q, second, floor[s:t], ceiling[s:t], now[s:t])
            base = now[s:t]
        if most <= eps:
            quiet += 1
            continue
        quiet = 0
        steps += 1
        i = s + _first_gradient(now[s:t], floor[s:t], ceiling[s:t], most)
        v, H, own = now[i], max(h[i], real(TINY)), scale[i] * square[line]
        floor[i], ceiling[i] = 0.0, 0.0  # not its own partner
        _gather(K[example[i]], here, side, row[s:t])
        part = now[s:t], floor[s:t], ceiling[s:t], row[s:t], h[s:t]
        best = _gains(*part, real(own * v / H), real(1.0 / H), real((own / H) ** 2), gains[s:t])
        side_i = 1.0 if v > 0.0 else -1.0
        room_i = upper[i] - a[i] if v > 0.0 else a[i]
        d, e, j = min(abs(v) / H, room_i), 0.0, i
        if best > 0.0:
            j = s + first_from(gains[s:t], best)
            w, L, q = now[j], max(h[j], real(TINY)), own * row[j]
            side_j = 1.0 if w > q * v / H else -1.0
            room_j = upper[j] - a[j] if side_j > 0.0 else a[j]
            d, e = _both(side_i * v, side_j * w, H, L, side_i * side_j * q, room_i, room_j)
            e = _move(j, side_j, e, a, upper, floor, ceiling)
        d = _move(i, side_i, d, a, upper, floor, ceiling)
        d, e = d * scale[i], e * scale[j]
        for r in range(sums.shape[1]):
            p = write[line, r]
            if p != 0.0:
                _add(total[sums[line, r]], step(p * d), K[example[i]], step(p * e), K[example[j]])
    return steps


# ---------------------------------------------------------------- the variables of an example share one bound


@jit
def _advance_codes(z, code, d, row, product, e, other, second):
    """z -= d row product[code] + e other second[code]."""
    for t in range(z.size):
        c = code[t]
        z[t] -= d * row[t] * product[c] + e * other[t] * second[c]


@jit
def _extremes(z, away, code, high, gaining, low, losing):
    """One variable of each example against its largest z so far and its smallest in use (away = 0, else FAR), and their codes."""
    for t in range(z.size):
        c, top, bottom, at_top, at_bottom = code[t], high[t], low[t], gaining[t], losing[t]
        here, there = z[t], z[t] + away[t]
        gaining[t] = c if here > top else at_top
        losing[t] = c if there < bottom else at_bottom
        high[t] = here if here > top else top
        low[t] = there if there < bottom else bottom


@jit
def _spreads(high, low, spread):
    """spread = high - low; returns the largest."""
    largest = spread.dtype.type(0.0)
    for t in range(high.size):
        spread[t] = high[t] - low[t]
        largest = fmax(largest, spread[t])
    return largest


@jit
def _gains_codes(high, low, gaining, losing, row, h, product, length, share, loss, products, lengths, gains):
    """As _gains, for the best step of each example: from the code `losing` to the code `gaining`; share = v / H, loss = 1 / H."""
    best = nothing = gains.dtype.type(0.0)
    least, codes = gains.dtype.type(ALIKE), product.size
    for t in range(row.size):
        up, down = gaining[t], losing[t]
        products[t] = row[t] * (product[up] - product[down])
        lengths[t] = h[t] * length[up * codes + down]
    for t in range(row.size):
        gains[t] = fmax(high[t] - low[t] - share * products[t], nothing)
    for t in range(row.size):
        gains[t] *= gains[t] / fmax(loss * (lengths[t] - loss * (products[t] * products[t])), least)
        best = fmax(best, gains[t])
    return best


@jit
def _ends(i, starts, z, away, code, high, gaining, low, losing):
    """The variables that example i's best step leads to and from; the slack's number is the last."""
    up = down = z.size
    for s in range(starts.size - 1):
        t = starts[s] + i
        if t >= starts[s + 1]:
            break
        if code[t] == gaining[i] and z[t] == high[i]:
            up = t
        if code[t] == losing[i] and z[t] + away[t] == low[i]:
            down = t
    return up, down


@jit
def _transfer(i, up, down, step, a, away, rest, bound):
    """`step` from variable down of example i to up; the last of a stands for what the example has left."""
    slack, nothing = a.size - 1, NOTHING * bound[i]
    a[slack] = rest[i]
    a[up] += step
    a[down] = a[down] - step if a[down] - step > nothing else 0.0
    rest[i] = a[slack]
    for t in (up, down):
        if t != slack:
            away[t] = 0.0 if a[t] > 0.0 else FAR


@jit
def solve_shared(K, h, starts, code, gram, a, z, bound, eps, max_steps):
    """Maximise over a >= 0 with sum <= bound in each example until no step between two of its rows has a gradient above eps.

    Examples i = 0, 1, ... of the kernel matrix K with its diagonal h have fewer and fewer variables: the first of each comes first,
    then the second of those that have two, ...: variable s of example i is starts[s] + i. a (N + 1,) has one more at its end,
    for the slack, z and code (N,) have not. gram holds the products of the codes; the last one, zero, is the slack's.
    """
    size, slots, codes = bound.size, starts.size - 1, gram.shape[0]
    real = z.dtype.type
    length = np.empty(codes * codes, z.dtype)  # squared, of the difference of two codes
    for c in range(codes):
        for s in range(codes):
            length[c * codes + s] = gram[c, c] + gram[s, s] - (gram[c, s] + gram[c, s])
    rest, away = bound.copy(), np.empty(z.size, z.dtype)
    for s in range(slots):
        for i in range(starts[s + 1] - starts[s]):
            t = starts[s] + i
            rest[i] -= a[t]
            away[t] = 0.0 if a[t] > 0.0 else FAR
    for i in range(size):
        rest[i] = rest[i] if rest[i] > NOTHING * bound[i] else 0.0
    high, low, gains = np.empty(size, z.dtype), np.empty(size, z.dtype), np.empty(size, z.dtype)
    products, lengths = np.empty(size, z.dtype), np.empty(size, z.dtype)
    gaining, losing = np.empty(size, code.dtype), np.empty(size, code.dtype)
    second = np.zeros(codes, z.dtype)
    for steps in range(max_steps):
        for t in range(size):
            high[t], low[t] = 0.0, 0.0 if rest[t] > 0.0 else FAR
            gaining[t] = losing[t] = codes - 1
        for s in range(slots):
            x, y = starts[s], starts[s + 1]
            _extremes(z[x:y], away[x:y], code[x:y], high, gaining, low, losing)
        v = _spreads(high, low, gains)
        if v <= eps:
            return steps
        i = first_from(gains, v)
        up, down = _ends(i, starts, z, away, code, high, gaining, low, losing)
        have = rest[i] if down == z.size else a[down]
        H = max(h[i] * length[gaining[i] * codes + losing[i]], TINY)
        product = gram[gaining[i]] - gram[losing[i]]
        low_i, low[i] = low[i], FAR  # not its own partner
        steps_of = high, low, gaining, losing, K[i], h
        best = _gains_codes(*steps_of, product, length, real(v / H), real(1.0 / H), products, lengths, gains)
        low[i] = low_i
        d, e, j = min(v / H, have), 0.0, i
        if best > 0.0:
            j = first_from(gains, best)
            second = gram[gaining[j]] - gram[losing[j]]
            L, q = max(lengths[j], TINY), products[j]
            gains_most, loses_least = _ends(j, starts, z, away, code, high, gaining, low, losing)
            has = rest[j] if loses_least == z.size else a[loses_least]
            d, e = _both(v, high[j] - low[j], H, L, q, have, has)
            _transfer(j, gains_most, loses_least, e, a, away, rest, bound)
        _transfer(i, up, down, d, a, away, rest, bound)
        for s in range(slots):
            x, y = starts[s], starts[s + 1]
            _advance_codes(z[x:y], code[x:y], real(d), K[i], product, real(e), K[j], second)
    return max_steps
