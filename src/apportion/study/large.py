"""The study at large: every method on every data set of `STUDY`, cost ratios 2, 5 and 20, dear class drawn at random or the rarest.

Each repeat draws its rows anew where a table has more than 1,000, its own dear class, and its own split of 70 to 30. Two machines
with coupled outputs are slow to train for many classes: they are run where there are at most `SLOW_CLASSES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .compare import Cells, Data, Progress, Record, Splits, Task, run
from .datasets import STUDY, study_costs, study_data
from .methods import METHODS

CHOICES = tuple((ratio, dear) for ratio in (2.0, 5.0, 20.0) for dear in ("random", "rarest"))
COUPLED = ("cscs", "weston-watkins", "lee-lin-wahba", "reinforced")  # with two classes they are CSOVO
SLOW = ("lee-lin-wahba", "reinforced")
SLOW_CLASSES = 7


@dataclass(frozen=True)
class _Drawn:
    """A data set of the study, drawn when it is needed."""

    name: str
    seed: int
    rows: int

    def __call__(self) -> Data:
        return Data(self.name, *study_data(self.name, self.seed, self.rows))


@dataclass(frozen=True)
class Block:
    """One data set with one choice of costs in one repeat: what all methods are compared on."""

    data: str
    ratio: float
    dear: str
    repeat: int
    n: int
    k: int
    costs: tuple[float, ...]  # in the order of the classes


def study_blocks(
    draws: Sequence[Callable[[], Data]], choices: Sequence[tuple[float, str]], repeat: int
) -> tuple[list[Task], list[Block]]:
    """The tasks of one repeat, one a data set under all choices of (ratio, dear class), and what they will be compared on."""
    tasks, blocks = [], []
    for draw in draws:
        data = draw()
        asked = [study_costs(data.y, ratio, dear, repeat) for ratio, dear in choices]
        tasks.append(Task(draw, tuple(asked), Splits(folds=1, test_share=0.3), repeat, 0))
        for (ratio, dear), costs in zip(choices, asked, strict=True):
            shape = len(data.y), len(costs)
            blocks.append(Block(data.name, ratio, dear, repeat, *shape, tuple(costs.values())))
    return tasks, blocks


def run_study(
    cells: Cells,
    *,
    names: Sequence[str] = STUDY,
    methods: Sequence[str] | None = None,
    repeats: int = 3,
    rows: int = 1000,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Compute what is missing, repeat by repeat, and return the results: one entry a block, the cost of each method in it."""
    everywhere = tuple(m for m in (methods or METHODS) if m not in SLOW)
    slow = tuple(m for m in (methods or METHODS) if m in SLOW)
    tasks, blocks = [], []
    for repeat in range(repeats):
        draws = [_Drawn(name, repeat, rows) for name in names]
        more_tasks, more_blocks = study_blocks(draws, CHOICES, repeat)
        tasks += more_tasks
        blocks += more_blocks
    records = run(tasks, cells, everywhere, n_jobs=n_jobs, progress=progress) if everywhere else {}
    if slow:
        some = [task for task in tasks if len(task.costs[0]) <= SLOW_CLASSES]
        records |= run(some, cells, slow, n_jobs=n_jobs, progress=progress)
    return results(blocks, records.values())


def results(blocks: Sequence[Block], records: Any) -> list[dict[str, Any]]:
    """One entry a block, with the costs of the methods that are there: what `results/study.json` holds."""
    by_block: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in records:
        key = (record["data"], record["repeat"], tuple(record["costs"]))
        by_block.setdefault(key, {})[record["method"]] = record
    found = []
    for block in blocks:
        cells = by_block.get((block.data, block.repeat, block.costs), {})
        dear = int(np.argmax(block.costs))
        found.append(
            {
                **{name: getattr(block, name) for name in ("data", "ratio", "dear", "repeat", "n", "k")},
                "class": dear,
                "cost": {name: round(cells[name]["cost"], 6) for name in METHODS if name in cells},
                "sensitivity": {name: cells[name]["sensitivity"][dear] for name in METHODS if name in cells},
            }
        )
    return found
