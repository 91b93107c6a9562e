"""The tables and the plot of docs/streams.md, from the results of benchmarks/streams.py."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from apportion.study.superclass_tables import table, write_into

Results = dict[str, Any]
EPSILONS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
COLOURS = {0.001: "#009E73", 0.01: "#0072B2", 0.1: "#D55E00"}  # of Okabe and Ito


def write(results: dict[str, Results], docs: Path) -> None:
    """Every table whose results are there, into its place in docs/streams.md."""
    page = docs / "streams.md"
    for part, make in (("steps", steps), ("race", race), ("files", files), ("maps", maps)):
        if part in results:
            write_into(page, part, make(results[part]) + _where(results[part]))
    if "steps" in results:
        plot(results["steps"], docs / "pegasos.png")


def _where(found: Results) -> str:
    facts = found["machine"]
    return (
        f"\n({facts['cpu']}, {facts['cores']} cores shared with other work, scikit-learn "
        f"{facts['versions']['scikit-learn']}, {facts['date']}.)\n"
    )


# ---------------------------------------------------------------- steps


def steps(found: Results) -> str:
    n, lines = found["n"], []
    curves = {(c["loss"], c["C"], c["variant"]): c["curve"] for c in found["linear"]}
    variants = list(dict.fromkeys(c["variant"] for c in found["linear"]))
    for loss, C in dict.fromkeys((c["loss"], c["C"]) for c in found["linear"]):
        cells = [f"{loss}, C = {C:g}"]
        for variant in variants:
            curve = curves.get((loss, C, variant))
            reached = None if curve is None else next((p for p in curve if p["excess"] <= 0.01), None)
            last = "" if curve is None else f"more than {curve[-1]['passes']:g}"
            cells.append(last if reached is None else f"{reached['passes']:g}")
        averaged = curves[loss, C, "averaged, delayed"]
        twenty = next(p for p in averaged if p["passes"] == 20)
        lines.append([*cells, f"{100 * twenty['excess']:.2g} %", f"{100 * twenty['gap']:.2g} %"])
    head = ["passes to 1 % of the optimum", *variants, "excess after 20", "gap after 20"]
    text = [table(head, lines), "", "The last two columns are those of the averaged, delayed form.", ""]
    text += [_claim(found, n), "", _kernel(found["kernel"])]
    return "\n".join(text) + "\n"


def _claim(found: Results, n: int) -> str:
    """Steps until the objective of the paper is within epsilon, and what the claim says they are proportional to."""
    lines, text = [], []
    for variant in ("as published", "averaged"):
        points = []
        for c in found["linear"]:
            if c["loss"] != "one-vs-rest" or c["variant"] != variant:
                continue
            lam, cells = 1 / (n * c["C"]), [variant, f"{1 / (n * c['C']):.0e}"]
            for epsilon in EPSILONS:
                taken = _steps_to(c["curve"], epsilon)
                if taken is not None and taken > c["curve"][0]["steps"]:
                    points.append((np.log(1 / epsilon), np.log(1 / lam), np.log(taken)))
                    cells.append(f"{taken:,.0f} ({taken * lam * epsilon:.2g})")
                else:
                    cells.append("" if taken is None else f"under {c['curve'][0]['steps']:,.0f}")
            lines.append(cells)
        A = np.array(points)
        powers = np.linalg.lstsq(np.column_stack([np.ones(len(A)), A[:, :2]]), A[:, 2], rcond=None)[0]
        text.append(f"{variant}: steps grow like (1/epsilon)^{powers[1]:.2f} (1/lambda)^{powers[2]:.2f}")
    head = ["steps (times lambda epsilon)", "lambda", *(f"epsilon = {e:g}" for e in EPSILONS)]
    return table(head, lines) + "\n\nFitted: " + "; ".join(text) + ". The claim is 1 and 1."


def _steps_to(curve: list[dict[str, float]], epsilon: float) -> float | None:
    """Where the curve first falls to epsilon, between two of its points on logarithmic scales."""
    before = None
    for point in curve:
        if point["epsilon"] <= epsilon:
            if before is None:
                return point["steps"]
            low, high = (np.log(max(p["epsilon"], 1e-12)) for p in (point, before))
            share = (high - np.log(epsilon)) / (high - low)
            return float(np.exp((1 - share) * np.log(before["steps"]) + share * np.log(point["steps"])))
        before = point
    return None


def _kernel(records: list[Results]) -> str:
    lines = [
        [
            f"{r['C']:g}",
            str(r["passes"]),
            f"{100 * r['excess']:.2g} %",
            f"{100 * r['gap']:.2g} %",
            f"{r['seconds']:.1f}",
        ]
        for r in records
    ]
    return table(["kernel Pegasos, C", "passes", "excess", "gap", "CPU (s)"], lines)


def plot(found: Results, file: Path) -> None:
    """Distance from the optimum against steps, for three lambda, and the claim's slope."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for c in found["linear"]:
        if c["loss"] != "one-vs-rest" or c["variant"] not in ("as published", "averaged"):
            continue
        curve = [p for p in c["curve"] if p["epsilon"] > 0]
        averaged = c["variant"] == "averaged"
        axis.plot(
            [p["steps"] for p in curve],
            [p["epsilon"] for p in curve],
            "-" if averaged else ":",
            color=COLOURS[c["C"]],
            label=f"lambda = {1 / (found['n'] * c['C']):.0e}, {'average' if averaged else 'last'}",
        )
    ends = np.array([3e4, 1e7])
    axis.plot(ends, 1e5 / ends, "k--", lw=1, label="slope of the claim, 1 / steps")
    axis.set(
        xscale="log", yscale="log", xlabel="steps (one example each)", ylabel="objective less its optimum"
    )
    axis.set_title("Linear Pegasos on 100,000 x 100 rows, ten classes")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=120)
    plt.close(figure)


# ---------------------------------------------------------------- race


def race(found: Results) -> str:
    lines, settings = [], []
    for data in ("dense", "sparse"):
        part = found[data]
        for record in part["records"]:
            cells = [data, f"1.01 x the best {record['target']}", f"{record['cost']:.4f}"]
            for method in ("ApportionedSGDClassifier", "SGDClassifier"):
                times = record["times"][method]
                if all(times):
                    passes = median(t["passes"] for t in times)
                    cells.append(f"{median(t['seconds'] for t in times):.2f} s, {passes:g} passes")
                else:
                    cells.append(f"not in {sum(t is None for t in times)} of {len(times)} runs")
            lines.append([*cells, "" if record["ratio"] is None else f"{record['ratio']:.2f}"])
        for method, chosen in part["chosen"].items():
            words = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
            settings.append(
                f"- {data}, `{method}`: {words}; best mean test cost {part['limits'][method]:.4f}; "
                f"{part['seconds_a_pass'][method]:.2f} s a pass"
            )
    head = [
        "table",
        "test cost to reach",
        "which is",
        "ApportionedSGDClassifier",
        "SGDClassifier",
        "ratio of times",
    ]
    return table(head, lines) + "\n\nChosen, and what 20 passes reach:\n\n" + "\n".join(settings) + "\n"


# ---------------------------------------------------------------- files


def files(found: Results) -> str:
    lines = []
    for part in found["files"]:
        runs, rows = part["runs"], part["rows"]
        cells = [part["file"], f"{rows:,}", f"{part['bytes'] / 2**30:.2f} GB"]
        for way in ("pyarrow", "lean", "fit"):
            cells.append(_middle((rows / r[way]["seconds"] / 1e3 for r in runs if way in r), "{:,.0f}k"))
        for way in ("pyarrow", "lean"):
            cells.append(
                _middle((r["fit"]["seconds"] / r[way]["seconds"] for r in runs if way in r), "{:.2f}")
            )
        cells.append(_middle((r["fit"]["cpu"] / r["lean"]["cpu"] for r in runs if "lean" in r), "{:.2f}"))
        for way in ("pyarrow", "fit"):
            cells.append(f"{max(r[way]['peak'] for r in runs):,.0f} MB")
        lines.append(cells)
    head = ["file", "rows", "size", "read: pyarrow (rows/s)", "read: leanest (rows/s)", "fit (rows/s)"]
    head += ["time of fit / pyarrow", "/ leanest", "CPU of fit / leanest", "peak memory: pyarrow", "fit"]
    return table(head, lines) + "\n"


def _middle(values: Iterable[float], form: str) -> str:
    found = list(values)
    return form.format(median(found)) if found else ""


# ---------------------------------------------------------------- maps


def maps(found: Results) -> str:
    text = []
    for data in dict.fromkeys(r["data"] for r in found["records"]):
        records = [r for r in found["records"] if r["data"] == data]
        exact = records[0]
        lines = []
        for r in records:
            excess = "" if r is exact else f"{100 * (r['cost'] / exact['cost'] - 1):+.1f} %"
            cells = [
                r["model"],
                "" if r["size"] is None else str(r["size"]),
                f"{r['cpu']:.1f}",
                f"{r['cost']:.4f}",
            ]
            lines.append([*cells, excess, f"{100 * r['agree']:.1f} %"])
        head = ["model", "features", "fit (CPU s)", "test cost", "above exact", "decides as exact"]
        setting = f"{exact['rows']:,} rows, C = {exact['C']:g}, gamma = {exact['gamma']:.3g}"
        text.append(f"**{data}** ({setting})\n\n{table(head, lines)}\n")
    return "\n".join(text)
