"""The paper's benchmarks again: its Tables 2 and 3 by its own protocol, every cell on disk as soon as it is done.

    results = run_paper(Cells("paper-cells.jsonl"), DEFAULT)

The protocol of the paper: an RBF kernel, C in 2^-5, 2^-3 .. 2^15 and gamma in 2^-15, 2^-13 .. 2^3 by inner 5-fold cross-validation,
chosen on cost, and the mean over 10 outer folds. A `Protocol` says how much of it is run; the results say it
for each cell.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..costs import Costs
from ..files import write_whole
from ..fitting import stratified
from ..search import KernelChoice, LossChoice, held_out_scores
from . import rivals
from .compare import Cells, Data, Progress, Splits, Task, run
from .datasets import TABLES, load_table
from .methods import METHODS, Method
from .problem import Array, Codes, Problem

MANY = 5000  # rows x classes: of the paper's tables letter alone has more
LABELS = {
    "paper": "The paper's machine",
    "csova": "CSOVA",
    "cscs": "CSCS, RBF",
    "cscs-linear": "CSCS, linear",
    "csovo": "CSOVO",
    "apportioned": "ApportionedSVCCV",
}
LAST_ROUNDS = 10_000


# ---------------------------------------------------------------- protocols


@dataclass(frozen=True)
class Grid:
    """2^low, 2^(low + step) .. 2^high for C and for gamma: step 2 is the paper's, 11 x 10 points."""

    step: int = 2
    low_C: int = -5
    high_C: int = 15
    low_gamma: int = -15
    high_gamma: int = 3

    @property
    def Cs(self) -> tuple[float, ...]:
        """Growing."""
        return tuple(2.0**i for i in range(self.low_C, self.high_C + 1, self.step))

    @property
    def gammas(self) -> tuple[float, ...]:
        """Growing; a coarser grid keeps the largest, 2^3, and leaves out 2^-15."""
        return tuple(2.0**i for i in range(self.high_gamma, self.low_gamma - 1, -self.step))[::-1]

    def describe(self, method: str) -> str:
        """The points tried by a method, for the table."""
        if method == "apportioned":
            return "its own"
        return f"{len(self.Cs)} C" if method == "cscs-linear" else f"{len(self.Cs)} x {len(self.gammas)}"


@dataclass(frozen=True)
class Protocol:
    """How much of the paper's protocol is run."""

    name: str
    folds: int = 10
    step: int = 2  # of the grid's exponents
    linear_high_C: int = 15  # of linear CSCS, which liblinear trains in a time that grows with C
    many_step: int = 2  # where rows x classes are more than `MANY`
    many_high_C: int = 15  # there, of CSCS with a kernel: its outputs hang together, and a large C is slow
    rows: int | None = None  # a larger table is cut to so many rows, stratified
    tables: tuple[str, ...] = TABLES
    methods: tuple[str, ...] = tuple(LABELS)

    def grid(self, method: str, n: int, k: int) -> Grid:
        if method == "cscs-linear":
            return Grid(high_C=self.linear_high_C)
        if n * k <= MANY:
            return Grid(self.step)
        return Grid(self.many_step, high_C=self.many_high_C if method == "cscs" else 15)


FULL = Protocol("full")
DEFAULT = Protocol("default", linear_high_C=3, many_step=4, many_high_C=11, rows=1000)
QUICK = Protocol("quick", folds=3, step=6, linear_high_C=-1, many_step=6, many_high_C=7, rows=400)


# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class _Read:
    """A table of the paper, read when it is needed: all its rows, or `rows` of them drawn with equal shares of the classes."""

    name: str
    rows: int | None

    def __call__(self) -> Data:
        table = load_table(self.name)
        X, y = table.numbers, table.y
        if self.rows is not None and len(y) > self.rows:
            drawn = stratified(y, self.rows, 0)
            X, y = X[drawn], y[drawn]
        return Data(self.name, X, y)


def facts() -> list[dict[str, Any]]:
    """What we have of each table of the paper's Table 2, and what errors cost."""
    found = []
    for name in TABLES:
        table = load_table(name)
        dear = max(table.costs, key=lambda label: table.costs[label])
        found.append(
            {
                "data": name,
                "n": len(table.y),
                "d": table.X.shape[1],
                "columns": table.numbers.shape[1],  # categories as columns of 0 and 1
                "k": len(table.costs),
                "dear": dear,
                "cost": table.costs[dear],
                "share": round(float(np.mean(table.y == dear)), 6),
            }
        )
    return found


# ---------------------------------------------------------------- methods on the paper's grid


def _decider(
    problem: Problem, costs: Costs, params: dict[str, Any], machine: rivals.Machine
) -> Callable[[Array], Codes]:
    """The decisions of the machine that is trained on all rows in the end."""

    def predict(X: Array) -> Codes:
        K, K_held = problem.whole(X).kernel("rbf", params["gamma"] * X.shape[1])
        return machine(K, K_held, problem.y, costs, params["C"], None)[0]

    return predict


def _rbf(problem: Problem, costs: Costs, machine: rivals.Machine, grid: Grid) -> rivals.Trained:
    """With two classes CSOVA and CSCS are the one binary SVM with weights, which SVC trains."""
    d = problem.X.shape[1]
    widths = {"rbf": tuple(gamma * d for gamma in grid.gammas)}
    found = rivals.multiclass(problem, costs, machine, Cs=grid.Cs, widths=widths)
    found.params["gamma"] = found.params["width"] / d
    return found


def _cscs(problem: Problem, costs: Costs, grid: Grid) -> rivals.Trained:
    """The search starts each C from the one before; the machine in the end starts from nothing and needs more rounds."""
    found = _rbf(problem, costs, rivals.Apportioned("crammer-singer", **rivals.COUPLED), grid)
    if problem.k > 2:
        last = rivals.Apportioned("crammer-singer", max_iter=LAST_ROUNDS)
        found.predict = _decider(problem, costs, found.params, last)
    return found


def _path(problem: Problem, costs: Costs, loss: LossChoice, grid: Grid) -> rivals.Trained:
    """A loss whose outputs are binary problems: each solved for all C at once, the class with the highest score decided for.

    The intercept is penalised by 1/2 b^2, in the search and in the machine that is trained in the end.
    """
    decided = np.empty((len(grid.gammas), len(grid.Cs), len(problem.y)), dtype=np.intp)
    for g, gamma in enumerate(grid.gammas):
        choice = KernelChoice("standard", "rbf", gamma)
        for part, (_, held) in zip(problem.parts, problem.inner, strict=True):
            ones = np.ones(len(part.y))
            scores = held_out_scores(
                choice, [loss], np.array(grid.Cs), costs, part.X, part.y, ones, part.X_held
            )
            decided[g, :, held] = scores[0].argmax(axis=2).T
    tried = (
        ({"gamma": gamma, "C": C}, decided[g, c])
        for g, gamma in enumerate(grid.gammas)
        for c, C in enumerate(grid.Cs)
    )
    params, cost = rivals.cheapest(problem, costs, tried)
    machine = rivals.Apportioned(loss.loss, loss.margin_power, loss.slack_power)
    return rivals.Trained(_decider(problem, costs, params, machine), params, cost)


def _csova(problem: Problem, costs: Costs, grid: Grid) -> rivals.Trained:
    """One-vs-rest; with two classes it is CSOVO."""
    if problem.k == 2:
        return _rbf(problem, costs, rivals.one_vs_one, grid)
    return _path(problem, costs, LossChoice("one-vs-rest", 0.0, 1.0), grid)


def method_on(name: str, grid: Grid) -> Method:
    """A method of the table over the grid; ours searches its own."""
    if name == "apportioned":
        return METHODS[name]
    if name == "cscs-linear":
        linear = partial(rivals.search_estimator, make=rivals.linear_crammer_singer, Cs=grid.Cs)
        return Method(name, LABELS[name], linear, settings={"C": grid.Cs})
    trains: dict[str, Any] = {
        "paper": partial(_path, loss=LossChoice("apportioned", 1.0, 0.0)),
        "csova": _csova,
        "cscs": _cscs,
        "csovo": partial(_rbf, machine=rivals.one_vs_one),
    }
    return Method(name, LABELS[name], partial(trains[name], grid=grid), settings=asdict(grid))


# ---------------------------------------------------------------- running


def run_paper(
    cells: Cells,
    protocol: Protocol,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
    compute: bool = True,
) -> dict[str, Any]:
    """The results, table by table; cells that are missing are computed first, unless `compute` is false."""
    entries = []
    for name in protocol.tables:
        read = _Read(name, protocol.rows)
        data, costs = read(), load_table(name).costs
        n, k = len(data.y), len(costs)
        tasks = [Task(read, (costs,), Splits(protocol.folds), 0, fold) for fold in range(protocol.folds)]
        grids = {m: protocol.grid(m, n, k) for m in protocol.methods}
        chosen = [method_on(m, grid) for m, grid in grids.items()]
        if compute:
            records = list(run(tasks, cells, chosen, n_jobs=n_jobs, progress=progress).values())
        else:
            done = cells.read()
            records = [
                done[key] for task in tasks for key, *_ in task.cells(data, chosen, done) if key in done
            ]
        dear = int(np.argmax([costs[label] for label in np.unique(data.y).tolist()]))
        for method, grid in grids.items():
            own = sorted((r for r in records if r["method"] == method), key=lambda r: r["fold"])
            if own:
                entries.append(
                    {
                        "data": name,
                        "method": method,
                        "rows": n,
                        "folds": protocol.folds,
                        "grid": grid.describe(method),
                        "cost": [round(r["cost"], 6) for r in own],
                        "sensitivity": [r["sensitivity"][dear] for r in own],
                        "params": [r["params"] for r in own],
                        "seconds": round(sum(r["seconds"] for r in own), 1),
                    }
                )
    return {"protocol": protocol.name, "tables": facts(), "entries": entries}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """One entry a line, so that a change is a change of few lines."""
    tables, entries = (
        ",\n".join(json.dumps(line, separators=(",", ":")) for line in results[part])
        for part in ("tables", "entries")
    )
    name = json.dumps(results["protocol"])
    write_whole(
        path, f'{{"protocol": {name},\n"tables": [\n{tables}\n],\n"entries": [\n{entries}\n]}}\n'.encode()
    )


def read_results(path: Path) -> dict[str, Any]:
    try:
        results = json.loads(path.read_text())
        if {"protocol", "tables", "entries"} - set(results):
            raise KeyError("protocol, tables, entries")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of results of the paper's tables: {error}.") from None
    return results
