"""What errors cost: every form a user may write them in, turned into one checked object.

`costs[true, predicted]` is what it costs to say `predicted` when the truth is `true`; the diagonal is zero. A cost vector theta
is the case in which every error on class y costs theta_y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST = 1e100  # number that is computed with: its square has room in double precision


@dataclass(frozen=True)
class Costs:
    """Checked costs of the k classes, in the order of `classes`."""

    classes: NDArray[Any]  # (k,)
    matrix: NDArray[np.float64]  # (k, k), matrix[true, predicted], zero diagonal
    theta: NDArray[np.float64] | None  # (k,), or None where the errors on some class cost unequal amounts

    @property
    def array(self) -> NDArray[np.float64]:
        """The vector where there is one, the matrix otherwise."""
        return self.matrix if self.theta is None else self.theta


def check_costs(costs: Any, classes: Any, *, class_counts: ArrayLike | None = None) -> Costs:
    """Turn what the user wrote into `Costs`.

    Parameters
    ----------
    costs : None, "balanced", dict, Series, array of shape (k,) or (k, k), or DataFrame
        None: every error costs 1. "balanced": an error on class y costs n / (k n_y). A dict or Series maps each label to its
        cost. Arrays follow the order of `classes`. A DataFrame has the true labels as index, the predicted ones as columns.
        Labels that are none of the classes are passed over, as in scikit-learn's `class_weight`.
    classes : array of shape (k,)
        The distinct labels, sorted as scikit-learn sorts them.
    class_counts : sequence of length k, optional
        (Weighted) number of examples of each class; needed by "balanced".
    """
    classes = np.asarray(classes)
    k = len(classes)
    if costs is None:
        return _from_vector(np.ones(k), classes)
    if isinstance(costs, str):
        if costs != "balanced":
            raise ValueError(f"costs={costs!r} is not known: the only word allowed is 'balanced'.")
        if class_counts is None:
            raise ValueError("costs='balanced' needs training labels; give the costs as numbers here.")
        counts = np.asarray(class_counts, dtype=float)
        if not np.all(counts > 0):
            empty = labels_of(classes)[int(np.flatnonzero(~(counts > 0))[0])]
            raise ValueError(
                f"costs='balanced' needs examples of every class; there are none of class {empty!r}."
            )
        return _from_vector(counts.sum() / (k * counts), classes)
    if hasattr(costs, "columns") and hasattr(costs, "index"):  # DataFrame
        rows = _positions(list(costs.index), classes, "row")
        cols = _positions(list(costs.columns), classes, "column")
        return _from_matrix(_numbers(costs.to_numpy(), costs)[np.ix_(rows, cols)], classes)
    if isinstance(costs, Mapping) or hasattr(costs, "items"):  # dict, Series
        positions = _positions(list(costs.keys()), classes, "key")
        return _from_vector(_numbers([cost for _, cost in costs.items()], costs)[positions], classes)
    values = _numbers(costs, costs)
    if values.shape == (k,):
        return _from_vector(values.copy(), classes)
    if values.shape == (k, k):
        return _from_matrix(values, classes)
    raise ValueError(
        f"costs has shape {values.shape}; with the {k} classes {_names(classes)} it must have shape ({k},) or ({k}, {k})."
    )


def labels_of(labels: NDArray[Any]) -> list[Any]:
    """As Python has them; days stay what they are, of which tolist makes numbers."""
    return list(labels) if labels.dtype.kind in "mM" else labels.tolist()


def _names(classes: Any, most: int = 12) -> str:
    shown = ", ".join(repr(c) for c in labels_of(np.asarray(classes)[:most]))
    return f"[{shown}{', ...' if len(classes) > most else ''}]"


def _numbers(values: Any, costs: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"costs={costs!r} holds something that is not a number: {error}.") from None


def _positions(labels: list[Any], classes: NDArray[Any], what: str) -> list[int]:
    """positions[c] = where class c stands among the labels the user wrote; each class exactly once.

    Labels beyond the classes are no fault where every class has its own: a fold may lack a rare one.
    """
    known = labels_of(classes)
    unknown = [label for label in labels if label not in known]
    missing = [c for c in known if c not in labels]
    if unknown and missing:
        raise ValueError(
            f"costs has the {what} {unknown[0]!r}, which is not a class; the classes are {_names(classes)}."
        )
    if missing:
        raise ValueError(
            f"costs has no {what} for the class {missing[0]!r}; the classes are {_names(classes)}."
        )
    if len(set(labels)) != len(labels):
        raise ValueError(f"costs names a class twice: {labels!r}.")
    return [labels.index(c) for c in known]


def _from_vector(theta: NDArray[np.float64], classes: NDArray[Any]) -> Costs:
    bad = ~((theta >= 1 / LARGEST) & (theta <= LARGEST))
    if bad.any():
        c = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"the cost of class {labels_of(classes)[c]!r} is {theta[c]}; a cost must be a positive finite number, "
            f"{1 / LARGEST:g} to {LARGEST:g}."
        )
    k = len(theta)
    return Costs(classes, theta[:, None] * (1.0 - np.eye(k)), theta)


def _from_matrix(matrix: NDArray[np.float64], classes: NDArray[Any]) -> Costs:
    names, k = labels_of(classes), len(classes)
    off = ~np.eye(k, dtype=bool)
    if np.any(np.diag(matrix) != 0):
        c = int(np.flatnonzero(np.diag(matrix) != 0)[0])
        raise ValueError(
            f"costs[{names[c]!r}, {names[c]!r}] is {matrix[c, c]}; the diagonal must be zero: a right decision costs nothing."
        )
    bad = ~((matrix >= 0) & (matrix <= LARGEST))
    if bad.any():
        y, j = np.argwhere(bad)[0]
        raise ValueError(
            f"costs[{names[y]!r}, {names[j]!r}] is {matrix[y, j]}; an entry of a cost matrix must be a finite number >= 0, "
            f"at most {LARGEST:g}."
        )
    free = ~np.any((matrix > 0) & off, axis=1)
    if free.any():
        c = int(np.flatnonzero(free)[0])
        raise ValueError(
            f"no error on class {names[c]!r} costs anything; each row of the cost matrix needs a positive entry."
        )
    rows = matrix[off].reshape(k, k - 1)
    theta = rows[:, 0].copy() if np.all(rows == rows[:, :1]) else None
    return Costs(classes, matrix.copy(), theta)
