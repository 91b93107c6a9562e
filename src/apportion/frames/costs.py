"""Costs as they are written on a command line or in a file."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..costs import check_costs
from .reading import read_table
from .words import as_text, first_line, is_number, nearest


def written_costs(classes: NDArray[Any], costs: Sequence[float]) -> str:
    """The first six `CLASS=NUMBER` as `parse_costs` reads them, to be pasted into a shell."""
    buffer = io.StringIO()
    parts = [f"{c}={cost:g}" for c, cost in zip(classes.tolist()[:6], costs, strict=False)]
    csv.writer(buffer, lineterminator="").writerow(parts)
    return shlex.quote(buffer.getvalue()) + (",..." if len(classes) > 6 else "")


def parse_costs(text: str, classes: NDArray[Any]) -> dict[Any, float] | str:
    """`malignant=10,benign=1` as a dict by class; the word `balanced` stays."""
    how = f"write --costs {written_costs(classes, [1.0] * len(classes))}"
    if text.strip() == "balanced":
        return "balanced"
    known = {str(c): c for c in classes.tolist()}
    found: dict[Any, float] = {}
    try:
        parts = next(csv.reader([text]))
    except csv.Error as error:  # more than csv.field_size_limit() characters, a line break
        raise ValueError(f"--costs cannot be read: {first_line(error)} {how[0].upper()}{how[1:]}.") from None
    for part in parts:
        label, equals, number = part.rpartition("=")
        label = label.strip()
        if label not in known and is_number(label):  # +1 and 1.0 are the class 1
            label = as_text(float(label))
        if not equals or not label:
            raise ValueError(f"--costs: {part.strip()!r} is not CLASS=NUMBER; {how} with your numbers.")
        if label not in known:
            raise ValueError(f"--costs: {label!r} is not a class{nearest(label, list(known), 'classes')}")
        if known[label] in found:
            raise ValueError(f"--costs names the class {label!r} twice.")
        try:
            cost = float(number)
        except ValueError:
            raise ValueError(
                f"--costs: the cost of {label!r} is {number.strip()!r}, which is not a number."
            ) from None
        if not (np.isfinite(cost) and cost > 0):
            raise ValueError(
                f"--costs: the cost of {label!r} is {number.strip()}; a cost must be a positive finite number."
            )
        found[known[label]] = cost
    missing = [label for label, c in known.items() if c not in found]
    if missing:
        raise ValueError(f"--costs says nothing of the class {missing[0]!r}; {how} with your numbers.")
    return found


def read_cost_matrix(path: str | Path, classes: NDArray[Any]) -> NDArray[np.float64]:
    """(k, k) costs[true, predicted] in the order of `classes`, from a CSV file: true classes down, predicted ones across."""
    table = read_table(path)
    if table.frame is None:
        raise ValueError(f"{path} must be a CSV file for --cost-matrix.")
    frame = table.frame
    known = {str(c): c for c in classes.tolist()}
    form = f"its first line is ,{','.join(list(known)[:6])} and every other line a true class and what deciding each costs"
    names, rows = list(frame.columns[1:]), [as_text(value) for value in frame.iloc[:, 0]]
    for what, found in (("column", names), ("row", rows)):
        unknown = [name for name in found if name not in known]
        if unknown:
            raise ValueError(
                f"--cost-matrix: the {what} {unknown[0]!r} of {path} is not a class{nearest(unknown[0], list(known), 'classes')}"
            )
    if len(names) != len(rows):
        raise ValueError(
            f"--cost-matrix: {path} has {len(rows)} rows and {len(names)} columns of costs; {form}."
        )
    values = frame.iloc[:, 1:].apply(pd.to_numeric, errors="coerce")
    empty = np.argwhere(values.isna().to_numpy())
    if len(empty):
        row, column = empty[0]
        raise ValueError(
            f"--cost-matrix: no number at row {rows[row]!r}, column {names[column]!r} of {path}; {form}."
        )
    matrix = pd.DataFrame(
        values.to_numpy(dtype=float), index=[known[r] for r in rows], columns=[known[c] for c in names]
    )
    try:
        return check_costs(matrix, classes).matrix
    except ValueError as error:
        raise ValueError(f"--cost-matrix: {error}") from None
