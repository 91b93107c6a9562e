"""The search of ApportionedSVCCV against GridSearchCV(SVC), on the paper's grid: 110 points, the same 5 folds, one process.

    python benchmarks/search.py [--tables vehicle german diabetes] [--repeats 3]     -> results/search.json, docs/study.md

SVC's search is scored on the expected cost, as a careful user does it. `cost` is the least cost over the folds that a search found.
"Every point" has the race of kernels switched off: each of the 550 fits is made, as GridSearchCV makes them.
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

from apportion import ApportionedSVCCV, candidates, cost_scorer
from apportion.study.datasets import load_table
from apportion.study.superclass_tables import table, write_into

CS = 2.0 ** np.arange(-5, 16, 2)
GAMMAS = 2.0 ** np.arange(-15, 4, 2)
ROOT = Path(__file__).parents[1]
STEPS = 1_000_000  # SVC with the largest C may run for hours; nobody waits for that
SLACK, ALL_POWERS = ((0, 1),), ((0, 1), (0.5, 0.5), (1, 0))
PEER = "GridSearchCV(SVC)"


def svc(X, y, costs, folds):
    machine = make_pipeline(StandardScaler(), SVC(class_weight=costs, cache_size=500, max_iter=STEPS))
    grid = {"svc__C": CS, "svc__gamma": GAMMAS}
    return -GridSearchCV(machine, grid, cv=folds, scoring=cost_scorer(costs)).fit(X, y).best_score_


def ours(X, y, costs, folds, powers=SLACK, race=True):
    search = ApportionedSVCCV(
        costs,
        kernels=("rbf",),
        gammas=GAMMAS,
        Cs=CS,
        powers=powers,
        losses=("apportioned",) if len(costs) == 2 else ("pairwise",),  # SVC's coding
        scaling="standard",
        cv=folds,
        n_machines=1,
    )
    whole = candidates.RACE_KERNELS
    candidates.RACE_KERNELS = whole if race else len(GAMMAS) + 1
    try:
        search.fit(X, y)
    finally:
        candidates.RACE_KERNELS = whole
    return -search.cv_results_["mean_test_score"].max()


SEARCHES = {
    "apportion": ours,
    "apportion, every point": lambda *given: ours(*given, race=False),
    "apportion, three powers (330 points)": lambda *given: ours(*given, powers=ALL_POWERS),
    PEER: svc,
}


def measure(name: str, repeats: int) -> list[dict]:
    """Median CPU seconds of each search on a table, the searches taking turns, and the least cost each found."""
    data = load_table(name)
    seconds: dict[str, list[float]] = {label: [] for label in SEARCHES}
    costs: dict[str, float] = {}
    for _ in range(repeats):
        for label, search in SEARCHES.items():
            start = time.process_time()
            folds = StratifiedKFold(5, shuffle=True, random_state=0)
            costs[label] = search(data.numbers, data.y, data.costs, folds)
            seconds[label].append(time.process_time() - start)
    middle = {label: float(np.median(times)) for label, times in seconds.items()}
    return [
        {
            "table": name,
            "search": label,
            "cpu_seconds": middle[label],
            "ratio": middle[label] / middle[PEER],
            "cost": costs[label],
        }
        for label in SEARCHES
    ]


def report(searches: list[dict]) -> str:
    rows = [
        [s["table"], s["search"], f"{s['cpu_seconds']:.2f}", f"{s['ratio']:.3f}", f"{s['cost']:.4f}"]
        for s in searches
    ]
    return table(["table", "search", "CPU seconds", "x GridSearchCV", "least cost found"], rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=["vehicle", "german", "diabetes"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "search.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "study.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    small = load_table("iris")
    ours(small.numbers, small.y, small.costs, StratifiedKFold(2))  # compiled, and read from disk
    searches: list[dict] = []
    for name in options.tables:
        searches += measure(name, options.repeats)
        print(report(searches[-len(SEARCHES) :]), flush=True)
    results = {"points": len(CS) * len(GAMMAS), "folds": 5, "repeats": options.repeats, "searches": searches}
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    write_into(options.page, "search", report(searches))


if __name__ == "__main__":
    main()
