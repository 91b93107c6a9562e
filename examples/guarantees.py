"""What the bounds say on the paper's tables, how consistent each loss is, how often intervals cover.

    python examples/guarantees.py          writes results/guarantees.json and a section of docs/paper_notes.md
    python examples/guarantees.py --docs   writes the section from results/guarantees.json

Needs the tables: pip install apportion[bench]. Of each a tenth of the rows only sets the scale of the
features, six tenths train, three tenths test: so the scaling does not depend on the training rows, as the
compression bound asks.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from apportion import ApportionedLinearSVC, ApportionedSVC
from apportion.guarantees import consistency_report, error_bounds, error_intervals, leave_one_out
from apportion.study.datasets import TABLES, load_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS, NOTES = ROOT / "results" / "guarantees.json", ROOT / "docs" / "paper_notes.md"
BEGIN, END = "<!-- written by examples/guarantees.py -->", "<!-- end -->"


def load(name: str) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """A table of the paper, a column of zeros and ones for each category."""
    table = load_table(name)
    parts = [np.delete(table.X, table.categorical, axis=1)]
    if table.categorical:
        parts.append(OneHotEncoder(sparse_output=False).fit_transform(table.X[:, table.categorical]))
    return np.hstack(parts), table.y, table.costs


def bounds() -> list[dict]:
    rows = []
    for name in TABLES:
        X, y, costs = load(name)
        order = np.random.default_rng(0).permutation(len(y))
        scale, train, test = np.split(order, [len(y) // 10, 7 * len(y) // 10])
        X = StandardScaler().fit(X[scale]).transform(X)
        machine = ApportionedSVC(costs, gamma=1 / X.shape[1], C=1, tol=1e-6, max_iter=10_000)
        machine.fit(X[train], y[train])
        found = error_bounds(machine, X[train], y[train], X_test=X[test], y_test=y[test])
        exact = None
        if len(train) < 2000:
            exact = leave_one_out(machine, X[train], y[train], refit=True).high
        for c, row in enumerate(found.rows):
            rows.append({"table": name, "exact_loo": None if exact is None else exact[c], **vars(row)})
            rows[-1]["label"] = str(row.label)
            rows[-1]["ddag"] = row.ddag if np.isfinite(row.ddag) else None
            rows[-1]["rademacher"] = found.rademacher.bound
            rows[-1]["compression_total"] = found.compression.total
            rows[-1]["agreement"] = found.compression.agreement
    return rows


def consistency() -> list[dict]:
    machines = [
        ("the paper's loss", "apportioned", {}),
        ("the same, sum f = 0", "apportioned", {"sum_to_zero": True}),
        ("p = 1, q = 1", "apportioned", {"slack_power": 1}),
        ("one-vs-rest", "one-vs-rest", {}),
        ("pairwise", "pairwise", {}),
        ("weston-watkins", "weston-watkins", {}),
        ("crammer-singer", "crammer-singer", {}),
        ("reinforced", "reinforced", {}),
        ("lee-lin-wahba", "lee-lin-wahba", {}),
        ("lee-lin-wahba, scaled decision", "lee-lin-wahba", {"margin_power": 1}),
        ("lee-lin-wahba, cost matrices", "lee-lin-wahba", {"matrix": True}),
    ]
    rows = []
    for name, loss, settings in machines:
        for k in (2, 3, 5, 10) if loss == "lee-lin-wahba" else (2, 3, 5):
            found = consistency_report(loss, k, n_draws=300, **settings)
            rows.append({"loss": name, "k": k, "optimal": found.optimal, "regret": found.regret})
    return rows


def coverage(delta: float = 0.1) -> list[dict]:
    rows = []
    for name, fetch in (("breast_cancer", load_breast_cancer), ("digits 0, 1, 2", load_digits)):
        X, y = fetch(return_X_y=True)
        X, y = StandardScaler().fit_transform(X[y < 3]), y[y < 3]
        draw, k, hits = np.random.default_rng(1), y.max() + 1, []
        for _ in range(200):
            order = draw.permutation(len(y))
            train, rest = order[: 15 * k], order[15 * k :]
            machine = ApportionedLinearSVC(np.where(np.arange(k) == 0, 5, 1), C=0.01).fit(X[train], y[train])
            wrong = machine.predict(X[rest]) != y[rest]
            sample = draw.choice(len(rest), 40 * k)
            found = error_intervals(
                y[rest][sample], machine.predict(X[rest][sample]), delta, labels=np.arange(k)
            )
            hits.append([i.low <= wrong[y[rest] == c].mean() <= i.high for c, i in enumerate(found)])
        rows.append({"table": name, "stated": 1 - delta, "covered": np.mean(hits, axis=0).tolist()})
    return rows


def number(x: float | None, digits: int = 3) -> str:
    return "-" if x is None else f"{x:.{digits}g}"


def markdown(found: dict) -> str:
    rows = found["bounds"]
    heads = (
        "table|class|cost|rows|support|DDAG|Rademacher|compression|leave-one-out, dual|refitted|held-out|95 %"
    )
    lines = [
        "Bounds at delta = 0.05 of `ApportionedSVC(costs, gamma=1/d, C=1, tol=1e-6)`, nothing tuned.",
        "DDAG: on P(class and decided otherwise), - = not separated. Rademacher: on the mean loss of the",
        "whole table in units of its largest value. Columns from compression on: error rate of the class.",
        "Refitted: the true leave-one-out error. Letter: the dear class, and two with the widest interval.",
        "Tables from `apportion.study.datasets`: breast without the sample's ID number; heart's and german's",
        "categories as columns of zeros and ones.",
        "",
        f"| {heads.replace('|', ' | ')} |",
        "|---" * 12 + "|",
    ]
    letter = [r for r in rows if r["table"] == "letter"]
    letter.sort(key=lambda r: (-r["cost"], r["loo_low"] - r["loo_high"]))
    for r in [r for r in rows if r["table"] != "letter"] + letter[:3]:
        cells = [r["table"], r["label"], f"{r['cost']:g}", str(r["n"]), str(r["support"])]
        cells += [number(r[name]) for name in ("ddag", "rademacher", "compression")]
        cells += [
            f"{r['loo_low']:.3f} .. {r['loo_high']:.3f}",
            number(r["exact_loo"]),
            number(r["test_error"]),
        ]
        cells += [f"{r['test_low']:.3f} .. {r['test_high']:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    n, tables = len(rows), {r["table"] for r in rows}
    refitted = [r for r in rows if r["exact_loo"] is not None]
    inside = sum(r["loo_low"] <= r["exact_loo"] <= r["loo_high"] for r in refitted)
    said = {r["table"] for r in rows if r["rademacher"] < 1}
    lines += [
        "",
        f"DDAG below 1: {sum((r['ddag'] or 1) < 1 for r in rows)} of {n} classes. "
        f"Rademacher below 1: {len(said)} of {len(tables)} tables. "
        f"Compression below 0.95: {sum(r['compression'] < 0.95 for r in rows)} of {n} classes. "
        f"Leave-one-out from the dual below 0.95: {sum(r['loo_high'] < 0.95 for r in rows)} of {n}; "
        f"the refitted value lies inside for {inside} of {len(refitted)}.",
        "",
        "Share of 300 random (P, costs) in which the minimiser of the expected loss decides at least cost,",
        "and in brackets its mean regret:",
        "",
        "| loss | k = 2 | k = 3 | k = 5 | k = 10 |",
        "|---|---|---|---|---|",
    ]
    for loss in dict.fromkeys(r["loss"] for r in found["consistency"]):
        own = [r for r in found["consistency"] if r["loss"] == loss]
        cells = {r["k"]: f"{r['optimal']:.1%} ({r['regret']:.3g})" for r in own}
        lines.append(f"| {loss} | " + " | ".join(cells.get(k, "-") for k in (2, 3, 5, 10)) + " |")
    lines += ["", "Share of 200 resamplings in which the interval of a class holds its error rate:", ""]
    lines += ["| table | stated | covered, class by class |", "|---|---|---|"]
    for r in found["coverage"]:
        lines.append(f"| {r['table']} | {r['stated']:.2f} | {', '.join(f'{c:.3f}' for c in r['covered'])} |")
    return "\n".join(lines)


def main() -> None:
    if "--docs" not in sys.argv:
        start = time.time()
        found = {"bounds": bounds(), "consistency": consistency(), "coverage": coverage()}
        RESULTS.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
        print(f"{RESULTS} after {time.time() - start:.0f} s")
    found = json.loads(RESULTS.read_text())
    head, _, rest = NOTES.read_text().partition(BEGIN)
    NOTES.write_text(f"{head}{BEGIN}\n{markdown(found)}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
