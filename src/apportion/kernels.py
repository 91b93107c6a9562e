"""Kernel blocks K[rows, cols] of a fixed set of examples, computed where they are needed and never all at once.

Three sources share one interface: `n`, `diagonal()`, `block(rows, cols)`, `blocks(rows, cols)` (the same, some rows at a time),
`take(index)` (the same kernel on some of the examples):

    Points       dense data: products or distances of the examples, and a function of these
    Pairwise     sparse data and callables, through scikit-learn's pairwise_kernels
    Precomputed  the user's own kernel matrix

`Remembered` adds a cache of rows, bounded in bytes, to a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels

from .tiles import fill, pack

Block = NDArray[Any]
Index = Any  # integer array or slice

SPARE, SPARES = (
    1 / 8,
    2,
)  # of the megabytes of a cache of rows, and so many of them, that may be kept from fit to fit
# of a tile, which is computed and used while it stays in the second-level cache
ROWS, COLUMNS = 240, 1280
PAGE = 4096  # bytes; more of them in one on some systems


def tile_width(n: int) -> int:
    """Columns of a tile, at most `COLUMNS`: so many that the tiles of n columns are even in number, as two threads share them best.

    Tiles begin at multiples of 64, with a packed group of columns; the last may be small.
    """
    if n <= COLUMNS:
        return COLUMNS
    count = -(-n // COLUMNS)
    widest = 64 * -(-n // (64 * (count + count % 2)))
    return next((width for width in range(widest, 0, -64) if -(-n // width) % 2 == 0), widest)


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


@dataclass(frozen=True)
class Form:
    """A kernel of two examples x, z: function(x . z), or function(-|x - z|_1); the function changes a block in place."""

    distances: bool = False
    function: Callable[[Block], Any] | None = None

    def __call__(self, left: Block, packed: Block, out: Block) -> Block:
        """out (m, n), the kernel of left (m, d) with the first n columns of `packed`."""
        at_once = self.function is exp and out.dtype == np.float32
        fill(left, packed, out, self.distances, True if at_once else None)
        if self.function is not None and not at_once:
            self.function(out)
        return out


def exp(x: Block) -> None:
    np.exp(x, out=x)


@dataclass(frozen=True)
class Powers:
    """(x . z + coef0) ** degree"""

    coef0: float
    degree: float

    def __call__(self, x: Block) -> None:
        x += x.dtype.type(self.coef0)
        np.power(x, x.dtype.type(self.degree), out=x)


@dataclass(frozen=True)
class Sigmoid:
    """tanh(x . z + coef0)"""

    coef0: float

    def __call__(self, x: Block) -> None:
        x += x.dtype.type(self.coef0)
        np.tanh(x, out=x)


def _rows(data: Block, index: Index) -> Block:
    """data[index]; `take` is faster than brackets."""
    return data[index] if isinstance(index, slice) else data.take(index, axis=0)


@dataclass
class Points:
    """Dense examples; K[i, j] = form(left[i], right[j])."""

    left: Block  # (n, d')
    right: Block  # (n, d')
    form: Form
    n: int = field(init=False)
    dtype: Any = field(init=False)

    def __post_init__(self) -> None:
        self.n, self.dtype = len(self.left), self.left.dtype

    @cached_property
    def packed(self) -> Block:
        return pack(self.right)

    def _columns(self, cols: Index) -> tuple[Block, int]:
        """The packed columns, and how many they are."""
        if isinstance(cols, slice):
            start, stop, _ = cols.indices(self.n)
            first, rest = divmod(start, self.packed.shape[2])
            if not rest:
                return self.packed[first:], stop - start
            cols = np.arange(start, stop)
        return pack(self.right, cols), len(cols)

    def diagonal(self) -> NDArray[np.float64]:
        return np.ones(self.n) if self.form.function is exp else _diagonal(self)

    def block(self, rows: Index, cols: Index) -> Block:
        left = _rows(self.left, rows)
        packed, width = self._columns(cols)
        return self.form(left, packed, np.empty((len(left), width), self.dtype))

    def blocks(
        self, rows: NDArray[np.intp], cols: Index, out: Block | None = None
    ) -> Iterator[tuple[slice, Block]]:
        packed, width = self._columns(cols)
        # memory that is in cache already costs far less than new
        buffer = np.empty((min(ROWS, len(rows)) if out is None else 0, width), self.dtype)
        for start in range(0, len(rows), ROWS):
            at = slice(start, start + ROWS)
            left = self.left.take(rows[at], axis=0)
            yield at, self.form(left, packed, buffer[: len(left)] if out is None else out[at])

    def take(self, index: NDArray[np.intp]) -> Points:
        return Points(_rows(self.left, index), _rows(self.right, index), self.form)


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
        return _diagonal(self)

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
            out: Any = self.metric(left, right, **self.params)
            out = np.array(out.toarray() if sparse.issparse(out) else out)  # a copy: it may be the user's
            if out.dtype.kind not in "fiub":
                raise ValueError(
                    f"the callable kernel gave values of type {out.dtype}; they must be real numbers."
                )
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
            # a kernel in double precision is that of the data, not of products rounded to single
            left, right = (Z.astype(np.result_type(Z.dtype, self.dtype), copy=False) for Z in (left, right))
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


class _Spare:
    """Memory of the rows of kernels that are gone, kept for the next fit of the same shapes: one of a sample, one of all rows.

    The system hands out new memory page by page, which is a tenth of the time of a small fit.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.kept: dict[tuple[int, int, Any], tuple[Block, int]] = {}  # the oldest first

    def take(self, capacity: int, n: int, dtype: Any) -> tuple[Block, int]:
        """Memory for `capacity` rows of n values, and how many of the rows the system has handed out."""
        with self.lock:
            found = self.kept.pop((capacity, n, np.dtype(dtype)), None)
        return found or (np.empty(capacity * n, dtype), 0)

    def give(self, memory: Block, capacity: int, n: int, touched: int, limit: float) -> None:
        """Keep it, if all that is kept then takes no more than `limit` bytes; what is older makes way."""
        # called where a kernel is thrown away, which may be here: nobody waits, and what is not kept does no harm
        if not self.lock.acquire(blocking=False):
            return
        try:
            self.kept.pop((capacity, n, memory.dtype), None)
            self.kept[capacity, n, memory.dtype] = memory, touched
            while len(self.kept) > SPARES or self.size > limit:
                self.kept.pop(next(iter(self.kept)))
        finally:
            self.lock.release()

    @property
    def size(self) -> int:
        return sum([touched * n * memory.itemsize for (_, n, _), (memory, touched) in self.kept.items()])


_SPARE = _Spare()


class Remembered:
    """Whole kernel rows kept in at most `megabytes` of memory; when it is full, rows that are not asked for make room.

    They are kept in tiles of `tile_width` columns, so that what is read together lies together. `reserve(rows)` finds room, then
    `fill(rows, cols)` computes the blocks of a tile and keeps them, from any thread, all of them before the next `reserve`.
    """

    def __init__(self, source: Kernel, megabytes: float) -> None:
        self.source, self.megabytes, self.n, self.dtype = source, megabytes, source.n, source.dtype
        row = self.n * np.dtype(self.dtype).itemsize
        self.capacity = int(min(self.n, megabytes * 2**20 // max(row, 1)))
        self.width = tile_width(self.n)
        self.slot = np.full(self.n, -1)  # example -> where its row is kept
        self._owner = np.full(self.capacity, -1)  # slot -> example

    @cached_property
    def _tiles(self) -> list[Block]:
        # takes memory as it is written to, in one piece: the system then hands it out in large pages
        self._memory, self._touched = _SPARE.take(self.capacity, self.n, self.dtype)
        widths = [(start, min(self.width, self.n - start)) for start in range(0, self.n, self.width)]
        return [
            self._memory[self.capacity * start :][: self.capacity * width].reshape(self.capacity, width)
            for start, width in widths
        ]

    def reserve(self, rows: NDArray[np.intp]) -> None:
        """A slot for each of `rows`, or for as many as there is room for; those that have one keep it."""
        known = self.slot[rows] >= 0
        missing = rows[~known]
        wanted = np.zeros(self.n, bool)
        wanted[rows[known]] = True
        empty, idle = self._owner < 0, ~wanted[self._owner]
        free = np.flatnonzero(empty)[: len(missing)]
        if len(free) < len(missing):
            free = np.append(free, np.flatnonzero(idle & ~empty)[: len(missing) - len(free)])
        evicted = self._owner[free]
        self.slot[evicted[evicted >= 0]] = -1
        new = missing[: len(free)]
        self.slot[new], self._owner[free] = free, new
        if len(free):
            self._touch(int(free.max()) + 1)

    def _touch(self, slots: int) -> None:
        """Have the system hand out the memory of so many slots here: threads that ask for it at once wait for each other."""
        tiles = self._tiles
        if slots > self._touched:
            for tile in tiles:
                tile[self._touched : slots].reshape(-1)[:: PAGE // tile.itemsize] = 0
            self._touched = slots

    def tile(self, cols: slice) -> Block:
        """What is kept of the columns: row slot[i] holds example i."""
        return self._tiles[cols.start // self.width]

    def fill(self, rows: NDArray[np.intp], cols: slice) -> Iterator[tuple[slice, Block]]:
        """The blocks of a tile of columns; of the rows that have a slot they are kept there."""
        tile, slots = self.tile(cols), self.slot[rows]
        for start in range(0, len(rows), ROWS):
            at = slice(start, min(start + ROWS, len(rows)))
            places = slots[at]
            # room in one piece, as there is until the cache is full
            whole = places[0] >= 0 and bool(np.all(np.diff(places) == 1))
            room = tile[places[0] : places[-1] + 1] if whole else None
            ((_, block),) = self.source.blocks(rows[at], cols, room)
            if not whole:
                tile[places[places >= 0]] = block[places >= 0]
            yield at, block

    def diagonal(self) -> NDArray[np.float64]:
        return self.source.diagonal()

    def block(self, rows: Index, cols: Index) -> Block:
        return self.source.block(rows, cols)

    def blocks(
        self, rows: NDArray[np.intp], cols: Index, out: Block | None = None
    ) -> Iterator[tuple[slice, Block]]:
        return self.source.blocks(rows, cols, out)

    def __del__(self) -> None:
        if "_tiles" in vars(self):
            _SPARE.give(self._memory, self.capacity, self.n, self._touched, SPARE * self.megabytes * 2**20)

    def take(self, index: NDArray[np.intp]) -> Remembered:
        return Remembered(self.source.take(index), self.megabytes)


# ---------------------------------------------------------------- from parameters to a source


def kernel_form(
    kernel: str, gamma: float, degree: float, coef0: float, left: Block, right: Block | None = None
) -> tuple[Block, Block, Form]:
    """(left', right', form) with K = form(left', right') for dense `left`, `right` of one dtype.

    rbf: exp(-g |x - z|^2) = exp([sqrt(2g) x, -g |x|^2, 1] . [sqrt(2g) z, 1, -g |z|^2]): with two more columns the exponent is a
    product.
    """
    right = left if right is None else right
    real = left.dtype.type
    if kernel == "linear":
        return left, right, Form()
    if kernel == "laplacian":
        return real(gamma) * left, real(gamma) * right, Form(distances=True, function=exp)
    if kernel == "poly":
        return real(gamma) * left, right, Form(function=Powers(coef0, degree))
    if kernel == "sigmoid":
        return real(gamma) * left, right, Form(function=Sigmoid(coef0))

    def augmented(Z: Block) -> Block:
        out = np.empty((len(Z), Z.shape[1] + 2), Z.dtype)
        np.multiply(Z, real(np.sqrt(2 * gamma)), out=out[:, :-2])
        out[:, -2] = -gamma * np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
        out[:, -1] = 1
        return out

    first = augmented(left)
    second = first.copy() if right is left else augmented(right)
    second[:, -2:] = second[:, [-1, -2]]
    return first, second, Form(function=exp)


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
        X = X - _middle(X, dtype)  # both depend on differences only; centred data lose fewer digits
    points = Points(*kernel_form(kernel, gamma, degree, coef0, np.ascontiguousarray(X, dtype=dtype)))
    # else a value is computed as fast as it is fetched from memory
    dear = kernel == "laplacian" or X.shape[1] > 24
    return Remembered(points, cache_size) if dear else points


def _middle(X: Any, dtype: Any) -> Any:
    """The mean, in double where the kernel or the data are: what is subtracted from it must not be rounded to single before."""
    return X.mean(axis=0, dtype=np.result_type(X.dtype, dtype))


def cross_kernel(
    support: Any, kernel: Any, gamma: float, degree: float = 3, coef0: float = 0.0, dtype: Any = np.float64
) -> Callable[[Any], Block]:
    """The function X -> K(X, support), for blocks of new examples."""
    if callable(kernel) or sparse.issparse(support):
        params = {} if callable(kernel) else {"gamma": gamma, "degree": degree, "coef0": coef0}
        pairs = Pairwise(support, kernel, params, dtype)
        return pairs.against
    centre: Any = _middle(support, dtype) if kernel in ("rbf", "laplacian") and len(support) else 0.0
    _, right, form = kernel_form(kernel, gamma, degree, coef0, np.asarray(support - centre, dtype=dtype))
    packed = pack(right)

    def block(X: Any) -> Block:
        X = X.toarray() if sparse.issparse(X) else X
        left, _, _ = kernel_form(kernel, gamma, degree, coef0, np.ascontiguousarray(X - centre, dtype=dtype))
        return form(left, packed, np.empty((len(left), len(right)), dtype))

    return block


def single_precision_serves(X: Any, kernel: Any, gamma: float, tol: float) -> bool:
    """Whether float32 kernel values leave the gap at `tol` in no doubt: their rounding grows with the numbers they are made from.

    Those are gamma |x|^2, or gamma |x|_1 for the laplacian, of examples centred as in `make_kernel`.
    """
    if tol < 1e-5 or callable(kernel):
        return False
    if sparse.issparse(X):
        return True
    Z = X - X.mean(axis=0) if kernel in ("rbf", "laplacian") else X
    if not 1e-30 < max(float(Z.max()), -float(Z.min())) < 1e30:  # with room for the factor that gamma says
        return False
    if kernel not in ("rbf", "laplacian", "sigmoid"):
        return True
    sizes = (
        np.abs(Z).sum(axis=1, dtype=float)
        if kernel == "laplacian"
        else np.einsum("ij,ij->i", Z, Z, dtype=float)
    )
    return bool(1e-7 * gamma * sizes.max() <= 0.1 * tol)
