"""What the solvers by working sets share: samples that grow, panels of kernel values that update scores, precision in cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._jit import jit
from .kernels import COLUMNS, ROWS, Kernel, Remembered
from .solution import Array
from .threads import Each

Members = NDArray[np.intp]

WHOLE = 400  # samples up to about this size are solved with their whole kernel matrix
GROWTH = 4  # each sample is this much larger than the one before
SAMPLE_TOL = 0.1  # relative gap at which a sample has taught enough
SERIAL = 4000  # a round on fewer examples is over before a second thread has begun
ROUNDING = 1e-5  # of float32 numbers after many steps, as a share of the largest


def nested_samples(starts: Members) -> list[Members]:
    """Index sets, each holding the one before, with the class shares of the whole; the last is everything."""
    rng = np.random.default_rng(0)
    orders = [rng.permutation(np.arange(a, z)) for a, z in zip(starts[:-1], starts[1:], strict=True)]
    n = int(starts[-1])
    sizes = [n]
    while sizes[0] > 1.5 * WHOLE:
        sizes.insert(0, max(sizes[0] // GROWTH, WHOLE))
    return [
        np.sort(np.concatenate([order[: -(-len(order) * size // n)] for order in orders])) for size in sizes
    ]


def workers(n: int, each: Each) -> Each:
    """The map to use on n examples: `each` where threads pay."""
    return map if n < SERIAL else each


def precision(K: NDArray[Any], gradient: Array, eps: float) -> Any:
    """Of the gradient while a working set is solved to eps: that of its kernel matrix K, unless rounding could come near eps."""
    return K.dtype if eps > ROUNDING * np.abs(gradient).max() else gradient.dtype


@jit
def _axpy4(total, v0, v1, v2, v3, p0, p1, p2, p3):
    for c in range(total.size):
        total[c] += v0 * p0[c] + v1 * p1[c] + v2 * p2[c] + v3 * p3[c]


@jit
def _axpy(total, v, p):
    for c in range(total.size):
        total[c] += v * p[c]


@jit
def _apply(step, block, places, width, E, outputs, start):
    """E[outputs, start : start + width] -= step @ block[places, :width].

    Zeros of step are skipped: an output changes few of the rows.
    """
    total = np.empty(width)  # float32 blocks are summed up in double, four rows at a time
    changed = np.empty(places.size, np.int64)
    for r in range(outputs.size):
        v, count = step[r], 0
        for q in range(v.size):
            if v[q] != 0.0:
                changed[count] = q
                count += 1
        if count == 0:
            continue
        total[:] = 0.0
        q = 0
        while q + 4 <= count:
            q0, q1, q2, q3 = changed[q], changed[q + 1], changed[q + 2], changed[q + 3]
            k0, k1 = block[places[q0], :width], block[places[q1], :width]
            k2, k3 = block[places[q2], :width], block[places[q3], :width]
            _axpy4(total, v[q0], v[q1], v[q2], v[q3], k0, k1, k2, k3)
            q += 4
        while q < count:
            _axpy(total, v[changed[q]], block[places[changed[q]], :width])
            q += 1
        target = E[outputs[r], start : start + width]
        for c in range(width):
            target[c] -= total[c]


def panel(kernel: Kernel, rows: Members, step: Array, outputs: Members, E: Array, each: Each) -> None:
    """E[outputs] -= step @ K[rows], tile by tile; each kernel value is computed, or read from the cache, once for all outputs."""
    step = step.astype(kernel.dtype)
    blocks: Any = kernel.blocks
    known = np.empty(0, np.intp)  # slots of the rows that the cache held before
    if isinstance(kernel, Remembered):
        known, blocks, tile = kernel.slot[rows], kernel.fill, kernel.tile
        order = np.argsort(known < 0, kind="stable")  # these come first
        rows, step, known = rows[order], step.take(order, axis=1), known[known >= 0]
        kernel.reserve(rows)
    places, new = np.arange(ROWS), rows[len(known) :]

    def one(start: int) -> None:
        cols = slice(start, min(start + COLUMNS, kernel.n))
        width = cols.stop - start
        for r in range(0, len(known), ROWS):
            slots = known[r : r + ROWS]
            _apply(step[:, r : r + len(slots)], tile(cols), slots, width, E, outputs, start)
        for at, block in blocks(new, cols):  # used while it is in the processor's cache
            _apply(step[:, len(known) :][:, at], block, places[: len(block)], width, E, outputs, start)

    list(each(one, range(0, kernel.n, COLUMNS)))
