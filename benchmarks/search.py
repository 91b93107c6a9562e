"""The search of ApportionedSVCCV against GridSearchCV(SVC), on the paper's grid: 110 points, the same 5 folds, one process.

    python benchmarks/search.py [--tables vehicle german diabetes] [--repeats 1]     -> results/search.json

SVC's search is scored on the expected cost, as a careful user does it. `cost` is the least cost over the folds that a search found.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from apportion import ApportionedSVCCV, cost_scorer
from apportion.study.datasets import load_table

CS = 2.0 ** np.arange(-5, 16, 2)
GAMMAS = 2.0 ** np.arange(-15, 4, 2)
RESULTS = Path(__file__).parents[1] / "results" / "search.json"
STEPS = 1_000_000  # SVC with the largest C may run for hours; nobody waits for that


def svc(X, y, costs, folds):
    machine = make_pipeline(StandardScaler(), SVC(class_weight=costs, cache_size=500, max_iter=STEPS))
    search = GridSearchCV(
        machine, {"svc__C": CS, "svc__gamma": GAMMAS}, cv=folds, scoring=cost_scorer(costs), refit=True
    )
    search.fit(X, y)
    return -search.best_score_


def ours(X, y, costs, folds, powers=((0, 1),)):
    two = len(costs) == 2
    search = ApportionedSVCCV(
        costs,
        kernels=("rbf",),
        gammas=GAMMAS,
        Cs=CS,
        powers=powers,
        losses=("apportioned",) if two else ("pairwise",),  # SVC's coding
        scaling="standard",
        cv=folds,
        n_machines=1,
    )
    search.fit(X, y)
    return -search.cv_results_["mean_test_score"].max()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=["vehicle", "german", "diabetes"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    small = load_table("iris")
    ours(small.X, small.y, small.costs, StratifiedKFold(2))  # compiled, and read from disk
    rows = []
    for name in options.tables:
        table = load_table(name)
        X, y = table.numbers, table.y
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        seconds: dict[str, list[float]] = {}
        costs: dict[str, float] = {}
        for _ in range(options.repeats):
            for label, run in (
                ("apportion", lambda X=X, y=y, t=table, f=folds: ours(X, y, t.costs, f)),
                (
                    "apportion, three powers",
                    lambda X=X, y=y, t=table, f=folds: ours(X, y, t.costs, f, ((0, 1), (0.5, 0.5), (1, 0))),
                ),
                ("GridSearchCV(SVC)", lambda X=X, y=y, t=table, f=folds: svc(X, y, t.costs, f)),
            ):
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    costs[label] = run()
                seconds.setdefault(label, []).append(time.process_time() - start)
        for label, found in seconds.items():
            ratio = float(np.median(found) / np.median(seconds["GridSearchCV(SVC)"]))
            rows.append(
                {
                    "table": name,
                    "search": label,
                    "cpu_seconds": float(np.median(found)),
                    "ratio": ratio,
                    "cost": costs[label],
                }
            )
            print(
                f"{name:10s} {label:26s} {np.median(found):8.2f} s  {ratio:6.3f}x  cost {costs[label]:.4f}",
                flush=True,
            )
    options.out.write_text(
        json.dumps({"points": len(CS) * len(GAMMAS), "folds": 5, "searches": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
