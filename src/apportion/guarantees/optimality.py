"""The KKT conditions of a fitted machine, checked and put in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..losses import terms
from .machine import Array, Index, squares, training, unwrap


@dataclass(frozen=True)
class Diagnosis:
    """How a fit ended: gap, KKT conditions, support. `print` it for words.

    A KKT residual is |alpha - clip(alpha + z / K, 0, upper)|, z = margin - code . f, K = |phi(x)|^2: zero
    where all conditions hold. It is given in units of the largest alpha.
    """

    gap: float  # relative duality gap, worked out anew
    tol: float  # what the fit was asked for
    worst_violation: float  # largest KKT residual
    worst_example: int  # the row it is at
    balance: float  # largest |sum_i beta_ij| over the outputs in the same units; zero with a free intercept
    intercept: str
    classes: NDArray[Any]  # (k,)
    n: Index  # (k,) examples of each class
    n_support: Index  # (k,)
    n_bounded: Index  # (k,) support vectors with a variable at its upper bound: inside the margin or wrong
    bounded: float  # share of the non-zero dual variables that are at their upper bound
    training_error: Array  # (k,)

    def __str__(self) -> str:
        solved = self.gap <= self.tol * (1 + 1e-6)
        state = "solved" if solved else "NOT solved: scale the features or raise max_iter"
        n, s, b = int(self.n.sum()), int(self.n_support.sum()), int(self.n_bounded.sum())
        lines = [
            f"The objective is within {self.gap:.2g} of its optimum, relatively; "
            f"{self.tol:.2g} was asked for: {state}.",
            f"The worst violation of the KKT conditions is {self.worst_violation:.2g} of the largest dual "
            f"variable, at row {self.worst_example}.",
        ]
        if self.intercept == "free":
            lines.append(
                "The free intercept asks for dual variables that sum to zero in each output: "
                f"they do up to {self.balance:.2g}."
            )
        lines.append(
            f"{s} of {n} rows are support vectors ({s / n:.0%}); {b} of them are at their bound, inside the "
            f"margin or wrong ({self.bounded:.0%} of the non-zero dual variables)."
        )
        for c, label in enumerate(self.classes):
            lines.append(
                f"  class {label}: {self.n[c]} rows, {self.n_support[c]} support vectors, "
                f"{self.n_bounded[c]} at the bound, training error {self.training_error[c]:.1%}"
            )
        if s > 0.9 * n:
            lines.append(
                "Nearly every row is a support vector: C is small or the kernel narrow for these data."
            )
        elif b == 0:
            lines.append("No variable is at its bound: the data are separated, a larger C changes nothing.")
        return "\n".join(lines)


def diagnose(est: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Diagnosis:
    """Check the KKT conditions of a fitted machine and say in words how the fit ended.

        alpha_ir = 0       the row is met:      margin - code . f <= 0
        0 < alpha < upper  on its hyperplane:   margin - code . f  = 0        upper = C * weight
        alpha_ir = upper   inside the margin:   margin - code . f >= 0
        sum_i beta_ij = 0  for each output j, with a free intercept

    Parameters
    ----------
    est : fitted machine, or a pipeline that ends in one
    X, y, sample_weight : what it was fitted on

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from apportion import ApportionedSVC
    >>> from apportion.guarantees import diagnose
    >>> X, y = load_iris(return_X_y=True)
    >>> found = diagnose(ApportionedSVC(tol=1e-6).fit(X, y), X, y)
    >>> bool(found.gap <= 1e-6 and found.worst_violation < 1e-2)
    True
    """
    machine, X = unwrap(est, X)
    data = training(machine, X, y, sample_weight)
    table, labels, alpha, upper = machine.table_, data.labels, data.alpha, data.upper
    k, unit = len(machine.classes_), float(max(alpha.max(), np.finfo(float).tiny))
    K = np.maximum(squares(machine, data.X), np.finfo(float).tiny)
    step = alpha + terms(table, data.scores, labels) / K[:, None]
    moved = _onto_simplex(step, upper) if table.shared else np.clip(step, 0.0, upper)
    residual = np.abs(alpha - moved).max(axis=1) / unit
    used = np.asarray(alpha > 1e-9 * upper)
    spent = alpha.sum(axis=1, keepdims=True) if table.shared else alpha
    full = np.asarray((spent >= upper * (1 - 1e-6)) & used)
    wrong = np.asarray(machine.predict(data.X) != machine.classes_[labels])

    def per_class(mark: Any) -> Index:
        return np.bincount(labels[mark], minlength=k)

    n = np.bincount(labels, minlength=k)
    return Diagnosis(
        gap=float(data.gap / max(data.objective, np.finfo(float).tiny)),
        tol=float(machine.tol),
        worst_violation=float(residual.max()),
        worst_example=int(residual.argmax()),
        balance=float(np.abs(data.beta.sum(axis=0)).max() / unit),
        intercept=machine.intercept,
        classes=machine.classes_,
        n=n,
        n_support=per_class(used.any(axis=1)),
        n_bounded=per_class(full.any(axis=1)),
        bounded=float(full.sum() / max(int(used.sum()), 1)),
        training_error=per_class(wrong) / np.maximum(n, 1),
    )


def _onto_simplex(step: Array, upper: Array) -> Array:
    """The nearest alpha >= 0 with sum_r alpha_ir <= upper_i; rows of weight zero stay at zero."""
    out = np.where(upper > 0, np.maximum(step, 0.0), 0.0)
    total = upper.max(axis=1)
    for i in np.flatnonzero(out.sum(axis=1) > total):
        own = np.sort(step[i, upper[i] > 0])[::-1]
        shift = (np.cumsum(own) - total[i]) / np.arange(1, len(own) + 1)
        out[i] = np.where(upper[i] > 0, np.maximum(step[i] - shift[own > shift][-1], 0.0), 0.0)
    return out
