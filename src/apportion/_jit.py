"""One way to compile: no interpreter lock, compiled code kept on disk where some folder can be written to."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# sums may be reordered and vectorised; callers let no NaN or infinity in
VECTOR_MATH = {"contract", "reassoc", "nsz", "nnan", "ninf", "arcp"}
FAST = ("fast",)  # the same where LLVM's code is written by hand


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """numba.njit with the settings of this package; without the disk cache where no cache folder is writable, or it is full."""
    try:
        compiled: Any = njit(cache=True, nogil=True, fastmath=VECTOR_MATH)(function)
    except (
        RuntimeError
    ):  # "no locator available": neither the package's folder nor the user's cache can be written
        return njit(nogil=True, fastmath=VECTOR_MATH)(function)
    cache = getattr(compiled, "_cache", None)  # there is none where numba is told not to compile
    if cache is None:
        return compiled
    save = cache.save_overload

    def save_if_possible(*code: Any) -> None:
        try:
            save(*code)
        except OSError:  # no space left, a quota spent: the next process compiles again
            with suppress(OSError, AttributeError):  # and is not led to the code of an older source
                os.unlink(cache._cache_file._index_path)

    cache.save_overload = save_if_possible
    return compiled


def _llvm_binary(name: str) -> Any:
    """A function of two numbers that LLVM knows by name, so that loops with it become vector code (max and min do not).

    Of float32 numbers it is float32, of all others float64.
    """

    @intrinsic
    def function(context, a, b):
        single = a == b == types.float32

        def code(context, builder, signature, args):
            real = ir.FloatType() if single else ir.DoubleType()
            call = builder.module.declare_intrinsic(
                f"llvm.{name}", (real,), ir.FunctionType(real, [real, real])
            )
            return builder.call(call, args, fastmath=FAST)

        kind = types.float32 if single else types.float64
        return kind(kind, kind), code

    return function


fmax = _llvm_binary("maxnum")
fmin = _llvm_binary("minnum")


# Loops over a part of an array go from a to z, two numpy.uintp: a slice would be counted in and out, which costs as much as the
# loop, and an index that may be negative makes no vector code.

# not the largest int32: LLVM then sees a search for the first index, and makes no vector code of it
NOWHERE = 2**30


@jit
def first_from(values, least, a, z):
    """The first t in a .. z - 1 with values_t >= least, in vector code: no way out of the loop."""
    first = np.int32(NOWHERE)
    for t in range(a, z):
        here = np.int32(t) if values[t] >= least else np.int32(NOWHERE)
        first = here if here < first else first
    return np.intp(first)


@intrinsic
def prefetch(context, array, index):
    """Ask for the cache line of array.flat[index] (C-contiguous) before it is needed."""

    def code(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [args[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        call = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        builder.call(call, [address, word(0), word(3), word(1)])  # for reading, into every level, data
        return context.get_dummy_value()

    return types.void(array, index), code


# Eight outputs at a time on a CSR row: W (d, 8) holds the weights of a feature in one cache line, which is one vector register.
LANES = 8
_REAL, _LONG = ir.DoubleType(), ir.IntType(64)
_VECTOR = ir.VectorType(_REAL, LANES)


def _csr_row_loop(body: Callable[..., None]) -> Any:
    """function(data, indices, start, stop, W, v): body(builder, x, pointer to W[indices[t]], pointer to v) for each t of a row."""

    @intrinsic
    def function(context, data, indices, start, stop, W, v):
        def code(context, builder, signature, args):
            def pointer(a):
                return context.make_array(signature.args[a])(context, builder, args[a]).data

            values, columns = pointer(0), pointer(1)
            lines = builder.bitcast(pointer(4), _VECTOR.as_pointer())
            outer = builder.bitcast(pointer(5), _VECTOR.as_pointer())
            held = cgutils.alloca_once_value(builder, builder.load(outer, align=8))  # stays in a register
            with cgutils.for_range_slice(builder, args[2], args[3], _LONG(1), _LONG) as (t, _):
                x = builder.load(builder.gep(values, [t]))
                x = x if x.type == _REAL else builder.fpext(x, _REAL)
                column = builder.load(builder.gep(columns, [t]))
                column = column if column.type == _LONG else builder.sext(column, _LONG)
                lane = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), x, ir.IntType(32)(0))
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
                lane = builder.shuffle_vector(lane, ir.Constant(_VECTOR, ir.Undefined), zeros)
                body(builder, lane, builder.gep(lines, [column]), held)
            builder.store(builder.load(held), outer, align=8)
            return context.get_dummy_value()

        return types.void(data, indices, start, stop, W, v), code

    return function


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=FAST), c, flags=FAST)


def _dot(builder: Any, x: Any, line: Any, held: Any) -> None:
    builder.store(_multiply_add(builder, x, builder.load(line, align=8), builder.load(held)), held)


def _axpy(builder: Any, x: Any, line: Any, held: Any) -> None:
    builder.store(_multiply_add(builder, x, builder.load(held), builder.load(line, align=8)), line, align=8)


csr_dot8 = _csr_row_loop(_dot)  # v += sum_t data[t] W[indices[t]]
csr_axpy8 = _csr_row_loop(_axpy)  # W[indices[t]] += data[t] v
