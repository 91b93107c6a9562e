"""Kernel blocks K[rows, cols] of a fixed set of examples, computed where they are needed and never all at once.

Three sources share one interface: `n`, `diagonal()`, `block(rows, cols)`, `blocks(rows, cols)` (the same, some rows at a time),
`take(index)` (the same kernel on some of the examples):

    Points       dense data; rbf, linear, poly and sigmoid are one matrix product and one elementwise function, laplacian a loop
    Pairwise     sparse data and callables, through scikit-learn's pairwise_kernels
    Precomputed  the user's own kernel matrix

`Remembered` adds a cache of rows, bounded in bytes, to a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels

from ._jit import fmax, jit

Block = NDArray[Any]
Index = Any  # integer array or slice

# of a tile, which is computed and used while it stays in the second-level cache
ROWS, COLUMNS = 240, 1000


class Kernel(Protocol):
    """What the solvers ask of a kernel."""

    n: int
    dtype: Any

    def diagonal(self) -> NDArray[np.float64]: ...

    def block(self, rows: Index, cols: Index) -> Block:
        """A new array, which the caller may write to."""
        ...

    def blocks(
        self, rows: NDArray[np.intp], cols: Index, out: Block | None = None
    ) -> Iterator[tuple[slice, Block]]:
        """(which rows, their block), `ROWS` at a time: in `out` (rows, cols) if given, else each may lie where the last lay."""
        ...

    def take(self, index: NDArray[np.intp]) -> Kernel: ...


def _blocks(
    kernel: Kernel, rows: NDArray[np.intp], cols: Index, out: Block | None
) -> Iterator[tuple[slice, Block]]:
    for start in range(0, len(rows), ROWS):
        at = slice(start, start + ROWS)
        block = kernel.block(rows[at], cols)
        if out is not None:
            out[at] = block
        yield at, block


def _diagonal(kernel: Kernel) -> NDArray[np.float64]:
    """K[i, i] for all i, in small blocks."""
    parts = [slice(i, i + 64) for i in range(0, kernel.n, 64)]
    return np.concatenate([np.diagonal(kernel.block(p, p)) for p in parts]).astype(float)


@jit
def _laplacian(left, right_t, out):
    """out[i, c] = exp(-sum_t |left[i, t] - right_t[t, c]|); four rows at a time share each load of a column."""
    rows, d = left.shape
    cols = right_t.shape[1]
    for i in range(0, rows - 3, 4):
        o0, o1, o2, o3 = out[i], out[i + 1], out[i + 2], out[i + 3]
        for c in range(cols):
            o0[c] = o1[c] = o2[c] = o3[c] = 0.0
        for t in range(d):
            v = right_t[t]
            x0, x1, x2, x3 = left[i, t], left[i + 1, t], left[i + 2, t], left[i + 3, t]
            for c in range(cols):
                o0[c] -= abs(x0 - v[c])
                o1[c] -= abs(x1 - v[c])
                o2[c] -= abs(x2 - v[c])
                o3[c] -= abs(x3 - v[c])
    for i in range(rows - rows % 4, rows):
        o0 = out[i]
        for c in range(cols):
            o0[c] = 0.0
        for t in range(d):
            v = right_t[t]
            x0 = left[i, t]
            for c in range(cols):
                o0[c] -= abs(x0 - v[c])


@jit
def _exp_single(x):
    """exp of float32 numbers <= 0, in place, to 5e-7 of itself: 2^n (1 + r + .. + r^6 / 720) with |r| <= log(2) / 2.

    Much faster than numpy's: with few features a fit would else spend most of its time there.
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


def _exp(x: Block) -> Block:
    """In place, of numbers <= 0 up to rounding."""
    if x.dtype == np.float32:
        _exp_single(x.reshape(-1))
        return x
    return np.exp(x, out=x)


def _product(left: Block, right: Block, out: Block | None = None) -> Block:
    return np.matmul(left, right.T, out=out)


def _exp_of_product(left: Block, right: Block, out: Block | None = None) -> Block:
    return _exp(np.matmul(left, right.T, out=out))


def _exp_of_distance(left: Block, right: Block, out: Block | None = None) -> Block:
    out = np.empty((len(left), len(right)), left.dtype) if out is None else out
    _laplacian(left, np.ascontiguousarray(right.T), out)
    return _exp(out)


@dataclass
class Powers:
    """(left . right + coef0) ** degree"""

    coef0: float
    degree: float

    def __call__(self, left: Block, right: Block, out: Block | None = None) -> Block:
        out = np.matmul(left, right.T, out=out)
        out += left.dtype.type(self.coef0)
        return np.power(out, left.dtype.type(self.degree), out=out)


@dataclass
class Sigmoid:
    """tanh(left . right + coef0)"""

    coef0: float

    def __call__(self, left: Block, right: Block, out: Block | None = None) -> Block:
        out = np.matmul(left, right.T, out=out)
        out += left.dtype.type(self.coef0)
        return np.tanh(out, out=out)


def _rows(data: Block, index: Index) -> Block:
    """data[index]; `take` is faster than brackets."""
    return data[index] if isinstance(index, slice) else data.take(index, axis=0)


@dataclass
class Points:
    """Dense examples; K[i, j] = evaluate(left[i], right[j])."""

    left: Block  # (n, d')
    right: Block  # (n, d')
    evaluate: Callable[..., Block]  # (left, right, out)
    n: int = field(init=False)
    dtype: Any = field(init=False)

    def __post_init__(self) -> None:
        self.n, self.dtype = len(self.left), self.left.dtype

    def diagonal(self) -> NDArray[np.float64]:
        radial = self.evaluate in (_exp_of_product, _exp_of_distance)
        return np.ones(self.n) if radial else _diagonal(self)

    def block(self, rows: Index, cols: Index) -> Block:
        return self.evaluate(_rows(self.left, rows), _rows(self.right, cols))

    def blocks(
        self, rows: NDArray[np.intp], cols: Index, out: Block | None = None
    ) -> Iterator[tuple[slice, Block]]:
        right = np.asfortranarray(self.right[cols])  # so that its transpose lies in the order of the product
        # memory that is in cache already costs far less than new
        buffer = np.empty((min(ROWS, len(rows)) if out is None else 0, len(right)), self.dtype)
        for start in range(0, len(rows), ROWS):
            at = slice(start, start + ROWS)
            left = self.left.take(rows[at], axis=0)
            yield at, self.evaluate(left, right, buffer[: len(left)] if out is None else out[at])

    def take(self, index: NDArray[np.intp]) -> Points:
        return Points(_rows(self.left, index), _rows(self.right, index), self.evaluate)


@dataclass
class Pairwise:
    """Any kernel scikit-learn can compute, on any data it takes."""

    X: Any
    metric: Any
    params: dict[str, Any]
    dtype: Any = np.float64
    n: int = field(init=False)

    def __post_init__(self) -> None:
        self.n = self.X.shape[0]

    def diagonal(self) -> NDArray[np.float64]:
        return np.array(
            [self.block(slice(i, i + 1), slice(i, i + 1))[0, 0] for i in range(self.n)], dtype=float
        )

    def block(self, rows: Index, cols: Index) -> Block:
        return self._evaluate(self.X[rows], self.X[cols])

    def blocks(
        self, rows: NDArray[np.intp], cols: Index, out: Block | None = None
    ) -> Iterator[tuple[slice, Block]]:
        return _blocks(self, rows, cols, out)

    def against(self, X: Any) -> Block:
        """K of other examples with these."""
        return self._evaluate(X, self.X)

    def _evaluate(self, left: Any, right: Any) -> Block:
        if callable(self.metric):
            out: Any = np.array(self.metric(left, right, **self.params))  # a copy: it may be the user's
            if out.shape != (left.shape[0], right.shape[0]):
                raise ValueError(
                    f"the callable kernel gave shape {out.shape} for {left.shape[0]} and {right.shape[0]} rows; it must take "
                    "two matrices and return the matrix of their kernel values."
                )
            if not np.all(np.isfinite(out)):
                raise ValueError(
                    "the callable kernel gave NaN or infinity; its values must be finite numbers."
                )
        else:
            out = pairwise_kernels(left, right, metric=self.metric, filter_params=True, **self.params)
        return np.asarray(out.toarray() if sparse.issparse(out) else out, dtype=self.dtype)

    def take(self, index: NDArray[np.intp]) -> Pairwise:
        return Pairwise(self.X[index], self.metric, self.params, self.dtype)


@dataclass
class Precomputed:
    """A kernel matrix seen through an index, so that taking examples copies nothing."""

    K: Block  # (N, N)
    index: NDArray[np.intp]  # (n,)
    dtype: Any = np.float64
    n: int = field(init=False)

    def __post_init__(self) -> None:
        self.n = len(self.index)

    def diagonal(self) -> NDArray[np.float64]:
        return self.K[self.index, self.index].astype(float)

    def block(self, rows: Index, cols: Index) -> Block:
        return self.K[np.ix_(self.index[rows], self.index[cols])].astype(self.dtype, copy=False)

    def blocks(
        self, rows: NDArray[np.intp], cols: Index, out: Block | None = None
    ) -> Iterator[tuple[slice, Block]]:
        return _blocks(self, rows, cols, out)

    def take(self, index: NDArray[np.intp]) -> Precomputed:
        return Precomputed(self.K, self.index[index], self.dtype)


class Remembered:
    """Whole kernel rows kept in at most `megabytes` of memory; when it is full, rows that are not asked for make room.

    They are kept in tiles of `COLUMNS` columns, so that what is read together lies together. `reserve(rows)` finds room, then
    `fill(new, cols)` computes them for the columns of a tile, from any thread; all are to be filled before the next `reserve`.
    """

    def __init__(self, source: Kernel, megabytes: float) -> None:
        self.source, self.megabytes, self.n, self.dtype = source, megabytes, source.n, source.dtype
        row = self.n * np.dtype(self.dtype).itemsize
        self.capacity = int(min(self.n, megabytes * 2**20 // max(row, 1)))
        widths = [min(COLUMNS, self.n - start) for start in range(0, self.n, COLUMNS)]
        # they take memory as they are written to
        self._tiles = [np.empty((self.capacity, width), self.dtype) for width in widths]
        self.slot = np.full(self.n, -1)  # example -> where its row is kept
        self._owner = np.full(self.capacity, -1)  # slot -> example

    def reserve(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of `rows` that now have a slot and are to be filled."""
        known = self.slot[rows] >= 0
        missing = rows[~known]
        wanted = np.zeros(self.n, bool)
        wanted[rows[known]] = True
        free = np.flatnonzero((self._owner < 0) | ~wanted[self._owner])[: len(missing)]
        evicted = self._owner[free]
        self.slot[evicted[evicted >= 0]] = -1
        new = missing[: len(free)]
        self.slot[new], self._owner[free] = free, new
        return new

    def fill(self, new: NDArray[np.intp], cols: slice) -> Block:
        """The tile of `cols`: row slot[i] holds example i."""
        tile, slots = self._tiles[cols.start // COLUMNS], self.slot[new]
        if len(new) and np.all(np.diff(slots) == 1):  # room in one piece, as there is until the cache is full
            for _ in self.source.blocks(new, cols, tile[slots[0] : slots[-1] + 1]):
                pass
        else:
            for at, block in self.source.blocks(new, cols):
                tile[slots[at]] = block
        return tile

    def diagonal(self) -> NDArray[np.float64]:
        return self.source.diagonal()

    def block(self, rows: Index, cols: Index) -> Block:
        return self.source.block(rows, cols)

    def blocks(
        self, rows: NDArray[np.intp], cols: Index, out: Block | None = None
    ) -> Iterator[tuple[slice, Block]]:
        return self.source.blocks(rows, cols, out)

    def take(self, index: NDArray[np.intp]) -> Remembered:
        return Remembered(self.source.take(index), self.megabytes)


# ---------------------------------------------------------------- from parameters to a source


def kernel_function(
    kernel: str, gamma: float, degree: float, coef0: float, left: Block, right: Block | None = None
) -> tuple[Block, Block, Callable[..., Block]]:
    """(left', right', evaluate) with K = evaluate(left', right') for dense `left`, `right` of one dtype.

    rbf: exp(-g |x - z|^2) = exp([sqrt(2g) x, -g |x|^2, 1] . [sqrt(2g) z, 1, -g |z|^2]): with two more columns the exponent is a
    product.
    """
    right = left if right is None else right
    real = left.dtype.type
    if kernel == "linear":
        return left, right, _product
    if kernel == "laplacian":
        return real(gamma) * left, real(gamma) * right, _exp_of_distance
    if kernel == "poly":
        return real(gamma) * left, right, Powers(coef0, degree)
    if kernel == "sigmoid":
        return real(gamma) * left, right, Sigmoid(coef0)

    def augmented(Z: Block, square_first: bool) -> Block:
        out = np.empty((len(Z), Z.shape[1] + 2), Z.dtype)
        np.multiply(Z, real(np.sqrt(2 * gamma)), out=out[:, :-2])
        square = -gamma * np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
        out[:, -2] = square if square_first else 1
        out[:, -1] = 1 if square_first else square
        return out

    return augmented(left, True), augmented(right, False), _exp_of_product


def make_kernel(
    X: Any,
    kernel: Any = "rbf",
    *,
    gamma: float = 1.0,
    degree: float = 3,
    coef0: float = 0.0,
    dtype: Any = np.float64,
    cache_size: float = 1000.0,
) -> Kernel:
    """The kernel of checked data X (n, d), or of a square matrix X where kernel == "precomputed"."""
    if kernel == "precomputed":
        return Precomputed(X, np.arange(X.shape[0]), dtype)
    if callable(kernel):
        return Remembered(Pairwise(X, kernel, {}, dtype), cache_size)
    if sparse.issparse(X):
        params = {"gamma": gamma, "degree": degree, "coef0": coef0}
        return Remembered(Pairwise(X, kernel, params, dtype), cache_size)
    if kernel in ("rbf", "laplacian"):
        X = X - X.mean(axis=0)  # both depend on differences only; centred data lose fewer digits
    points = Points(*kernel_function(kernel, gamma, degree, coef0, np.ascontiguousarray(X, dtype=dtype)))
    # else a value is computed as fast as it is fetched from memory
    dear = kernel == "laplacian" or X.shape[1] > 24
    return Remembered(points, cache_size) if dear else points


def cross_kernel(
    support: Any, kernel: Any, gamma: float, degree: float, coef0: float, dtype: Any = np.float64
) -> Callable[[Any], Block]:
    """The function X -> K(X, support), for blocks of new examples."""
    if callable(kernel) or sparse.issparse(support):
        params = {} if callable(kernel) else {"gamma": gamma, "degree": degree, "coef0": coef0}
        pairs = Pairwise(support, kernel, params, dtype)
        return pairs.against
    centre = support.mean(axis=0) if kernel in ("rbf", "laplacian") and len(support) else 0.0
    _, right, evaluate = kernel_function(
        kernel, gamma, degree, coef0, np.asarray(support - centre, dtype=dtype)
    )

    def block(X: Any) -> Block:
        X = X.toarray() if sparse.issparse(X) else X
        left, _, _ = kernel_function(kernel, gamma, degree, coef0, np.asarray(X - centre, dtype=dtype))
        return evaluate(left, right)

    return block


def single_precision_serves(X: Any, kernel: Any, gamma: float, tol: float) -> bool:
    """Whether float32 kernel values leave the gap at `tol` in no doubt: their rounding grows with the numbers they are made from.

    Those are gamma |x|^2, or gamma |x|_1 for the laplacian, of examples centred as in `make_kernel`.
    """
    if tol < 1e-5 or callable(kernel):
        return False
    if sparse.issparse(X) or kernel not in ("rbf", "laplacian", "sigmoid"):
        return True
    Z = X if kernel == "sigmoid" else X - X.mean(axis=0)
    sizes = (
        np.abs(Z).sum(axis=1, dtype=float)
        if kernel == "laplacian"
        else np.einsum("ij,ij->i", Z, Z, dtype=float)
    )
    return bool(1e-7 * gamma * sizes.max() <= 0.1 * tol)
