"""Margins, bounds and held-out errors of each class in one table, and in words what the numbers are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..costs import check_costs
from .bounds import ErrorInterval, Rademacher, ddag_bound, error_intervals, rademacher_bound
from .certificates import Compression, LeaveOneOut, compression_bound, leave_one_out
from .machine import Array, check_delta, known, positions, squares, unwrap
from .margins import pairwise_margins


@dataclass(frozen=True)
class ClassBounds:
    """What is known of the errors on one class. NaN: not asked for, or not defined."""

    label: Any
    cost: float  # of the dearest error on it
    n: int
    support: int | None  # None: the machine keeps no support vectors
    margin: float  # min_j gamma_ij
    margin_bound: float  # min_j of the margin lemma, slack taken off
    ddag: float  # on P(this class and decided otherwise)
    compression: float  # on the error rate of the class
    loo_low: float
    loo_high: float
    test_n: int
    test_error: float
    test_low: float
    test_high: float


@dataclass(frozen=True)
class ErrorBounds:
    """A row for each class, what holds for the whole, and what it is worth; `print` it."""

    rows: list[ClassBounds]
    delta: float
    total_loss: float  # sum_i theta_i epsilon(i), the DDAG corollary; NaN for a full cost matrix
    rademacher: Rademacher | None
    compression: Compression | None
    notes: list[str]

    def __str__(self) -> str:
        heads = "class|cost|n|support|margin|>= lemma|DDAG|compression|leave-one-out|held-out|interval"
        lines = [heads.split("|")]
        for r in self.rows:
            lines.append(
                [
                    str(r.label),
                    f"{r.cost:g}",
                    str(r.n),
                    "-" if r.support is None else str(r.support),
                    _short(r.margin),
                    _short(r.margin_bound),
                    _short(r.ddag),
                    _short(r.compression),
                    f"{r.loo_low:.3f} .. {r.loo_high:.3f}",
                    f"{r.test_error:.3f} of {r.test_n}" if r.test_n else "-",
                    f"{r.test_low:.3f} .. {r.test_high:.3f}" if r.test_n else "-",
                ]
            )
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.rjust, line, widths)) for line in lines]
        return "\n".join([*table, "", *self.notes])


def error_bounds(
    est: Any,
    X: Any,
    y: ArrayLike,
    delta: float = 0.05,
    *,
    X_test: Any = None,
    y_test: ArrayLike | None = None,
    radius: float | None = None,
) -> ErrorBounds:
    """Margins and bounds of each class in one table, with what each bound is worth in words.

    Parameters
    ----------
    est : fitted machine, or a pipeline that ends in one; fitted without `sample_weight`
    X, y : its training data
    delta : float, default=0.05
        Each bound and each interval holds with probability 1 - delta.
    X_test, y_test : optional
        Examples the machine has not seen.
    radius : float, optional
        Of a ball around zero that holds every example there can be, in feature space; by default the largest
        norm in X.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from apportion import ApportionedSVC
    >>> from apportion.guarantees import error_bounds
    >>> X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    >>> machine = make_pipeline(StandardScaler(), ApportionedSVC([5, 1], gamma=0.02, tol=1e-6)).fit(X, y)
    >>> report = error_bounds(machine, X, y, X_test=X_test, y_test=y_test)
    >>> bool(report.rows[0].loo_high < 0.2)
    True
    """
    machine, Z = unwrap(est, X)
    check_delta(delta)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test belong together; one of them is missing.")
    classes = machine.classes_
    k, labels = len(classes), positions(machine, y, "y")
    names, n, notes = classes[labels], len(labels), list[str]()
    costs = check_costs(machine.costs_, classes)
    margins = pairwise_margins(machine, Z, names)
    gamma = margins.measured
    unit = float(np.sqrt(squares(machine, Z, with_constant=False).max())) if radius is None else radius
    ddag = ddag_bound(gamma, n=n, radius=unit, delta=delta)
    total = np.nan
    if costs.theta is not None:
        total = float(costs.theta @ ddag_bound(gamma, n=n, radius=unit, delta=delta / k))
    _say_ddag(notes, classes, ddag, total, gamma, unit, delta)
    rademacher, compression = None, None
    try:
        rademacher = rademacher_bound(machine, Z, names, delta)
        notes.append(
            f"Rademacher: mean clipped loss at most {rademacher.bound:.3g} of its largest value"
            + (": vacuous, it is 1 at most in any case." if rademacher.bound >= 1 else ".")
        )
    except ValueError as reason:
        notes.append(f"Rademacher: not defined here: {reason}")
    try:
        compression = compression_bound(machine, Z, names, delta)
        _say_compression(notes, compression, n)
    except ValueError as reason:
        notes.append(f"Compression: not defined here: {reason}")
    low = high = np.full(k, np.nan)
    try:
        loo = leave_one_out(machine, Z, names)
        low, high = loo.low, loo.high
        _say_leave_one_out(notes, loo)
    except ValueError as reason:
        notes.append(f"Leave-one-out: not defined here: {reason}")
    if machine is not est:
        notes.append(
            "The steps before the machine are taken as given: what follows from the training rows holds if "
            "these steps were fitted on others."
        )
    held = [ErrorInterval(c, 0, 0, np.nan, np.nan) for c in classes]
    if y_test is not None:
        held = error_intervals(known(machine, y_test, "y_test"), est.predict(X_test), delta, labels=classes)
        notes.append(f"Held-out: each interval holds its class's error rate with probability {1 - delta:g}.")
    support = getattr(machine, "n_support_", None)  # stochastic gradient keeps none
    rows = [
        ClassBounds(
            label=classes[i],
            cost=float(costs.matrix[i].max()),
            n=int((labels == i).sum()),
            support=None if support is None else int(support[i]),
            margin=_least(gamma[i]),
            margin_bound=_least(margins.with_slack[i]),
            ddag=float(ddag[i]),
            compression=np.nan if compression is None else float(compression.bound[i]),
            loo_low=float(low[i]),
            loo_high=float(high[i]),
            test_n=held[i].n,
            test_error=held[i].errors / held[i].n if held[i].n else np.nan,
            test_low=held[i].low,
            test_high=held[i].high,
        )
        for i in range(k)
    ]
    return ErrorBounds(rows, delta, total, rademacher, compression, notes)


def _say_ddag(
    notes: list[str], classes: Any, ddag: Array, total: float, gamma: Array, radius: float, delta: float
) -> None:
    mixed = ", ".join(str(c) for c, bound in zip(classes, ddag, strict=True) if np.isinf(bound))
    if mixed:
        notes.append(f"DDAG: says nothing of {mixed}: not separated from the others on the training data.")
    vacuous = ", ".join(str(c) for c, bound in zip(classes, ddag, strict=True) if 1 <= bound < np.inf)
    if vacuous:
        least, n = int(ddag.argmin()), 1.0  # a float: it may pass what 64 bits hold
        while ddag_bound(gamma, n=n, radius=radius, delta=delta)[least] >= 1:
            n *= 2
        notes.append(
            f"DDAG: vacuous for {vacuous}: the least bound is {ddag[least]:.3g}, a probability is 1 at most. "
            f"With these margins it would take {n / 2:.2g} to {n:.2g} examples."
        )
    if np.isfinite(total):
        notes.append(f"DDAG corollary: total loss at most {total:.3g}" + (" (vacuous)." if vacuous else "."))


def _say_leave_one_out(notes: list[str], found: LeaveOneOut) -> None:
    words = f"Leave-one-out: the dual decides {np.mean(found.right | found.wrong):.1%} of the rows, the rest count as"
    vacuous = ", ".join(str(c) for c, high in zip(found.classes, found.high, strict=True) if high >= 1)
    notes.append(words + " errors in the upper end" + (f": vacuous for {vacuous}." if vacuous else "."))


def _say_compression(notes: list[str], found: Compression, n: int) -> None:
    words = f"Compression: {found.size} of {n} rows make the machine; error rate at most {found.total:.3f}"
    words += " over all classes" + (": vacuous." if found.total >= 1 else ".")
    if found.agreement < 1:
        words += f" Fitted on these rows alone it decides {1 - found.agreement:.2%} of the rows otherwise."
    notes.append(words)


def _least(row: Array) -> float:
    return float(np.nanmin(row)) if np.any(~np.isnan(row)) else np.nan


def _short(number: float) -> str:
    return "-" if np.isnan(number) else "none" if np.isinf(number) else f"{number:.3g}"
