"""What the solvers by working sets share: samples that grow, panels of kernel values that update scores, precision in cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._jit import jit
from .kernels import ROWS, Kernel, Remembered, tile_width
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
def _add4(total, block, p0, p1, p2, p3, v0, v1, v2, v3):
    """total += v0 block[p0] + .. + v3 block[p3]"""
    for c in range(total.size):
        total[c] += v0 * block[p0, c] + v1 * block[p1, c] + v2 * block[p2, c] + v3 * block[p3, c]


@jit
def _apply(step, block, places, E, outputs, start):
    """E[outputs, start:] -= step @ block[places], as wide as the block.

    Zeros of step are skipped: an output changes few of the rows.
    """
    width = block.shape[1]
    total = np.empty(width)  # float32 blocks are summed up in double, four rows at a time
    changed, v = np.empty(places.size + 3, places.dtype), np.empty(places.size + 3, step.dtype)
    for r in range(outputs.size):
        count = 0
        for q in range(places.size):
            changed[count], v[count] = places[q], step[r, q]
            count += step[r, q] != 0.0
        if count == 0:
            continue
        changed[count : count + 3], v[count : count + 3] = changed[0], 0.0  # the last four rows are four
        total[:] = 0.0
        for q in range(0, count, 4):
            p0, p1, p2, p3 = changed[q], changed[q + 1], changed[q + 2], changed[q + 3]
            _add4(total, block, p0, p1, p2, p3, v[q], v[q + 1], v[q + 2], v[q + 3])
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
    places, new, width = np.arange(ROWS), rows[len(known) :], tile_width(kernel.n)

    def one(start: int) -> None:
        cols = slice(start, min(start + width, kernel.n))
        for r in range(0, len(known), ROWS):
            slots = known[r : r + ROWS]
            _apply(step[:, r : r + len(slots)], tile(cols), slots, E, outputs, start)
        for at, block in blocks(new, cols):  # used while it is in the processor's cache
            _apply(step[:, len(known) :][:, at], block, places[: len(block)], E, outputs, start)

    list(each(one, range(0, kernel.n, width)))
