"""The linear machine by stochastic gradient: for many examples, few passes, and data that come in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from .costs import Costs, check_costs
from .estimators import ApportionedLinearSVC, Checked, _ApportionedClassifier
from .fitting import (
    CallbackContext,
    canonical_csr,
    canonical_rows,
    check_magnitude,
    check_number,
    check_sample_weight,
    unchanged_on_failure,
    with_callbacks,
)
from .losses import LossTable
from .products import squared_lengths

if TYPE_CHECKING:
    from .pegasos import Plan, Walk

Array = NDArray[np.float64]


class ApportionedSGDClassifier(_ApportionedClassifier):
    """Linear large-margin classifier by Pegasos: `ApportionedLinearSVC`, approximately, in a few passes over the data.

    Each example moves the machine by a step of size 1 / (lambda (delay + t)), lambda = 1 / (n C); the machine is the average of
    all steps. `fit` says how far from the optimum it stopped (``dual_gap_``). With `partial_fit` the data come in pieces; for
    files larger than memory see `fit_stream`.

    Parameters
    ----------
    costs, loss, margin_power, slack_power
        As in `ApportionedLinearSVC`. ``costs="balanced"`` needs `fit` or `fit_stream`, which count the classes first.
    C : float, default=1.0
        Price of slack. The larger n C, the more passes are needed.
    intercept : {"penalized", "none"}, default="penalized"
        "penalized": the weight of a constant feature of value ``intercept_scaling``.
    intercept_scaling : float, default=1.0
    max_iter : int, default=20
        Passes over the data in `fit`.
    batch_size : int, default=1
        Examples that share a step.
    average : bool, default=True
        Take the average of the machines after each step, later ones counting more. False: the last one.
    projection : bool, default=False
        Keep the machine inside the ball that holds the optimum, as in the original Pegasos.
    delay : "auto" or float, default="auto"
        How many examples are taken as seen before the first one. 0 is Pegasos as published, whose first steps are of length n C;
        with "auto" the first step moves the scores of an example by about its margin.
    early_stopping : bool, default=False
        Hold out a share of the data and stop `fit` when its expected cost has not become smaller for `n_iter_no_change` passes;
        the machine with the smallest is kept.
    validation_fraction : float, default=0.1
    n_iter_no_change : int, default=3
    n_total : int or None, default=None
        Examples in one pass over a stream that is learnt with `partial_fit`: C is a price for each of them, so lambda depends on
        it. None: as many as the first call brings. `fit` counts for itself, and so does `fit_stream` where this is None.
    verbose : int, default=0
        1 or more prints the duality gap after each pass, which costs time.
    random_state : int, RandomState or None, default=None
        Draws the order of the examples and those that are held out.

    Attributes
    ----------
    classes_ : array of shape (k,)
    costs_ : array of shape (k,) or (k, k)
    coef_ : array of shape (n_outputs, n_features)
        Weights of the raw scores; the class scores are ``table_.decide(X @ coef_.T + intercept_)``.
    intercept_ : array of shape (n_outputs,)
    n_iter_ : int
        Passes over the data; with `partial_fit` the number of calls.
    t_ : int
        Examples visited.
    objective_, dual_gap_ : float
        After `fit`: the primal value on the training data, without what is held out, and the share of it by which it can exceed the
        optimum at most.
    validation_costs_ : array of shape (n_iter_,)
        Expected cost of the held-out data after each pass, with early stopping.
    table_ : LossTable
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,), where X has names

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from apportion import ApportionedSGDClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)  # 0 is malignant
    >>> machine = make_pipeline(StandardScaler(), ApportionedSGDClassifier({0: 10, 1: 1}, C=0.1, random_state=0)).fit(X, y)
    >>> bool(machine[-1].dual_gap_ < 0.1)
    True
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
        max_iter: int = 20,
        batch_size: int = 1,
        average: bool = True,
        projection: bool = False,
        delay: Any = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        n_total: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.costs = costs
        self.loss = loss
        self.margin_power = margin_power
        self.slack_power = slack_power
        self.C = C
        self.intercept = intercept
        self.intercept_scaling = intercept_scaling
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.average = average
        self.projection = projection
        self.delay = delay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_total = n_total
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------ for the user

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Visit the examples of one piece of the data once, in random order.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        classes : array of shape (k,), optional
            All classes of the stream; needed in the first call.
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            return self._partial_fit(X, y, classes, sample_weight)

    # ------------------------------------------------------------ fit

    _raw_scores = ApportionedLinearSVC._raw_scores

    def _validate_parameters(self) -> None:
        check_number("C", self.C, low=0, open_low=True)
        check_number("intercept_scaling", self.intercept_scaling, low=0, open_low=True)
        for name in ("max_iter", "batch_size", "n_iter_no_change"):
            check_number(name, getattr(self, name), low=1, integer=True)
        if self.n_total is not None:
            check_number("n_total", self.n_total, low=1, integer=True)
        if not isinstance(self.intercept, str) or self.intercept not in ("penalized", "none"):
            raise ValueError(f"intercept={self.intercept!r} is not known; allowed: 'penalized', 'none'.")
        if isinstance(self.delay, str):
            if self.delay != "auto":
                raise ValueError(f"delay={self.delay!r} is not known; allowed: 'auto' or a number >= 0.")
        else:
            check_number("delay", self.delay, low=0)
        check_number("validation_fraction", self.validation_fraction, low=0, open_low=True)
        if self.validation_fraction >= 1:
            raise ValueError(f"validation_fraction={self.validation_fraction!r} must lie between 0 and 1.")
        for name in ("average", "projection", "early_stopping"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name}={getattr(self, name)!r} must be True or False.")

    @with_callbacks
    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        from . import pegasos  # brings numba: only a fit pays for it

        data = self._checked(X, y, sample_weight)
        draw = check_random_state(self.random_state)
        seed = int(draw.randint(2**31))
        rows, weight = canonical_rows(data.X, data.y, data.weight, pairwise=False)
        if self.early_stopping:
            kept, out = self._held_out(data.y[rows], draw)
            held, held_weight = rows[out], weight[out]
            rows, weight = rows[kept], weight[kept]
        X, y = data.X, data.y
        if len(rows) < len(y) or np.any(np.diff(rows) != 1):
            X, y = X[rows], y[rows]
        plan = self._plan(len(rows))
        walk = self._first(data.table, X, y, weight, plan)
        context = CallbackContext(self, X, y)
        validation: list[float] = []
        for _ in range(self.max_iter):
            order = _order(seed, int(walk.seen), len(rows))
            pegasos.visit(walk, data.table, X, y, weight, order, plan)
            pegasos.end_pass(walk)
            W, b = pegasos.machine(walk, plan, self.average)
            if context.watch is not None:
                context.watch(walk.passes, self._certify(data.table, X, y, weight, W, b, walk, plan)[1])
            if self.early_stopping:
                validation.append(_cost(data, held, held_weight, W, b))
                best = int(np.argmin(validation))
                if best == len(validation) - 1:
                    chosen = W, b
                elif len(validation) - 1 - best >= self.n_iter_no_change:
                    break
        self._forget_quality()
        if self.early_stopping:
            W, b = chosen
            self.validation_costs_ = np.array(validation)
        self.objective_, self.dual_gap_ = self._certify(data.table, X, y, weight, W, b, walk, plan)
        self._begin(data.classes, data.costs, data.counts, data.table, seed)
        self._keep(walk, plan, W, b)
        self.n_iter_ = walk.passes
        context.finish()
        return self

    def _held_out(self, y: NDArray[np.intp], draw: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(examples to learn from, examples held out): the share of each class, but for one that is always learnt from."""
        out = np.zeros(len(y), dtype=bool)
        for c in np.unique(y):
            members = draw.permutation(np.flatnonzero(y == c))
            out[members[: min(int(np.ceil(self.validation_fraction * len(members))), len(members) - 1)]] = (
                True
            )
        if not out.any():
            raise ValueError("early_stopping=True needs a class with two different examples; there is none.")
        return np.flatnonzero(~out), np.flatnonzero(out)

    @staticmethod
    def _certify(
        table: LossTable, X: Any, y: Any, weight: Array, W: Array, b: Array, walk: Walk, plan: Plan
    ) -> tuple[float, float]:
        """Primal value, and the relative duality gap."""
        from . import pegasos

        primal = pegasos.primal_value(table, X, y, weight, W, b, plan)
        return primal, pegasos.relative_gap(primal, walk, plan)

    # ------------------------------------------------------------ partial_fit and streams

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Any:
        first = not hasattr(self, "_steps")
        self._validate_parameters()
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit.")
            self._begin_stream(np.unique(classes), None, self.n_total)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={np.unique(classes).tolist()!r} are not those of the calls before: {self.classes_.tolist()!r}."
            )
        self._learn(*self._piece(X, y, sample_weight, first))
        self.n_iter_ = 1 if first else self.n_iter_ + 1
        return self

    def _piece(self, X: Any, y: Any, sample_weight: Any, first: bool) -> tuple[Any, NDArray[np.intp], Array]:
        """A piece of a stream, checked: X, positions of the labels among the classes, weights."""
        X, y = validate_data(self, X, y, **self._accepted, order="C", y_numeric=False, reset=first)
        check_classification_targets(y)
        X = canonical_csr(X)
        check_magnitude(X)
        return X, self._positions(y), check_sample_weight(sample_weight, len(y), some=False)

    def _begin_stream(self, classes: NDArray[Any], counts: Array | None, n_total: float | None) -> None:
        """Before the first piece: what is known of the whole stream."""
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes to tell apart; classes={classes.tolist()!r}."
            )
        if counts is None and isinstance(self.costs, str) and self.costs == "balanced":
            raise ValueError(
                "costs='balanced' needs to know how many examples of each class there are, and partial_fit does not; give the "
                "costs as numbers, or use fit or fit_stream."
            )
        costs = check_costs(self.costs, classes, class_counts=counts)
        seed = int(check_random_state(self.random_state).randint(2**31))
        self._begin(classes, costs, np.zeros(len(classes)), self._table(costs), seed)
        self._n_total: Any = n_total
        self._steps: Any = None  # the fields of pegasos.Walk

    def _learn(self, X: Any, y: NDArray[np.intp], weight: Array) -> None:
        """Visit checked examples once, in a random order."""
        from . import pegasos

        self._forget_quality()
        if self._n_total is None:
            self._n_total = float(len(y))
        plan = self._plan(self._n_total)
        if self._steps is None:
            walk = self._first(self.table_, X, y, weight, plan)
        else:
            walk = pegasos.Walk(**self._steps)
        order = _order(self._seed, int(walk.seen), len(y))
        pegasos.visit(walk, self.table_, X, y, weight, order, plan)
        self.class_weight_total_ = self.class_weight_total_ + np.bincount(y, weight, len(self.classes_))
        self._keep(walk, plan, *pegasos.machine(walk, plan, self.average))

    def _end_pass(self) -> None:
        """All of a stream has been visited once more."""
        from . import pegasos

        walk = pegasos.Walk(**self._steps)
        pegasos.end_pass(walk)
        self._steps = dict(vars(walk))

    def _recall(self, steps: dict[str, Any]) -> None:
        """Stand where an earlier run of the same stream stood."""
        from . import pegasos

        walk, plan = pegasos.Walk(**steps), self._plan(self._n_total)
        self._keep(walk, plan, *pegasos.machine(walk, plan, self.average))

    def _certified(self, primal: float) -> None:
        """Keep the primal value of the machine on all of a stream, and its gap."""
        from . import pegasos

        walk, plan = pegasos.Walk(**self._steps), self._plan(self._n_total)
        self.objective_, self.dual_gap_ = primal, pegasos.relative_gap(primal, walk, plan)

    def _forget_quality(self) -> None:
        """What was measured on other data, or on an earlier machine."""
        for name in ("objective_", "dual_gap_", "validation_costs_"):
            if hasattr(self, name):
                delattr(self, name)

    def _positions(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Where the labels stand among the classes."""
        at = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        wrong = np.flatnonzero(self.classes_[at] != y)
        if len(wrong):
            raise ValueError(
                f"y holds {y[wrong[:1]].tolist()[0]!r}, which is not among the classes {self.classes_.tolist()!r}."
            )
        return at

    # ------------------------------------------------------------ what both share

    def _plan(self, n: float) -> Plan:
        from .pegasos import Plan

        offset = float(self.intercept_scaling) ** 2 if self.intercept == "penalized" else 0.0
        return Plan(float(self.C), float(n), offset, int(self.batch_size), bool(self.projection))

    def _first(self, table: LossTable, X: Any, y: NDArray[np.intp], weight: Array, plan: Plan) -> Walk:
        from . import pegasos

        delay = self.delay
        if isinstance(delay, str):
            delay = pegasos.first_delay(table, y, weight, squared_lengths(X), plan)
        return pegasos.new_walk(table.n_outputs, X.shape[1], float(delay))

    def _begin(self, classes: Any, costs: Costs, counts: Array, table: LossTable, seed: int) -> None:
        self.classes_, self.costs_, self.table_ = classes, costs.array, table
        self._trained_costs = costs.array
        self.class_weight_total_ = counts
        self._seed = seed

    def _keep(self, walk: Walk, plan: Plan, W: Array, b: Array) -> None:
        self.coef_, self.intercept_ = W, b
        self.t_ = int(walk.seen)
        self._n_total = plan.n
        self._steps = dict(vars(walk))  # plain numbers and arrays: what a file or another process can hold


def _order(seed: int, seen: int, n: int) -> NDArray[np.intp]:
    """A random order of n examples that depends on nothing but the seed and how many were seen before."""
    return np.random.default_rng([seed, seen]).permutation(n)


def _cost(data: Checked, rows: NDArray[np.intp], weight: Array, W: Array, b: Array) -> float:
    """Expected cost of the machine's decisions on some of the examples."""
    decided = data.table.decide(np.asarray(data.X[rows] @ W.T) + b).argmax(axis=1)
    return float(np.average(data.costs.matrix[data.y[rows], decided], weights=weight))
