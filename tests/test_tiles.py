"""Tiles of products and distances are those of plain loops, whatever their shape; exp is exp to the last digits of float32."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from apportion.tiles import HEIGHT, exp_single, fill, pack

SHAPES = [
    (1, 1, 1),
    (HEIGHT, 64, 5),
    (HEIGHT + 1, 65, 2),
    (3, 127, 7),
    (2 * HEIGHT - 1, 200, 64),
    (50, 31, 130),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "d"), SHAPES)
def test_products_and_distances_of_all_pairs(m, n, d, dtype):
    rng = np.random.default_rng(m + n + d)
    left, right = rng.standard_normal((m, d)).astype(dtype), rng.standard_normal((n, d)).astype(dtype)
    packed, out = pack(right), np.full((m, n), np.nan, dtype)
    tight = {"rtol": 2e-6, "atol": 2e-5} if dtype is np.float32 else {"rtol": 1e-12, "atol": 1e-13}
    fill(left, packed, out, False, None)
    assert_allclose(out, left.astype(float) @ right.T.astype(float), **tight)
    fill(left, packed, out, True, None)
    distances = np.abs(left[:, None].astype(float) - right[None]).sum(axis=2)
    assert_allclose(out, -distances, **tight)
    if dtype is np.float32:
        fill(left, packed, out, True, True)
        assert_allclose(out, np.exp(-distances), rtol=1e-4, atol=1e-37)


def test_a_value_does_not_depend_on_where_it_stands():
    """Threads share a block by its columns: the digits must be the same however it is cut."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((n, 9)).astype(np.float32) for n in (40, 300))
    whole, one = np.empty((40, 300), np.float32), np.empty((1, 1), np.float32)
    fill(left, pack(right), whole, False, None)
    for i, c in ((0, 0), (7, 63), (39, 299), (13, 128)):
        fill(left[i : i + 1], pack(right, np.array([c])), one, False, None)
        assert one[0, 0] == whole[i, c]


def test_packing_some_rows_is_packing_their_copy():
    right, rows = np.random.default_rng(0).standard_normal((90, 3)), np.array([80, 2, 2, 41])
    assert_array_equal(pack(right, rows), pack(right[rows]))
    assert pack(right, rows[:0]).shape[0] == 0


def test_nothing_beyond_the_block_is_written():
    big = np.full((9, 200), 7.0)
    out = big[1:8, 30:165]  # neither edge is that of a tile
    fill(np.ones((7, 2)), pack(np.ones((135, 2))), out, False, None)
    assert_array_equal(out, np.full((7, 135), 2.0))
    big[1:8, 30:165] = 7
    assert_array_equal(big, np.full((9, 200), 7.0))


def test_exp_in_single_precision():
    x = -np.concatenate([np.linspace(0, 3, 1001), np.linspace(3, 87, 5000)]).astype(np.float32)
    found = x.copy()
    exp_single(found)
    assert_allclose(found, np.exp(x.astype(float)), rtol=5e-7)
    tiny = np.array([-1e30, -100], np.float32)
    exp_single(tiny)
    assert 0 <= tiny.max() < 1e-37
    above = np.array([1e-7], np.float32)  # a distance that rounding made negative
    exp_single(above)
    assert_allclose(above, 1, rtol=5e-7)


def test_tiles_are_as_wide_as_the_machine_that_numba_compiles_for():
    """Code for any machine, kept on disk for many: a width taken from the machine at hand would be wrong on the next."""
    code = "from apportion.tiles import _BYTES, _FEATURES; print(_BYTES, *_FEATURES)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["16"]  # no feature beyond those that all have
