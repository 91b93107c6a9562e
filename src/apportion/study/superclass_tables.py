"""The tables of the superclass experiment, made from the file that `superclass.run` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..files import write_whole

Rows = dict[str, dict[str, NDArray[np.float64]]]  # method -> score -> (seeds,)

PAPER = {  # Table 4: sensitivity to the aquatic mammals, cost
    "weighted softmax": (0.815, 0.186),
    "weighted hinge": (0.805, 0.201),
    "apportioned": (0.86, 0.153),
}
OURS = ("apportioned", "apportioned, tuned", "lee-lin-wahba", "lee-lin-wahba, tuned")
RIVALS = ("weighted softmax", "weighted hinge", "softmax + Bayes")
MATRIX = ("softmax + Bayes, matrix", "squared cost, matrix", "lee-lin-wahba, matrix")


def by_method(tests: list[dict[str, Any]]) -> Rows:
    """The scores of each method, in the order of the seeds."""
    rows: Rows = {}
    for name in dict.fromkeys(row["method"] for row in tests):
        mine = sorted((row for row in tests if row["method"] == name), key=lambda row: int(row["seed"]))
        rows[name] = {
            key: np.array([row[key] for row in mine]) for key in mine[0] if key not in ("method", "seed")
        }
    return rows


def mean(x: NDArray[np.float64]) -> str:
    """Mean and standard error."""
    return f"{x.mean():.4f} ± {x.std(ddof=1) / np.sqrt(len(x)):.4f}"


def t_test(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """p of the paired t test; nan where all seeds differ by the same amount (two seeds may)."""
    return float("nan") if np.ptp(a - b) < 1e-12 else float(stats.ttest_rel(a, b).pvalue)


def paired(a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    """Is a lower or higher than b, and p of the paired t test; methods may have chosen the same networks."""
    if np.array_equal(a, b):
        return "same"
    return f"{'lower' if a.mean() < b.mean() else 'higher'}, {t_test(a, b):.1g}"


def best_of_ours(reading: dict[str, Any]) -> str:
    """The one of our methods with the least cost on the validation images; the test images have no say."""
    least = {name: min(row["cost"] for row in reading["tuning"] if row["method"] == name) for name in OURS}
    return min(least, key=lambda name: least[name])


def setting(reading: dict[str, Any], name: str, judge: str = "cost") -> str:
    row = min((row for row in reading["tuning"] if row["method"] == name), key=lambda row: row[judge])
    return f"{row['loss']}, {row['rate']:g}"


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def reading_table(reading: dict[str, Any]) -> str:
    """All methods that are trained on the cost vector, the cheapest first; ours in bold."""
    rows = by_method(reading["tests"])
    head = ["method", "cost", "sensitivity", "superclass cost", "superclass sensitivity"]
    head += [f"against {rival}, p" for rival in RIVALS] + ["trained as, rate"]
    lines = []
    for name in sorted((n for n in rows if n not in MATRIX), key=lambda n: rows[n]["cost"].mean()):
        s = rows[name]
        lines.append(
            [
                f"**{name}**" if name in OURS else name,
                mean(s["cost"]),
                f"{s['sensitivity'].mean():.1%}",
                mean(s["super_cost"]),
                f"{s['super_sensitivity'].mean():.1%}",
                *(paired(s["cost"], rows[rival]["cost"]) for rival in RIVALS),
                setting(reading, name),
            ]
        )
    return table(head, lines)


def matrix_table(reading: dict[str, Any]) -> str:
    """By the cost matrix over the superclasses: methods that know it, and the best of ours that does not."""
    rows = by_method(reading["tests"])
    head = [
        "method",
        "matrix cost",
        "superclass cost",
        "superclass sensitivity",
        "against softmax + Bayes, matrix, p",
    ]
    lines = [
        [
            f"**{name}**" if name.startswith("lee") or name in OURS else name,
            mean(rows[name]["matrix_cost"]),
            mean(rows[name]["super_cost"]),
            f"{rows[name]['super_sensitivity'].mean():.1%}",
            paired(rows[name]["matrix_cost"], rows[MATRIX[0]]["matrix_cost"]),
        ]
        for name in (*MATRIX, best_of_ours(reading))
    ]
    return table(head, lines)


def paper_table(readings: dict[str, Any]) -> str:
    """The paper's Table 4 beside ours, in the four classes: an error within a superclass is an error too."""
    kept = [drop for drop in ("0.25", "0.75", "0.5") if drop in readings]
    head = ["method", "paper: sensitivity", "paper: cost"]
    for drop in kept:
        head += [f"dropout {drop}: sensitivity", f"dropout {drop}: cost"]
    lines = []
    names = list(PAPER) + [
        n for n in dict.fromkeys(best_of_ours(readings[drop]) for drop in kept) if n not in PAPER
    ]
    for name in names:
        line = [name, *((f"{PAPER[name][0]:.1%}", f"{PAPER[name][1]:.3f}") if name in PAPER else ("", ""))]
        for drop in kept:
            s = by_method(readings[drop]["tests"])[name]
            line += [f"{s['sensitivity'].mean():.1%}", f"{s['cost'].mean():.3f}"]
        lines.append(line)
    return table(head, lines)


def verdict(drop: str, reading: dict[str, Any]) -> str:
    """The best of ours against the plain rivals, and against those whose class weights were tuned too."""
    name, rows = best_of_ours(reading), by_method(reading["tests"])
    mine = rows[name]["cost"]
    against = []
    for rival in (*RIVALS, "weighted softmax, tuned", "weighted hinge, tuned"):
        theirs = rows[rival]["cost"]
        t, w = t_test(mine, theirs), stats.wilcoxon(mine, theirs).pvalue
        against.append(f"{rival}: {theirs.mean():.4f} (t test {t:.1g}, Wilcoxon {w:.1g})")
    return f"Dropout {drop}: {name}, our best on the validation images, costs {mine.mean():.4f}; " + (
        "; ".join(against) + "."
    )


def markdown(results: dict[str, Any]) -> str:
    readings, s = results["readings"], results["settings"]
    parts = [
        f"{s['seeds']} seeds, {s['epochs']} epochs, batches of {s['batch']}, {s['images']} training images; "
        f"Adam at one of {', '.join(f'{r:g}' for r in s['rates'])}, times {s['decay']:g} after each epoch; "
        f"settings chosen on {s['tuning_seeds']} validation splits.",
        "### Beside the paper's Table 4",
        paper_table(readings),
        "\n".join(f"- {verdict(drop, reading)}" for drop, reading in readings.items()),
    ]
    for drop, reading in readings.items():
        parts += [
            f"### Dropout {drop} ({reading['device']}, torch {reading['torch']})",
            reading_table(reading),
        ]
    for drop, reading in readings.items():
        parts += [f"### Cost matrix over the superclasses, dropout {drop}", matrix_table(reading)]
    return "\n\n".join(parts) + "\n"


def around(page: Path, name: str) -> tuple[str, str]:
    """What stands on a page up to the first mark of this name, and from the second one on."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    whole = page.read_text()
    if begin not in whole or end not in whole:
        raise ValueError(
            f"{page} must have the lines {begin.strip()!r} and {end!r}; the tables go between them."
        )
    head, rest = whole.split(begin, 1)
    return head + begin, end + rest.split(end, 1)[1]


def write_into(page: Path, name: str, text: str) -> None:
    """Replace what stands between the two marks of this name on a page."""
    head, tail = around(page, name)
    write_whole(page, (head + text + tail).encode())
