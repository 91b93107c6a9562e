"""Kernel blocks are scikit-learn's kernel values, whatever the data come as, and memory stays bounded."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel

from apportion import kernels
from apportion.kernels import COLUMNS, PAGE, ROWS, Remembered, cross_kernel, make_kernel, tile_width

PARAMS = {"gamma": 0.3, "degree": 2, "coef0": 0.5}
NAMES = ("rbf", "laplacian", "linear", "poly", "sigmoid")


def points(n=37, d=5, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def twin(name, X, Z=None):
    return pairwise_kernels(X, Z, metric=name, filter_params=True, **PARAMS)


def blocks(kernel):
    """Index pairs in the forms solvers use, with the block of each."""
    rows, cols = np.array([3, 0, 20, 21, 7]), np.arange(2, 30, 3)
    for a, b in (
        (rows, cols),
        (rows, slice(4, 31)),
        (slice(0, kernel.n), slice(0, kernel.n)),
        (rows[:1], rows[:2]),
    ):
        yield a, b, kernel.block(a, b)


@pytest.mark.parametrize("form", ["dense", "csr", "float32", "wide"])
@pytest.mark.parametrize("name", NAMES)
def test_blocks_are_those_of_scikit_learn(name, form):
    X = points(d=120 if form == "wide" else 5)  # wide: rows are dear and kept
    dtype, atol = (np.float32, 2e-5) if form == "float32" else (np.float64, 1e-12)
    data = sparse.csr_matrix(X) if form == "csr" else X
    kernel, whole = make_kernel(data, name, dtype=dtype, **PARAMS), twin(name, X)
    assert kernel.n == len(X)
    for rows, cols, block in blocks(kernel):
        assert block.dtype == dtype
        assert_allclose(block, whole[rows][:, cols], rtol=1e-5 if dtype is np.float32 else 1e-9, atol=atol)
    assert_allclose(kernel.diagonal(), np.diagonal(whole), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("form", ["dense", "csr", "precomputed"])
@pytest.mark.parametrize("name", NAMES)
def test_blocks_are_the_block_some_rows_at_a_time(name, form):
    X = points(2 * ROWS + 30)
    kernel = make_kernel(sparse.csr_matrix(X) if form == "csr" else X, name, **PARAMS)
    if form == "precomputed":
        kernel = make_kernel(twin(name, X), "precomputed")
    rows = np.random.default_rng(1).permutation(len(X))[: 2 * ROWS + 7]
    whole, out = kernel.block(rows, slice(5, 60)), np.zeros((len(rows), 55))
    for at, block in kernel.blocks(rows, slice(5, 60)):
        assert len(block) <= ROWS
        out[at] = block  # before the next is asked for
    assert_allclose(out, whole, rtol=1e-12)
    assert not list(kernel.blocks(rows[:0], slice(5, 60)))
    written = np.zeros_like(out)
    for at, block in kernel.blocks(rows, slice(5, 60), written):
        assert_array_equal(block, written[at])
    assert_allclose(written, whole, rtol=1e-12)


@pytest.mark.parametrize("form", ["dense", "csr", "callable", "precomputed"])
def test_taking_examples_takes_rows_and_columns(form):
    X, index = points(), np.array([30, 2, 2, 17, 5])
    whole = rbf_kernel(X, gamma=0.3)
    kernel = {
        "dense": lambda: make_kernel(X, "rbf", gamma=0.3),
        "csr": lambda: make_kernel(sparse.csr_matrix(X), "rbf", gamma=0.3),
        "callable": lambda: make_kernel(X, lambda A, B: rbf_kernel(A, B, gamma=0.3)),
        "precomputed": lambda: make_kernel(whole, "precomputed"),
    }[form]()
    part = kernel.take(index)
    assert part.n == 5
    assert_allclose(part.block(slice(0, 5), slice(0, 5)), whole[np.ix_(index, index)], atol=1e-12)
    assert_allclose(part.diagonal(), np.diagonal(whole)[index], atol=1e-12)


def test_values_keep_their_digits_far_from_the_origin():
    """rbf and laplacian see differences only."""
    X = points() + 1e4
    for name in ("rbf", "laplacian"):
        for data in (X, X.astype(np.float32) if name == "laplacian" else X):
            kernel = make_kernel(data, name, gamma=0.3)
            expected = twin(name, np.asarray(data, dtype=float) - 1e4)
            assert_allclose(kernel.block(slice(0, 37), slice(0, 37)), expected, atol=1e-7)


def test_the_callable_gets_matrices_and_must_return_one():
    shapes = []

    def product(A, B):
        shapes.append((A.shape, B.shape))
        return A @ B.T

    X = points()
    block = make_kernel(X, product).block(np.array([1, 2]), slice(0, 10))
    assert_allclose(block, X[1:3] @ X[:10].T)
    assert shapes == [((2, 5), (10, 5))]
    with pytest.raises(ValueError, match=r"callable kernel gave shape \(\) for 2 and 10 rows"):
        make_kernel(X, lambda A, B: 1.0).block(np.array([1, 2]), slice(0, 10))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["dense", "csr", "mixed"])
def test_new_examples_against_the_support_vectors(name, form):
    X, Z = points(), points(8, seed=1)
    support = sparse.csr_matrix(X) if form == "csr" else X
    new = sparse.csr_matrix(Z) if form != "dense" else Z
    block = cross_kernel(support, name, PARAMS["gamma"], PARAMS["degree"], PARAMS["coef0"])
    assert_allclose(block(new), twin(name, Z, X), atol=1e-12)


# ---------------------------------------------------------------- rows kept for reuse


class Counting:
    """A kernel that counts the rows it is asked for."""

    def __init__(self, n):
        self.n, self.dtype, self.K, self.rows = n, np.float64, rbf_kernel(points(n)), 0

    def diagonal(self):
        return np.diagonal(self.K)

    def block(self, rows, cols):
        self.rows += len(np.arange(self.n)[rows])
        return self.K[rows][:, cols]

    def blocks(self, rows, cols, out=None):
        if len(rows):
            block = self.block(rows, cols)
            if out is not None:
                out[:] = block
            yield slice(None), block

    def take(self, index):
        raise NotImplementedError


def ask(kernel, rows):
    """The rows among `rows` that are kept, after room was made for them and those that were not there were filled."""
    new = rows[kernel.slot[rows] < 0]
    kernel.reserve(rows)
    for at, block in kernel.fill(new, slice(0, kernel.n)):
        assert_array_equal(block, kernel.source.K[new[at]])
    return rows[kernel.slot[rows] >= 0]


def remembered(kernel, rows):
    """What is kept of `rows`, all in one tile."""
    return kernel.tile(slice(0, kernel.n))[kernel.slot[rows]]


def test_rows_once_computed_are_kept():
    source = Counting(50)
    kernel, rows = Remembered(source, 10), np.array([4, 9, 30])
    assert_array_equal(ask(kernel, rows), rows)
    assert source.rows == 3
    assert_array_equal(ask(kernel, np.append(rows, 31)), np.append(rows, 31))
    assert source.rows == 4
    assert_array_equal(remembered(kernel, rows), source.K[rows])
    assert_array_equal(kernel.block(np.array([4, 5]), slice(0, 50)), source.K[[4, 5]])


@pytest.mark.parametrize("megabytes", [1e-6, 0.001, 0.01, 0.1])
def test_no_more_memory_than_asked_for(megabytes):
    n = 200
    kernel = Remembered(Counting(n), megabytes)
    assert kernel.capacity * n * 8 <= megabytes * 2**20
    assert kernel.capacity >= min(n, megabytes * 2**20 // (n * 8))
    rng = np.random.default_rng(0)
    for _ in range(50):  # whatever is asked for, in whatever order, the values are right
        rows = np.sort(rng.choice(n, 5, replace=False))
        kept = ask(kernel, rows)
        assert len(kept) == min(5, kernel.capacity)
        assert_array_equal(remembered(kernel, kept), kernel.source.K[kept])
        assert (kernel.slot >= 0).sum() <= kernel.capacity


def test_never_more_rows_than_examples():
    assert Remembered(Counting(20), 1000.0).capacity == 20


def test_the_memory_of_kernel_rows_is_there_before_threads_fill_it():
    """The rows that are reserved have been written to at least once a page, and no others."""
    kernel = Remembered(Counting(3000), 1000.0)
    for tile in kernel._tiles:
        tile.fill(np.nan)
    for rows in (np.arange(5, 40), np.arange(30, 90)):
        kernel.reserve(rows)
        for tile in kernel._tiles:
            reserved = np.count_nonzero(kernel.slot >= 0) * tile.shape[1]
            touched = np.append(np.flatnonzero(~np.isnan(tile.reshape(-1))), reserved)
            assert np.diff(touched).max() <= PAGE // tile.itemsize and touched[-2] < reserved


def test_memory_of_rows_serves_the_next_kernel_of_the_same_shape(monkeypatch):
    """But no more of it is kept than an eighth of what the last kernel may take."""

    monkeypatch.setattr(kernels, "_SPARE", kernels._Spare())

    def kept(n, megabytes, rows):
        kernel = Remembered(Counting(n), megabytes)
        ask(kernel, np.arange(rows))
        memory = kernel._memory
        del kernel
        return memory

    row = 8 * 500 / 2**20  # megabytes
    first = kept(500, 800 * row, 40)
    assert np.shares_memory(kept(500, 800 * row, 60), first)
    assert kernels._SPARE.size == 60 * 500 * 8
    assert not np.shares_memory(kept(501, 800 * row, 39), first)
    assert kernels._SPARE.size == (60 * 500 + 39 * 501) * 8
    kept(502, 800 * row, 30)  # for which the oldest makes way
    assert kernels._SPARE.size == (39 * 501 + 30 * 502) * 8
    kept(503, 800 * row, 130)
    assert kernels._SPARE.size == 0


def test_a_kernel_thrown_away_while_memory_is_being_kept_does_not_wait_for_itself(monkeypatch):
    monkeypatch.setattr(kernels, "_SPARE", kernels._Spare())
    kernel = Remembered(Counting(50), 10)
    ask(kernel, np.arange(5))
    with kernels._SPARE.lock:  # as where the garbage collector comes in between
        del kernel
    assert not kernels._SPARE.kept


def test_cache_size_reaches_the_kernels_that_keep_rows():
    X = points(300)
    for name, data in (("rbf", sparse.csr_matrix(X)), ("laplacian", X), (lambda A, B: A @ B.T, X)):
        kernel = make_kernel(data, name, gamma=0.3, cache_size=0.1)
        assert isinstance(kernel, Remembered)
        assert kernel.capacity == int(0.1 * 2**20 // (300 * 8))
        assert kernel.take(np.arange(100)).capacity == 100


def test_tiles_are_even_in_number():
    for n in (*range(1, 50_000, 7), 23_045, 37_121, 10**6):
        width = tile_width(n)
        assert width % 64 == 0 and 0 < width <= COLUMNS
        assert n <= COLUMNS or (-(-n // width) % 2 == 0 and width > COLUMNS // 3)
