"""What surrounds a fit: its input checked, callbacks and progress, and an estimator left as it was where the fit fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import StratifiedShuffleSplit

from .costs import LARGEST
from .solution import Array

try:  # experimental in scikit-learn 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # pragma: no cover

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to support in this version of scikit-learn."""

    def with_callbacks(method: Any) -> Any:
        return method


CANONICAL = 1000  # so few examples are sorted and repeated rows merged: neither their order nor weight against repetition matters


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:
    """Whatever interrupts a fit, a bad input or the user, leaves the estimator as it was."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def is_late(estimator: Any) -> bool:
    """Whether the estimator was given a time to end by (of time.monotonic) that has come."""
    deadline = getattr(estimator, "_deadline", None)
    return deadline is not None and time.monotonic() >= deadline


class CallbackContext:
    """Reports rounds to scikit-learn's callbacks and, with verbose, to the user; says when the time is up."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self.estimator = estimator
        self.context = None
        if getattr(estimator, "_skl_callbacks", None):
            self.context = estimator._init_callback_context(max_subtasks=None)
            self.context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        timed = getattr(estimator, "_deadline", None) is not None
        wanted = self.context is not None or estimator.verbose or timed
        self.watch = self._watch if wanted else None

    def _watch(self, iteration: int, gap: float) -> bool:
        if self.estimator.verbose:
            print(
                f"[{type(self.estimator).__name__}] iteration {iteration}: relative duality gap {gap:.2e}",
                flush=True,
            )
        if self.context is not None:
            task = self.context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self.estimator)
            task.call_on_fit_task_end(estimator=self.estimator)
        return is_late(self.estimator)

    def finish(self) -> None:
        if self.context is not None:
            self.context.call_on_fit_task_end(estimator=self.estimator)


LARGEST_SINGLE = 1e35  # in single precision


def check_number(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    open_low: bool = False,
    integer: bool = False,
    infinite: bool = False,
) -> None:
    kind, most = ("an integer", 1e15) if integer else ("a number", LARGEST)
    bound = "" if low is None else f" {'>' if open_low else '>='} {low}"
    number = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    good = isinstance(value, number) and not isinstance(value, (bool, np.bool_))
    if good and most < abs(value) < np.inf:
        raise ValueError(f"{name}={value!r} is too large: at most {most:g} can be computed with.")
    good = good and value == value and (infinite or abs(value) < np.inf)
    if good and low is not None:
        good = value > low if open_low else value >= low
    if not good:
        raise ValueError(f"{name}={value!r} must be {kind}{bound}.")


def check_jobs(n_jobs: Any) -> int:
    """The number of threads or processes that None, -1 and the like stand for."""
    if n_jobs is not None and (
        not isinstance(n_jobs, (int, np.integer)) or isinstance(n_jobs, bool) or n_jobs == 0
    ):
        raise ValueError(f"n_jobs={n_jobs!r} must be None or an integer other than 0.")
    return int(effective_n_jobs(n_jobs))


def canonical_csr(X: Any) -> Any:
    """CSR with sorted columns, none twice, and 32-bit indices where they fit; the user's own matrix is left as it is."""
    if not sparse.issparse(X):
        return X
    narrow = X.indices.dtype != np.int32 and max(*X.shape, X.nnz) <= np.iinfo(np.int32).max
    if narrow:  # some of scikit-learn's kernels take no others
        X = type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def check_magnitude(X: Any) -> None:
    values = X.data if sparse.issparse(X) else X
    largest = max(abs(float(values.max())), abs(float(values.min()))) if values.size else 0.0
    if largest > (LARGEST_SINGLE if values.dtype == np.float32 else LARGEST):
        raise ValueError(
            f"X holds {largest:.3g} in {values.dtype}, which overflows in the solver; scale the features first (StandardScaler)."
        )


def check_sample_weight(sample_weight: Any, n: int, some: bool = True) -> Array:
    """One finite number >= 0 an example; with `some` not all are zero."""
    if sample_weight is None:
        return np.ones(n)
    try:
        weight = np.asarray(sample_weight, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must hold one number an example: {error}.") from None
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}; it must be ({n},), one number an example.")
    bad = np.flatnonzero(~((weight >= 0) & (weight <= LARGEST)))
    if len(bad):
        raise ValueError(
            f"sample_weight[{bad[0]}]={weight[bad[0]]}; it must hold finite numbers >= 0, of at most {LARGEST:g}."
        )
    if some and not np.any(weight):
        raise ValueError(
            "sample_weight is zero for every example; at least two classes need a positive weight."
        )
    return weight


def stratified(y: NDArray[Any], size: int, random_state: Any) -> NDArray[np.intp]:
    """Positions of `size` examples with the class shares of y, in a random order; all where hardly fewer would be left out.

    A class of one example counts as part of the largest class.
    """
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(y) - size < len(counts):
        return np.arange(len(y))
    labels = np.where(counts[labels] < 2, counts.argmax(), labels)
    split = StratifiedShuffleSplit(1, train_size=size, random_state=random_state)
    return next(split.split(np.empty((len(y), 0)), labels))[0]


def csr_contents(X: Any) -> list[tuple[bytes, bytes]]:
    """What tells the rows of a canonical CSR matrix apart; they are not made dense, which for wide data no memory holds."""
    X = X.copy()
    X.eliminate_zeros()
    parts = [slice(a, z) for a, z in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    return [(X.indices[at].tobytes(), X.data[at].tobytes()) for at in parts]


def canonical_rows(
    X: Any, y: NDArray[np.intp], weight: Array, pairwise: bool
) -> tuple[NDArray[np.intp], Array]:
    """(rows, weights) to train on: those with a positive weight; few examples are sorted by content and equal rows merged."""
    rows = np.flatnonzero(weight > 0)
    if pairwise or len(rows) > CANONICAL:
        return rows, weight[rows]
    part = X[rows]
    new = np.ones(len(rows), dtype=bool)
    if sparse.issparse(part):
        content = list(zip(y[rows].tolist(), csr_contents(part), strict=True))
        order = np.array(sorted(range(len(rows)), key=content.__getitem__), dtype=np.intp)
        new[1:] = [content[i] != content[j] for i, j in zip(order[:-1], order[1:], strict=True)]
    else:
        order = np.lexsort((*part.T[::-1], y[rows]))
        new[1:] = np.any(np.diff(part[order], axis=0) != 0, axis=1) | (np.diff(y[rows][order]) != 0)
    sorted_rows = rows[order]
    group = np.cumsum(new) - 1
    merged = np.zeros(group[-1] + 1)
    np.add.at(merged, group, weight[sorted_rows])
    return sorted_rows[new], merged
