"""The paper's bounds, DDAG and Rademacher, and exact binomial intervals on held-out examples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..losses import value
from .machine import (
    Array,
    check,
    check_delta,
    gram,
    intercept_square,
    positions,
    raw_scores,
    squares,
    unwrap,
)


def ddag_bound(margins: ArrayLike, *, n: float, radius: float, delta: float = 0.05) -> Array:
    """Bound on P(class i and decided otherwise), for each i, from its margins at the nodes of a decision DAG.

        epsilon(i) <= 130/n (R^2 D_i log 4en log 4n + log(2 (2n)^(k-1) / delta)),  D_i = sum_j 1 / gamma_ij^2

    with probability 1 - delta for each class, if the training data are separated. Above 1 it is vacuous, and
    it is so for every sample in common use: even with R^2 D = 1 it takes 50 000 examples to come below 1.
    The total-loss corollary is ``costs @ ddag_bound(..., delta=delta / k)``.

    Parameters
    ----------
    margins : array of shape (k, k)
        gamma_ij; the diagonal is not read. Platt's event also counts what is wrongly taken for i: for it give
        ``np.minimum(margins, margins.T)``.
    n : int or float
        Number of examples; it may be larger than any sample.
    radius : float
        Of a ball that holds every example there can be. The data are measured in this unit: as printed, R^2
        stands before the second term too, and the bound changes with the unit.
    delta : float, default=0.05

    Returns
    -------
    bound : array of shape (k,)
        inf for a class that is not separated: the theorem does not speak of it. Logarithms are to base 2, the
        larger reading.
    """
    gamma = np.asarray(margins, dtype=float)
    k = len(gamma) if gamma.ndim else 0
    check("margins", margins, gamma.shape == (k, k) and k >= 2, "of shape (k, k) with k >= 2")
    check("n", n, n >= 1, "a positive number of examples")
    n = float(n)  # numpy has no logarithm of whole numbers beyond 64 bits
    check("radius", radius, 0 < radius < np.inf, "positive and finite")
    check_delta(delta)
    off = ~np.eye(k, dtype=bool)
    parted = np.all((gamma > 0) | ~off, axis=1)
    D = np.sum(1 / np.where(off & (gamma > 0), gamma, np.inf) ** 2, axis=1)
    log = np.log2
    inside = radius**2 * D * log(4 * math.e * n) * log(4 * n) + log(2 / delta) + (k - 1) * log(2 * n)
    return np.where(parted, 130 / n * inside, np.inf)


class Rademacher(NamedTuple):
    """Bound on the mean clipped loss in units of its largest value; 1 or more says nothing."""

    empirical: float  # mean clipped loss on the sample
    complexity: float  # 2 R_n
    deviation: float  # sqrt(log(1 / delta) / 2n)
    bound: float  # their sum
    largest: float  # the unit, theta_max for the paper's machine: bound * largest is in units of cost


def rademacher_bound(
    est: Any,
    X: Any,
    y: ArrayLike,
    delta: float = 0.05,
    *,
    norm: float | None = None,
    radius: float | None = None,
) -> Rademacher:
    """The paper's bound on E min(loss, theta_max) / theta_max, and so on the expected cost in that unit.

        mean + 2 R Lambda sqrt(k / n) / theta_max + sqrt(log(1 / delta) / 2n),    |W| <= Lambda

    For tables whose row j uses output j alone: "apportioned" and "one-vs-rest".

    Parameters
    ----------
    est, X, y : a fitted machine and its training data
    delta : float, default=0.05
    norm : float, optional
        Lambda, fixed before the data were seen. The paper puts in |W| of the fit, for which the theorem does
        not hold. By default Lambda is the next power of two, 2^t, and delta is shared out among all t by
        1 / (2 (|t| + 1) (|t| + 2)).
    radius : float, optional
        Largest norm of an example, its constant feature included; by default the largest in X, which for rbf
        and laplacian kernels is exact and else an estimate.
    """
    machine, X = unwrap(est, X)
    labels = positions(machine, y, "y")
    check_delta(delta)
    table, n = machine.table_, len(labels)
    k, R, m = table.codes.shape
    if table.shared or R != m or not np.array_equal(np.abs(table.codes), np.tile(np.eye(m), (k, 1, 1))):
        raise ValueError(
            f"loss={machine.loss!r} mixes outputs in a row of its table; "
            "this bound is for 'apportioned' and 'one-vs-rest'."
        )
    scores = raw_scores(machine, X, labels)
    square = float(np.trace(gram(machine, X))) + intercept_square(machine)
    if radius is None:
        radius = float(np.sqrt(squares(machine, X).max()))
    check("radius", radius, 0 < radius < np.inf, "positive and finite")
    if norm is None:
        t = int(np.ceil(np.log2(max(square, 1e-300)) / 2))
        norm, delta = 2.0**t, delta / (2 * (abs(t) + 1) * (abs(t) + 2))
    check("norm", norm, norm**2 >= square * (1 - 1e-9), f"at least |W| = {np.sqrt(square):.6g}")
    largest = float((table.weights * table.margins).max())
    empirical = float(np.minimum(value(table, scores, labels), largest).mean() / largest)
    complexity = float(2 * radius * norm * table.weights.max() * np.sqrt(m / n) / largest)
    deviation = float(np.sqrt(np.log(1 / delta) / (2 * n)))
    return Rademacher(empirical, complexity, deviation, empirical + complexity + deviation, largest)


class ErrorInterval(NamedTuple):
    """Error rate of one class: errors of n, and the exact interval around their share."""

    label: Any
    n: int
    errors: int
    low: float
    high: float


def error_intervals(
    y_true: ArrayLike, y_pred: ArrayLike, delta: float = 0.05, *, labels: ArrayLike | None = None
) -> list[ErrorInterval]:
    """For each class an interval that holds its error rate with probability 1 - delta at least.

    The decisions must come from a machine that has not seen these examples. Given the labels, the errors on a
    class are binomial, whatever the machine: no assumption but independent examples (Clopper, Pearson 1934).
    A class without examples has the interval [0, 1].

    Examples
    --------
    >>> from apportion.guarantees import error_intervals
    >>> ill, well = error_intervals(["ill"] * 20 + ["well"] * 5, ["ill"] * 20 + ["well"] * 4 + ["ill"])
    >>> round(ill.high, 3), round(well.low, 3)
    (0.168, 0.005)
    """
    from scipy.stats import binomtest  # slow to import

    check_delta(delta)
    true, pred = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 1 or true.shape != pred.shape:
        raise ValueError(f"y_true has shape {true.shape} and y_pred {pred.shape}; both must be (n,).")
    out = []
    for label in np.unique(true) if labels is None else np.asarray(labels):
        own = true == label
        n, errors = int(own.sum()), int((pred[own] != label).sum())
        ends = binomtest(errors, n).proportion_ci(1 - delta, method="exact") if n else (0.0, 1.0)
        out.append(ErrorInterval(label, n, errors, float(ends[0]), float(ends[1])))
    return out
