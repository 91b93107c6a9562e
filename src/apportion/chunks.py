"""Tables that are read piece by piece: Parquet and CSV files (extra [stream]), or chunks that the user makes.

Both kinds of source give the same: `survey()`, the classes and how often each occurs, and `read(start, draw)`, the chunks of one
pass from row `start` on. A file is a sequence of rows (of Parquet files, the row groups are shuffled in each pass) that is cut
into chunks of `chunk_rows`; they do not depend on where row groups or blocks of text begin.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .costs import LARGEST

COPIES = 3  # chunks in memory: one that is learnt, one that is read, and as much for what pyarrow has decoded
BATCH = 65_536  # rows that pyarrow decodes at a time
TILE = 4096  # rows turned from columns at a time: within the processor's cache
BLOCK = 4 << 20  # bytes of text that it parses at a time
ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


class Chunk(NamedTuple):
    """Some rows of a table."""

    X: Any  # (n, d)
    y: NDArray[Any]  # (n,) labels
    weight: NDArray[Any] | None  # (n,)


class Survey(NamedTuple):
    """What one reading of the labels finds."""

    classes: NDArray[Any]  # (k,) sorted
    counts: NDArray[np.float64]  # (k,) sum of the weights
    rows: int


def open_chunks(source: Any, target: Any, weight: Any, memory: float) -> FileChunks | GivenChunks:
    """The source as chunks: paths of files or folders, or the user's own chunks."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if isinstance(paths, (list, tuple)) and paths and all(isinstance(p, (str, os.PathLike)) for p in paths):
        if not isinstance(target, str):
            raise ValueError(f"target={target!r} must be the name of the column that holds the labels.")
        return FileChunks(_files(paths), target, weight, memory)
    for name, value in (("target", target), ("weight", weight)):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} names a column of a file; chunks are pairs (X, y) or triples (X, y, weight)."
            )
    return GivenChunks(source)


def _files(paths: Iterable[Any]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if _format(p) is not None)
            if not inside:
                raise ValueError(f"source={str(path)!r} is a folder without Parquet or CSV files.")
            found += inside
        elif not path.exists():
            raise ValueError(f"source={str(path)!r} does not exist.")
        else:
            found.append(path)
    formats = {_format(path) for path in found}
    if len(formats) != 1 or None in formats:
        wrong = [str(path) for path in found if _format(path) is None] or [str(path) for path in found]
        raise ValueError(f"source={wrong} must be files of one kind: {', '.join(ENDINGS)} or .csv.gz.")
    return found


def _format(path: Path) -> str | None:
    return ENDINGS.get(path.suffix.lower()) or ("csv" if path.name.lower().endswith(".csv.gz") else None)


def _pyarrow(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            "reading Parquet and CSV files needs pyarrow: pip install apportion[stream]"
        ) from error


class FileChunks:
    """Chunks of Parquet or CSV files of the same columns."""

    def __init__(self, files: list[Path], target: str, weight: Any, memory: float) -> None:
        self.files, self.target, self.weight = files, target, weight
        self.parquet = _format(files[0]) == "parquet"
        schemas = self._schemas()
        self.schema = schemas[0]
        names = self.schema.names
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{files[0]} has more than one column {twice[0]!r}; rename them.")
        for what, column in (("target", target), ("weight", weight)):
            if column is not None and column not in names:
                raise ValueError(f"{what}={column!r} is not a column of {files[0]}; it has {names}.")
        self.columns = [name for name in names if name not in (target, weight)]
        if not self.columns:
            raise ValueError(f"{files[0]} has no column besides {target!r} to learn from.")
        for path, schema in zip(files, schemas, strict=False):
            missing = sorted(set(names) - set(schema.names))
            if missing:
                raise ValueError(f"{path} has no column {missing[0]!r}, which {files[0]} has.")
        self.dtype = np.float32 if all(self._narrow(schema) for schema in schemas) else np.float64
        row = len(self.columns) * np.dtype(self.dtype).itemsize + 24
        self.chunk_rows = max(int(memory * 2**20 / (COPIES * row)), 1)
        if self.rows is not None:
            self.chunk_rows = min(self.chunk_rows, max(self.rows, 1))

    rows: int | None = None  # of a pass, where the files say it
    rereadable = True

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint remembers its source by; files may have moved, but not changed their size."""
        sizes = [os.path.getsize(path) for path in self.files]
        return {
            "target": self.target,
            "weight": self.weight,
            "bytes": sizes,
            "chunk_rows": self.chunk_rows,
            "columns": self.columns,
        }

    def survey(self) -> Survey:
        tally = _Tally()
        for batch in self._batches([self.target, *([self.weight] if self.weight else [])], 0, None):
            tally.add(self._array(batch, self.target), self._weights(batch))
        return tally.result()

    def read(self, start: int, draw: np.random.Generator) -> Iterator[Chunk]:
        """The chunks of a pass from row `start` on; `draw` shuffles the row groups. A chunk's X is overwritten two chunks later."""
        wanted = [*self.columns, self.target, *([self.weight] if self.weight else [])]
        rooms = itertools.cycle([self._room(), self._room()])  # while one chunk is learnt the other is read
        X, labels, weights, filled = next(rooms), [], [], 0
        for batch in self._batches(wanted, start, draw):
            offset = 0
            while offset < batch.num_rows:
                part = batch.slice(offset, self.chunk_rows - filled)
                self._turn(
                    [self._array(part, name) for name in self.columns], X[filled : filled + part.num_rows]
                )
                labels.append(self._array(part, self.target))
                weights.append(self._weights(part))
                filled, offset = filled + part.num_rows, offset + part.num_rows
                if filled == self.chunk_rows:
                    yield self._chunk(X, labels, weights)
                    X, labels, weights, filled = next(rooms), [], [], 0
        if filled:
            yield self._chunk(X[:filled], labels, weights)

    def _room(self) -> NDArray[Any]:
        return np.empty((self.chunk_rows, len(self.columns)), self.dtype)

    def _chunk(self, X: NDArray[Any], labels: list[Any], weights: list[Any]) -> Chunk:
        return Chunk(X, np.concatenate(labels), None if self.weight is None else np.concatenate(weights))

    def _turn(self, columns: list[NDArray[Any]], X: NDArray[Any]) -> None:
        """Columns into rows X (n, d), checked."""
        for i in range(0, len(X), TILE):
            part = np.stack([column[i : i + TILE] for column in columns], axis=1, out=X[i : i + TILE])
            if not max(float(part.max()), -float(part.min())) <= LARGEST:  # not so for NaN either
                sizes = np.abs(part.astype(float)).max(axis=0)
                j = int(np.flatnonzero(~(sizes <= LARGEST))[0])
                raise ValueError(
                    f"column {self.columns[j]!r} holds {sizes[j]}: features must be finite, and at most {LARGEST:g}."
                )

    # ------------------------------------------------------------ pyarrow

    def _schemas(self) -> list[Any]:
        """Of every Parquet file; of the first CSV file, whose columns the others are read by."""
        if not self.parquet:
            csv = _pyarrow("pyarrow.csv")
            with csv.open_csv(self.files[0]) as reader:
                return [reader.schema]
        parquet = _pyarrow("pyarrow.parquet")
        self.metadata = [parquet.read_metadata(path) for path in self.files]
        self.rows = sum(known.num_rows for known in self.metadata)
        return [known.schema.to_arrow_schema() for known in self.metadata]

    def _narrow(self, schema: Any) -> bool:
        """Whether single precision holds every feature exactly; raises where one is no number."""
        types = _pyarrow("pyarrow").types
        narrow = self.parquet
        for name in self.columns:
            kind = schema.field(name).type
            if types.is_null(kind) or types.is_boolean(kind):  # a column without values: its rows will say so
                continue
            if not (types.is_integer(kind) or types.is_floating(kind)):
                raise ValueError(f"column {name!r} is of type {kind}; features must be numbers.")
            narrow &= kind.bit_width <= (32 if types.is_floating(kind) else 16)
        return narrow

    def _batches(self, names: list[str], start: int, draw: np.random.Generator | None) -> Iterator[Any]:
        """Record batches of the columns `names`, without the first `start` rows."""
        for batch in self._from_parquet(names, start, draw) if self.parquet else self._from_csv(names, start):
            if batch.num_rows:
                yield batch

    def _from_parquet(self, names: list[str], start: int, draw: np.random.Generator | None) -> Iterator[Any]:
        parquet = _pyarrow("pyarrow.parquet")
        groups = [(f, g) for f, known in enumerate(self.metadata) for g in range(known.num_row_groups)]
        order = range(len(groups)) if draw is None else draw.permutation(len(groups))
        for f, g in (groups[i] for i in order):
            rows = self.metadata[f].row_group(g).num_rows
            if start >= rows:  # not even read
                start -= rows
                continue
            # a small buffer and none ahead: else whole column chunks of a large row group are held
            with parquet.ParquetFile(
                self.files[f], metadata=self.metadata[f], buffer_size=1 << 16, pre_buffer=False
            ) as file:
                for batch in file.iter_batches(min(BATCH, self.chunk_rows), row_groups=[g], columns=names):
                    yield batch.slice(start)
                    start = max(start - batch.num_rows, 0)

    def _from_csv(self, names: list[str], start: int) -> Iterator[Any]:
        pa, csv = _pyarrow("pyarrow"), _pyarrow("pyarrow.csv")
        # as in the first file: labels of one type in all of them, numbers in double precision, true and false
        kinds = {self.target: self.schema.field(self.target).type}
        for name in (*self.columns, *([self.weight] if self.weight else [])):
            boolean = pa.types.is_boolean(self.schema.field(name).type)
            kinds[name] = pa.bool_() if boolean else pa.float64()
        convert = csv.ConvertOptions(include_columns=names, column_types=kinds)
        for path in self.files:
            try:
                with csv.open_csv(path, csv.ReadOptions(block_size=BLOCK), convert_options=convert) as reader:
                    for batch in reader:
                        yield batch.slice(start)
                        start = max(start - batch.num_rows, 0)
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                raise ValueError(f"{path} cannot be read as a table of numbers and labels: {error}") from None

    def _array(self, batch: Any, name: str) -> NDArray[Any]:
        column = batch.column(name)
        if column.null_count:
            raise ValueError(f"column {name!r} has missing values; fill them, or leave the rows out.")
        if hasattr(column, "dictionary_decode"):
            column = column.dictionary_decode()
        return column.to_numpy(zero_copy_only=False)

    def _weights(self, batch: Any) -> NDArray[Any] | None:
        if self.weight is None:
            return None
        weight = np.asarray(self._array(batch, self.weight), dtype=float)
        if not np.all(np.isfinite(weight)) or np.any(weight < 0):
            raise ValueError(f"column {self.weight!r} holds the weights, which must be finite and >= 0.")
        return weight


class GivenChunks:
    """Chunks (X, y) or (X, y, weight) of the user's: an iterable of them, or a function that returns one for each pass."""

    columns = None
    rows = None
    identity: dict[str, Any] = {"chunks": "of the user"}  # noqa: RUF012 (never changed)

    def __init__(self, source: Any) -> None:
        if not callable(source) and not isinstance(source, Iterable):
            raise ValueError(
                f"source={source!r} must be a Parquet or CSV file, a list of files, a folder, an iterable of chunks (X, y), or a "
                "function that returns one."
            )
        self.rereadable = callable(source) or iter(source) is not source
        self._start: Callable[[], Any] = source if callable(source) else lambda: source

    def survey(self) -> Survey:
        tally = _Tally()
        for chunk in self.read(0, None):
            tally.add(
                np.ravel(chunk.y), None if chunk.weight is None else np.asarray(chunk.weight, dtype=float)
            )
        return tally.result()

    def read(self, start: int, draw: Any) -> Iterator[Chunk]:
        for given in self._start():
            if not isinstance(given, tuple) or len(given) not in (2, 3):
                raise ValueError(
                    f"a chunk must be a pair (X, y) or a triple (X, y, weight); got {type(given).__name__}."
                )
            if start >= len(given[1]):
                start -= len(given[1])
                continue
            if start:
                raise ValueError("the chunks are not cut as they were when the checkpoint was written.")
            yield Chunk(*given, *([None] if len(given) == 2 else []))


class _Tally:
    """How often each label occurs."""

    def __init__(self) -> None:
        self.weight: dict[Any, float] = {}
        self.rows = 0
        self.dtype: Any = None

    def add(self, labels: NDArray[Any], weight: NDArray[Any] | None) -> None:
        found, at = np.unique(labels, return_inverse=True)
        if found.dtype.kind == "f" and np.any(found != np.floor(found)):
            wrong = found[found != np.floor(found)][0]
            raise ValueError(
                f"a label is {wrong}: labels must be classes, and this looks like a measurement."
            )
        for label, total in zip(found.tolist(), np.bincount(at, weight).tolist(), strict=True):
            self.weight[label] = self.weight.get(label, 0.0) + total
        self.rows += len(labels)
        self.dtype = labels.dtype if self.dtype is None else np.promote_types(self.dtype, labels.dtype)

    def result(self) -> Survey:
        if not self.rows:
            raise ValueError("the source has no rows.")
        classes = np.unique(np.array(list(self.weight), dtype=self.dtype))
        return Survey(classes, np.array([self.weight[label] for label in classes.tolist()]), self.rows)
