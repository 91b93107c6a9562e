"""One way to compile: no interpreter lock, compiled code kept on disk where some folder can be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# sums may be reordered and vectorised; callers let no NaN or infinity in
VECTOR_MATH = {"contract", "reassoc", "nsz", "nnan", "ninf", "arcp"}


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """numba.njit with the settings of this package; without the disk cache where no cache folder is writable."""
    try:
        return njit(cache=True, nogil=True, fastmath=VECTOR_MATH)(function)
    except RuntimeError:  # "no locator available": neither the package's folder nor the user's cache can be written
        return njit(nogil=True, fastmath=VECTOR_MATH)(function)


def _llvm_binary(name: str) -> Any:
    """A float64 function of two numbers that LLVM knows by name, so that loops with it become vector code (max and min do not)."""

    @intrinsic
    def function(context, a, b):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            real = ir.DoubleType()
            call = builder.module.declare_intrinsic(f"llvm.{name}", (real,), ir.FunctionType(real, [real, real]))
            return builder.call(call, args, fastmath=("fast",))

        return types.float64(types.float64, types.float64), code

    return function


fmax = _llvm_binary("maxnum")
fmin = _llvm_binary("minnum")
