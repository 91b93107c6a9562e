"""Nested cross-validation of any methods on any data under any costs; what is done is on disk and never done again.

    cells = run(tasks, Cells("cells.jsonl"), methods, n_jobs=2)

A task is one split of one data set: all methods and all costs on one `Problem`, so that they share what can be shared. A cell is
one method under one choice of costs on one split. The process that has computed it appends it to the file as one line, synced to
the disk, before it goes on. The key of a cell is the hash of its full description: the data, the split, the costs, the method with
its version and settings. A run that was killed, even by kill -9, goes on with the cells that are missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from ..costs import Costs, check_costs
from ..fitting import check_jobs
from .methods import METHODS, Method, find_method
from .problem import Problem

Record = dict[str, Any]
Progress = Callable[[int, int], None]  # cells done, cells in all
DEFAULT = ("apportioned", "csovo", "csova", "logistic", "threshold", "forest", "boosting")
BEGIN = b'{"key":'  # of a line of a file of cells
END = "ends with the process that asked"  # name of a thread
WATCH = 0.5  # seconds between two looks at the progress


# ---------------------------------------------------------------- cells on disk


class Cells:
    """Finished cells in a file of one JSON object a line; many processes may append."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder; give the name of a file for the cells.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size:
            with open(self.path, "ab+") as file:
                file.seek(0)
                line = file.readline(1000).rstrip(b"\n")
                cut_off = len(line) > 1 and BEGIN.startswith(line)
                if not line.startswith(BEGIN) and not cut_off:
                    raise ValueError(
                        f"{self.path} is no file of finished cells; give the name of one, or of a file that is not there yet."
                    )
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a line that was cut off: the next begins on its own
                    file.write(b"\n")

    def append(self, record: Record) -> None:
        """One line in one write, on the disk when this returns."""
        line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(handle, line) < len(line):
                raise OSError(f"{self.path} took only a part of a line: is the disk full?")
            os.fsync(handle)
        finally:
            os.close(handle)

    def read(self) -> dict[str, Record]:
        """Key: record, of the cells that were finished without an error; lines that are no cell are passed over."""
        return _finished(self.path.read_bytes()) if self.path.exists() else {}

    def errors(self) -> dict[str, Record]:
        """Key: record with its error, of the cells that have failed and not been finished since."""
        done, found = self.read(), {}
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                if b'"error"' in line:
                    try:
                        record = json.loads(line)
                    except ValueError:
                        continue
                    if (
                        isinstance(record, dict)
                        and {"key", "error"} <= record.keys()
                        and record["key"] not in done
                    ):
                        found[record["key"]] = record
        return found


def _finished(lines: bytes) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for line in lines.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "key" in record and "error" not in record:
            found.setdefault(record["key"], record)
    return found


# ---------------------------------------------------------------- tasks


@dataclass(frozen=True, eq=False)
class Data:
    """What is compared on."""

    name: str
    X: Any  # (n, d) numbers; or a DataFrame with `prepare`
    y: NDArray[Any]  # (n,) labels
    prepare: Any = None  # transformer to numbers, fitted on the training rows of each split

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join(map(str, self.y.tolist())).encode())
        if hasattr(self.X, "columns"):
            digest.update(self.X.to_csv(index=False).encode())
        else:
            digest.update(np.ascontiguousarray(self.X).tobytes())
        return digest.hexdigest()[:16]

    def split(self, train: NDArray[np.intp], test: NDArray[np.intp]) -> tuple[Any, Any]:
        """Training and test rows as numbers."""
        rows = (lambda i: self.X.iloc[i]) if hasattr(self.X, "iloc") else (lambda i: self.X[i])
        if self.prepare is None:
            return np.asarray(rows(train), dtype=float), np.asarray(rows(test), dtype=float)
        prepare = clone(self.prepare)
        return np.asarray(prepare.fit_transform(rows(train)), dtype=float), np.asarray(
            prepare.transform(rows(test)), dtype=float
        )


@dataclass(frozen=True)
class Splits:
    """Repeated stratified folds; or, with one fold, random splits with `test_share` of the rows to test on."""

    folds: int = 5
    test_share: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.folds < 1:
            raise ValueError(f"folds={self.folds} must be at least 2, or 1 for random splits.")
        if not 0 < self.test_share < 1:
            raise ValueError(f"test_share={self.test_share} must lie between 0 and 1.")

    @property
    def ratio(self) -> float:
        """Test rows a training row: what the corrected intervals need."""
        share = 1 / self.folds if self.folds > 1 else self.test_share
        return share / (1 - share)

    def rows(self, y: NDArray[Any], repeat: int, fold: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Training and test rows."""
        seed = 1000 * self.seed + repeat
        splitter: Any
        if self.folds == 1:
            splitter = StratifiedShuffleSplit(1, test_size=self.test_share, random_state=seed)
        else:
            splitter = StratifiedKFold(self.folds, shuffle=True, random_state=seed)
        return list(splitter.split(np.zeros(len(y)), y))[fold]

    def describe(self) -> str:
        return f"{self.folds} folds" if self.folds > 1 else f"random {self.test_share:g}"


@dataclass(frozen=True, eq=False)
class Task:
    """One split of one data set, with all the costs to judge by."""

    data: Callable[[], Data]
    costs: tuple[Any, ...]  # each a dict, array, ... as `check_costs` takes it
    splits: Splits
    repeat: int
    fold: int

    def cells(
        self, data: Data, methods: Sequence[str | Method], done: Container[str]
    ) -> Iterator[tuple[str, Record, Method, Costs]]:
        """(key, description, method, costs), each once; where the package of a method is missing, those that are done."""
        classes = np.unique(data.y)
        seen = set()
        for asked in self.costs:
            costs = check_costs(asked, classes, class_counts=np.unique(data.y, return_counts=True)[1])
            for name in methods:
                method = find_method(name)
                if not method.fits(len(classes)):
                    continue
                description = {
                    "data": data.name,
                    "rows": data.fingerprint,
                    "costs": np.round(costs.array, 12).tolist(),
                    "method": method.name,
                    "version": method.version,
                    "settings": hashlib.sha256(repr(method.describe()).encode()).hexdigest()[:12],
                    "splits": [self.splits.describe(), self.splits.seed],
                    "repeat": self.repeat,
                    "fold": self.fold,
                }
                key = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:20]
                if key not in seen and (key in done or method.installed):
                    seen.add(key)
                    yield key, description, method, costs


# ---------------------------------------------------------------- running


def run(
    tasks: Sequence[Task],
    cells: Cells,
    methods: Sequence[str | Method] = DEFAULT,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, Record]:
    """Compute the cells that are not there yet.

    Parameters
    ----------
    tasks : sequence of Task
    cells : Cells
    methods : sequence of str or Method
        Names of `METHODS`, or methods of one's own. One that does not take so many classes has no cells; one whose package is
        missing has those that are finished.
    n_jobs : int, default=1
        Processes.
    progress : callable, optional
        Called with the number of cells done and of all, about twice a second.

    Returns
    -------
    records : dict
        Key: record, for every cell of the tasks that is there. One that failed is not: see `Cells.errors`.
    """
    for name in methods:
        find_method(name)
    done = cells.read()
    wanted: dict[str, None] = {}
    missing: list[Task] = []
    last: tuple[Any, Data] | None = None  # tasks on the same data follow each other
    for task in tasks:
        if last is None or last[0] is not task.data:
            last = task.data, task.data()
        keys = [key for key, *_ in task.cells(last[1], methods, done)]
        wanted.update(dict.fromkeys(keys))
        if any(key not in done for key in keys):
            missing.append(task)
    # a worker that waits for nothing would outlive a run that is killed
    n_jobs = max(1, min(check_jobs(n_jobs), len(missing)))
    with _watched(cells, wanted, progress), parallel_config("loky", n_jobs=n_jobs, inner_max_num_threads=1):
        Parallel()(delayed(judge)(task, cells, tuple(methods), os.getpid()) for task in missing)
    records = cells.read()
    return {key: records[key] for key in wanted if key in records}


def judge(task: Task, cells: Cells, methods: Sequence[str | Method], owner: int) -> None:
    """Compute the cells of one task that are not there yet, each written when it is done.

    `owner` is the process that asks for them. When it is gone, the processes it started end: a new run may begin these cells.
    """
    _end_with(owner)
    data = task.data()
    done = cells.read()
    open_cells = [cell for cell in task.cells(data, methods, done) if cell[0] not in done]
    if not open_cells:
        return
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = np.unique(data.y, return_inverse=True)[1]
        train, test = task.splits.rows(y, task.repeat, task.fold)
        X_train, X_test = data.split(train, test)
        problem = Problem(X_train, y[train], seed=task.repeat)
        for key, description, method, costs in open_cells:
            if owner not in (os.getpid(), os.getppid()):
                return
            record = {"key": key, **description, "n_train": len(train), "n_test": len(test)}
            start = time.perf_counter()
            try:
                trained = method.train(problem, costs)
                decided = trained.predict(X_test)
            except Exception as error:  # one method's failure is a fact about it, and must not end the run
                cells.append({**record, "error": f"{type(error).__name__}: {error}"})
                continue
            counts = confusion_matrix(y[test], decided, labels=np.arange(problem.k))
            cells.append(
                {
                    **record,
                    "cost": float((counts * costs.matrix).sum() / counts.sum()),
                    "sensitivity": [round(float(s), 6) for s in np.diag(counts) / counts.sum(axis=1)],
                    "confusion": counts.tolist(),
                    "inner_cost": round(float(trained.inner_cost), 6),
                    "params": {name: _plain(value) for name, value in trained.params.items()},
                    "seconds": round(time.perf_counter() - start, 3),
                }
            )


def _end_with(owner: int) -> None:
    """From now on this process ends within a second after the one that started it, be that killed or not."""
    if owner == os.getpid() or any(thread.name == END for thread in threading.enumerate()):
        return

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name=END).start()


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic,)):
        value = value.item()
    return value if isinstance(value, (int, float, bool, type(None))) else str(value)


@contextmanager
def _watched(cells: Cells, wanted: dict[str, None], progress: Progress | None) -> Iterator[None]:
    """While the processes append to the file, tell how many of the wanted cells are there."""
    if progress is None:
        yield
        return
    stop = threading.Event()
    there = wanted.keys() & cells.read().keys()
    end = cells.path.stat().st_size if cells.path.exists() else 0

    def look() -> None:
        nonlocal end
        if not cells.path.exists():
            return
        with open(cells.path, "rb") as file:  # what is new, in whole lines
            file.seek(end)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        end += len(new)
        there.update(wanted.keys() & _finished(new).keys())
        progress(len(there), len(wanted))

    def watch() -> None:
        while not stop.wait(WATCH):
            look()

    progress(len(there), len(wanted))
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        look()


# ---------------------------------------------------------------- one data set


def tasks_for(data: Data, costs: Sequence[Any], splits: Splits, repeats: int) -> list[Task]:
    """All splits of one data set."""
    counts = np.unique(data.y, return_counts=True)[1]
    least = max(splits.folds, 3)  # of three rows in two folds one would be left to train and tune on
    if len(counts) < 2:
        raise ValueError(f"{data.name} has one class only; there is nothing to tell apart.")
    if counts.min() <= least:
        raise ValueError(
            f"the rarest class of {data.name} has {counts.min()} rows; with {splits.describe()} it needs more than {least}."
        )
    if repeats < 1:
        raise ValueError(f"repeats={repeats} must be at least 1.")
    load = _Fixed(data)
    return [
        Task(load, tuple(costs), splits, repeat, fold)
        for repeat in range(repeats)
        for fold in range(splits.folds)
    ]


@dataclass(frozen=True, eq=False)
class _Fixed:
    data: Data

    def __call__(self) -> Data:
        return self.data


def known_methods(names: Sequence[str] | None, k: int) -> list[str]:
    """The methods asked for, or the default ones, that apply to k classes; for two, CSOVA is CSOVO and not run twice."""
    if names is not None:
        for name in names:
            method = find_method(name)
            if not method.applies_to(k):
                needs = f" and the package {method.needs}" if method.needs else ""
                raise ValueError(f"method={name!r} needs {method.classes} classes{needs}; there are {k}.")
        return list(dict.fromkeys(names))
    return [name for name in DEFAULT if METHODS[name].applies_to(k) and not (k == 2 and name == "csova")]
