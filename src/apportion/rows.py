"""A row of X in compiled loops: dense (n, d), or CSR as (data, indices, indptr).

Scores f (groups, lanes). Dense X goes with W (groups, lanes, d): long products. CSR goes with W (groups, d, lanes): the eight
weights of a feature are one cache line, and the loops over LANES are one vector instruction each.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from ._jit import csr_axpy8, csr_dot8, prefetch


def row_scores(X, i, W, f):
    """f = the scores of example i"""


def row_add(X, i, W, step):
    """W += step (outer) x_i"""


@overload(row_scores)
def _row_scores(X, i, W, f):
    if isinstance(X, types.Array):

        def dense(X, i, W, f):
            x = X[i]
            for g in range(f.shape[0]):
                for c in range(f.shape[1]):
                    w, total = W[g, c], 0.0
                    for t in range(x.size):
                        total += x[t] * w[t]
                    f[g, c] = total

        return dense

    def csr(X, i, W, f):
        data, indices, indptr = X
        start, stop = indptr[i], indptr[i + 1]
        for g in range(f.shape[0]):
            V, out = W[g], f[g]
            if out.size == 1:
                total = 0.0
                for t in range(start, stop):
                    total += data[t] * V[np.uint32(indices[t]), 0]
                out[0] = total
                continue
            out[:] = 0.0
            csr_dot8(data, indices, np.int64(start), np.int64(stop), V, out)

    return csr


@overload(row_add)
def _row_add(X, i, W, step):
    if isinstance(X, types.Array):

        def dense(X, i, W, step):
            x = X[i]
            for g in range(step.shape[0]):
                for c in range(step.shape[1]):
                    if step[g, c] != 0.0:
                        w, v = W[g, c], step[g, c]
                        for t in range(x.size):
                            w[t] += v * x[t]

        return dense

    def csr(X, i, W, step):
        data, indices, indptr = X
        start, stop = indptr[i], indptr[i + 1]
        for g in range(step.shape[0]):
            V, s = W[g], step[g]
            if s.size == 1:
                for t in range(start, stop):
                    V[np.uint32(indices[t]), 0] += data[t] * s[0]
                continue
            csr_axpy8(data, indices, np.int64(start), np.int64(stop), V, s)

    return csr


def row_prefetch(X, i):
    """Ask for row i ahead of its turn: rows are visited in random order, which the hardware cannot foresee."""


@overload(row_prefetch)
def _row_prefetch(X, i):
    if isinstance(X, types.Array):

        def dense(X, i):
            for t in range(0, min(X.shape[1], 256), 8):
                prefetch(X, i * X.shape[1] + t)

        return dense

    def csr(X, i):
        data, indices, indptr = X
        for t in range(indptr[i], min(indptr[i + 1], indptr[i] + 256), 8):
            prefetch(data, np.int64(t))
            prefetch(indices, np.int64(t))

    return csr
