"""Stochastic gradient, data larger than memory, and kernels by features: python benchmarks/streams.py [part ...]

    steps    distance of linear and kernel Pegasos from the exact optimum, step by step     about 3 minutes
    race     time to a test cost, beside scikit-learn's SGDClassifier, both tuned           about 6 minutes
    files    5,000,000 x 100 rows on disk: rows a second and memory, beside reading alone   about 6 minutes, 5 GB of disk
    maps     Nystroem and random features with the linear machine, beside the exact kernel  about 6 minutes

Each part writes results/<part>.json (steps: pegasos.json) and the tables of docs/streams.md; without names all of them run.
Times are medians over repeats in which the methods take turns; ratios are medians of the ratios within a repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import data
import streams_report
from apportion import (
    ApportionedLinearSVC,
    ApportionedSGDClassifier,
    ApportionedSVC,
    expected_cost,
    fit_stream,
    pegasos,
)
from apportion.costs import check_costs
from apportion.losses import loss_table
from data import load
from solvers import machine

ROOT = Path(__file__).resolve().parent.parent
FILES = {"steps": "pegasos", "race": "sgd_race", "files": "out_of_core", "maps": "kernel_maps"}


def costs_of(k: int) -> np.ndarray:
    """(k,) drawn once: errors on some classes cost ten times as much as on others."""
    return np.random.RandomState(0).choice([1.0, 2.0, 5.0, 10.0], k)


# ---------------------------------------------------------------- steps


def steps() -> dict[str, Any]:
    """Linear: the dense synthetic, three C. Kernel: 2000 rows of letter. Distances are (P - P*) / P*."""
    X, y, _, _ = load("dense")
    variants = {
        "as published": {"delay": 0.0, "average": False},
        "projected": {"delay": 0.0, "average": False, "project": True},
        "averaged": {"delay": 0.0, "average": True},
        "averaged, delayed": {"delay": None, "average": True},
        "averaged, delayed, batches of 64": {"delay": None, "average": True, "batch": 64},
    }
    linear = []
    for C, loss, costs in [
        (0.001, "one-vs-rest", None),
        (0.01, "one-vs-rest", None),
        (0.1, "one-vs-rest", None),
        (0.01, "apportioned", costs_of(10)),
        (0.01, "crammer-singer", None),
        (0.01, "lee-lin-wahba", None),
    ]:
        exact = ApportionedLinearSVC(costs, loss=loss, C=C, tol=1e-4).fit(X, y)
        best = exact.objective_ * (1 - exact.dual_gap_ / 2)  # the middle of what is certified
        table = loss_table(loss, check_costs(costs, range(10)))
        for name, settings in variants.items():
            if loss != "one-vs-rest" and not settings["average"]:
                continue
            curve = _curve(table, X, y, C, best, passes=100 if loss == "one-vs-rest" else 20, **settings)
            linear.append({"C": C, "loss": loss, "costs": costs is not None, "variant": name, "curve": curve})
            at = next((p["passes"] for p in curve if p["excess"] <= 0.01), None)
            print(f"{loss}, C={C}, {name}: within 1 % after {at} passes", flush=True)
        linear[-1]["optimum"] = best
    return {"n": len(y), "linear": linear, "kernel": _kernel_steps()}


def _curve(table, X, y, C, best, *, passes, delay, average, project=False, batch=1) -> list[dict[str, float]]:
    n, weight = len(y), np.ones(len(y))
    plan = pegasos.Plan(C, n, 1.0, batch, project)
    if delay is None:
        delay = pegasos.first_delay(table, y, weight, pegasos.squared_lengths(X), plan)
    walk = pegasos.new_walk(table.n_outputs, X.shape[1], delay)
    stops = {int(n * s) for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)}
    stops |= {n * p for p in range(1, passes + 1) if p <= 20 or p % 5 == 0}
    curve = []
    for p in range(passes):
        order = np.random.default_rng([0, p]).permutation(n)
        cuts = sorted({0, n, *(s - p * n for s in stops if 0 < s - p * n < n)})
        for a, b in zip(cuts, cuts[1:], strict=False):
            pegasos.visit(walk, table, X, y, weight, order[a:b], plan)
            if b == n:
                pegasos.end_pass(walk)
            if int(walk.seen) in stops:
                W, intercept = pegasos.machine(walk, plan, average)
                primal = pegasos.primal_value(table, X, y, weight, W, intercept, plan)
                point = {"steps": walk.seen / batch, "passes": walk.seen / n, "excess": primal / best - 1}
                # the objective divided by n C is the one the paper's rate is about
                point["epsilon"] = (primal - best) / (n * C)
                if b == n:
                    point["gap"] = pegasos.relative_gap(primal, walk, plan)
                curve.append(point)
    return curve


def _kernel_steps() -> list[dict[str, Any]]:
    X, y, _, _ = load("letter")
    X, y = X[:2000], y[:2000]
    found = []
    for C in (0.1, 1.0):
        exact = ApportionedSVC(C=C, gamma=1 / 16, tol=1e-5).fit(X, y)
        for passes in (1, 3, 10, 30, 100):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.process_time()
                walked = ApportionedSVC(
                    C=C, gamma=1 / 16, solver="pegasos", max_iter=passes, tol=1e-9, random_state=0
                ).fit(X, y)
            found.append(
                {
                    "C": C,
                    "passes": passes,
                    "seconds": time.process_time() - start,
                    "excess": walked.objective_ / exact.objective_ - 1,
                    "gap": walked.dual_gap_,
                }
            )
            print(f"kernel, C={C}, {passes} passes: {found[-1]['excess']:.4f}", flush=True)
    return found


# ---------------------------------------------------------------- race

CS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
RACE_PASSES = 20


def race(repeats: int = 5) -> dict[str, Any]:
    """Both are tuned on a fifth of the training rows by expected cost after five passes, then run pass by pass."""
    return {name: _race(name, repeats) for name in ("dense", "sparse")}


def _race(name: str, repeats: int) -> dict[str, Any]:
    split = load(name)
    k, n = int(split.y.max()) + 1, len(split.y)
    theta = costs_of(k)

    def ours(n: int, seed: int, C: float, **settings: Any) -> Any:
        return ApportionedSGDClassifier(theta, C=C, n_total=n, random_state=seed, **settings)

    def theirs(n: int, seed: int, C: float, **settings: Any) -> Any:
        from sklearn.linear_model import SGDClassifier

        weight = dict(enumerate(theta))
        return SGDClassifier(alpha=1 / (n * C), class_weight=weight, random_state=seed, **settings)

    grids = {
        "ApportionedSGDClassifier": (
            ours,
            [
                {"C": C, **powers}
                for C in CS
                for powers in (
                    {"loss": "one-vs-rest"},
                    {"margin_power": 0.5, "slack_power": 0.5},
                    {"margin_power": 0.5, "slack_power": 1.0},
                    {"margin_power": 1.0, "slack_power": 0.0},
                )
            ],
        ),
        "SGDClassifier": (
            theirs,
            [
                {"C": C, "average": average, **rate}
                for C in CS
                for average in (False, True)
                for rate in (
                    {"learning_rate": "optimal"},
                    {"learning_rate": "invscaling", "eta0": 0.01, "power_t": 0.5},
                    {"learning_rate": "invscaling", "eta0": 0.1, "power_t": 0.5},
                )
            ],
        ),
    }
    order = np.random.RandomState(0).permutation(n)
    fit, held = order[n // 5 :], order[: n // 5]
    chosen = {}
    for method, (make, grid) in grids.items():
        scores = []
        for settings in grid:
            model = make(len(fit), 0, **settings)
            for _ in range(5):
                model.partial_fit(split.X[fit], split.y[fit], np.arange(k))
            scores.append(expected_cost(split.y[held], model.predict(split.X[held]), costs=theta))
        chosen[method] = grid[int(np.argmin(scores))]
        print(f"{name}, {method}: {chosen[method]} ({min(scores):.4f} held out)", flush=True)
    runs: dict[str, list[Any]] = {method: [] for method in grids}
    for seed in range(repeats):
        for method, (make, _) in grids.items():
            model, spent, curve = make(n, seed, **chosen[method]), 0.0, []
            for _ in range(RACE_PASSES):
                start = time.perf_counter()
                model.partial_fit(split.X, split.y, np.arange(k))
                spent += time.perf_counter() - start
                cost = expected_cost(split.y_test, model.predict(split.X_test), costs=theta)
                curve.append({"seconds": spent, "cost": cost})
            runs[method].append(curve)
    limits = {m: float(np.mean([[p["cost"] for p in c] for c in runs[m]], axis=0).min()) for m in runs}
    records = []
    for what, target in (
        ("of either", 1.01 * min(limits.values())),
        ("of SGDClassifier", 1.01 * limits["SGDClassifier"]),
    ):
        times = {m: [_reached(curve, target) for curve in runs[m]] for m in runs}
        ratios = [
            a["seconds"] / b["seconds"]
            for a, b in zip(times["ApportionedSGDClassifier"], times["SGDClassifier"], strict=True)
            if a and b
        ]
        records.append(
            {
                "target": what,
                "cost": target,
                "times": times,
                "ratio": float(np.median(ratios)) if len(ratios) == repeats else None,
            }
        )
        print(f"{name}, target {what}: ratio {records[-1]['ratio']}", flush=True)
    seconds = {m: float(np.median([c[-1]["seconds"] / RACE_PASSES for c in runs[m]])) for m in runs}
    return {
        "n": n,
        "costs": theta.tolist(),
        "chosen": chosen,
        "limits": limits,
        "seconds_a_pass": seconds,
        "records": records,
    }


def _reached(curve: list[dict[str, float]], target: float) -> dict[str, float] | None:
    """The first pass at or below the target."""
    for passes, point in enumerate(curve, 1):
        if point["cost"] <= target:
            return {"passes": passes, "seconds": point["seconds"]}
    return None


# ---------------------------------------------------------------- files

COLUMNS = 100
TABLES = {  # rows, classes, what pyarrow is told when it writes the file
    "ten-classes.parquet": (5_000_000, 10, {}),
    "two-classes.parquet": (5_000_000, 2, {}),
    "uncompressed.parquet": (5_000_000, 10, {"compression": "none", "use_dictionary": False}),
    "text.csv": (500_000, 10, {}),
}


def files(repeats: int = 5) -> dict[str, Any]:
    """Parquet files as pyarrow writes them by default, one without compression, and a tenth of the rows as CSV."""
    folder = Path(tempfile.mkdtemp(prefix="apportion-streams-"))
    found = []
    try:
        free = shutil.disk_usage(folder).free / 2**30
        if free < 12:
            raise SystemExit(f"{folder} has {free:.0f} GB free; this part needs 12.")
        for name, (rows, classes, form) in TABLES.items():
            start = time.perf_counter()
            _write(folder / name, rows, classes, form)
            print(f"{name}: written in {time.perf_counter() - start:.0f} s", flush=True)
            ways = ("pyarrow", "lean", "fit") if name.endswith("parquet") else ("pyarrow", "fit")
            runs = []
            for _ in range(repeats):
                runs.append({way: _measure(folder / name, way) for way in ways})
                print(
                    {way: f"{rows / run['seconds']:,.0f} rows/s" for way, run in runs[-1].items()}, flush=True
                )
            size = os.path.getsize(folder / name)
            found.append({"file": name, "rows": rows, "classes": classes, "bytes": size, "runs": runs})
            (folder / name).unlink()
    finally:
        shutil.rmtree(folder)
    return {"columns": COLUMNS, "files": found}


def _chunk(i: int, rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Chunk i of the synthetic table: clusters that overlap."""
    centres = 0.35 * np.random.default_rng(0).standard_normal((classes, COLUMNS), dtype=np.float32)
    draw = np.random.default_rng([1, i])
    y = draw.integers(0, classes, rows)
    return draw.standard_normal((rows, COLUMNS), dtype=np.float32) + centres[y], y


def _write(path: Path, rows: int, classes: int, form: dict[str, Any], part: int = 100_000) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    writer = None
    for i in range(rows // part):
        X, y = _chunk(i, part, classes)
        table = pa.table({f"x{j}": X[:, j] for j in range(COLUMNS)} | {"y": y})
        if writer is None:
            kind = pa.csv.CSVWriter if path.suffix == ".csv" else pa.parquet.ParquetWriter
            writer = kind(path, table.schema, **form)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _measure(path: Path, way: str) -> dict[str, float]:
    """One way through the file in a process of its own: seconds, seconds of CPU, peak memory in MB."""
    command = [sys.executable, __file__, "--through", str(path), way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def through(path: Path, way: str) -> dict[str, float]:
    """What `_measure` runs."""
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    classes = TABLES[path.name][1]
    model = ApportionedSGDClassifier(costs_of(classes), loss="one-vs-rest", C=1e-4, random_state=0)
    if way == "fit":  # compiled code is loaded before the clock starts
        X, y = _chunk(0, 2000, classes)
        fit_stream(ApportionedSGDClassifier(C=1e-3), [(X.astype(float) if path.suffix == ".csv" else X, y)])
    start, cpu = time.perf_counter(), time.process_time()
    if way == "fit":
        with tempfile.TemporaryDirectory() as folder:
            settings = {"memory": 128, "checkpoint": Path(folder, "checkpoint")}
            fit_stream(model, path, target="y", classes=np.arange(classes), **settings)
    elif path.suffix == ".csv":
        for _ in csv.open_csv(path):
            pass
    elif way == "pyarrow":
        for _ in parquet.ParquetFile(path).iter_batches():
            pass
    else:  # the fastest settings found
        with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for _ in file.iter_batches(65_536):
                pass
    found = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            found["peak"] = int(line.split()[1]) / 1024
    if way == "fit":
        X, y = _chunk(10**6, 50_000, classes)  # rows that are in no file
        found["cost"] = expected_cost(y, model.predict(_named(X)), costs=costs_of(classes))
    return found


def _named(X: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


# ---------------------------------------------------------------- maps


def maps() -> dict[str, Any]:
    """Features of a kernel, then the linear machine; C and gamma are those of the exact machine."""
    from sklearn.kernel_approximation import Nystroem, RBFSampler
    from sklearn.pipeline import make_pipeline

    pairs = (("Nystroem", "linear"), ("RBFSampler", "linear"), ("Nystroem", "SGD"))
    found = []
    for name, C, gamma in (
        ("letter", 10.0, 1 / 16),
        ("satimage", 10.0, 1 / 36),
        ("mixture-40000-10", 1.0, 0.05),
        ("mixture-100000-10", 1.0, 0.05),
    ):
        split = data._cached(name, lambda: data._mixture(10, 100_000)) if "100000" in name else load(name)
        theta = costs_of(int(split.y.max()) + 1)
        models: list[tuple[str, int | None, Any]] = [
            ("ApportionedSVC", None, ApportionedSVC(theta, C=C, gamma=gamma))
        ]
        for size in (100, 300, 1000, 2000):
            for first, last in pairs:
                kind = Nystroem if first == "Nystroem" else RBFSampler
                features = kind(gamma=gamma, n_components=size, random_state=0)
                if last == "linear":
                    linear: Any = ApportionedLinearSVC(theta, C=C)
                else:
                    linear = ApportionedSGDClassifier(theta, C=C, random_state=0)
                models.append((f"{first} + {last}", size, make_pipeline(features, linear)))
        exact = None
        for label, size, model in models:
            record = {
                "data": name,
                "rows": len(split.y),
                "C": C,
                "gamma": gamma,
                "model": label,
                "size": size,
            }
            start, cpu = time.perf_counter(), time.process_time()
            model.fit(split.X, split.y)
            record |= {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
            decided = model.predict(split.X_test)
            exact = decided if exact is None else exact
            record["cost"] = expected_cost(split.y_test, decided, costs=theta)
            record["agree"] = float(np.mean(decided == exact))
            found.append(record)
            print(name, label, size, f"{record['cpu']:.1f} s, cost {record['cost']:.4f}", flush=True)
    return {"records": found}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"steps": steps, "race": race, "files": files, "maps": maps}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--table", action="store_true", help="only write the tables again, from the results")
    parser.add_argument("--through", nargs=2, metavar=("FILE", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.through:
        print(json.dumps(through(Path(options.through[0]), options.through[1])))
        return
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for part in [] if options.table else options.parts or list(PARTS):
        start = time.perf_counter()
        results = {"machine": machine({}), **PARTS[part](), "seconds": time.perf_counter() - start}
        file = ROOT / "results" / f"{FILES[part]}.json"
        partial = file.with_name(file.name + ".part")
        partial.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
        partial.replace(file)
        print(f"{file}: {results['seconds']:.0f} s", flush=True)
    known = {part: ROOT / "results" / f"{name}.json" for part, name in FILES.items()}
    streams_report.write(
        {part: json.loads(file.read_text()) for part, file in known.items() if file.exists()}, ROOT / "docs"
    )


if __name__ == "__main__":
    main()
