"""Products and distances of many pairs of examples, tile by tile: the sums of a tile stay in registers while the features go by.

    out[i, c] = sum_t left[i, t] right[c, t]        or        - sum_t |left[i, t] - right[c, t]|

`right` is packed: packed[g, t, c] = right[g * width + c, t], so that what a step of the sum reads lies together. A tile is `HEIGHT`
rows of left against one group of `width` columns, as large as the vector registers of the machine at hand allow: a number read from
memory serves HEIGHT or width sums. In single precision exp may follow while the tile is still in cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numpy.typing import NDArray

from ._jit import FAST, fmax, jit

Block = NDArray[Any]

# "+avx,-avx512f,...": what numba compiles for and names its compiled code on disk by, not what this machine could do beyond
_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
# bytes of a vector register, and how many of them stand side by side in a tile: 24 of 32 registers hold sums, or 12 of 16
_BYTES = 64 if "+avx512f" in _FEATURES else 32 if "+avx" in _FEATURES else 16
_VECTORS = 4 if _BYTES == 64 or "+neon" in _FEATURES else 2
HEIGHT = 6
SINGLE, DOUBLE = (_BYTES * _VECTORS // size for size in (4, 8))  # columns of a group, by precision


def _tile(step: Callable[..., Any]) -> Any:
    """function(left, first, last, packed, start, depth, sums): a tile of sums over t < depth.

    With each t a sum s becomes step(builder, s, x, z). Row r of the tile is row min(first + r, last) of left; its group of columns
    begins at packed.flat[start].
    """

    @intrinsic
    def function(context, left, first, last, packed, start, depth, sums):
        real = ir.FloatType() if left.dtype == types.float32 else ir.DoubleType()
        lanes = _BYTES // (4 if left.dtype == types.float32 else 8)
        vector, word, index = ir.VectorType(real, lanes), ir.IntType(32), ir.IntType(64)
        undefined, everywhere = (
            ir.Constant(vector, ir.Undefined),
            ir.Constant(ir.VectorType(word, lanes), [0] * lanes),
        )

        def code(context, builder, signature, args):
            def pointer(a):
                return context.make_array(signature.args[a])(context, builder, args[a]).data

            _, first, last, _, start, depth, _ = args
            rows = []
            for r in range(HEIGHT):
                row = builder.add(first, index(r))
                row = builder.select(builder.icmp_signed("<", row, last), row, last)
                rows.append(builder.gep(pointer(0), [builder.mul(row, depth)]))
            zero = ir.Constant(vector, [0.0] * lanes)
            tile = [
                [cgutils.alloca_once_value(builder, zero) for _ in range(_VECTORS)] for _ in range(HEIGHT)
            ]
            for place in (place for row in tile for place in row):
                builder.store(zero, place)
            group = builder.gep(pointer(3), [start])
            with cgutils.for_range(builder, depth, intp=index) as loop:
                line = builder.gep(group, [builder.mul(loop.index, index(_VECTORS * lanes))])
                line = builder.bitcast(line, vector.as_pointer())
                z = [builder.load(builder.gep(line, [word(v)]), align=4) for v in range(_VECTORS)]
                for r in range(HEIGHT):
                    x = builder.load(builder.gep(rows[r], [loop.index]))
                    x = builder.insert_element(undefined, x, word(0))
                    x = builder.shuffle_vector(x, undefined, everywhere)
                    for v in range(_VECTORS):
                        builder.store(step(builder, builder.load(tile[r][v]), x, z[v]), tile[r][v])
            out = builder.bitcast(pointer(6), vector.as_pointer())
            for r in range(HEIGHT):
                for v in range(_VECTORS):
                    place = builder.gep(out, [word(r * _VECTORS + v)])
                    builder.store(builder.load(tile[r][v]), place, align=4)
            return context.get_dummy_value()

        return types.void(left, types.int64, types.int64, packed, types.int64, types.int64, sums), code

    return function


def _add_product(builder: Any, s: Any, x: Any, z: Any) -> Any:
    return builder.fadd(s, builder.fmul(x, z, flags=FAST), flags=FAST)


def _subtract_distance(builder: Any, s: Any, x: Any, z: Any) -> Any:
    name = f"llvm.fabs.v{s.type.count}{s.type.element.intrinsic_name}"
    size = cgutils.get_or_insert_function(builder.module, ir.FunctionType(s.type, [s.type]), name)
    return builder.fsub(s, builder.call(size, [builder.fsub(x, z, flags=FAST)], fastmath=FAST), flags=FAST)


_product_tile = _tile(_add_product)
_distance_tile = _tile(_subtract_distance)


@jit
def exp_single(x):
    """exp of float32 numbers <= 0, in place: 2^n (1 + r + .. + r^6 / 720) with |r| <= log(2) / 2.

    To 5e-7 of itself, and always to 2e-7 of 1; without fused multiply-add, which few machines lack, small values are off by 5e-6 of
    themselves.
    """
    for i in range(x.size):
        v = fmax(x[i], np.float32(-87.0))  # less is no normal number; exp is then 2e-38 at most
        n = np.int32(v * np.float32(1.44269504) - np.float32(0.5))  # to the nearest: v is not positive
        r = v - np.float32(n) * np.float32(0.69314718)
        p = np.float32(1 / 720) * r + np.float32(1 / 120)
        p = p * r + np.float32(1 / 24)
        p = p * r + np.float32(1 / 6)
        p = p * r + np.float32(0.5)
        p = p * r + np.float32(1.0)
        p = p * r + np.float32(1.0)
        bits = np.float32(p).view(np.int32) + (n << np.int32(23))  # n more in the exponent: times 2^n
        x[i] = np.int32(bits).view(np.float32)


@jit
def _pack(right, rows, packed):
    """packed (groups, d, width) of right[rows]; what is beyond the last row is zero."""
    _, depth, width = packed.shape
    for i in range(rows.size):
        x, group, c = right[rows[i]], packed[i // width], i % width
        for t in range(depth):
            group[t, c] = x[t]
    packed[-1, :, rows.size - (len(packed) - 1) * width :] = 0


def pack(right: Block, rows: NDArray[np.intp] | None = None) -> Block:
    """right (n, d), or some rows of it, in groups of columns: (groups, d, width)."""
    rows = np.arange(len(right)) if rows is None else rows
    width = SINGLE if right.dtype == np.float32 else DOUBLE
    packed = np.empty((-(-len(rows) // width), right.shape[1], width), right.dtype)
    if len(rows):
        _pack(right, rows, packed)
    return packed


@jit
def _copy(x, out):
    for i in range(x.size):
        out[i] = x[i]


@jit
def fill(left, packed, out, distances, exponential):
    """out (m, n) from left (m, d) and the first n packed columns: products, or minus the absolute distances.

    `exponential` is None, or True for exp of these in single precision: of None the compiler leaves out the branch.
    """
    (m, depth), width = left.shape, packed.shape[2]
    sums = np.empty((HEIGHT, width), left.dtype)
    for g in range((out.shape[1] + width - 1) // width):
        start, stop = g * width, min(out.shape[1], (g + 1) * width)
        for i in range(0, m, HEIGHT):
            if distances:
                _distance_tile(left, i, m - 1, packed, g * depth * width, depth, sums)
            else:
                _product_tile(left, i, m - 1, packed, g * depth * width, depth, sums)
            if exponential is not None:
                exp_single(sums.reshape(-1))
            for r in range(min(HEIGHT, m - i)):
                _copy(sums[r, : stop - start], out[i + r, start:stop])
