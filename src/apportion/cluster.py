"""The linear machine on a Dask cluster, for data larger than one machine.

The blocks of rows that lie on a worker become parts, one for each of its threads; the rounds of `partitions` do the rest. A round
sends two points of the size of W to each part and gets two back. All that a fit must not lose lies with the client: when a worker
dies, Dask reads the rows of its parts again on another one, they answer as before, and the bounds and the dual value stay.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from . import metrics
from .costs import check_costs
from .estimators import ApportionedLinearSVC
from .fitting import canonical_csr, check_magnitude, check_number, check_sample_weight, unchanged_on_failure

try:
    import dask
    import dask.array as da
    import dask.dataframe as dd
    from distributed import Client, get_client, wait
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "apportion.cluster needs dask and distributed: pip install 'apportion[dask]'."
    ) from error

Array = NDArray[np.float64]


class DaskApportionedLinearSVC(ClassifierMixin, BaseEstimator):
    """`ApportionedLinearSVC` on Dask collections: the same machine to the same duality gap, on a cluster.

    Works on the cluster of the current client (the one made last, or within ``with client.as_current():``). Its workers need this
    package. Rows stay where they are; W, of n_outputs x n_features, travels.

    Parameters
    ----------
    costs, loss, margin_power, slack_power, C, intercept_scaling, tol
        As in `ApportionedLinearSVC`; C is finite.
    intercept : {"penalized", "none"}, default="penalized"
        A free intercept is not available on a cluster; "penalized" with a large `intercept_scaling` comes close.
    max_iter : int, default=200
        Rounds.
    local_iter : int, default=10
        Sweeps over its own rows that a part makes in a round, at most. More of them make fewer rounds.
    verbose : int, default=0
        1 or more prints the gap after each round.

    Attributes
    ----------
    classes_, costs_, coef_, intercept_, objective_, dual_gap_, n_iter_, table_, n_features_in_, feature_names_in_
        As in `ApportionedLinearSVC`; ``n_iter_`` counts rounds.
    gaps_ : array of shape (n_iter_,)
        The relative duality gap after each round.
    n_parts_ : int
        Parts that the rows were in.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from apportion.cluster import DaskApportionedLinearSVC
    >>> client = Client(processes=False, dashboard_address=None)  # doctest: +SKIP
    >>> X = da.random.normal(size=(100_000, 20), chunks=(10_000, 20))  # doctest: +SKIP
    >>> y = (X[:, 0] > 0).astype(int)  # doctest: +SKIP
    >>> machine = DaskApportionedLinearSVC([1, 5], C=0.01).fit(X, y)  # doctest: +SKIP
    >>> machine.predict(X).compute()  # doctest: +SKIP
    """

    def __init__(
        self,
        costs: Any = None,
        *,
        loss: Any = "apportioned",
        margin_power: float | None = None,
        slack_power: float | None = None,
        C: float = 1.0,
        intercept: str = "penalized",
        intercept_scaling: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 200,
        local_iter: int = 10,
        verbose: int = 0,
    ) -> None:
        self.costs = costs
        self.loss = loss
        self.margin_power = margin_power
        self.slack_power = slack_power
        self.C = C
        self.intercept = intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_iter = max_iter
        self.local_iter = local_iter
        self.verbose = verbose

    # ------------------------------------------------------------ for the user

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DaskApportionedLinearSVC:
        """Fit the machine on the cluster.

        Parameters
        ----------
        X : dask array of shape (n_samples, n_features) or dask dataframe
            Blocks of rows, dense or of scipy's sparse matrices.
        y : dask array or series of shape (n_samples,)
            Labels of any type, in blocks of the same rows.
        sample_weight : dask array or series of shape (n_samples,), optional
            Weight 2 is the same as the row twice.

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            return self._fit(X, y, sample_weight)

    def decision_function(self, X: Any) -> Any:
        """Class scores as a lazy dask array, (n, k); for two classes (n,), positive where the second is chosen."""
        machine = self.to_local()
        k = len(machine.classes_)
        return _lazily(machine.decision_function, X, np.empty(0 if k == 2 else (0, k)))

    def predict(self, X: Any) -> Any:
        """The classes with the highest scores as a lazy dask array."""
        machine = self.to_local()
        return _lazily(machine.predict, X, machine.classes_[:0])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of right decisions."""
        return 1.0 - expected_cost(y, self.predict(X), sample_weight=sample_weight)

    def to_local(self) -> ApportionedLinearSVC:
        """The same machine for arrays in memory. It has no support vectors: alpha stays on the cluster."""
        check_is_fitted(self)
        machine = self._unfitted()
        shared = ("classes_", "costs_", "table_", "class_weight_total_", "coef_", "intercept_", "objective_")
        names = (*shared, "dual_gap_", "n_iter_", "n_features_in_", "feature_names_in_", "_trained_costs")
        for name in names:
            if hasattr(self, name):
                setattr(machine, name, getattr(self, name))
        return machine

    # ------------------------------------------------------------ the fit

    def _unfitted(self) -> ApportionedLinearSVC:
        settings = self.get_params(deep=False)
        del settings["local_iter"]
        return ApportionedLinearSVC(settings.pop("costs"), **settings)

    def _validate_parameters(self) -> None:
        self._unfitted()._validate_parameters()
        check_number("C", self.C, low=0, open_low=True)
        check_number("local_iter", self.local_iter, low=1, integer=True)
        if self.intercept == "free":
            raise ValueError(
                "intercept='free' is not available on a cluster; allowed: 'penalized' (with a large intercept_scaling it comes "
                "close to free), 'none'."
            )

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> DaskApportionedLinearSVC:
        from .partitions import Problem, Rounds, answer, make_teams  # brings numba: only a fit pays for it

        self._validate_parameters()
        client = _current_client()
        blocks = client.compute(_blocks(X, y, sample_weight))
        shapes = client.gather(client.map(_describe, blocks, pure=False))
        classes, counts = _count_classes(shapes)
        costs = check_costs(self.costs, classes, class_counts=counts)
        table = self._unfitted()._table(costs)
        t = float(self.intercept_scaling) ** 2 if self.intercept == "penalized" else 0.0
        problem = Problem(table, float(self.C), t)
        d = _common_width(shapes)
        homes = _deal(client, blocks, [shape.n for shape in shapes])
        parts = [
            client.submit(_part, problem, classes, [blocks[i] for i in home.blocks], **home.where)
            for home in homes
        ]
        wait(parts)
        del blocks  # the parts hold the rows now; where one is lost, Dask knows how to make it again
        teams = make_teams(problem, d, len(parts))
        rounds, gaps = Rounds(problem, d, [len(team) for team in teams]), []
        while rounds.gap > self.tol and rounds.n_iter < self.max_iter:
            answers = []
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                for team, task in zip(teams, rounds.tasks(self.local_iter), strict=True):
                    own = [client.submit(answer, parts[p], task, **homes[p].where) for p in team]
                    answers.append(own[0] if len(own) == 1 else client.submit(_sum, own, pure=False))
            rounds.take(client.gather(answers), self.tol)
            gaps.append(rounds.gap)
            if self.verbose:
                print(f"[{type(self).__name__}] round {rounds.n_iter}: relative duality gap {rounds.gap:.2e}")
        if rounds.gap > self.tol:
            warnings.warn(
                f"{type(self).__name__} stopped at a relative duality gap of {rounds.gap:.2g} after {rounds.n_iter} rounds; "
                f"tol={self.tol:.2g} was asked for. Scale the features, raise max_iter or local_iter, or accept a larger tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.classes_, self.costs_, self.table_ = classes, costs.array, table
        self._trained_costs, self.class_weight_total_ = costs.array, counts
        self.coef_, self.intercept_ = rounds.machine[:, :d].copy(), np.sqrt(t) * rounds.machine[:, d]
        self.objective_, self.dual_gap_, self.n_iter_ = rounds.primal, rounds.gap, rounds.n_iter
        self.gaps_, self.n_parts_, self.n_features_in_ = np.array(gaps), len(parts), d
        if isinstance(X, dd.DataFrame) and all(isinstance(name, str) for name in X.columns):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_
        return self


def expected_cost(
    y_true: Any, y_pred: Any, *, costs: Any = None, sample_weight: Any = None, labels: ArrayLike | None = None
) -> float:
    """Mean cost of a decision, as `apportion.expected_cost`, on dask collections. Computes.

    Parameters
    ----------
    y_true, y_pred : dask arrays or series of shape (n,)
        In blocks of the same rows.
    costs, labels
        As in `apportion.expected_cost`.
    sample_weight : dask array or series of shape (n,), optional

    Returns
    -------
    cost : float
    """
    columns = [_rows_of("y_true", y_true), _rows_of("y_pred", y_pred)]
    columns += [] if sample_weight is None else [_rows_of("sample_weight", sample_weight)]
    counted = [dask.delayed(_count_pairs)(*column) for column in _side_by_side(columns)]
    true, pred, weight = (np.concatenate(column) for column in zip(*dask.compute(*counted), strict=True))
    return metrics.expected_cost(true, pred, costs=costs, sample_weight=weight, labels=labels)


# ---------------------------------------------------------------- collections


def _current_client() -> Client:
    try:
        return get_client()
    except ValueError:
        raise ValueError(
            "there is no Dask client to fit with; start one first: client = distributed.Client(...)."
        ) from None


class _Column(NamedTuple):
    """A collection as its blocks of rows."""

    name: str
    blocks: list[Any]
    sizes: tuple[float, ...]  # NaN where a block has not been counted


def _rows_of(name: str, values: Any) -> _Column:
    if isinstance(values, dd.DataFrame | dd.Series):
        blocks = values.to_delayed()
        return _Column(name, list(blocks), (np.nan,) * len(blocks))
    if not isinstance(values, da.Array):
        raise ValueError(
            f"{name} is a {type(values).__name__}; it must be a dask array, dataframe or series. For arrays in memory there is "
            "apportion.ApportionedLinearSVC."
        )
    if values.ndim == 2 and values.numblocks[1] > 1:
        values = values.rechunk({1: -1})
    return _Column(name, list(values.to_delayed().ravel()), values.chunks[0])


def _side_by_side(columns: list[_Column]) -> list[tuple[Any, ...]]:
    """The blocks of several collections, row of blocks by row of blocks."""
    first = columns[0]
    for other in columns[1:]:
        if len(other.blocks) != len(first.blocks):
            raise ValueError(
                f"{other.name} has {len(other.blocks)} blocks and {first.name} has {len(first.blocks)}; they must be the same "
                "rows (rechunk or repartition one like the other)."
            )
        known = ~np.isnan(other.sizes) & ~np.isnan(first.sizes)
        if not np.array_equal(np.array(other.sizes)[known], np.array(first.sizes)[known]):
            raise ValueError(
                f"{other.name} has blocks of {other.sizes} rows and {first.name} of {first.sizes}; they must be the same "
                "(rechunk one like the other)."
            )
    return list(zip(*(column.blocks for column in columns), strict=True))


def _lazily(function: Any, X: Any, empty: NDArray[Any]) -> Any:
    """function of each block of rows, as a dask array of the kind of `empty`."""
    if isinstance(X, dd.DataFrame):
        return X.map_partitions(_on_rows, function=function, empty=empty, meta=empty)
    if not isinstance(X, da.Array):
        _rows_of("X", X)  # says what is wrong
    X = X.rechunk({1: -1})
    shape = {"drop_axis": 1} if empty.ndim == 1 else {"chunks": (X.chunks[0], (empty.shape[1],))}
    return X.map_blocks(_on_rows, function=function, empty=empty, meta=empty, **shape)


# ---------------------------------------------------------------- on the workers


class _Block(NamedTuple):
    """Rows as they were read, checked."""

    X: Any  # (n, d)
    y: NDArray[Any]  # (n,) labels
    weight: Array  # (n,)


class _Shape(NamedTuple):
    n: int
    d: int
    labels: NDArray[Any]
    weights: Array  # of each label


def _on_rows(X: Any, function: Any, empty: NDArray[Any]) -> Any:
    return function(X) if X.shape[0] else empty


def _blocks(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """One delayed `_Block` for each block of rows."""
    columns = [_rows_of("X", X), _rows_of("y", y)]
    columns += [] if sample_weight is None else [_rows_of("sample_weight", sample_weight)]
    return [dask.delayed(_check)(*row) for row in _side_by_side(columns)]


def _check(X: Any, y: Any, weight: Any = None) -> _Block:
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    X = check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        ensure_min_samples=0,
        input_name="X",
    )
    X = canonical_csr(X)
    check_magnitude(X)
    y = np.asarray(y)
    if y.shape != (X.shape[0],):
        raise ValueError(f"a block of y has shape {y.shape}; its block of X has {X.shape[0]} rows.")
    if len(y):
        check_classification_targets(y)
    return _Block(X, y, _weights(weight, len(y)))


def _weights(weight: Any, n: int) -> Array:
    """The checked weights of a block, which may all be zero."""
    weight = np.ones(n) if weight is None else np.asarray(weight)
    return check_sample_weight(weight, n) if np.any(weight) else np.zeros(n)


def _describe(block: _Block) -> _Shape:
    labels, codes = np.unique(block.y, return_inverse=True)
    weights = np.bincount(codes, weights=block.weight, minlength=len(labels)).astype(float)
    return _Shape(block.X.shape[0], block.X.shape[1], labels, weights)


def _part(problem: Any, classes: NDArray[Any], blocks: list[_Block]) -> Any:
    from .partitions import Part

    blocks = [block for block in blocks if len(block.y)] or blocks[:1]
    y = np.searchsorted(classes, np.concatenate([block.y for block in blocks]))
    weight = np.concatenate([block.weight for block in blocks])
    if len(blocks) == 1:
        X = blocks[0].X
    elif sparse.issparse(blocks[0].X):
        X = canonical_csr(sparse.vstack([block.X for block in blocks], format="csr"))
    else:
        X = np.concatenate([block.X for block in blocks])
    return Part(X, y, weight, problem)


def _sum(answers: list[Any]) -> Any:
    return reduce(type(answers[0]).__add__, answers)


def _count_pairs(true: Any, pred: Any, weight: Any = None) -> tuple[NDArray[Any], NDArray[Any], Array]:
    """The pairs (true, predicted) of a block, and the weight of each."""
    true, pred = np.asarray(true), np.asarray(pred)
    if true.shape != pred.shape:
        raise ValueError(f"a block of y_true has shape {true.shape} and that of y_pred {pred.shape}.")
    a, i = np.unique(true, return_inverse=True)
    b, j = np.unique(pred, return_inverse=True)
    pairs, which = np.unique(i * max(len(b), 1) + j, return_inverse=True)
    sums = np.bincount(which, weights=_weights(weight, len(true)), minlength=len(pairs)).astype(float)
    return a[pairs // max(len(b), 1)], b[pairs % max(len(b), 1)], sums


# ---------------------------------------------------------------- with the client


def _count_classes(shapes: list[_Shape]) -> tuple[NDArray[Any], Array]:
    classes, codes = np.unique(np.concatenate([shape.labels for shape in shapes]), return_inverse=True)
    counts = np.bincount(codes, weights=np.concatenate([shape.weights for shape in shapes])).astype(float)
    if len(classes) < 2:
        raise ValueError(
            f"DaskApportionedLinearSVC needs at least 2 classes to tell apart; y has {len(classes)}: {classes.tolist()!r}."
        )
    if np.count_nonzero(counts) < 2:
        raise ValueError("sample_weight leaves fewer than 2 classes with a positive weight.")
    return classes, counts


def _common_width(shapes: list[_Shape]) -> int:
    widths = sorted({shape.d for shape in shapes if shape.n})
    if len(widths) != 1:
        raise ValueError(f"the blocks of X have {widths} columns; they must have the same number.")
    return widths[0]


@dataclass
class _Thread:
    """A thread of the cluster, and the blocks dealt to it."""

    worker: str
    blocks: list[int]
    rows: int = 0

    @property
    def where(self) -> dict[str, Any]:
        """For `submit`: on this worker; on any, once it is gone. (Without a place Dask takes many tasks for the start of a graph,
        and spreads them without a look at where their part lies.)"""
        return {"workers": [self.worker], "allow_other_workers": True, "pure": False}


def _deal(client: Client, blocks: list[Any], sizes: list[int]) -> list[_Thread]:
    """The blocks dealt to threads: one of the worker that holds them, unless it has its share already."""
    threads = [_Thread(worker, []) for worker, n in client.nthreads().items() for _ in range(n)]
    held, share = client.who_has(blocks), 1.1 * sum(sizes) / len(threads)
    for i in sorted(range(len(blocks)), key=lambda i: -sizes[i]):
        at_home = [thread for thread in threads if thread.worker in held.get(blocks[i].key, ())]
        least = min(at_home or threads, key=lambda thread: thread.rows)
        if least.rows and least.rows + sizes[i] > share:
            least = min(threads, key=lambda thread: thread.rows)
        least.blocks.append(i)
        least.rows += sizes[i]
    return [thread for thread in threads if thread.blocks]
