"""Reading a table from a CSV, Parquet or svmlight file, or one that scikit-learn brings along."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .words import as_text, first_line, is_number, listed, nearest

try:
    import pandas as pd
except ImportError as error:  # pragma: no cover
    raise ImportError("tables are read by pandas: pip install apportion[cli]") from error

DENSE = 500  # so few columns of an svmlight file are held dense: kernels are for dense data
MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "#N/A")  # "None" may be a category


@dataclass
class Table:
    """What was read: a DataFrame, or the rows and labels of an svmlight file."""

    name: str
    frame: Any = None  # DataFrame, or None for svmlight
    rows: Any = None  # (n, d) of an svmlight file, dense or CSR
    labels: NDArray[Any] | None = None  # (n,) of an svmlight file
    zero_based: bool | None = None  # whether its columns are counted from 0
    target: str | None = None  # where the source itself says which column that is
    costs: dict[Any, float] | None = None  # where the source itself says
    said: list[str] = field(default_factory=list)  # what the user should know of the reading

    def split(self, target: str | None) -> tuple[Any, NDArray[Any]]:
        """(features, labels), both checked; features are a DataFrame, an array or CSR."""
        if self.labels is not None:
            if target is not None:
                raise ValueError(
                    f"{self.name} is an svmlight file: the labels are the first number of each line, leave --target out."
                )
            return self.rows, _labels(pd.Series(self.labels), self.name, "the label")
        target = target if target is not None else self.target
        if target is None:
            raise ValueError(
                f"say which column of {self.name} is to be predicted by --target; the columns are {listed(self.frame.columns)}."
            )
        if target not in self.frame.columns:
            raise ValueError(f"{self.name} has no column {target!r}{nearest(target, self.frame.columns)}")
        X = self.frame.drop(columns=target)
        if X.shape[1] == 0:
            raise ValueError(
                f"{self.name} has no column beside the target {target!r}: there is nothing to predict it from."
            )
        return X, _labels(self.frame[target], self.name, f"the target {target!r}")


def read_table(path: str | Path, n_features: int | None = None, zero_based: bool | None = None) -> Table:
    """Read a CSV, Parquet or svmlight file; which one it is, its name and its first bytes say.

    `n_features` is the number of columns an svmlight file must not exceed, that of the machine that is to use it. `zero_based` says
    whether they are counted from 0; without it they are where a column 0 occurs.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    data = path.read_bytes()
    if not data:
        raise ValueError(f"{path} is empty.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise ValueError(f"{path} cannot be unpacked ({error}); copy it again.") from None
    if data.startswith(b"PAR1") or ".parquet" in suffixes:
        return _read_parquet(path, data)
    if {".svm", ".svmlight", ".libsvm"} & set(suffixes):
        return _read_svmlight(path, data, n_features, zero_based)
    if data.startswith(b"PK") or data.startswith(b"\xd0\xcf\x11\xe0"):
        raise ValueError(f"{path} is a spreadsheet or an archive, not a table of text; save it as CSV first.")
    return _read_csv(path, data)


def _read_parquet(path: Path, data: bytes) -> Table:
    try:
        frame = pd.read_parquet(io.BytesIO(data))
    except ImportError as error:
        raise ImportError(
            f"Parquet files are read by pyarrow ({error}): pip install apportion[cli]"
        ) from None
    except Exception as error:  # pyarrow has many kinds
        raise ValueError(f"{path} is no Parquet file, or damaged: {first_line(error)}") from None
    return Table(str(path), _checked_frame(path, frame))


def _read_svmlight(path: Path, data: bytes, n_features: int | None, zero_based: bool | None) -> Table:
    from sklearn.datasets import load_svmlight_file

    try:
        rows, labels = load_svmlight_file(io.BytesIO(data), zero_based=True)
    except Exception as error:  # ValueError, IndexError, OverflowError, UnicodeDecodeError, ...
        raise ValueError(
            f"{path} is not in svmlight format (a line is: label index:value index:value ...): {first_line(error)}"
        ) from None
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        raise ValueError(f"{path} holds no rows with values.")
    if zero_based is None:
        zero_based = bool(np.any(rows.indices == 0))
    elif not zero_based and np.any(rows.indices == 0):
        raise ValueError(f"{path} has a column 0; those of the model are counted from 1.")
    rows = rows if zero_based else rows[:, 1:]
    if n_features is not None:
        if rows.shape[1] > n_features:
            raise ValueError(f"{path} has {rows.shape[1]} columns; the model was trained on {n_features}.")
        rows.resize((rows.shape[0], n_features))
    rows = rows.toarray() if rows.shape[1] <= DENSE else rows
    return Table(str(path), rows=rows, labels=labels, zero_based=zero_based)


def _read_csv(path: Path, data: bytes) -> Table:
    said: list[str] = []
    text = _decoded(path, data, said)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} is empty.")
    try:
        delimiter = _delimiter(lines[:100])
        header = [name.strip() for name in next(csv.reader(lines[:1], delimiter=delimiter))]
    except csv.Error as error:  # a cell of more than csv.field_size_limit() characters
        raise ValueError(
            f"{path} is no table: {first_line(error)} Is a quotation mark left open, or a column of long texts to be left out?"
        ) from None
    if delimiter != ",":
        said.append(f"columns are separated by {'tabs' if delimiter == chr(9) else repr(delimiter)}")
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has {listed(twice)} as the name of more than one column; rename them.")
    if all(is_number(name) for name in header):
        raise ValueError(f"the first line of {path} holds numbers; it must name the columns.")
    if len(lines) == 1:
        raise ValueError(f"{path} has a header and no rows.")
    options: dict[str, Any] = {
        "sep": delimiter,
        "na_values": list(MISSING),
        "keep_default_na": False,
        "skipinitialspace": True,
        "low_memory": False,
    }
    try:
        frame = pd.read_csv(io.StringIO(text), **options)
        if delimiter != "," and _decimal_commas(frame):
            said.append("numbers are written with a decimal comma")
            frame = pd.read_csv(io.StringIO(text), decimal=",", **options)
    except Exception as error:  # ParserError, EmptyDataError, ...
        reason = first_line(error).removeprefix("Error tokenizing data. C error: ")
        raise ValueError(f"{path} is no table: {reason}") from None
    if not isinstance(frame.index, pd.RangeIndex):  # more fields in the rows than names in the header
        raise ValueError(
            f"{path}: the header has {len(header)} names and the rows have more fields; name every column."
        )
    return Table(str(path), _checked_frame(path, frame), said=said)


def _decoded(path: Path, data: bytes, said: list[str]) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif b"\0" in data[:65536]:
        raise ValueError(f"{path} is not text; a CSV, Parquet or svmlight file is needed.")
    else:
        encoding = "utf-8-sig"  # with or without a byte order mark
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        head = data[:65536]
        control = sum(byte < 32 and byte not in b"\t\r\n\f" for byte in head)
        if encoding == "utf-16" or control > len(head) / 100:
            raise ValueError(f"{path} is not text; a CSV, Parquet or svmlight file is needed.") from None
        said.append(f"not UTF-8 (byte {error.start}): read as Windows-1252, check letters with accents")
        return data.decode("cp1252", errors="replace")


def _delimiter(lines: Sequence[str]) -> str:
    """The one of , ; tab | that cuts every line into the same number of fields, and into the most."""

    def fields(delimiter: str) -> tuple[float, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        return (counts.count(counts[0]) / len(counts) if counts[0] > 1 else 0.0, counts[0])

    return max(",;\t|", key=fields)


def _decimal_commas(frame: Any) -> bool:
    """Whether a column of words is one of numbers such as 1,5."""
    words = [
        frame[name].dropna().astype(str) for name in frame if not pd.api.types.is_numeric_dtype(frame[name])
    ]
    return any(len(column) and column.str.fullmatch(r"[+-]?\d+(,\d+)?").all() for column in words)


def _checked_frame(path: Path, frame: Any) -> Any:
    """Columns with names of text, each of float64, int64, datetime64 or objects (text)."""
    if len(frame) == 0:
        raise ValueError(f"{path} has a header and no rows.")
    frame = frame.copy()
    frame.columns = [str(name).strip() for name in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"{path} has {listed(twice)} as the name of more than one column; rename them.")
    return pd.DataFrame({name: _plain(frame[name]) for name in frame.columns}).reset_index(drop=True)


def _plain(column: Any) -> Any:
    kind = column.dtype
    if pd.api.types.is_bool_dtype(kind):
        return column.astype(object).map({True: "True", False: "False"}).astype(object)
    if pd.api.types.is_numeric_dtype(kind):
        return column if kind == np.int64 else column.astype(float)
    if pd.api.types.is_datetime64_any_dtype(kind):
        return column if column.dt.tz is None else column.dt.tz_convert(None)
    column = column.astype(object)
    # days of Parquet (date32) come as datetime.date; in seconds, which hold every year that those do
    values = column.dropna()
    if len(values) and all(type(value) is datetime.date for value in values):
        return pd.Series(
            column.where(column.notna(), None).to_numpy(dtype="datetime64[s]"), index=column.index
        )
    return column.where(column.notna(), None)


SKLEARN = ("breast_cancer", "iris", "wine", "digits")


def sklearn_table(name: str) -> Table:
    """One of `SKLEARN`, with the names of its columns; the target is called "class"."""
    from sklearn import datasets

    bunch: Any = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = bunch.data.copy()
    frame["class"] = np.asarray(bunch.target_names)[bunch.target]
    return Table(name, _checked_frame(Path(name), frame), target="class")


def _labels(column: Any, name: str, what: str) -> NDArray[Any]:
    """Labels of the rows as integers or text: at least two classes, each more than once, and not a number to predict."""
    n = len(column)
    if column.isna().any():
        rows = (np.flatnonzero(column.isna()) + 1).tolist()
        raise ValueError(
            f"{what} is missing in {len(rows)} of the {n} rows of {name} (the first is row {rows[0]}); fill or remove these rows."
        )
    whole = pd.api.types.is_numeric_dtype(column.dtype) and np.all(np.mod(column, 1) == 0)
    labels = (
        column.to_numpy().astype(np.int64)
        if whole
        else column.astype(str).str.strip().to_numpy(dtype=object).astype(str)
    )
    classes, counts = np.unique(labels, return_counts=True)
    k = len(classes)
    if n == 1:
        raise ValueError(f"{name} has 1 row; a machine learns from many of each class.")
    if k == 1:
        raise ValueError(
            f"{what} is {classes.tolist()[0]!r} in every row of {name}; at least two classes are needed."
        )
    if k == n or (k > 20 and k > n / 5):
        raise ValueError(
            f"{what} has {k} different values in {n} rows of {name}: an ID or a quantity, not a class; choose another column."
        )
    if counts.min() < 2:
        rare = classes.tolist()[int(counts.argmin())]
        raise ValueError(
            f"the class {rare!r} has 1 row in {name}; each class needs two at least: add rows or remove this one."
        )
    return labels


def known_labels(column: Any, classes: NDArray[Any], name: str) -> NDArray[Any]:
    """The labels of a column as the classes of a model; they may be written as other types (1, 1.0 and "1" are the same)."""
    known = {as_text(c): c for c in classes.tolist()}
    words = pd.Series(column).map(as_text).str.strip()
    unknown = np.flatnonzero(~words.isin(list(known)))
    if len(unknown):
        row = int(unknown[0])
        raise ValueError(
            f"row {row + 1} of {name} has the label {words.iloc[row]!r}; the model knows {listed(known)}."
        )
    return np.array([known[word] for word in words], dtype=classes.dtype)
