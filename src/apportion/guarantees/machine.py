"""Reading a fitted machine: labels, norms in feature space, the dual variables of its training data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

from ..estimators import HARD
from ..fitting import canonical_csr, canonical_rows, check_sample_weight, csr_contents
from ..losses import LossTable, value

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


def unwrap(est: Any, X: Any = None) -> tuple[Any, Any]:
    """The machine, and X as it sees it, where it is the last step of a pipeline."""
    if hasattr(est, "steps"):
        check_is_fitted(est)
        return unwrap(est[-1], X if X is None or len(est) == 1 else est[:-1].transform(X))
    if not hasattr(est, "_raw_scores"):
        raise ValueError(
            f"est={est!r} must be a fitted ApportionedLinearSVC or ApportionedSVC, "
            "or a pipeline that ends in one."
        )
    check_is_fitted(est)
    return est, X


def known(machine: Any, y: ArrayLike, name: str) -> NDArray[Any]:
    """y as an array of labels the machine knows."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"{name} has shape {labels.shape}; it must be (n,).")
    unknown = labels[~np.isin(labels, machine.classes_)]
    if len(unknown):
        raise ValueError(
            f"{name} holds {unknown[:1].tolist()[0]!r}, which is not a class; "
            f"the classes are {machine.classes_.tolist()}."
        )
    return labels


def positions(machine: Any, y: ArrayLike, name: str) -> Index:
    return np.searchsorted(machine.classes_, known(machine, y, name))


def raw_scores(machine: Any, X: Any, labels: Index) -> Array:
    scores: Array = machine._raw_scores(X)
    if len(scores) != len(labels):
        raise ValueError(
            f"X has {len(scores)} rows and y {len(labels)} labels; they must have the same number."
        )
    return scores


def gram(machine: Any, X: Any = None) -> Array:
    """(m, m) inner products of the outputs' weight vectors, without the intercept.

    X is read for kernel="precomputed" alone: the kernel of the training data.
    """
    if hasattr(machine, "coef_"):
        return np.asarray(machine.coef_ @ machine.coef_.T)
    if machine._pairwise:
        n = machine.n_features_in_
        if X is None or X.shape != (n, n):
            raise ValueError(
                f"kernel='precomputed': X must be the ({n}, {n}) kernel matrix of the training data; norms "
                "in feature space are not known without it."
            )
        at_support = np.asarray(X)[np.ix_(machine.support_, machine.support_)] @ machine.dual_coef_
    else:
        at_support = machine._raw_scores(machine.support_vectors_) - machine.intercept_  # (n_support, m)
    product = machine.dual_coef_.T @ at_support
    return np.asarray((product + product.T) / 2)


def constant(machine: Any) -> float:
    """Squared value of the constant feature."""
    return {"penalized": float(machine.intercept_scaling) ** 2, "free": 1.0, "none": 0.0}[machine.intercept]


def intercept_square(machine: Any) -> float:
    """What the intercept adds to |W|^2 as the weight of the constant feature."""
    t = constant(machine)
    return float(machine.intercept_ @ machine.intercept_) / t if t else 0.0


def squares(machine: Any, X: Any, *, with_constant: bool = True) -> Array:
    """(n,) |phi(x)|^2."""
    t = constant(machine) if with_constant else 0.0
    X = validate_data(machine, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
    if hasattr(machine, "coef_"):
        total = X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else np.einsum("ij,ij->i", X, X)
        return np.ravel(total).astype(float) + t
    if machine._pairwise:
        return np.diagonal(X).astype(float) + t
    from ..kernels import make_kernel  # brings numba

    kernel = make_kernel(
        X,
        machine.kernel,
        gamma=machine._gamma,
        degree=machine.degree,
        coef0=machine.coef0,
        cache_size=1,
    )
    return np.asarray(kernel.diagonal() + t)


@dataclass
class Training:
    """The training data as the dual sees them; equal rows that were merged in the fit are apart again."""

    X: Any
    labels: Index  # (n,)
    weight: Array  # (n,)
    alpha: Array  # (n, R)
    upper: Array  # (n, R) C * weight
    beta: Array  # (n, m) codes' alpha, the coefficients of phi(x_i)
    scores: Array  # (n, m) of the machine
    dual_scores: Array  # (n, m) of sum_i beta_i phi(x_i): the same for kernel machines
    objective: float  # primal value
    gap: float  # primal less dual value


def training(machine: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Training:
    """Find the dual variables of each training example, and the duality gap anew."""
    labels = positions(machine, y, "y")
    X = validate_data(machine, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
    X = canonical_csr(X)  # as in the fit
    scores = raw_scores(machine, X, labels)
    weight = check_sample_weight(sample_weight, len(labels))
    table: LossTable = machine.table_
    rows, merged = canonical_rows(X, labels, weight, pairwise=machine._pairwise)
    found: Array | None = getattr(machine, "_alpha", None)
    if found is None:
        raise ValueError(
            f"est={machine!r} keeps no dual variables; "
            "it must be an ApportionedLinearSVC or ApportionedSVC, fitted in this process."
        )
    alpha = np.zeros((len(labels), table.codes.shape[1]))
    if found.shape == (len(rows), alpha.shape[1]):
        group = _representatives(X, labels, rows)  # (n,)
        held = group >= 0
        alpha[held] = found[group[held]] * (weight[held] / merged[group[held]])[:, None]
    beta = np.einsum("ir,irm->im", alpha, table.codes[labels])
    if not np.array_equal(np.sort(rows[beta[rows].any(axis=1)]), np.sort(machine.support_)):
        raise ValueError(
            "X, y (and sample_weight) must be the data the machine was fitted on; "
            "the support vectors it found are others."
        )
    C = machine.C if np.isfinite(machine.C) else HARD * float(np.abs(table.margins).max())
    free, b, total = machine.intercept == "free", machine.intercept_, beta.sum(axis=0)
    plain = scores - b
    if hasattr(machine, "coef_"):
        square, dual_plain = float(np.trace(gram(machine))), np.asarray(X @ (X.T @ beta))
    else:
        square, dual_plain = float((beta * plain).sum()), plain
    dual_square = float((beta * dual_plain).sum())
    if not free:  # the intercept is a weight like the others
        square += intercept_square(machine)
        dual_square += constant(machine) * float(total @ total)
    dual_scores = dual_plain + (b if free else constant(machine) * total)
    primal = 0.5 * square + float(C * weight @ value(table, scores, labels))
    dual = float((alpha * table.margins[labels]).sum()) - 0.5 * dual_square
    return Training(
        X=X,
        labels=labels,
        weight=weight,
        alpha=alpha,
        upper=C * weight[:, None] * table.weights[labels],
        beta=beta,
        scores=scores,
        dual_scores=dual_scores,
        objective=primal,
        gap=max(primal - dual, 1e-13 * abs(primal)),  # no better than rounding allows
    )


def _representatives(X: Any, labels: Index, rows: Index) -> Index:
    """(n,) which of `rows` is the same example of the same class; -1 where none is (weight zero)."""
    group = np.full(len(labels), -1)
    group[rows] = np.arange(len(rows))
    if len(rows) == len(labels):
        return group
    # -0.0 and 0.0 are one number
    content: list[Any] = (
        csr_contents(X) if sparse.issparse(X) else [row.tobytes() for row in np.asarray(X) + 0.0]
    )
    where = {(labels[i], content[i]): g for g, i in enumerate(rows.tolist())}
    for i in np.flatnonzero(group < 0).tolist():
        group[i] = where.get((labels[i], content[i]), -1)
    return group


def check(name: str, given: Any, good: Any, allowed: str) -> None:
    """Raise a ValueError that names the parameter, the value and what is allowed, unless `good`."""
    if not good:
        raise ValueError(f"{name}={given!r} must be {allowed}.")


def check_delta(delta: Any) -> None:
    number = isinstance(delta, (int, float, np.number))
    check("delta", delta, number and 0 < delta < 1, "a number between 0 and 1")
