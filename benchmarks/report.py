"""docs/benchmarks.md and its plot, made from results/solvers.json alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

Record = dict[str, Any]
Results = dict[str, dict[str, Any]]
KERNEL_BARS = {"letter": 0.12, "satimage": 0.15, "penbased": 0.10, "optdigits": 0.10}
DENSE_BARS = {"dense-0.01": 0.2, "dense-1": 0.05}
SPARSE_BARS = {1: 0.9, 2: 0.6}  # by threads
LOSSES_BAR, COSTS_BAR, PREDICT_BAR, IMPORT_BAR = 3.0, 2.0, 0.1, 0.3
NOISE = 0.3  # cores taken by other processes, above which a table says so
TITLES = {
    "kernel": "Kernel machine, one-vs-rest",
    "pairwise": "Kernel machine, one machine a pair of classes",
    "losses": "The other losses",
    "costs": "Unequal costs",
    "dense": "Linear machine, dense data",
    "sparse": "Linear machine, sparse data",
    "scale": "Growth of time and memory",
    "convergence": "Gap against time",
    "startup": "Import and first fit",
}
HEAD = """# Benchmarks

Written by `make bench` (`benchmarks/solvers.py`) from `results/solvers.json`; do not edit.

- Every method is judged by one function, in float64 with the exact kernel: primal value P at the best
  intercept, dual value D of the method's own coefficients made feasible, gap = (P - D) / P. In the
  linear tables, where peers return no dual solution, it is how far P lies above the best dual value any
  method reached, as a share of P.
- Peers run with their default tolerance. Ours gets the gap of the fastest peer as its tolerance; linear
  machines run at 1e-3 or tighter, until their primal value is at or below that of the fastest peer and of
  the peer the bar names. Tighter settings of linear peers run where the default took less than 30 s.
- Each run has a fresh process, the methods taking turns: a small fit that is not timed, the first fit of all
  rows, and the same fit again, up to five times and for some ten seconds. *Time* is the median of the fits
  done again, which is what a search over settings pays and how the bars were once measured; *first* also
  pays for memory the system hands out for the first time. Figures are medians over the runs; methods slower
  than 15 s run once.
- *x peer* is the time divided by that of the fastest peer that was given no more threads; SGDClassifier,
  which has no tolerance of the objective, and machines with another objective do not count. Memory is
  the peak above what the process held before the fit, worker processes included. The error is that of
  the test part.
"""


class Bar(NamedTuple):
    scenario: str
    what: str
    figure: float
    limit: float
    first: float | None = None  # the same figure for the first fit of a process
    unit: str = "x"

    @property
    def verdict(self) -> str:
        return "met" if self.figure <= self.limit else "**missed**"


# ---------------------------------------------------------------- figures from records


def time_of(record: Record, key: str = "fit") -> float:
    return median(run[key] for run in record["runs"]) if record["runs"] else float("nan")


def fit_bar(scenario: str, what: str, ours: Record, peer: Record, limit: float) -> Bar:
    times, firsts = ((time_of(ours, key), time_of(peer, key)) for key in ("fit", "first"))
    return Bar(scenario, what, times[0] / times[1], limit, firsts[0] / firsts[1])


def error_of(record: Record) -> float:
    return record["runs"][0]["error"]


def line(record: Record) -> str:
    """One line of progress."""
    start = f"{record['data']:<16} {record['label'].replace('*', ''):<36} {record['threads']} thread(s)"
    if record["status"] != "ok":
        detail = record.get("detail", "").strip().splitlines()[-1:]
        return f"{start}  {record['status']}" + (f" ({detail[0]})" if detail else "")
    gap = record["gap"] if record.get("gap") is not None else float("nan")
    values = f"{time_of(record):8.3f} s  gap {gap:8.2e}  P {record['primal']:.8g}"
    values += f"  {time_of(record, 'memory'):6.0f} MB"
    load = f"  others {time_of(record, 'foreign'):.1f} cores" if time_of(record, "foreign") > NOISE else ""
    return f"{start} {values}  error {error_of(record):.4f}{load}"


def done(results: Results, scenario: str) -> list[Record]:
    return [r for r in results.get(scenario, {}).get("records", []) if r.get("status") == "ok"]


def rival(records: list[Record], threads: int) -> Record | None:
    """The fastest peer that was given no more than `threads`."""
    able = [r for r in records if r["rival"] and r["status"] == "ok" and r["threads"] <= threads]
    return min(able, key=time_of, default=None)


def bars(results: Results) -> Iterator[Bar]:
    for data, limit in KERNEL_BARS.items():
        name = f"kernel-{data}"
        records = done(results, name)
        machines = [r for r in records if r["method"].startswith("svc-")]
        for ours in (r for r in records if r["ours"]):
            threads = f"{ours['threads']} thread(s)"
            if peer := rival(records, ours["threads"]):
                yield fit_bar(name, f"fit, {threads}, against {peer['label']}", ours, peer, limit)
            for pairs in (r for r in records if r["method"] == "svc-ovo" and data == "letter"):
                yield fit_bar(name, f"fit, {threads}, against SVC one-vs-one", ours, pairs, 1.0)
            if machines:
                fast = min(time_of(r, "predict") for r in machines)
                yield Bar(
                    name, f"predict, {threads}, against SVC", time_of(ours, "predict") / fast, PREDICT_BAR
                )
    for name in results:
        records = done(results, name)
        family = name.partition("-")[0]
        if family == "pairwise":
            for ours in (r for r in records if r["ours"]):
                if peer := rival(records, ours["threads"]):
                    what = f"fit, {ours['threads']} thread(s), against SVC one-vs-one"
                    yield fit_bar(name, what, ours, peer, 1.0)
        if family in ("losses", "costs") and records:
            limit = LOSSES_BAR if family == "losses" else COSTS_BAR
            base = records[0]
            for other in records[1:]:
                what = f"{_note(other)} against {_note(base)}"
                yield fit_bar(name, what, other, base, limit)
        if family in ("dense", "sparse"):
            reference = "linearsvc" if family == "dense" else "liblinear"
            peers = [r for r in records if r["method"] == reference]
            for ours in (r for r in records if "target_primal" in r and peers):
                limit = DENSE_BARS[name] if family == "dense" else SPARSE_BARS[ours["threads"]]
                what = f"fit, {ours['threads']} thread(s), against {peers[0]['label']}"
                yield fit_bar(name, what, ours, peers[0], limit)
    times = {
        r["what"]: median(r["seconds"]) for r in results.get("startup", {}).get("records", []) if r["seconds"]
    }
    if {"import sklearn", "import apportion"} <= times.keys():
        yield Bar(
            "startup",
            "import, above sklearn's",
            times["import apportion"] - times["import sklearn"],
            IMPORT_BAR,
            unit=" s",
        )


def exponent(sizes: list[float], values: list[float]) -> float:
    """Slope of log(value) over log(size), by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


# ---------------------------------------------------------------- Markdown


def write(results: Results, docs: Path) -> None:
    docs.mkdir(parents=True, exist_ok=True)
    plotted = plot(results, docs / "convergence.png")
    parts = [HEAD, *_machines(results), *_summary(list(bars(results)))]
    family = ""
    for name, scenario in results.items():
        start = name.partition("-")[0]
        if start != family:
            family = start
            parts.append(f"## {TITLES.get(family, family)}\n")
        if family == "convergence":
            parts += ["![Gap against time](convergence.png)\n"] if plotted else []
        elif family == "startup":
            parts.append(_startup(scenario["records"]))
        elif family == "scale":
            parts.append(_scale(scenario["records"]))
        else:
            parts.append(
                _comparison(name, scenario["records"], [bar for bar in bars(results) if bar.scenario == name])
            )
    partial = docs / "benchmarks.md.partial"
    partial.write_text("\n".join(parts))
    partial.replace(docs / "benchmarks.md")


def _rows(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows]) + "\n"


def _machines(results: Results) -> Iterator[str]:
    seen: dict[str, list[str]] = {}
    for name, scenario in results.items():
        facts = scenario["machine"]
        cpu = f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB"
        versions = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
        text = f"{cpu}, {facts['system']}; {versions}; commit {facts['commit'] or 'none'}, {facts['date']}"
        seen.setdefault(text, []).append(name)
    for text, names in seen.items():
        yield f"Machine{'' if len(seen) == 1 else ' of ' + ', '.join(names)}: {text}.\n"


def _summary(found: list[Bar]) -> Iterator[str]:
    met = sum(bar.figure <= bar.limit for bar in found)
    yield f"## Bars: {met} of {len(found)} met\n"
    rows = []
    for bar in found:
        first = "" if bar.first is None else f"{bar.first:.3g}{bar.unit}"
        figure, limit = f"{bar.figure:.3g}{bar.unit}", f"{bar.limit:g}{bar.unit}"
        rows.append([bar.scenario, bar.what, figure, limit, bar.verdict, first])
    yield _rows(["scenario", "what", "figure", "bar", "", "first fit"], rows)
    if met < len(found):
        yield "\nWhy bars are missed, and what the floor is: [Where the time goes](solver.md#where-the-time-goes).\n"


def _comparison(name: str, records: list[Record], found: list[Bar]) -> str:
    first = records[0]
    setting = ", ".join(
        f"{key} = {first['params'][key]:g}" for key in ("C", "gamma") if key in first["params"]
    )
    measured = [r for r in records if r["status"] == "ok"]
    own = name.startswith(("losses", "costs"))  # against our own first row instead of a peer
    excess = any("excess" in r for r in measured)
    head = [
        "method",
        "threads",
        "time (s)",
        "x first row" if own else "x peer",
        "first (s)",
        "P excess" if excess else "gap",
    ]
    rows = []
    for r in records:
        if r["status"] != "ok":
            rows.append([r["label"], str(r["threads"]), r["status"], *[""] * 6])
            continue
        peer = measured[0] if own else rival(measured, r["threads"])
        ratio = f"{time_of(r) / time_of(peer):.3g}" if peer else ""
        gap = r.get("excess") if excess else r["gap"]
        cells = [r["label"] + ("" if r["runs"][0]["converged"] else " (not converged)"), str(r["threads"])]
        cells += [
            f"{time_of(r):.3g}",
            ratio,
            f"{time_of(r, 'first'):.3g}",
            "" if gap is None else f"{gap:.1e}",
            f"{time_of(r, 'memory'):.0f}",
        ]
        rows.append([*cells, f"{100 * error_of(r):.2f}", f"{1000 * time_of(r, 'predict'):.0f}"])
    text = [
        f"### {name} ({setting})\n",
        _rows([*head, "memory (MB)", "test error (%)", "predict (ms)"], rows),
    ]
    text += [
        f"- {bar.what}: {bar.figure:.3g}{bar.unit}, bar {bar.limit:g}{bar.unit}: {bar.verdict}"
        for bar in found
    ]
    for r in measured:
        if r.get("gap") is not None and r["gap"] > r.get("target", np.inf):
            missed = f"{r['gap']:.1e} > {r['target']:.1e}"
            text.append(f"- **gap not reached** by {r['label']}, {r['threads']} thread(s): {missed}")
        if r["ours"] and r["gap"] is not None and r["gap"] > 1.1 * r["runs"][0]["dual_gap"] + 1e-6:
            claim = f"{r['runs'][0]['dual_gap']:.1e} claimed, {r['gap']:.1e} measured"
            text.append(f"- **certificate too low**, {r['label']}, {r['threads']} thread(s): {claim}")
        if r["primal"] > r.get("target_primal", np.inf):
            text.append(f"- **primal value not reached** by {r['label']}, {r['threads']} thread(s)")
    noise = max((time_of(r, "foreign") for r in measured), default=0)
    if noise > NOISE:
        text.append(f"- other processes took up to {noise:.1f} cores during these runs")
    return "\n".join(text) + "\n"


def _scale(records: list[Record]) -> str:
    rows, groups = [], {}
    for r in records:
        _, n, k = r["data"].split("-")
        cells = [r["label"], n, k]
        if r["status"] != "ok":
            rows.append([*cells, r["status"], *[""] * 5])
            continue
        ours = r["ours"]
        table = 8 * int(n) * (20 + int(k)) / 1e6  # n (d + m) numbers
        cells += [f"{time_of(r):.3g}", f"{r['gap']:.1e}", f"{time_of(r, 'memory'):.0f}"]
        rows.append(
            [*cells, str(r["params"].get("cache_size", 1000)), f"{table:.1f}", f"{100 * error_of(r):.2f}"]
        )
        if "cache_size=" not in r["label"]:
            groups.setdefault((r["label"], "n", k) if k == "10" else (r["label"], "k", n), []).append(r)
            if ours and k == "10":
                groups.setdefault((r["label"], "k", n), []).append(r)
    head = [
        "method",
        "n",
        "k",
        "time (s)",
        "gap",
        "memory (MB)",
        "cache_size (MB)",
        "n (d + m) numbers (MB)",
        "test error (%)",
    ]
    text = ["RBF machines, one-vs-rest, 2 threads, d = 20, C = 1, gamma = 0.05.\n", _rows(head, rows)]
    for (label, over, other), group in groups.items():
        sizes = [float(r["data"].split("-")[1 if over == "n" else 2]) for r in group]
        if len(set(sizes)) < 2:
            continue
        time, memory = (exponent(sizes, [time_of(r, key) for r in group]) for key in ("fit", "memory"))
        fixed = f"{'k' if over == 'n' else 'n'} = {other}"
        text.append(f"- {label}, {fixed}: time grows like {over}^{time:.2f}, memory like {over}^{memory:.2f}")
    return "\n".join(text) + "\n"


def _startup(records: list[Record]) -> str:
    rows = [[r["what"], f"{median(r['seconds']):.3f}" if r["seconds"] else "failed"] for r in records]
    return _rows(["what", "seconds"], rows)


def _note(record: Record) -> str:
    return record["label"].partition(", ")[2]


# ---------------------------------------------------------------- the plot


def plot(results: Results, file: Path) -> bool:
    """Gap against time, a panel for each table; the colours of Okabe and Ito, a marker for each method."""
    records = done(results, "convergence")
    if not records:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    style = {
        "ours": ("#D55E00", "o", "apportion"),
        "ours-linear": ("#D55E00", "o", "apportion"),
        "svc-ovr": ("#0072B2", "s", "SVC"),
        "linearsvc": ("#0072B2", "s", "LinearSVC"),
        "libsvm-ovr": ("#009E73", "^", "LIBSVM"),
        "liblinear": ("#009E73", "^", "LIBLINEAR"),
    }
    tables = list(dict.fromkeys(r["data"] for r in records))
    figure, axes = plt.subplots(
        1, len(tables), figsize=(4 * len(tables), 3.6), squeeze=False, layout="constrained"
    )
    for axis, data in zip(axes[0], tables, strict=True):
        linear = data in ("dense", "sparse")
        for method, (colour, marker, label) in style.items():
            here = [r for r in records if (r["data"], r["method"]) == (data, method)]
            here.sort(key=lambda r: -r["params"]["tol"])
            points = [(time_of(r), r.get("excess") if linear else r["gap"]) for r in here]
            points = [(x, y) for x, y in points if y is not None and y > 0]
            if points:
                axis.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label)
        C = next(r["params"]["C"] for r in records if r["data"] == data)
        axis.set(xscale="log", yscale="log", title=f"{data}, C = {C:g}", xlabel="fit time (s), 1 thread")
        axis.set_ylabel("primal excess over the best dual" if linear else "relative duality gap")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    figure.suptitle("Down and left is better: distance from the optimum against fit time")
    figure.savefig(file, dpi=120)
    plt.close(figure)
    return True
