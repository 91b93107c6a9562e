"""The machines as scikit-learn estimators: validate, build the loss table, solve, name the attributes."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .costs import Costs, check_costs
from .fitting import (
    CANONICAL,
    CallbackContext,
    CallbackSupportMixin,
    canonical_csr,
    canonical_rows,
    check_jobs,
    check_magnitude,
    check_number,
    check_sample_weight,
    is_late,
    unchanged_on_failure,
    with_callbacks,
)
from .losses import LossTable, loss_table, value
from .parts import binary_parts
from .products import raw_scores
from .solution import Array, Settings, Solution

PREDICT_ROWS = 500  # examples scored at a time


class Checked(NamedTuple):
    """What a fit starts from."""

    X: Any  # (n, d) dense or CSR
    y: NDArray[np.intp]  # (n,) positions in classes
    weight: Array  # (n,)
    classes: NDArray[Any]  # (k,)
    counts: Array  # (k,) sum of the weights of each class
    costs: Costs
    table: LossTable


class _ApportionedClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """What the linear and the kernel machine share."""

    _deadline: float | None = None  # of time.monotonic(): a fit that takes longer is over as it is

    # ------------------------------------------------------------ for the user

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Fit the machine.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Labels of any type.
        sample_weight : array of shape (n_samples,), optional
            Weight 2 is the same as the row twice.

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            return self._fit(X, y, sample_weight)

    def decision_function(self, X: ArrayLike) -> Array:
        """Class scores, (n, k); for two classes (n,), positive where the second is chosen."""
        raw = self._raw_scores(X)
        scores = self.table_.decide(raw)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class with the highest score."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    def reapportion(self, costs: Any) -> Any:
        """The same machine with its boundaries apportioned by other costs, without training again.

        The way between the support hyperplanes of two classes is divided anew, in the ratio of new to old costs. A machine that
        is trained with the new costs is better; this one is there at once, and shows what a change of costs would do.
        """
        check_is_fitted(self)
        new = check_costs(costs, self.classes_, class_counts=self.class_weight_total_)
        old = check_costs(self._trained_costs, self.classes_)
        if new.theta is None or old.theta is None:
            raise ValueError(
                "reapportion takes one cost a class, on a machine trained with one cost a class; got a full cost matrix."
            )
        table = self._table(old, new.theta / old.theta)
        machine = copy.copy(self)
        machine.costs, machine.costs_, machine.table_ = costs, new.array, table
        return machine

    # ------------------------------------------------------------ for the subclasses

    def _raw_scores(self, X: Any) -> Array:
        raise NotImplementedError

    def _solve(
        self, table: LossTable, X: Any, y: Any, weight: Array, settings: Settings, start: Any
    ) -> Solution:
        raise NotImplementedError

    def _table(self, costs: Costs, ratio: Array | None = None) -> LossTable:
        return loss_table(
            self.loss, costs, margin_power=self.margin_power, slack_power=self.slack_power, ratio=ratio
        )

    def _validate_parameters(self) -> None:
        check_number("C", self.C, low=0, open_low=True, infinite=True)
        check_number("tol", self.tol, low=0, open_low=True)
        check_number("intercept_scaling", self.intercept_scaling, low=0, open_low=True)
        check_number("max_iter", self.max_iter, low=1, integer=True)
        if not isinstance(self.intercept, str) or self.intercept not in ("penalized", "free", "none"):
            raise ValueError(
                f"intercept={self.intercept!r} is not known; allowed: 'penalized', 'free', 'none'."
            )

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Checked:
        """Parameters and data, each checked, and what follows from them."""
        self._validate_parameters()
        X, y = validate_data(self, X, y, **self._accepted, order="C", y_numeric=False)
        check_classification_targets(y)
        if self._pairwise and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' needs a square matrix of kernel values in fit; X has shape {X.shape}."
            )
        classes, y = np.unique(y, return_inverse=True)
        k = len(classes)
        if k < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes to tell apart; y has 1 class: {classes.tolist()[0]!r}."
            )
        X = canonical_csr(X)
        check_magnitude(X)
        weight = check_sample_weight(sample_weight, len(y))
        counts: Any = np.bincount(y, weights=weight, minlength=k)
        if np.count_nonzero(counts) < 2:
            raise ValueError("sample_weight leaves fewer than 2 classes with a positive weight.")
        costs = check_costs(self.costs, classes, class_counts=counts)
        return Checked(X, y, weight, classes, counts, costs, self._table(costs))

    @with_callbacks
    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Any:
        X, y, weight, classes, counts, costs, table = self._checked(X, y, sample_weight)
        k = len(classes)
        rows, merged = canonical_rows(X, y, weight, pairwise=self._pairwise)
        context = CallbackContext(self, X, y)
        settings = Settings(
            C=self.C,
            offset={"penalized": float(self.intercept_scaling) ** 2, "free": None, "none": 0.0}[
                self.intercept
            ],
            tol=self.tol,
            max_iter=self.max_iter,
            n_jobs=check_jobs(self.n_jobs),
            cache_size=getattr(self, "cache_size", 1000.0),
            watch=context.watch,
        )
        start = getattr(self, "_alpha", None) if self.warm_start else None
        if start is not None and start.shape != (len(rows), table.codes.shape[1]):
            start = None
        whole = len(rows) == len(y) and np.all(rows == np.arange(len(y)))
        data = X if whole else X[np.ix_(rows, rows)] if self._pairwise else X[rows]
        solution = self._solve_any_C(table, data, y[rows], merged, settings, start)
        of_class = value(table, np.zeros((k, table.n_outputs)), np.arange(k))
        nothing = settings.C * float(merged @ of_class[y[rows]])
        if solution.objective > nothing * (1 + 2 * self.tol) and solution.gap <= self.tol:
            warnings.warn(
                f"the objective found, {solution.objective:.3g}, is above that of scores that are all zero, {nothing:.3g}: the "
                "kernel has negative eigenvalues, and `dual_gap_` says nothing. Take a positive semidefinite one, such as 'rbf'.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if not solution.gap <= self.tol:
            warnings.warn(
                f"{type(self).__name__} stopped at a relative duality gap of {solution.gap:.2g} after "
                f"{solution.n_iter} iterations; tol={self.tol:.2g} was asked for. Scale the features"
                f"{', raise max_iter' if solution.n_iter >= self.max_iter else ''} or accept a larger tol.",
                ConvergenceWarning,
                stacklevel=4,
            )
        beta = solution.beta(table, y[rows])
        used = solution.used
        support = used[beta[used].any(axis=1)]
        self.classes_, self.costs_, self.table_ = classes, costs.array, table
        self._trained_costs = costs.array
        self.class_weight_total_ = counts
        self.support_, self.dual_coef_ = rows[support], beta[support]
        self.n_support_ = np.bincount(y[self.support_], minlength=k)
        self.intercept_, self.objective_, self.dual_gap_ = (
            solution.intercept,
            solution.objective,
            solution.gap,
        )
        self.n_iter_ = max(solution.n_iter, 1)
        self._alpha = solution.alpha
        self._name_solution(solution, data, support)
        context.finish()
        return self

    def _name_solution(self, solution: Solution, data: Any, support: NDArray[np.intp]) -> None:
        """Attributes of the subclass."""

    def _solve_any_C(
        self, table: LossTable, X: Any, y: Any, weight: Array, settings: Settings, start: Any
    ) -> Solution:
        """C = inf is a C so large that no alpha of a separable problem reaches it; where one does, the data are not separable."""
        if np.isfinite(settings.C):
            return self._solve(table, X, y, weight, settings, start)
        settings.C = HARD * float(np.abs(table.margins).max())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            solution = self._solve(table, X, y, weight, settings, start)
        alpha = solution.alpha.sum(axis=1, keepdims=True) if table.shared else solution.alpha
        bound = 0.999 * settings.C * table.weights[y][:, : alpha.shape[1]] * weight[:, None]
        if np.any((alpha >= bound) & (bound > 0)) or solution.gap > self.tol:
            raise ValueError(
                f"C=inf asks for a hard margin, and after {solution.n_iter} iterations there is none: the training data are not "
                "separable by this machine, or only just; give a finite C (a large one, such as 1e4, comes close to a hard margin)."
            )
        return solution

    @property
    def _pairwise(self) -> bool:
        return False

    @property
    def _accepted(self) -> dict[str, Any]:
        """What `validate_data` lets in: dense or CSR; a kernel matrix is dense."""
        return {"accept_sparse": False if self._pairwise else "csr", "dtype": [np.float64, np.float32]}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._pairwise
        tags.input_tags.pairwise = self._pairwise
        return tags


HARD = 1e6  # what C = inf stands for, in units of the largest margin
LARGE = 1e30  # kernel values beyond have no room in single precision


def _largest(kernel: Any) -> float:
    """The largest |K[i, i]|, infinite or NaN where values overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.abs(kernel.diagonal()).max())


class ApportionedLinearSVC(_ApportionedClassifier):
    """Linear large-margin classifier whose boundaries are apportioned by what errors cost.

    Solves ``min 1/2 |W|^2 + C sum_i loss(W x_i + b, y_i)`` exactly, for every loss that is a table, and says how far from the
    optimum it can be at most (``dual_gap_``).

    Parameters
    ----------
    costs : dict, array of shape (k,) or (k, k), DataFrame, "balanced" or None, default=None
        What an error costs: per true class, or ``costs[true, predicted]``. Arrays follow the order of ``classes_``. None: 1 each.
    loss : str or LossTable, default="apportioned"
        "apportioned", "one-vs-rest", "pairwise", "weston-watkins", "crammer-singer", "lee-lin-wahba" (the one for full cost
        matrices), "reinforced", or a table of your own.
    margin_power, slack_power : float or None, default=None
        How the costs enter: margins ``costs ** margin_power``, slack weights ``costs ** slack_power``. None: 1 and 0 for
        "apportioned", 0 and 1 for the others. Tune them: where classes overlap, margins alone heed the costs too little.
    C : float, default=1.0
        Price of slack. ``inf`` asks for a hard margin and raises where the data are not separable.
    intercept : {"penalized", "free", "none"}, default="penalized"
        "penalized": the weight of a constant feature of value ``intercept_scaling``. "free": not penalised, as in the paper.
    intercept_scaling : float, default=1.0
    tol : float, default=1e-3
        Relative duality gap at which to stop: (primal - dual) / primal.
    max_iter : int, default=1000
        Newton steps or sweeps over the data.
    n_jobs : int or None, default=None
        Threads. The result does not depend on it.
    warm_start : bool, default=False
        Start from the solution of the last fit where the data have the same shape.
    verbose : int, default=0
        1 or more prints the gap as it falls.
    random_state : int, RandomState or None, default=None
        Accepted for interchange with other estimators. The exact solvers draw with fixed seeds: equal data give equal machines.

    Attributes
    ----------
    classes_ : array of shape (k,)
    costs_ : array of shape (k,) or (k, k)
    coef_ : array of shape (n_outputs, n_features)
        Weights of the raw scores; the class scores are ``table_.decide(X @ coef_.T + intercept_)``.
    intercept_ : array of shape (n_outputs,)
    support_ : array of shape (n_support,)
        Rows of the training data with a non-zero dual variable (of equal rows, the first).
    dual_coef_ : array of shape (n_support, n_outputs)
    n_support_ : array of shape (k,)
    objective_ : float
        Primal value.
    dual_gap_ : float
        (primal - dual) / primal: the objective is within this share of the optimum.
    n_iter_ : int
    table_ : LossTable
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,), where X has names

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from apportion import ApportionedLinearSVC
    >>> X, y = load_breast_cancer(return_X_y=True)  # 0 is malignant
    >>> machine = make_pipeline(StandardScaler(), ApportionedLinearSVC({0: 10, 1: 1}, C=0.1)).fit(X, y)
    >>> bool(machine[-1].dual_gap_ <= 1e-3)
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
        tol: float = 1e-3,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        warm_start: bool = False,
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
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _solve(
        self, table: LossTable, X: Any, y: Any, weight: Array, settings: Settings, start: Any
    ) -> Solution:
        from .linear import solve_linear  # brings numba: only a fit pays for it

        return solve_linear(table, X, y, weight, settings, start)

    def _name_solution(self, solution: Solution, data: Any, support: NDArray[np.intp]) -> None:
        self.coef_: Any = solution.coef

    def _raw_scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = canonical_csr(validate_data(self, X, **self._accepted, reset=False))
        check_magnitude(X)
        return raw_scores(X, self.coef_) + self.intercept_


class ApportionedSVC(_ApportionedClassifier):
    """Kernel large-margin classifier whose boundaries are apportioned by what errors cost.

    As `ApportionedLinearSVC`, on the features of a kernel. No n x n matrix is needed: kernel values are computed where they
    are used, once for all outputs, and kept as far as `cache_size` allows.

    Parameters
    ----------
    costs, loss, margin_power, slack_power, C, intercept, intercept_scaling, tol, n_jobs, warm_start, verbose, random_state
        As in `ApportionedLinearSVC`.
    kernel : {"rbf", "laplacian", "linear", "poly", "sigmoid", "precomputed"} or callable, default="rbf"
        A callable takes two matrices and returns the matrix of their kernel values. The certificate holds for positive
        semidefinite kernels, which "sigmoid" need not be.
    gamma : {"scale", "auto"} or float, default="scale"
        Width of rbf exp(-gamma |x - z|^2) and laplacian exp(-gamma |x - z|_1), factor of poly and sigmoid. "scale" is
        1 / (n_features * X.var()), the variance weighted by `sample_weight`; "auto" is 1 / n_features.
    degree : int, default=3
    coef0 : float, default=0.0
    max_iter : int, default=1000
        Rounds of working sets; with solver="pegasos" passes over the data.
    solver : {"exact", "pegasos"}, default="exact"
        "pegasos" is the paper's stochastic gradient method, for comparison: it draws the examples by `random_state`, has no free
        intercept, and needs many passes where the exact solver needs a few rounds. Both stop at the gap `tol`.
    cache_size : float, default=1000
        Megabytes that kernel values kept for reuse may take: half for rows, half for the working sets that are being solved,
        whatever the number of threads.

    Attributes
    ----------
    support_vectors_ : array or sparse matrix of shape (n_support, n_features)
        Empty for kernel="precomputed".
    classes_, costs_, intercept_, support_, dual_coef_, n_support_, objective_, dual_gap_, n_iter_, table_, n_features_in_
        As in `ApportionedLinearSVC`; raw scores are ``kernel(X, support_vectors_) @ dual_coef_ + intercept_``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from apportion import ApportionedSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = ApportionedSVC({0: 1, 1: 1, 2: 5}, C=10).fit(X, y)
    >>> machine.predict(X[:2]).tolist()
    [0, 0]
    """

    def __init__(
        self,
        costs: Any = None,
        *,
        loss: Any = "apportioned",
        margin_power: float | None = None,
        slack_power: float | None = None,
        kernel: Any = "rbf",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        C: float = 1.0,
        intercept: str = "penalized",
        intercept_scaling: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 1000,
        solver: str = "exact",
        n_jobs: int | None = None,
        cache_size: float = 1000,
        warm_start: bool = False,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.costs = costs
        self.loss = loss
        self.margin_power = margin_power
        self.slack_power = slack_power
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.intercept = intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.n_jobs = n_jobs
        self.cache_size = cache_size
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @property
    def _pairwise(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        names = ("rbf", "laplacian", "linear", "poly", "sigmoid", "precomputed")
        if not callable(self.kernel) and not (isinstance(self.kernel, str) and self.kernel in names):
            raise ValueError(
                f"kernel={self.kernel!r} is not known; allowed: {', '.join(names)}, or a callable."
            )
        if isinstance(self.gamma, str):
            if self.gamma not in ("scale", "auto"):
                raise ValueError(
                    f"gamma={self.gamma!r} is not known; allowed: 'scale', 'auto' or a positive number."
                )
        else:
            check_number("gamma", self.gamma, low=0, open_low=True)
        check_number("degree", self.degree, low=0, integer=True)
        check_number("coef0", self.coef0)
        check_number("cache_size", self.cache_size, low=0, open_low=True)
        if not isinstance(self.solver, str) or self.solver not in ("exact", "pegasos"):
            raise ValueError(f"solver={self.solver!r} is not known; allowed: 'exact', 'pegasos'.")
        if self.solver == "pegasos" and (self.intercept == "free" or not np.isfinite(self.C)):
            raise ValueError(
                f"solver='pegasos' needs a finite C and intercept='penalized' or 'none'; got C={self.C!r} and "
                f"intercept={self.intercept!r}. The exact solver takes all of them."
            )

    def _solve(
        self, table: LossTable, X: Any, y: Any, weight: Array, settings: Settings, start: Any
    ) -> Solution:
        from .dual import solve_kernel
        from .kernels import make_kernel, single_precision_serves
        from .linear import newton_serves, solve_linear_kernel

        self._gamma = self._width(X, weight)
        self._precision: Any = np.float64
        form = {
            "gamma": self._gamma,
            "degree": self.degree,
            "coef0": self.coef0,
            "cache_size": self.cache_size / 2,  # the other half is for the kernel matrices of working sets
        }
        if self.solver == "pegasos":
            from .pegasos import solve_kernel as walk

            seed = int(check_random_state(self.random_state).randint(2**31))
            return walk(table, make_kernel(X, self.kernel, **form), y, weight, settings, seed)
        if isinstance(self.kernel, str) and self.kernel == "linear" and newton_serves(table, X, settings):
            return solve_linear_kernel(table, X, y, weight, settings, start)
        # duals of a free intercept of outputs that hang together are balanced to the last digits
        delicate = settings.offset is None and binary_parts(table) is None
        single = len(y) > CANONICAL and not delicate
        if single and single_precision_serves(X, self.kernel, self._gamma, settings.tol):
            kernel = make_kernel(X, self.kernel, dtype=np.float32, **form)
            largest = _largest(kernel)
            if largest <= LARGE:
                solution = solve_kernel(
                    table, kernel, y, weight, replace(settings, tol=0.9 * settings.tol), start
                )
                solution.gap += solution.blur(table, y, settings.C * weight, 1e-7 * largest)
                if solution.gap <= settings.tol or is_late(self):
                    self._precision = np.float32
                    return solution
                start = solution.alpha
        kernel = make_kernel(X, self.kernel, dtype=np.float64, **form)
        if not np.isfinite(_largest(kernel)):
            raise ValueError(
                f"values of kernel={self.kernel!r} overflow; scale the features first (StandardScaler), or take a smaller gamma, "
                "degree or coef0."
            )
        return solve_kernel(table, kernel, y, weight, settings, start)

    def _width(self, X: Any, weight: Array) -> float:
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        if self._pairwise or X.shape[1] == 0:
            return 1.0
        if self.gamma == "auto":
            return 1.0 / X.shape[1]
        share = weight / weight.sum()
        if sparse.issparse(X):
            mean = float(share @ np.ravel(X.mean(axis=1)))
            square = float(share @ np.ravel(X.multiply(X).mean(axis=1)))
            variance, rounding = square - mean**2, 1e-12 * square
        else:
            mean = float(share @ X.mean(axis=1, dtype=float))
            Z = X - mean
            variance = float(share @ np.einsum("ij,ij->i", Z, Z, dtype=float)) / X.shape[1]
            rounding = (1e3 * float(np.finfo(X.dtype).eps) * mean) ** 2
        return 1.0 / (X.shape[1] * variance) if variance > max(rounding, 1e-300) else 1.0

    def _name_solution(self, solution: Solution, data: Any, support: NDArray[np.intp]) -> None:
        self.support_vectors_ = np.empty((0, 0)) if self._pairwise else data[support]

    def _raw_scores(self, X: Any) -> Array:
        from .kernels import cross_kernel

        check_is_fitted(self)
        X = canonical_csr(validate_data(self, X, **self._accepted, reset=False))
        check_magnitude(X)
        if self._pairwise:
            return np.asarray(X[:, self.support_] @ self.dual_coef_) + self.intercept_
        block = cross_kernel(
            self.support_vectors_, self.kernel, self._gamma, self.degree, self.coef0, self._precision
        )
        coef = self.dual_coef_.astype(self._precision, copy=False)
        out = np.empty((X.shape[0], len(self.intercept_)))
        for i in range(0, X.shape[0], PREDICT_ROWS):
            out[i : i + PREDICT_ROWS] = block(X[i : i + PREDICT_ROWS]) @ coef
        return out + self.intercept_
