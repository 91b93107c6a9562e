"""ApportionedSVCCV: say what errors cost, and nothing else.

1. Search: each candidate machine (scaling, kernel, width, loss, powers, C) scores every row from the folds that do not hold it.
2. Choose: the machines with the least held-out cost, smoothed by their held-out log loss.
3. Average: their class scores, each divided by its own temperature, are summed up and calibrated to probabilities.
4. Decide: by the least expected cost under these probabilities.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from . import candidates
from .calibration import Calibration, calibrate, decide
from .candidates import Clock, Found, Scaled, Search
from .costs import Costs, check_costs
from .fitting import (
    check_jobs,
    check_magnitude,
    check_number,
    check_sample_weight,
    stratified,
    unchanged_on_failure,
)
from .scalings import SCALINGS
from .search import KERNELS, LOSSES, KernelChoice, LossChoice, class_costs, class_scores
from .threads import threads

Array = NDArray[np.float64]

# times 1 / n_features; the likeliest first, for a search that is cut short
WIDTHS = {"rbf": (1.0, 1 / 4, 4.0, 1 / 16), "laplacian": (1 / 4, 0.7, 1 / 10, 2.0)}
# C; divided by n_features for the linear kernel, whose values grow with them
PRICES = 2.0 ** np.arange(-3, 10, 2)
POWERS = ((0.0, 1.0), (0.5, 0.5), (1.0, 0.0))
MACHINES = 30
SEARCH_ROWS = 2000  # more rows are searched on a sample of so many
# lee-lin-wahba is dear: so many of the best kernels and of the smallest C
COUPLED_KERNELS, COUPLED_PRICES = 1, 5
# beside "standard", weights of more columns are not learned: it would take long for little
RELEVANCE_COLUMNS = 1000
LOOSE = 0.05  # a machine with a larger relative duality gap is worth a warning
# of max_time: when the search ends, and when the last machine should be fitted
SEARCH_SHARE, FIT_SHARE = 0.6, 0.95


class ApportionedSVCCV(ClassifierMixin, BaseEstimator):
    """The machine tuned on what errors cost: kernels, widths, C, powers and coding by cross-validation, the best averaged.

    Parameters
    ----------
    costs : dict, array of shape (k,) or (k, k), DataFrame, "balanced" or None, default=None
        What an error costs: per true class, or ``costs[true, predicted]``. None: 1 each.
    kernels : tuple of {"rbf", "laplacian", "linear"}, default=all
        Sparse data have the linear kernel only.
    gammas : array of shape (n_gammas,), dict of such by kernel, or None, default=None
        Kernel widths on scaled data. None: 1/16 to 4 (rbf) and 1/10 to 2 (laplacian), divided by the number of features.
    Cs : array of shape (n_Cs,) or None, default=None
        None: 1/8 to 512 by factors of four; for the linear kernel divided by the number of features.
    powers : sequence of (margin_power, slack_power), default=((0, 1), (0.5, 0.5), (1, 0))
        How costs enter the margins and the slack of "apportioned" and "pairwise" machines.
    losses : tuple of {"apportioned", "pairwise", "lee-lin-wahba"}, default=all
        Two classes know no difference between them: "apportioned" serves.
    scaling : {"standard", "quantile", "relevance", "none"} or a tuple of them, default=all but "none"
        How features are scaled, inside each fold. "quantile": to ranks. "relevance": each by what it tells about the classes,
        learned from the training rows. Beside "standard" what could tell nothing new is left out: ranks where no column has more
        than two values, weights of one column or of more than 1,000. Sparse data are divided by their spread, or "none".
    cv : int, splitter or iterable of splits, default=5
        Each row must be held out once.
    n_machines : int or "auto", default="auto"
        So many of the best machines are averaged; "auto": 30, or as many as there are.
    refit : bool, default=True
        Fit the machines chosen on all rows. Without it there are results but no predictions.
    max_time : float or None, default=None
        Seconds to spend. The search ends with what it has found by then, which depends on how fast the machine is; the best machine
        is always fitted, if need be on the rows that were searched alone, with a warning.
    n_jobs : int or None, default=None
        Tasks of the search that joblib runs at once, by whatever backend is set (loky, threads, dask, ray).
    verbose : int, default=0
        1 or more shows the progress and the time left.
    random_state : int, RandomState or None, default=0
        Of the folds, and of the sample that is searched where there are more than 2,000 rows.

    Attributes
    ----------
    classes_ : array of shape (k,)
    costs_ : array of shape (k,) or (k, k)
    best_params_ : dict
        The first machine's parameters.
    best_index_, best_score_ : int and float
        Its place in ``cv_results_``, and its score there.
    best_cost_ : float
        Held-out cost of the average, a little on the bright side: the machines were chosen by it.
    cv_results_ : dict of arrays
        As in scikit-learn, one entry a candidate; scores are negative costs. The machines are chosen by ``rank_criterion``: in
        ``criterion`` the log loss counts as much as the cost. Candidates of a kernel share its time equally.
    machines_ : list of Pipeline
        The machines averaged, best first, each with its scaling, as they were fitted. Weights of columns stand in the pipelines
        written into scikit-learn's scaler: fitted again, it forgets them.
    calibration_ : Calibration
    held_out_rows_, held_out_proba_ : arrays of shape (n_searched,) and (n_searched, k)
        Rows that were searched on, and their probabilities by machines that have not seen them.
    dual_gap_ : float
        The largest relative duality gap of the machines.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from apportion import ApportionedSVCCV
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = ApportionedSVCCV({0: 1, 1: 1, 2: 5}, kernels=("rbf",), scaling="standard").fit(X, y)
    >>> machine.predict(X[:2]).tolist()
    [0, 0]
    """

    _progress: Callable[[int, int], None] | None = None  # called with (tasks done, tasks in all)

    def __init__(
        self,
        costs: Any = None,
        *,
        kernels: Any = KERNELS,
        gammas: Any = None,
        Cs: Any = None,
        powers: Any = POWERS,
        losses: Any = LOSSES,
        scaling: Any = SCALINGS[:-1],
        cv: Any = 5,
        n_machines: Any = "auto",
        refit: bool = True,
        max_time: float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = 0,
    ) -> None:
        self.costs = costs
        self.kernels = kernels
        self.gammas = gammas
        self.Cs = Cs
        self.powers = powers
        self.losses = losses
        self.scaling = scaling
        self.cv = cv
        self.n_machines = n_machines
        self.refit = refit
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------ for the user

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ApportionedSVCCV:
        """Search, choose, average.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Labels of any type.
        sample_weight : array of shape (n_samples,), optional
            Only ratios count, as with costs. A row of weight 0 is left out.

        Returns
        -------
        self
        """
        # matrices are small: threads of the matrix library would cost more than they save, and change the last digits
        with unchanged_on_failure(self), threads(1):
            return self._fit(X, y, sample_weight)

    def predict_proba(self, X: Any) -> Array:
        """(n, k) probabilities of the classes, calibrated on held-out rows."""
        check_is_fitted(self)
        if not self.machines_:
            raise ValueError("refit=False left no machine to predict with; fit with refit=True.")
        kinds = "csr" if self._sparse else False  # what was fitted on dense rows is scaled by their means
        X = validate_data(self, X, accept_sparse=kinds, dtype=[np.float64, np.float32], reset=False)
        total = np.zeros((X.shape[0], len(self.classes_)))
        scaled: dict[str, Any] = {}
        for machine, factor, scaling in zip(self.machines_, self._factors, self._scalings, strict=True):
            if scaling not in scaled:  # machines of one scaling share it
                scaled[scaling] = machine[0].transform(X)
            raw = machine[-1]._raw_scores(
                machine[1:-1].transform(scaled[scaling]) if len(machine) > 2 else scaled[scaling]
            )
            total += factor * class_scores(machine[-1].table_, raw)
        return self.calibration_(total / len(self.machines_))

    def decision_function(self, X: ArrayLike) -> Array:
        """What deciding each class saves, (n, k); for two classes (n,), positive where the second is chosen."""
        P, costs = self.predict_proba(X), self._checked_costs()
        scores = P * costs.theta if costs.theta is not None else -P @ costs.matrix
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class with the least expected cost."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    def reapportion(self, costs: Any) -> ApportionedSVCCV:
        """The same machines and probabilities, decided by other costs, without training again."""
        check_is_fitted(self)
        new = check_costs(costs, self.classes_, class_counts=self.class_weight_total_)
        machine = copy.copy(self)
        machine.costs, machine.costs_ = costs, new.array
        machine.best_cost_ = self._held_out_cost(new)
        return machine

    # ------------------------------------------------------------ the way of a fit

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> ApportionedSVCCV:
        started = time.monotonic()
        self._validate_parameters()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=False)
        check_classification_targets(y)
        check_magnitude(X)
        weight = check_sample_weight(sample_weight, len(y))
        given, kept = (X, y), np.flatnonzero(weight > 0)  # a row without weight is not there
        if len(kept) < len(y):
            X, y, weight = X[kept], y[kept], weight[kept]
        classes, y = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"ApportionedSVCCV needs at least 2 classes to tell apart; y has 1 class: {classes.tolist()[0]!r}."
            )
        counts = np.bincount(y, weights=weight, minlength=len(classes))
        costs = check_costs(self.costs, classes, class_counts=counts)
        weight = weight / weight.mean()  # the Cs that are tried are not to depend on its unit
        kernels, losses = self._candidates(X, costs)
        self.classes_, self.costs_, self.class_weight_total_ = classes, costs.array, counts
        self._sparse = sparse.issparse(X)

        if len(y) > candidates.KERNEL_ROWS and any(kernel.kernel != "linear" for kernel in kernels):
            warnings.warn(
                f"{len(y)} rows are too many for exact kernels (at most {candidates.KERNEL_ROWS}): the machines "
                f"are fitted on {candidates.COMPONENTS} Nystroem features in their place.",
                UserWarning,
                stacklevel=3,
            )
        rows = np.sort(stratified(y, SEARCH_ROWS, self.random_state))
        splits = _splits(self.cv, given, kept[rows], y[rows], self.random_state)
        cheap = [loss for loss in losses if loss.loss != "lee-lin-wahba"]
        n_coupled = COUPLED_KERNELS * len(splits) if 0 < len(cheap) < len(losses) else 0
        n_fits = self._n_machines() if self.refit else 0
        clock = Clock(self, started, candidates.n_tasks(len(kernels), len(splits)) + n_coupled + n_fits)
        search = Search(costs, X[rows], y[rows], weight[rows], splits, self.n_jobs, clock)
        deadline = None if self.max_time is None else started + SEARCH_SHARE * self.max_time
        search.run(kernels, cheap or losses, deadline)
        if n_coupled:
            clock.phase()
            best = search.best_kernels(COUPLED_KERNELS)
            clock.total -= n_coupled - len(best) * len(splits)
            some = {kernel: kernels[kernel][:COUPLED_PRICES] for kernel in best}
            search.run(some, [loss for loss in losses if loss not in cheap], deadline)
        search.scaled.clear()  # copies of the data that nobody will ask for
        self.held_out_rows_, self._held_out = kept[rows], (search.y, search.weight)
        self._choose(search, X, y, weight, clock)
        self.best_cost_ = self._held_out_cost(costs)
        return self

    def _choose(self, search: Search, X: Any, y: Any, weight: Array, clock: Clock) -> None:
        """Rank the candidates, fit the best on all rows, and calibrate their average."""
        found = search.found
        order = np.argsort([f.criterion for f in found], kind="stable")
        chosen = [found[i] for i in order[: self._n_machines()]]
        clock.total = clock.done + (len(chosen) if self.refit else 0)
        clock.phase()
        deadline = None if self.max_time is None else clock.started + FIT_SHARE * self.max_time
        machines: list[Pipeline] = []
        if self.refit:
            machines = self._fitted(
                Scaled(X, self.classes_[y], weight), chosen, search.costs, clock, deadline
            )
            if not machines:
                warnings.warn(
                    f"max_time={self.max_time} is too short for a machine on all {len(y)} rows: the machines are fitted on the "
                    f"{len(search.y)} rows that were searched.",
                    UserWarning,
                    stacklevel=4,
                )
                searched = Scaled(search.X, self.classes_[search.y], search.weight)
                machines = self._fitted(searched, chosen, search.costs, clock, deadline)
        used = chosen[: len(machines)] if self.refit else chosen
        average = np.mean([f.factor * f.scores.astype(float) for f in used], axis=0)
        theta = class_costs(search.costs)
        self.calibration_: Calibration = calibrate(average, search.y, search.weight, theta)
        self.machines_ = machines
        self._factors, self._scalings = [f.factor for f in used], [f.kernel.scaling for f in used]
        self.held_out_proba_ = self.calibration_(average)
        self.best_params_, self.best_index_ = chosen[0].params, int(order[0])
        self.dual_gap_ = max((m[-1].dual_gap_ for m in machines), default=np.nan)
        if self.dual_gap_ > LOOSE:
            warnings.warn(
                f"a machine of the average stopped at a relative duality gap of {self.dual_gap_:.2g}: look at `machines_`. "
                "Smaller Cs, or scaled features, are solved closer.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.cv_results_ = search.results()
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.n_splits_ = len(search.splits)

    def _fitted(
        self, scaled: Scaled, chosen: list[Found], costs: Costs, clock: Clock, deadline: float | None
    ) -> list[Pipeline]:
        """The best machines, as many as there is time for; none where the first of many rows takes half of it and is not done."""
        machines: list[Pipeline] = []
        for f in chosen:
            scaled.by(f.kernel.scaling)  # which takes its time once, not for each machine
            begun, limit = time.monotonic(), deadline
            if deadline is not None and not machines:
                limit = begun + (deadline - begun) / 2 if len(scaled.y) > SEARCH_ROWS else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a machine short of its gap says so in dual_gap_
                machine = scaled.fit(f, costs, limit)
            now = time.monotonic()
            short = limit is not None and now >= limit and machine[-1].dual_gap_ > LOOSE
            if short and not machines:
                break
            if not short:
                machines.append(machine)
            last = short or (deadline is not None and now + (now - begun) > deadline)
            if last:
                clock.total = clock.done + 1
            clock.tick()
            if last:
                break
        return machines

    def _n_machines(self) -> int:
        return MACHINES if isinstance(self.n_machines, str) else self.n_machines

    def _held_out_cost(self, costs: Costs) -> float:
        """What the decisions for rows that the machines have not seen cost."""
        (y, weight), decisions = self._held_out, decide(self.held_out_proba_, costs)
        return float(weight @ costs.matrix[y, decisions] / weight.sum())

    def _checked_costs(self) -> Costs:
        return check_costs(self.costs_, self.classes_)

    def _candidates(self, X: Any, costs: Costs) -> tuple[dict[KernelChoice, Array], list[LossChoice]]:
        """The kernels, each with its growing Cs, the likeliest first; and the losses."""
        d = X.shape[1]
        Cs: Any = PRICES if self.Cs is None else np.sort(np.asarray(self.Cs, dtype=float))
        ranked: list[tuple[int, KernelChoice]] = []
        scalings = (self.scaling,) if isinstance(self.scaling, str) else self.scaling
        if "standard" in scalings and not sparse.issparse(X):
            if _at_most_two_values(X):
                scalings = [s for s in scalings if s != "quantile"]  # ranks of two values say the same
            if d == 1 or d > RELEVANCE_COLUMNS:
                scalings = [s for s in scalings if s != "relevance"]
        for scaling in scalings:
            for kernel in self.kernels:
                if sparse.issparse(X) and (kernel != "linear" or scaling in ("quantile", "relevance")):
                    continue
                widths: Any = [None]
                if kernel != "linear":
                    widths = self.gammas[kernel] if isinstance(self.gammas, dict) else self.gammas
                    widths = (
                        [w / d for w in WIDTHS[kernel]]
                        if widths is None
                        else np.asarray(widths, dtype=float).tolist()
                    )
                ranked += [(at, KernelChoice(scaling, kernel, width)) for at, width in enumerate(widths)]
        if not ranked:
            raise ValueError(
                f"kernels={self.kernels!r} with scaling={self.scaling!r} leave no candidate for sparse X; allowed there: "
                "kernels=('linear',), scaling 'standard' or 'none'."
            )
        ranked.sort(key=lambda pair: pair[0])
        # values of the linear kernel grow with the number of features
        kernels = {c: Cs / d if c.kernel == "linear" and self.Cs is None else Cs for _, c in ranked}
        losses = []
        for loss in ("apportioned",) if len(costs.classes) == 2 else self.losses:
            if loss == "lee-lin-wahba":
                losses.append(LossChoice(loss, 0.0, 1.0))
            else:
                losses += [LossChoice(loss, float(p), float(q)) for p, q in self.powers]
        return kernels, losses

    def _validate_parameters(self) -> None:
        for name, values, allowed in (
            ("kernels", self.kernels, KERNELS),
            ("losses", self.losses, LOSSES),
            ("scaling", (self.scaling,) if isinstance(self.scaling, str) else self.scaling, SCALINGS),
        ):
            good = isinstance(values, (tuple, list)) and len(values) > 0 and all(v in allowed for v in values)
            if not good:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not known; allowed: one or more of {', '.join(allowed)}, in a tuple."
                )
        _check_positive("Cs", self.Cs)
        if isinstance(self.gammas, dict):
            for kernel in self.kernels:
                if kernel != "linear" and kernel not in self.gammas:
                    raise ValueError(f"gammas={self.gammas!r} names no widths for the kernel {kernel!r}.")
                _check_positive("gammas", self.gammas.get(kernel))
        else:
            _check_positive("gammas", self.gammas)
        try:
            powers = np.asarray(self.powers, dtype=float)
        except (TypeError, ValueError):
            powers = np.empty(0)
        if powers.ndim != 2 or powers.shape[1] != 2 or not len(powers) or not np.all(np.isfinite(powers)):
            raise ValueError(
                f"powers={self.powers!r} must be pairs (margin_power, slack_power) of finite numbers, at least one."
            )
        if self.n_machines != "auto":
            check_number("n_machines", self.n_machines, low=1, integer=True)
        check_jobs(self.n_jobs)
        if self.max_time is not None:
            check_number("max_time", self.max_time, low=0, open_low=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# ---------------------------------------------------------------- helpers of fit


def _at_most_two_values(X: Any) -> bool:
    """Whether no column has more than two different values."""
    low, high = X.min(axis=0), X.max(axis=0)
    return bool(np.all((X == low) | (X == high)))


def _splits(cv: Any, given: tuple[Any, Any], rows: Any, y: Any, random_state: Any) -> list[tuple[Any, Any]]:
    """Folds of the `rows` that are searched, of classes y. A splitter of the user's sees all rows that were given: X, y."""
    drawn = isinstance(cv, (int, np.integer)) and not isinstance(cv, bool)
    with warnings.catch_warnings():
        # a class smaller than the number of folds is in fewer of them
        warnings.simplefilter("ignore", UserWarning)
        if drawn:
            check_number("cv", cv, low=2, integer=True)
            if np.bincount(y).max() < 2:
                raise ValueError(
                    f"y has a class of its own for each of the {len(y)} rows that count, and cv={cv!r} holds rows out: others of "
                    "their class must be left to learn from."
                )
            n_folds = min(cv, max(2, np.bincount(y).max()))
            folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
            splits = list(folds.split(np.empty((len(y), 0)), y))
        else:
            place = np.full(len(given[1]), -1)
            place[rows] = np.arange(len(rows))
            mapped = [
                [part[part >= 0] for part in (place[train], place[test])]
                for train, test in check_cv(cv, given[1], classifier=True).split(*given)
            ]
            splits = [(train, test) for train, test in mapped if len(test)]
            if any(len(train) == 0 for train, _ in splits):
                raise ValueError(
                    f"cv={cv!r} leaves a fold no row to train on that is searched and has a positive sample_weight."
                )
    held_out = np.concatenate([np.empty(0, np.intp), *(test for _, test in splits)])
    if np.any(np.bincount(held_out, minlength=len(y)) != 1):
        raise ValueError(
            f"cv={cv!r} must hold out each row once; repeated or incomplete splits cannot be averaged."
        )
    return splits


def _check_positive(name: str, values: Any) -> None:
    if values is None:
        return
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"{name}={values!r} must hold finite numbers > 0, at least one.")
