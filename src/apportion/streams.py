"""Machines from data larger than memory: Parquet and CSV files, or any chunks that come one after another.

    one pass    read a chunk -> visit its examples in random order -> (now and then) write a checkpoint -> next chunk

A file is read in chunks of as many rows as `memory` allows; the next one is read while the last one is learnt. All that a run
remembers is where its walk stands (pegasos.Walk), which pass it is in and how many rows of it are done: that is what a checkpoint
holds. Orders are drawn from the seed and the number of rows seen, so that a run that is resumed ends at the same machine, bit for
bit, as one that never stopped.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .chunks import Chunk, FileChunks, GivenChunks, open_chunks
from .fitting import check_number, unchanged_on_failure
from .sgd import ApportionedSGDClassifier

FORMAT = 1  # of checkpoints
SAVING = 0.05  # share of the time of a pass that writing them may take
NUMBERS = ("delay", "seen", "mass", "promise", "start_loss", "passes")  # of pegasos.Walk, beside its arrays


class Progress(NamedTuple):
    """How far a run has come."""

    passes: int  # done
    rows: int  # done, of the pass that follows
    total: int | None  # rows of a pass, where it is known
    learnt: int  # rows since the run was started or resumed
    seconds: float  # since then

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        rate = self.learnt / max(self.seconds, 1e-9)
        return f"{self.passes} passes and {self.rows:,}{of} rows done, {rate:,.0f} rows/s"


def fit_stream(
    classifier: ApportionedSGDClassifier,
    source: Any,
    *,
    target: str | None = None,
    weight: str | None = None,
    classes: ArrayLike | None = None,
    passes: int = 1,
    memory: float = 256.0,
    checkpoint: str | os.PathLike[str] | None = None,
    certify: bool = False,
    progress: bool | Callable[[Progress], None] = False,
) -> ApportionedSGDClassifier:
    """Fit a classifier to data that do not fit into memory.

    Parameters
    ----------
    classifier : ApportionedSGDClassifier
        Its `max_iter` and `early_stopping` are those of `fit` and have no part in this.
    source : path, list of paths, iterable or callable
        A Parquet or CSV file (a first line of names), several, or a folder of them: extra [stream]. Or chunks ``(X, y)`` or
        ``(X, y, weight)`` of your own making, sparse ones too: an iterable of them, or a function that returns a new iterator
        for each pass. Rows within a chunk, and the row groups of Parquet files, are visited in random order; chunks are not
        shuffled, so a source should not be sorted by class.
    target, weight : str, optional
        Columns of a file that hold the labels and the weights of the rows. All others are features, and must be numbers.
    classes : array of shape (k,), optional
        All labels. Without them, or where it has to count rows or classes, the labels are read once more before the first pass.
    passes : int, default=1
    memory : float, default=256
        Megabytes that the chunks of a file may take; pyarrow's own buffers, a page of each column (1 MB as most files are
        written), and the machine come on top.
    checkpoint : path, optional
        File in which to keep where the run stands. Where it exists already, the run goes on from there and ends at the same
        machine as if it had never stopped; with more `passes` a finished run is continued.
    certify : bool, default=False
        Read the data once more at the end for ``objective_`` and ``dual_gap_``.
    progress : bool or callable, default=False
        True prints a line now and then; a function is called with a `Progress` after each chunk.

    Returns
    -------
    classifier
        Fitted; `n_iter_` is the number of passes.

    Examples
    --------
    >>> import numpy as np
    >>> from apportion import ApportionedSGDClassifier, fit_stream
    >>> def chunks():
    ...     draw = np.random.default_rng(0)
    ...     for _ in range(5):
    ...         y = draw.integers(0, 2, 200)
    ...         yield draw.normal(size=(200, 3)) + y[:, None], y
    >>> machine = fit_stream(ApportionedSGDClassifier([1, 5], C=0.01, random_state=0), chunks, passes=4, certify=True)
    >>> machine.t_, bool(machine.dual_gap_ < 0.1)
    (4000, True)
    """
    if not isinstance(classifier, ApportionedSGDClassifier):
        raise ValueError(f"classifier={classifier!r} must be an ApportionedSGDClassifier.")
    check_number("passes", passes, low=1, integer=True)
    check_number("memory", memory, low=0, open_low=True)
    if checkpoint is not None and not Path(checkpoint).parent.is_dir():
        raise ValueError(f"checkpoint={str(checkpoint)!r} is in a folder that does not exist.")
    chunks = open_chunks(source, target, weight, float(memory))
    with unchanged_on_failure(classifier):
        run = _Run(classifier, chunks, None if checkpoint is None else Path(checkpoint), progress)
        run.start(None if classes is None else np.unique(classes), int(passes), certify)
        while run.passes < passes:
            run.one_pass()
        if certify:
            run.certify()
    return classifier


class _Run:
    """A fit under way: the classifier, its source, and where it stands in it."""

    def __init__(
        self,
        classifier: ApportionedSGDClassifier,
        chunks: FileChunks | GivenChunks,
        checkpoint: Path | None,
        progress: Any,
    ) -> None:
        self.classifier, self.chunks, self.checkpoint, self.progress = (
            classifier,
            chunks,
            checkpoint,
            progress,
        )
        self.passes = 0  # done
        self.rows = 0  # done, of the pass that follows
        self.total = chunks.rows  # rows of a pass
        self.learnt = 0
        self.began = self.said = self.saved = time.monotonic()
        self.saving = 0.0  # seconds that the last checkpoint took

    # ------------------------------------------------------------ the beginning

    def start(self, classes: NDArray[Any] | None, passes: int, certify: bool) -> None:
        """From the checkpoint where there is one, else from nothing."""
        machine = self.classifier
        machine._validate_parameters()
        known = _load(self.checkpoint) if self.checkpoint is not None and self.checkpoint.exists() else None
        counts, n_total = None, machine.n_total or self.total
        if known is not None:
            classes = known.classes if classes is None else classes
            counts, n_total = known.counts, machine.n_total or known.about["n_total"]
        balanced = isinstance(machine.costs, str) and machine.costs == "balanced"
        survey = known is None and (classes is None or n_total is None or balanced)
        readings = survey + max(passes - (known.about["passes"] if known else 0), 0) + certify
        if not self.chunks.rereadable and readings > 1:
            raise ValueError(
                f"source is an iterator, which can be read once, and this fit reads it {readings} times; give a function that "
                "returns a new iterator. (One reading is enough for passes=1 with classes given, n_total set in the classifier, "
                "costs that are not 'balanced', and certify=False.)"
            )
        if survey:
            found = self.chunks.survey()
            strange = [] if classes is None else np.setdiff1d(found.classes, classes).tolist()
            if strange:
                raise ValueError(
                    f"the data hold the label {strange[0]!r}, which is not among classes={classes!r}."
                )
            self.total = found.rows
            n_total = machine.n_total or found.rows
            if classes is None:
                classes = found.classes
            counts = np.zeros(len(classes))
            counts[np.searchsorted(classes, found.classes)] = found.counts
        assert classes is not None
        machine._begin_stream(classes, counts, float(n_total or 0))
        self.counts = counts
        if self.chunks.columns is not None:
            machine.n_features_in_ = len(self.chunks.columns)
            machine.feature_names_in_ = np.array(self.chunks.columns, dtype=object)
        self.settings = self._settings()
        if known is not None:
            self._resume(known)

    def _settings(self) -> dict[str, Any]:
        """What must not change between a checkpoint and the run that goes on from it."""
        machine, table = self.classifier, self.classifier.table_
        arrays = b"".join(a.tobytes() for a in (table.codes, table.margins, table.weights))
        names = ("C", "intercept", "intercept_scaling", "batch_size", "projection", "delay")
        settings = {name: getattr(machine, name) for name in names}
        settings |= {"costs": machine.costs_.tolist(), "loss": hashlib.sha256(arrays).hexdigest()}
        settings |= {"n_total": machine._n_total, "classes": machine.classes_.tolist()}
        if isinstance(machine.random_state, (int, np.integer)):
            settings["random_state"] = int(machine.random_state)
        return json.loads(json.dumps(settings | self.chunks.identity, default=str))

    def _resume(self, known: _Checkpoint) -> None:
        before = known.about["settings"]
        for name in sorted(before.keys() | self.settings.keys()):
            if before.get(name) != self.settings.get(name):
                raise ValueError(
                    f"checkpoint={str(self.checkpoint)!r} belongs to another fit: {name} was {before.get(name)!r} and is "
                    f"{self.settings.get(name)!r}. Go on with the same settings, or give another file."
                )
        machine = self.classifier
        machine._seed = known.about["seed"]
        machine.class_weight_total_ = known.arrays["class_weight_total"]
        machine.n_features_in_ = known.arrays["V"].shape[1] - 1
        if known.about["names"]:
            machine.feature_names_in_ = np.array(known.about["names"], dtype=object)
        self.passes, self.rows, self.total = (known.about[name] for name in ("passes", "rows", "total"))
        marks = [
            (int(at), float(promise), V)
            for (at, promise), V in zip(known.arrays["marks"], known.arrays["marked"], strict=True)
        ]
        numbers = dict(zip(NUMBERS, known.arrays["numbers"].tolist(), strict=True))
        numbers["passes"] = int(numbers["passes"])
        machine._recall({"V": known.arrays["V"], "Q": known.arrays["Q"], **numbers, "marks": marks})
        machine.n_iter_ = self.passes

    # ------------------------------------------------------------ a pass

    def one_pass(self) -> None:
        machine = self.classifier
        for X, y, weight in self._read(self.rows):
            machine._learn(X, y, weight)
            self.rows += len(y)
            self.learnt += len(y)
            self._tell()
            if self.checkpoint is not None and time.monotonic() - self.saved >= self.saving / SAVING:
                self._save()
        if machine._steps is None:
            raise ValueError("the source has no rows.")
        self._check(self.rows, f"pass {self.passes + 1}")
        machine._end_pass()
        self.passes, self.rows, self.total = self.passes + 1, 0, self.rows
        machine.n_iter_ = self.passes
        if self.checkpoint is not None:
            self._save()

    def _check(self, rows: int, reading: str) -> None:
        if self.total is not None and rows != self.total:
            raise ValueError(
                f"{reading} had {rows} rows and should have had {self.total}: a source must give the same rows in each pass."
            )

    def _read(self, start: int) -> Iterator[tuple[Any, NDArray[np.intp], NDArray[np.float64]]]:
        """The checked chunks of the pass that follows."""
        machine = self.classifier
        draw = np.random.default_rng([machine._seed, self.passes, 1])
        if isinstance(self.chunks, FileChunks):
            for X, y, weight in _ahead(self.chunks.read(start, draw)):
                yield X, machine._positions(y), np.ones(len(y)) if weight is None else weight
        else:
            for X, y, weight in self.chunks.read(start, draw):
                yield machine._piece(X, y, weight, first=machine._steps is None)

    def certify(self) -> None:
        """Objective and gap of the machine on all the data."""
        from . import pegasos

        machine = self.classifier
        plan, W, b = machine._plan(machine._n_total), machine.coef_, machine.intercept_
        loss, rows = 0.0, 0
        for X, y, weight in self._read(0):
            loss += pegasos.total_loss(machine.table_, X, y, weight, W, b)
            rows += len(y)
        self._check(rows, "the reading for the certificate")
        machine._certified(pegasos.penalty(W, b, plan) + plan.C * loss)

    # ------------------------------------------------------------ news and checkpoints

    def _tell(self) -> None:
        now = time.monotonic()
        news = Progress(self.passes, self.rows, self.total, self.learnt, now - self.began)
        if callable(self.progress):
            self.progress(news)
        elif self.progress and (now - self.said >= 1.0 or self.rows == self.total):
            self.said = now
            print(f"[fit_stream] {news}", file=sys.stderr, flush=True)

    def _save(self) -> None:
        machine, begin = self.classifier, time.monotonic()
        steps: Any = machine._steps
        about = {
            "format": FORMAT,
            "settings": self.settings,
            "seed": machine._seed,
            "n_total": machine._n_total,
            "passes": self.passes,
            "rows": self.rows,
            "total": self.total,
            "classes": machine.classes_.tolist(),
            "dtype": machine.classes_.dtype.str,
            "names": getattr(machine, "feature_names_in_", np.empty(0)).tolist(),
        }
        arrays = {
            "V": steps["V"],
            "Q": steps["Q"],
            "numbers": np.array([steps[name] for name in NUMBERS], dtype=float),
            "marks": np.array([mark[:2] for mark in steps["marks"]], dtype=float).reshape(-1, 2),
            "marked": np.array([mark[2] for mark in steps["marks"]]).reshape(-1, *steps["V"].shape),
            "class_weight_total": machine.class_weight_total_,
            "counts": np.empty(0) if self.counts is None else self.counts,
            "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        }
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        assert self.checkpoint is not None
        partial = self.checkpoint.with_name(
            self.checkpoint.name + ".part"
        )  # what a killed run leaves is written over
        with open(partial, "wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.checkpoint)
        self.saved = time.monotonic()
        self.saving = self.saved - begin


class _Checkpoint(NamedTuple):
    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    classes: NDArray[Any]
    counts: NDArray[np.float64] | None


def _load(path: Path) -> _Checkpoint:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        about = json.loads(arrays.pop("about").tobytes())
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}, and this version reads {FORMAT}")
        classes = np.array(about["classes"], dtype=np.dtype(about["dtype"]))
        counts = arrays.pop("counts")
    except Exception as error:  # whatever a foreign or damaged file makes numpy, zipfile or json say
        raise ValueError(f"checkpoint={str(path)!r} cannot be read: {error}.") from None
    return _Checkpoint(about, arrays, classes, counts if len(counts) else None)


def _ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks, each read while the one before it is in use."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = pool.submit(next, chunks, None)
            yield chunk
