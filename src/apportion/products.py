"""Products of the data with small matrices, always in double precision, and without a copy of data that are in single.

X (n, d), dense or CSR. What is in double is multiplied at once, what is in single a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from .solution import Array

VALUES = 1 << 17  # of the rows in double at a time: 1 MB


def raw_scores(X: Any, W: Array) -> Array:
    """X W' (n, m) for W (m, d)."""
    if X.dtype == np.float64:
        return np.asarray(X @ W.T)
    out = np.empty((X.shape[0], len(W)))
    for rows, part in _in_double(X):
        out[rows] = part @ W.T
    return out


def pull(X: Any, beta: Array) -> Array:
    """beta' X (m, d) for beta (n, m)."""
    if X.dtype == np.float64:
        return np.asarray((X.T @ beta).T)
    total = np.zeros((X.shape[1], beta.shape[1]))
    for rows, part in _in_double(X, total.size):
        total += part.T @ beta[rows]
    return total.T


def squared_lengths(X: Any) -> Array:
    """|x_i|^2 (n,)."""
    out = np.empty(X.shape[0])
    for rows, part in _in_double(X):
        squares = part.power(2).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", part, part)
        out[rows] = np.asarray(squares).ravel()
    return out


def _in_double(X: Any, room: int = 0) -> Iterator[tuple[slice, Any]]:
    """(rows, X[rows] in double) for a few rows at a time, of as many values as what they are summed up in."""
    values = X.nnz if sparse.issparse(X) else X.size
    step = max(max(VALUES, room) * X.shape[0] // max(values, 1), 1)
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        yield rows, X[rows].astype(np.float64, copy=False)
