"""One measurement in a process of its own: python measure.py task.json result.json [coefficients.npz]

The process loads the data, fits a small subsample (imports, JIT, worker processes), then all rows with the
memory meter running: the first fit. The same fit is then done again with nothing but the clock, at most five
times and for some ten seconds; a method for which that leaves no time has only its first. Memory is the
peak resident size during the first fit above the resident size just before it, worker processes included.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

from data import load, subsample
from peers import METHODS

TICK = os.sysconf("SC_CLK_TCK")
AGAIN, AGAIN_S = 5, 10.0  # fits after the first, and the seconds after which no further one begins


def _family() -> list[int]:
    """This process and its descendants."""
    parent_of = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parent_of[int(stat.parent.name)] = int(fields[1])
    family = [os.getpid()]
    for pid in family:  # grows while we read it
        family += [child for child, parent in parent_of.items() if parent == pid]
    return family


def _memory_mb(field: str) -> float:
    """VmRSS (now) or VmHWM (peak), summed over the family."""
    total = 0.0
    for pid in _family():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
    return total


def _reset_peak() -> None:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    for pid in _family():
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def busy_seconds() -> float:
    """CPU time all processes of the machine have used."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def _own_seconds() -> float:
    total = 0
    for pid in _family():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / TICK


def _fit(task: dict) -> tuple[dict, dict]:
    method = METHODS[task["method"]]
    split = load(task["data"], task.get("rows"))
    params = task["params"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = subsample(split.X, split.y, method.warm_up)
        method.predict(
            method.fit(split.X[rows], split.y[rows], task["threads"], **params), split.X_test[:200]
        )
    _reset_peak()
    before = _memory_mb("VmRSS")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        others, own, start = busy_seconds(), _own_seconds(), time.perf_counter()
        model = method.fit(split.X, split.y, task["threads"], **params)
        first = time.perf_counter() - start
        memory = _memory_mb("VmHWM") - before
        again: list[float] = []
        while first + sum(again) < AGAIN_S and len(again) < AGAIN:
            begin = time.perf_counter()
            method.fit(split.X, split.y, task["threads"], **params)
            again.append(time.perf_counter() - begin)
        wall = time.perf_counter() - start
        own, others = _own_seconds() - own, busy_seconds() - others
    run = {
        "fit": float(np.median(again or [first])),
        "first": first,
        "foreign": max(0.0, others - own) / wall,
        "memory": memory,
    }
    run["converged"] = not any(issubclass(w.category, _convergence_warning()) for w in caught)
    predictions = []
    while len(predictions) < 5 and sum(predictions) < 2:
        start = time.perf_counter()
        predicted = method.predict(model, split.X_test)
        predictions.append(time.perf_counter() - start)
    run |= {"predict": float(np.median(predictions)), "error": float(np.mean(predicted != split.y_test))}
    coefficients = method.coefficients(model, split.y)
    run |= {
        key: float(coefficients.pop(key))
        for key in ("objective", "dual_gap", "n_iter")
        if key in coefficients
    }
    return run, coefficients


def _convergence_warning() -> type[Warning]:
    from sklearn.exceptions import ConvergenceWarning

    return ConvergenceWarning


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    try:
        run, coefficients = _fit(task)
        run["status"] = "ok"
        if len(sys.argv) > 3:
            np.savez(sys.argv[3], **coefficients)
    except ImportError as missing:
        run = {"status": "not installed", "detail": str(missing)}
    except Exception as error:
        run = {"status": f"failed: {type(error).__name__}", "detail": traceback.format_exc()[-2000:]}
    Path(sys.argv[2]).write_text(json.dumps(run))


if __name__ == "__main__":
    main()
