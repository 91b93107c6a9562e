"""Tables that fall apart into binary outputs: one-vs-rest, apportioned, pairwise, and whatever a user's table has of the kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .losses import LossTable
from .solution import Array


@dataclass
class Binary:
    """Outputs that are binary problems on the same classes, in the order of `classes`."""

    outputs: NDArray[np.intp]  # (m',) positions in the table
    classes: NDArray[np.intp]  # (k',) the classes that take part
    row: NDArray[np.intp]  # (m', k') row of the table that holds output j of class c
    sign: Array  # (m', k')
    size: Array  # (m', k'): a code of size a gives a [margin / a - sign f]_+, so alpha of the table is |beta| / a
    margin: Array  # (m', k')
    weight: Array  # (m', k')
    mirror: NDArray[np.intp]  # (m',): position of the output this one is the negative of, or its own

    def solved(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
        """Outputs to solve (m'',), which are nobody's negative; for each output its place among them (m',), and 1 or -1 (m',)."""
        itself = self.mirror == np.arange(len(self.mirror))
        own = np.flatnonzero(itself)
        return own, np.searchsorted(own, self.mirror), np.where(itself, 1.0, -1.0)


def binary_parts(table: LossTable) -> list[Binary] | None:
    """The table as binary problems, grouped by the classes they see; None where rows or slack couple the outputs."""
    codes = np.where(table.weights[:, :, None] > 0, table.codes, 0.0)
    if (
        (table.shared and codes.shape[1] > 1)
        or np.any((codes != 0).sum(axis=2) > 1)
        or np.any((codes != 0).sum(axis=1) > 1)
    ):
        return None
    groups: dict[tuple[int, ...], list[int]] = {}
    for j in range(table.n_outputs):
        groups.setdefault(tuple(np.flatnonzero(codes[:, :, j].any(axis=1))), []).append(j)
    return [
        _binary(table, codes, np.array(outputs), np.array(classes))
        for classes, outputs in groups.items()
        if classes
    ]


def _binary(table: LossTable, codes: Array, outputs: NDArray[np.intp], classes: NDArray[np.intp]) -> Binary:
    row = (codes[classes][:, :, outputs] != 0).argmax(axis=1).T  # (m', k')
    code = codes[classes, row, outputs[:, None]]  # (m', k')
    sign, size = np.sign(code), np.abs(code)
    margin, weight = table.margins[classes, row] / size, table.weights[classes, row] * size
    mirror = np.arange(len(outputs))
    seen: dict[bytes, int] = {}
    for j in range(len(outputs)):
        rest = margin[j].tobytes() + weight[j].tobytes()
        mirror[j] = seen.get((-sign[j]).tobytes() + rest, j)
        if mirror[j] == j:
            seen.setdefault(sign[j].tobytes() + rest, j)
    return Binary(outputs, classes, row, sign, size, margin, weight, mirror)


def spread(part: Binary, rows: NDArray[np.intp], labels: NDArray[np.intp], beta: Array, alpha: Array) -> None:
    """Write beta (m', n') of a part, labels (n',) counted among its classes, into alpha (n, R) of the table, zeros until then."""
    for j in range(len(part.outputs)):
        used = np.flatnonzero(beta[j])
        label = labels[used]
        alpha[rows[used], part.row[j][label]] = np.abs(beta[j][used]) / part.size[j][label]


def gather(
    part: Binary, own: NDArray[np.intp], rows: Any, labels: NDArray[np.intp], alpha: Array, upper: Array
) -> Array:
    """The way back, for the outputs `own`: beta (m'', n') from alpha, inside its bounds."""
    beta = np.array([part.size[j][labels] * alpha[rows, part.row[j][labels]] for j in own])
    return part.sign[own][:, labels] * np.minimum(beta, upper)


def balanced(beta: Array) -> Array:
    """beta (m, n) with the heavier side of each output scaled down so that its sum is zero."""
    up, down = np.maximum(beta, 0).sum(axis=1), -np.minimum(beta, 0).sum(axis=1)
    both = np.minimum(up, down)
    return np.where(
        beta > 0,
        beta * (both / np.maximum(up, 1e-300))[:, None],
        beta * (both / np.maximum(down, 1e-300))[:, None],
    )
