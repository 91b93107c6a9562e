"""The first call: a light import, compiled code kept on disk, and no trouble where the disk cannot be written to."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import apportion

PACKAGE = Path(apportion.__file__).parent

IMPORT = """
    import sys, time
    start = time.perf_counter()
    import sklearn.metrics, sklearn.svm
    middle = time.perf_counter()
    import apportion
    print(time.perf_counter() - middle, middle - start, "numba" in sys.modules)
"""

FIT = """
    import json, sys, time
    import numpy as np
    from scipy import sparse
    import apportion

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2100, 4)), np.arange(2100) % 3
    X[y == 1] += 2
    start = time.perf_counter()
    fitted = [
        apportion.ApportionedSVC((1, 3, 2), kernel="laplacian").fit(X[:100], y[:100]),
        apportion.ApportionedLinearSVC((1, 3, 2)).fit(X, y),
        apportion.ApportionedLinearSVC((1, 3, 2)).fit(sparse.csr_matrix(X), y),
    ]
    seconds = time.perf_counter() - start
    functions = {
        f"{name}.{key}": value
        for name, module in list(sys.modules.items()) if name.startswith("apportion.")
        for key, value in vars(module).items() if hasattr(value, "nopython_signatures")
    }
    print(json.dumps({
        "seconds": seconds,
        "kept": sorted({type(f._cache).__name__ for f in functions.values()}),
        "hits": sum(sum(f.stats.cache_hits.values()) for f in functions.values()),
        "misses": sum(sum(f.stats.cache_misses.values()) for f in functions.values()),
        "accuracy": [m.score(X, y) for m in fitted],
        "from": apportion.__file__,
    }))
"""


def run(code, **environment):
    """What the code prints, in a process of its own, and in a folder that is not this one."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=os.environ | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(**environment):
    return json.loads(run(FIT, **environment))


def test_the_import_is_light_and_brings_no_compiler():
    runs = [run(IMPORT).split() for _ in range(3)]
    assert {numba for *_, numba in runs} == {"False"}
    assert min(float(added) for added, *_ in runs) < 0.3


def test_the_second_process_compiles_nothing(tmp_path):
    first = report(NUMBA_CACHE_DIR=tmp_path)
    assert first["misses"] > 0 and first["hits"] == 0
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")}
    assert files
    second = report(NUMBA_CACHE_DIR=tmp_path)
    assert second["misses"] == 0 and second["hits"] > 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")} == files
    assert second["seconds"] < 0.5 * first["seconds"]
    assert second["accuracy"] == first["accuracy"]


def blocked(tmp_path):
    """A copy of the package and an environment in which no folder for compiled code can be made, by root neither.

    Where a folder is wanted there is a file: next to the source, in the user's cache, and where numba is told to write.
    """
    copy = tmp_path / "copy" / "apportion"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "__pycache__").touch()
    file = tmp_path / "file"
    file.touch()
    return {
        "PYTHONPATH": copy.parent,
        "PYTHONDONTWRITEBYTECODE": 1,
        "XDG_CACHE_HOME": file,
        "HOME": file,
        "LOCALAPPDATA": file,
        "IPYTHONDIR": file,
        "NUMBA_CACHE_DIR": file / "numba",
    }


@pytest.mark.skipif(
    sys.platform == "darwin", reason="the user's cache there follows the account, not the environment"
)
def test_without_a_folder_to_write_to_it_works_all_the_same(tmp_path):
    environment = blocked(tmp_path)
    found = report(**environment)
    assert found["from"].startswith(str(tmp_path))
    assert found["kept"] == ["NullCache"]  # nothing was cached: this was the way without
    assert min(found["accuracy"]) > 0.5
    assert (tmp_path / "file").is_file() and (tmp_path / "copy" / "apportion" / "__pycache__").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="a limit to the size of files stands for a full disk")
def test_where_the_folder_is_full_it_works_all_the_same(tmp_path):
    full = (
        "    import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"  # no file may hold a byte
    )
    before, after = FIT.split("    start =")
    found = json.loads(run(f"{before}{full}    start ={after}", NUMBA_CACHE_DIR=tmp_path))
    assert found["misses"] > 0 and min(found["accuracy"]) > 0.5
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.nb*")) == 0


@pytest.mark.parametrize("open_way", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_any_one_folder_that_can_be_written_to_is_used(tmp_path, open_way):
    environment = blocked(tmp_path)
    folder = tmp_path / "folder"
    environment[open_way] = folder
    if open_way != "NUMBA_CACHE_DIR":
        if sys.platform != "linux":
            pytest.skip("the user's cache is named otherwise on this system")
        del environment["NUMBA_CACHE_DIR"]
    code = """
        import apportion.coordinate
        print({type(f._cache).__name__ for f in vars(apportion.coordinate).values() if hasattr(f, "nopython_signatures")})
    """
    assert run(code, **environment).strip() == "{'FunctionCache'}"
    assert any(folder.rglob("*"))
