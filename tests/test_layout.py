"""The order of the modules is the way of the data: a module imports only modules above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import apportion

PACKAGE = Path(apportion.__file__).parent
ORDER = (
    "costs",
    "losses",
    "solution",
    "products",
    "parts",
    "threads",
    "_jit",
    "tiles",
    "kernels",
    "smo",
    "panels",
    "working_sets",
    "smoothing",
    "newton",
    "rows",
    "coordinate",
    "pairs",
    "grids",
    "coupled",
    "multipliers",
    "dual",
    "linear",
    "paths",
    "pegasos",
    "fitting",
    "estimators",
    "sgd",
    "files",
    "chunks",
    "streams",
    "relevance",
    "scalings",
    "search",
    "calibration",
    "candidates",
    "tuning",
    "metrics",
    "guarantees",
    "nets",
    "neural",
    "partitions",
    "cluster",
    "frames",
    "_onnx",
    "persist",
    "study",
    "show",
    "cli",
)
NUMBA = ORDER[ORDER.index("_jit") : ORDER.index("pegasos") + 1]
HEAVY = ("numba", "torch", "matplotlib", "pandas")
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    """The module or subpackage of `apportion` that a file belongs to."""
    return path.parts[0].removesuffix(".py")


def imports(source: str, path: Path) -> set[str]:
    """Full names of what a file of the package imports, anywhere in it: 'numpy', 'apportion.costs', ..."""
    found = set()
    package = ("apportion", *path.parts[:-1])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from . import costs` names modules; `from .costs import Costs` names what is in one
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "apportion" else {module}
    return found


def faults(source: str, path: Path) -> list[str]:
    """What a file imports against the rules."""
    here, found = module_of(path), []
    if here not in (*ORDER, "__init__", "__main__"):
        return [f"{path} has no place in the order of the modules"]
    for name in sorted(imports(source, path)):
        top, _, rest = name.partition(".")
        if top == "numba" and here not in NUMBA:
            found.append(f"{path} imports numba, which belongs into {NUMBA}")
        if top != "apportion" or here in ("__init__", "__main__"):
            continue
        there = rest.partition(".")[0]
        if there.startswith("__") or there == here:  # __version__; the other files of a subpackage
            continue
        allowed = ("costs",) if here == "metrics" else ORDER[: ORDER.index(here)]
        if there not in allowed:
            found.append(f"{path} imports {name}, which does not stand above it")
    return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_upward(path):
    assert faults((PACKAGE / path).read_text(), path) == []


@pytest.mark.parametrize(
    ("path", "source", "n_faults"),
    [
        ("losses.py", "from .costs import Costs", 0),
        ("costs.py", "from .losses import value", 1),
        ("costs.py", "from apportion.losses import value", 1),
        ("costs.py", "import apportion.losses", 1),
        ("costs.py", "from . import losses", 1),
        ("costs.py", "from . import __version__", 0),
        ("losses.py", "def late():\n    from .dual import solve", 1),
        ("metrics.py", "from .costs import check_costs\nfrom .losses import value", 1),
        ("losses.py", "import numba", 1),
        ("estimators.py", "def late():\n    from numba.core import types", 1),
        ("dual.py", "from numba import njit\nfrom ._jit import jit", 0),
        ("study/compare.py", "from ..metrics import expected_cost\nfrom .datasets import load", 0),
        ("study/compare.py", "from ..show.plots import Display", 1),
        ("study/compare.py", "from .. import cli", 1),
        ("extra.py", "", 1),
    ],
)
def test_the_checker_sees_what_it_should(path, source, n_faults):
    assert len(faults(source, Path(path))) == n_faults


def test_every_file_was_looked_at():
    assert {"__init__", "costs", "losses", "metrics"} <= {module_of(path) for path in FILES}


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, sklearn.svm, sklearn.metrics, sklearn.pipeline; before = set(sys.modules); import apportion; "
        f"print([name for name in {HEAVY} if name in sys.modules and name not in before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
