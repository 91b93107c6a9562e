"""Dual coordinate ascent: one example at a time, all its outputs at once.

The plain form of the solver and the reference of the others. Example i, of class y, owns the variables alpha_i (R,), one for
each row of the table, with 0 <= alpha_ir <= U_i weights[y, r] (shared slack: sum_r alpha_ir <= U_i weights[y]). With
f = W x_i + b its raw scores and h = |x_i|^2 + t its squared length, constant feature included, its part of the dual is

    max_d  sum_r d_r z_r - h/2 |sum_r d_r codes[y, r]|^2,      z_r = margins[y, r] - codes[y, r] . f,

solved in place; then W += x_i (outer) sum_r d_r codes[y, r]. The row x_i is loaded once and serves all outputs.

The machine is kept as W; the intercept is b = shift + t sum_i beta_i: the weight of a constant feature of value sqrt(t). The form
for kernels is in coupled.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ._jit import LANES, fmax, fmin, jit, prefetch
from .products import pull, squared_lengths
from .rows import row_add, row_prefetch, row_scores
from .solution import Array, Watch, relative
from .threads import go_on

AHEAD = 3  # rows asked for before their turn
INNER_SWEEPS = 20  # passes over the rows of one example
TINY, HUGE = 1e-12, 1e300
NEWS = 0.5  # seconds


@jit
def _shuffle(order, n, state):
    """Fisher-Yates on the first n entries; state (1,) uint64 of an xorshift generator."""
    x = state[0]
    for i in range(n - 1, 0, -1):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        j = np.int64(x % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    state[0] = x


# ---------------------------------------------------------------- outputs that share no slack: a few of them at a time


@jit
def _sweep_outputs(X, y, h, weight, sign, margin, box, t, b, order, active, W, total, alpha, reach):
    """One pass over the active examples for some outputs at intercepts b + t total, total[c] = sum_i beta_ic.

    Returns (how many stay active, the worst violation met).

    An example whose outputs are all settled at their bounds by more than reach[c], the violations of the pass before, is put aside.
    """
    m = total.size
    scores, change, worst = np.empty((1, m)), np.empty((1, m)), np.zeros(m)
    f, step = scores[0], change[0]
    p = 0
    while p < active:
        i = order[p]
        if p + AHEAD < active:
            row_prefetch(X, order[p + AHEAD])
            prefetch(alpha, order[p + AHEAD] * m)
        c_i = y[i]
        row_scores(X, i, W, scores)
        inverse, u_i, a_i = 1.0 / h[i], weight[i], alpha[i]
        s_i, margin_i, box_i = sign[c_i], margin[c_i], box[c_i]
        moved, loose = 0.0, 0.0
        for c in range(m):
            z = margin_i[c] - s_i[c] * (f[c] + b[c] + t * total[c])
            a = a_i[c]
            new = fmin(fmax(a + z * inverse, 0.0), box_i[c] * u_i)
            step[c] = s_i[c] * (new - a)
            a_i[c] = new
            worst[c] = fmax(worst[c], 0.0 if new == a else abs(z))
            moved = fmax(moved, abs(new - a))
            loose = fmax(loose, 1.0 if new != a or abs(z) <= reach[c] else 0.0)
        if moved > 0.0:
            row_add(X, i, W, change)
            for c in range(m):
                total[c] += step[c]
        if loose == 0.0:
            active -= 1
            order[p], order[active] = order[active], order[p]
        else:
            p += 1
    for c in range(m):
        reach[c] = worst[c]
    return active, np.max(worst)


@jit
def _certify_outputs(X, y, weight, sign, margin, box, b, W, alpha):
    """(hinge loss, sum of U [z]_+ - alpha z) over all examples and outputs at intercepts b."""
    m = b.size
    scores = np.empty((1, m))
    f = scores[0]
    hinge, gap = 0.0, 0.0
    for i in range(y.size):
        row_scores(X, i, W, scores)
        for c in range(m):
            z = margin[y[i], c] - sign[y[i], c] * (f[c] + b[c])
            slack = box[y[i], c] * weight[i] * max(z, 0.0)
            hinge += slack
            gap += slack - alpha[i, c] * z
    return hinge, gap


# ---------------------------------------------------------------- any table: all the rows of an example together


@jit
def _solve_box(z, a, upper, gram, h):
    """Coordinate ascent on a (R,) within [0, upper]; z is kept right. Returns the largest violation met in the first sweep."""
    first = 0.0
    for sweep in range(INNER_SWEEPS):
        worst = 0.0
        for r in range(a.size):
            new = min(max(a[r] + z[r] / max(h * gram[r, r], TINY), 0.0), upper[r])
            d = new - a[r]
            if d != 0.0:
                worst = max(worst, abs(z[r]))
                a[r] = new
                for s in range(a.size):
                    z[s] -= h * d * gram[r, s]
        if sweep == 0:
            first = worst
        if worst <= 0.01 * first:
            break
    return first


@jit
def _solve_shared(z, a, upper, gram, h):
    """The same with sum(a) <= upper[0]: steps between the row that gains most and the one that loses least; -1 is the slack."""
    first = 0.0
    rest, nothing = upper[0], 1e-14 * upper[0]  # what rounding leaves is nothing
    for r in range(a.size):
        a[r] = a[r] if a[r] > nothing else 0.0
        rest -= a[r]
    rest = rest if rest > nothing else 0.0
    for sweep in range(INNER_SWEEPS * a.size):
        up, down = -1, -1
        high, low = 0.0, (0.0 if rest > 0.0 else HUGE)
        for r in range(a.size):
            if z[r] > high:
                up, high = r, z[r]
            if a[r] > 0.0 and z[r] < low:
                down, low = r, z[r]
        violation = high - low
        if sweep == 0:
            first = max(violation, 0.0)
        if violation <= 0.01 * first or violation <= 0.0:
            break
        length = 0.0
        if up >= 0:
            length += gram[up, up]
        if down >= 0:
            length += gram[down, down]
            if up >= 0:
                length -= 2.0 * gram[up, down]
        have = a[down] if down >= 0 else rest
        d = min(violation / max(h * length, TINY), have)
        if up >= 0:
            a[up] += d
        else:
            rest += d
        if down >= 0:
            a[down] = a[down] - d if have - d > nothing else 0.0
        else:
            rest = rest - d if have - d > nothing else 0.0
        for s in range(a.size):
            change = 0.0
            if up >= 0:
                change += gram[up, s]
            if down >= 0:
                change -= gram[down, s]
            z[s] -= h * d * change
    return first


@jit
def _solve_example(f, codes, margins, upper, gram, h, shared, a, z, before, step):
    """Optimise the variables a (R,) of one example with scores f (m,); step (m,): change of its beta. Returns the violation."""
    for r in range(a.size):
        code, total = codes[r], 0.0
        for c in range(f.size):
            total += code[c] * f[c]
        z[r] = margins[r] - total
        before[r] = a[r]
    violation = _solve_shared(z, a, upper, gram, h) if shared else _solve_box(z, a, upper, gram, h)
    step[:] = 0.0
    if violation > 0.0:
        for r in range(a.size):
            d = a[r] - before[r]
            if d != 0.0:
                code = codes[r]
                for c in range(f.size):
                    step[c] += d * code[c]
    return violation


@jit
def _sweep_table(
    X,
    y,
    h,
    weight,
    codes,
    margins,
    boxes,
    gram,
    shared,
    t,
    b,
    order,
    active,
    W,
    total,
    alpha,
    reach,
    scores,
    change,
):
    """As _sweep_outputs, for any table; scores and change (groups, lanes) are room to work in, reach (1,)."""
    R, m = codes.shape[1:]
    f, step = scores.reshape(m), change.reshape(m)
    z, before, upper = np.empty(R), np.empty(R), np.empty(R)
    worst = 0.0
    p = 0
    while p < active:
        i = order[p]
        c_i = y[i]
        row_scores(X, i, W, scores)
        for c in range(m):
            f[c] += b[c] + t * total[c]
        for r in range(R):
            upper[r] = boxes[c_i, r] * weight[i]
        violation = _solve_example(
            f, codes[c_i], margins[c_i], upper, gram[c_i], h[i], shared, alpha[i], z, before, step
        )
        if violation > 0.0:
            worst = max(worst, violation)
            row_add(X, i, W, change)
            for c in range(m):
                total[c] += step[c]
            p += 1
            continue
        settled = True
        for r in range(R):
            if shared:
                settled &= alpha[i, r] == 0.0 and z[r] < -reach[0]
            else:
                settled &= abs(z[r]) > reach[0] or upper[r] == 0.0
        if settled:
            active -= 1
            order[p], order[active] = order[active], order[p]
        else:
            p += 1
    reach[0] = worst
    return active, worst


@jit
def _certify_table(X, y, weight, codes, margins, boxes, shared, b, W, alpha, scores):
    """As _certify_outputs, for any table."""
    R, m = codes.shape[1:]
    f = scores.reshape(m)
    hinge, gap = 0.0, 0.0
    for i in range(y.size):
        row_scores(X, i, W, scores)
        largest = 0.0
        for r in range(R):
            z = margins[y[i], r]
            for c in range(m):
                z -= codes[y[i], r, c] * (f[c] + b[c])
            slack = boxes[y[i], r] * weight[i] * max(z, 0.0)
            gap -= alpha[i, r] * z
            largest = max(largest, slack)
            if not shared:
                hinge += slack
                gap += slack
        if shared:
            hinge += largest
            gap += largest
    return hinge, gap


# ---------------------------------------------------------------- the drivers


def _aligned(shape: tuple[int, ...]) -> Array:
    """Zeros that start at a cache line."""
    buffer = np.zeros(int(np.prod(shape)) + LANES)
    skip = -(buffer.ctypes.data // 8) % LANES
    return buffer[skip : skip + int(np.prod(shape))].reshape(shape)


def _ascend(
    sweep: Callable[[Any, int], tuple[int, float]],
    certify: Callable[[], tuple[float, float]],
    forget: Callable[[], None],
    n: int,
    *,
    scale: float,
    tol: float,
    max_iter: int,
    watch: Watch | None,
) -> tuple[float, float, int]:
    """Sweeps over random orders of the active examples; at rest, a certificate over all, and on if the gap is still too large.

    `watch` hears of each certificate, and of one more where it has not heard for `NEWS` seconds. Returns (primal, gap, sweeps).
    """
    order, active = np.arange(n), n
    state = np.array([88172645463325252], dtype=np.uint64)
    eps, heard = 0.1 * scale, time.monotonic()
    for iteration in range(1, max_iter + 1):
        go_on()
        _shuffle(order, active, state)
        active, worst = sweep(order, active)
        rest = worst <= eps or active == 0 or iteration == max_iter
        if rest or (watch is not None and time.monotonic() > heard + NEWS):
            primal, gap = certify()
            late, heard = watch is not None and watch(iteration, relative(gap, primal)), time.monotonic()
            if late or (rest and gap <= tol * primal):
                break
        if rest:
            eps = min(eps, max(worst, 1e-15 * scale)) * min(max(0.5 * tol * primal / gap, 0.05), 0.5)
            active = n
            forget()
    return primal, gap, iteration


def _csr_or_dense(X: Any) -> Any:
    """X in the form the compiled loops take."""
    return (X.data, X.indices, X.indptr) if sparse.issparse(X) else X


def solve_outputs(
    X: Any,
    y: NDArray[np.intp],
    weight: Array,
    sign: Array,
    margin: Array,
    box: Array,
    t: float,
    *,
    tol: float,
    max_iter: int,
    shift: Array | None = None,
    base: Array | None = None,
    alpha: Array | None = None,
    watch: Watch | None = None,
) -> tuple[Array, Array, Array, float, float, int]:
    """A few outputs that share no slack: sign, margin, box (m, k) with m <= LANES; X dense or CSR.

    With `base` (m, d) the penalty is 1/2 |W - base|^2: what examples held elsewhere pull, as `shift` for the intercept.
    Returns W (m, d), intercepts (m,), alpha (n, m), primal, gap and the number of sweeps.
    """
    rows = _csr_or_dense(X)
    (n, d), m, k = X.shape, *sign.shape
    csr = isinstance(rows, tuple)
    lanes = LANES if csr and m > 1 else m
    padded = np.zeros((4, k, lanes))  # outputs that do not exist have no room to move
    padded[1] = -HUGE
    padded[0, :, :m], padded[1, :, :m], padded[2, :, :m] = sign.T, margin.T, box.T
    signs, margins, boxes = padded[:3]
    b = np.zeros(lanes)
    b[:m] = 0.0 if shift is None else shift
    a = _aligned((n, lanes))
    W = _aligned((1, d, lanes) if csr else (1, lanes, d))
    total = np.zeros(lanes)
    if alpha is not None:
        a[:, :m] = np.clip(alpha, 0.0, boxes[y][:, :m] * weight[:, None])
        beta = a[:, :m] * signs[y][:, :m]
        total[:m] = beta.sum(axis=0)
        own = pull(X, beta)  # (m, d)
        W[0] = np.pad(own.T, ((0, 0), (0, lanes - m))) if csr else own
    fixed: Any = 0.0
    if base is not None:
        fixed = np.zeros_like(W)
        (fixed[0, :, :m] if csr else fixed[0].T)[:] = base.T
        W += fixed
    h = np.maximum(squared_lengths(X) + t, TINY)
    reach = np.full(lanes, HUGE)

    def sweep(order: Any, active: int) -> tuple[int, float]:
        return _sweep_outputs(
            rows, y, h, weight, signs, margins, boxes, t, b, order, active, W, total, a, reach
        )

    def certify() -> tuple[float, float]:
        hinge, gap = _certify_outputs(rows, y, weight, signs, margins, boxes, b + t * total, W, a)
        return 0.5 * float(((W - fixed) ** 2).sum() + t * (total**2).sum()) + hinge, gap

    primal, gap, sweeps = _ascend(
        sweep,
        certify,
        lambda: reach.fill(HUGE),
        n,
        scale=float(np.abs(margin).max()),
        tol=tol,
        max_iter=max_iter,
        watch=watch,
    )
    coef = W[0, :, :m].T if csr else W[0, :m]
    return np.array(coef), (b + t * total)[:m], np.array(a[:, :m]), primal, gap, sweeps


def solve_table(
    X: Any,
    y: NDArray[np.intp],
    weight: Array,
    codes: Array,
    margins: Array,
    boxes: Array,
    shared: bool,
    t: float,
    *,
    tol: float,
    max_iter: int,
    shift: Array | None = None,
    base: Array | None = None,
    alpha: Array | None = None,
    watch: Watch | None = None,
) -> tuple[Array, Array, Array, float, float, int]:
    """Any table: codes (k, R, m), margins and boxes (k, R). Returns as `solve_outputs`, with alpha (n, R)."""
    rows = _csr_or_dense(X)
    (n, d), (R, m) = X.shape, codes.shape[1:]
    csr = isinstance(rows, tuple)
    groups, lanes = (-(-m // LANES), LANES) if csr else (1, m)
    wide = np.pad(codes, ((0, 0), (0, 0), (0, groups * lanes - m)))
    gram = np.einsum("krm,ksm->krs", codes, codes)
    b = np.zeros(groups * lanes)
    b[:m] = 0.0 if shift is None else shift
    a = np.zeros((n, R))
    W = _aligned((groups, d, lanes) if csr else (1, m, d))
    total = np.zeros(groups * lanes)
    if alpha is not None:
        a[:] = feasible(alpha, boxes[y] * weight[:, None], shared)
        beta = np.empty((n, groups * lanes))
        for c in range(len(codes)):  # no (n, R, m) array
            members = y == c
            beta[members] = a[members] @ wide[c]
        total[:] = beta.sum(axis=0)
        own = pull(X, beta)
        W[:] = own.T.reshape(d, groups, lanes).transpose(1, 0, 2) if csr else own[None]
    fixed: Any = 0.0
    if base is not None:
        wide_base = np.pad(base.T, ((0, 0), (0, groups * lanes - m)))  # (d, outputs)
        fixed = wide_base.reshape(d, groups, lanes).transpose(1, 0, 2) if csr else wide_base.T[None]
        W += fixed
    h = np.maximum(squared_lengths(X) + t, TINY)
    reach = np.full(1, HUGE)
    scores, change = np.empty((2, groups, lanes))

    def sweep(order: Any, active: int) -> tuple[int, float]:
        state = (order, active, W, total, a, reach, scores, change)
        return _sweep_table(rows, y, h, weight, wide, margins, boxes, gram, shared, t, b, *state)

    def certify() -> tuple[float, float]:
        hinge, gap = _certify_table(
            rows, y, weight, wide, margins, boxes, shared, b + t * total, W, a, scores
        )
        return 0.5 * float(((W - fixed) ** 2).sum() + t * (total**2).sum()) + hinge, gap

    primal, gap, sweeps = _ascend(
        sweep,
        certify,
        lambda: reach.fill(HUGE),
        n,
        scale=float(np.abs(margins).max()),
        tol=tol,
        max_iter=max_iter,
        watch=watch,
    )
    coef = W.transpose(1, 0, 2).reshape(d, -1)[:, :m].T if csr else W[0]
    return np.array(coef), (b + t * total)[:m], a, primal, gap, sweeps


def feasible(alpha: Array, upper: Array, shared: bool) -> Array:
    """alpha (n, R) brought inside its bounds."""
    a = np.clip(alpha, 0.0, upper)
    if shared:
        bound, spent = upper[:, :1], a.sum(axis=1, keepdims=True)
        a *= bound / np.maximum(np.maximum(spent, bound), np.finfo(float).tiny)
    return a
