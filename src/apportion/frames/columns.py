"""What each column of a table is taken for, and the ColumnTransformer that makes numbers of them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from ..fitting import csr_contents
from .words import as_text, listed, nearest

DATES = (
    *(
        "%Y-%m-%d",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%d %H:%M",
        "%Y/%m/%d",
        "%d.%m.%Y",
        "%d.%m.%y",
    ),
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
)
KINDS = ("number", "category", "date", "out")
MOST_CODES = 10  # different numbers written as text: with more of them they are measurements
RARE = 5  # a value seen less often shares a column with others like it
MOST_VALUES = 50  # columns that one category may become


@dataclass
class Column:
    """What a column is taken for, and what becomes of it."""

    name: str
    kind: str  # one of KINDS
    treatment: str
    form: str | None = None  # in which its dates are written, one of DATES


def describe_columns(X: Any, kinds: Mapping[str, str] | None = None) -> list[Column]:
    """One `Column` for each of the DataFrame X; `kinds` are the user's own words for some of them."""
    kinds = dict(kinds or {})
    for name, kind in kinds.items():
        if name not in X.columns:
            raise ValueError(f"--column {name}={kind}: there is no column {name!r}{nearest(name, X.columns)}")
        if kind not in KINDS:
            raise ValueError(f"--column {name}={kind}: {kind!r} is not known; allowed: {', '.join(KINDS)}.")
    columns = [_described(X[name], kinds[name]) if name in kinds else _guess(X[name]) for name in X.columns]
    if all(column.kind == "out" for column in columns):
        raise ValueError(
            f"no column is left to learn from: {'; '.join(f'{c.name!r} is {c.treatment}' for c in columns[:3])}; "
            "keep one by --column NAME=number or NAME=category."
        )
    return columns


def _described(column: Any, kind: str) -> Column:
    form = date_format(column.dropna()) if kind == "date" else None
    return Column(str(column.name), kind, _treatment(column, kind, form), form)


def _guess(column: Any) -> Column:
    name, values = str(column.name), column.dropna()
    words = values.map(as_text)
    distinct = words.nunique()

    def left_out(reason: str) -> Column:
        return Column(name, "out", f"left out: {reason}")

    if len(values) == 0:
        return left_out("no values")
    if distinct == 1 and len(values) == len(column):
        return left_out("always the same")
    if values.dtype.kind not in "ifM" and _written_numbers(words) and distinct > MOST_CODES:
        column = as_numbers(column)
        values = column.dropna()
    if values.dtype.kind in "if":
        if _is_id(column):
            return left_out(f"an ID? (keep it by --column {name}=number)")
        return _described(column, "number")
    if _is_date(values):
        return _described(column, "date")
    numbers = pd.to_numeric(values, errors="coerce").notna()
    if 0.9 <= numbers.mean() < 1:
        row = int(np.flatnonzero(column.index.isin(values.index[~numbers]))[0])
        raise ValueError(
            f"the column {name!r} holds numbers, but {as_text(column.iloc[row])!r} in row {row + 1}; correct that, or say what "
            f"it is: --column {name}=category or {name}=out."
        )
    length = words.str.split().str.len().mean()
    if distinct > 10 and (distinct > len(values) / 2 or (length >= 5 and distinct > MOST_VALUES)):
        reason = "free text" if length >= 3 else "nearly every row has a value of its own"
        return left_out(f"{reason} (keep it by --column {name}=category)")
    return _described(column, "category")


def _written_numbers(words: Any) -> bool:
    """Whether text is numbers and nothing else; 007 is a code."""
    return bool(pd.to_numeric(words, errors="coerce").notna().all() and not words.str.match(r"\s*0\d").any())


def _treatment(column: Any, kind: str, form: str | None) -> str:
    """What becomes of a column of a kind, in words; a ValueError where it is not of that kind."""
    values = column.dropna()
    missing = len(column) - len(values)
    if kind == "out":
        return "left out, as you ask"
    if kind == "number":
        as_numbers(column)
        return "a number" + (f"; {missing} missing: the median, and a mark" if missing else "")
    if kind == "date":
        if form is None and values.dtype.kind != "M":
            raise ValueError(
                f"--column {column.name}=date: {as_text(values.iloc[0])!r} and others are not dates such as 2024-12-31."
            )
        written = f" (written {_spelled(form)})" if form else ""
        filled = f"; {missing} missing: the median, and a mark" if missing else ""
        return f"a date{written}: days since 1970{filled}"
    counts = column.map(as_text).value_counts()
    rare = int((counts < RARE).sum())
    if len(counts) - rare >= MOST_VALUES:  # as OneHotEncoder counts: one of them is for those that share
        rare = len(counts) - (MOST_VALUES - 1)
    return (
        f"a category: {len(counts)} values, a column each"
        + (f"; the {rare} rarest share one" if rare > 1 else "")
        + (f"; {missing} missing are one of them" if missing else "")
    )


def _is_id(column: Any) -> bool:
    """Whole numbers, each once: without gaps, or under a name that says ID."""
    if len(column) < 20 or column.isna().any() or not column.is_unique:
        return False
    if not np.all(np.isfinite(column)) or not np.all(np.mod(column, 1) == 0):
        return False
    named = re.search(r"(^|[^a-z])(id|key|index|row|number|nr|no)$|^unnamed", str(column.name).lower())
    return named is not None or float(column.max() - column.min()) == len(column) - 1


def _is_date(values: Any) -> bool:
    return values.dtype.kind == "M" or date_format(values) is not None


def date_format(values: Any) -> str | None:
    """The first of `DATES` in which every value is written, or None."""
    if values.dtype != object or not all(isinstance(value, str) for value in values.iloc[:20]):
        return None
    unique = values.drop_duplicates()
    for form in DATES:
        for part in (unique.iloc[:20], unique):  # most columns are no dates, and twenty values tell
            if not pd.to_datetime(part, format=form, errors="coerce").notna().all():
                break
        else:
            return form
    return None


def _spelled(form: str) -> str:
    parts = {
        "%Y": "year",
        "%y": "year",
        "%m": "month",
        "%d": "day",
        "%H": "hour",
        "%M": "minute",
        "%S": "second",
    }
    return re.sub("%[a-zA-Z]", lambda found: parts[found.group()], form)


# ---------------------------------------------------------------- columns to numbers


def preprocessor(columns: Iterable[Column]) -> ColumnTransformer:
    """An unfitted ColumnTransformer from a DataFrame with these columns to numbers without gaps."""
    names: dict[str, list[str]] = {kind: [] for kind in KINDS}
    forms: dict[str, str] = {}
    for column in columns:
        names[column.kind].append(column.name)
        if column.form is not None:
            forms[column.name] = column.form
    fill = SimpleImputer(strategy="median", add_indicator=True)
    one_hot = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        min_frequency=RARE,
        max_categories=MOST_VALUES,
        sparse_output=False,
    )
    parts = [
        ("numbers", fill, names["number"]),
        ("dates", make_pipeline(Days(forms), fill), names["date"]),
        ("categories", make_pipeline(Words(), one_hot), names["category"]),
    ]
    return ColumnTransformer(
        [part for part in parts if part[2]], verbose_feature_names_out=False, sparse_threshold=0
    )


class Words(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Any values as text: 1 and 1.0 are the same word, a missing one is a word too."""

    def fit(self, X: Any, y: Any = None) -> Words:
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return X.map(as_text).to_numpy(dtype=object)


class Days(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Dates as days since 1970-01-01, NaN where they are missing.

    `formats` says how the dates of a column are written, by its name; those of others are guessed from the rows of `fit`, of
    which there may be too few to tell 01/02/2024 from 02/01/2024.
    """

    formats: dict[str, str] | None = None  # for models saved before this was a parameter

    def __init__(self, formats: dict[str, str] | None = None) -> None:
        self.formats = formats

    def fit(self, X: Any, y: Any = None) -> Days:
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.n_features_in_ = X.shape[1]
        known = self.formats or {}
        self.formats_ = [known.get(name) or date_format(X[name].dropna()) for name in X.columns]
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        # in seconds, lest years that nanoseconds cannot hold overflow
        epoch, day = pd.Timestamp(0).as_unit("s"), pd.Timedelta(days=1).as_unit("s")
        parts = []
        for name, form in zip(X.columns, self.formats_, strict=True):
            column = X[name]
            dates = column
            if column.dtype.kind != "M":
                dates = pd.to_datetime(column, format=form or "ISO8601", errors="coerce")
                _refuse(
                    column, dates.isna() & column.notna(), f"a date written {_spelled(form or '%Y-%m-%d')}"
                )
            parts.append(((dates - epoch) / day).to_numpy(dtype=float))
        return np.column_stack(parts)


def align(X: Any, model: Any) -> tuple[Any, list[str]]:
    """(the columns of X that a model needs, in its order, numbers as numbers; what to tell the user).

    The model is a `preprocessor`, fitted or not, or any estimator that was fitted on a DataFrame, whose columns are then
    taken for numbers.
    """
    if isinstance(model, ColumnTransformer):
        parts = {part: names for part, _, names in model.transformers}
        needed, numbers = [name for names in parts.values() for name in names], parts.get("numbers", [])
    else:
        needed = numbers = list(model.feature_names_in_)
    lacking = [name for name in needed if name not in X.columns]
    if lacking:
        raise ValueError(
            f"the data lack {'a column' if len(lacking) == 1 else f'{len(lacking)} columns'} of the model: "
            f"{listed(lacking)}; their columns are {listed(X.columns)}."
        )
    extra = [name for name in X.columns if name not in needed]
    X = X[needed].copy()
    for name in numbers:
        X[name] = as_numbers(X[name])
    return X, [f"not used by the model: {listed(extra)}"] if extra else []


def as_numbers(column: Any) -> Any:
    """The column as floats; a value that is not a finite number is refused, a missing one is not."""
    values = pd.to_numeric(column, errors="coerce").astype(float)
    _refuse(column, (values.isna() & column.notna()) | np.isinf(values), "a finite number")
    return values


def _refuse(column: Any, bad: Any, wanted: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"the column {str(column.name)!r} holds {as_text(column.iloc[row])!r} in row {row + 1}; it must be {wanted} or empty."
        )


def _word(value: Any) -> str:
    """Without the last digits, which change when a program writes anew what it has read."""
    return f"{value:.12g}" if isinstance(value, float) and math.isfinite(value) else as_text(value)


def row_digests(X: Any, y: NDArray[Any]) -> list[str]:
    """A text a row, the same for equal rows of equal label: tells the rows a model was trained on from others."""
    if sparse.issparse(X):
        rows = [indices + data for indices, data in csr_contents(X)]
    else:
        # of words: the type of a column depends on what else its file holds
        content = (
            pd.util.hash_pandas_object(X.map(_word), index=False).to_numpy() if hasattr(X, "columns") else X
        )
        rows = [row.tobytes() for row in content]
    return [
        hashlib.blake2b(row + str(label).encode(), digest_size=8).hexdigest()
        for row, label in zip(rows, y.tolist(), strict=True)
    ]
