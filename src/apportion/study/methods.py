"""The methods of the study: the rivals as their users run them, and ours.

    estimator = METHODS["csovo"].make(costs={"ill": 5, "well": 1}, random_state=0).fit(X, y)

Every rival is tuned on the expected cost over the same five stratified inner folds, features standardised inside each, and is
then trained on all rows with the best setting. Ours is `ApportionedSVCCV` as it is: it draws its folds and scales the features
itself, and chooses by the cost and the log loss together. Kernel machines have the same budget: every C and every width of
their kernels. For two classes CSOVA, CSCS, Weston-Watkins, Lee-Lin-Wahba and the reinforced machine are the one binary SVM with
class weights: they take the decisions of SVC, which is CSOVO. Of the package costsensitive three reductions are run; its filter
tree fails where a node meets no rows, and none takes two classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..costs import Costs, check_costs
from . import rivals
from .problem import Problem
from .rivals import (
    BOTH,
    COUPLED,
    ONE_VS_REST,
    WEIGHED,
    Apportioned,
    Probabilities,
    Trained,
    multiclass,
    search_kernels,
)

Train = Callable[[Problem, Costs], Trained]


@dataclass(frozen=True)
class Method:
    """A method of the study, and where it applies."""

    name: str
    label: str
    train: Train
    classes: str = "any"  # or "two", or "many": more than two
    needs: str = ""  # package that must be there
    version: int = 1  # to be raised when its results change: cells of other versions are computed anew
    settings: Any = field(default_factory=dict)

    def fits(self, k: int) -> bool:
        """Whether the method takes k classes."""
        return {"any": True, "two": k == 2, "many": k > 2}[self.classes]

    @property
    def installed(self) -> bool:
        """Whether the package it needs is there."""
        return not self.needs or find_spec(self.needs) is not None

    def applies_to(self, k: int) -> bool:
        """Whether the method can be run on k classes, here and now."""
        return self.fits(k) and self.installed

    def describe(self) -> Any:
        """Its settings: a cell that was computed with others is computed anew."""
        if self.name != "apportioned":
            return self.settings
        from ..tuning import ApportionedSVCCV

        return ApportionedSVCCV().get_params()

    def make(self, costs: Any = None, random_state: int = 0) -> MethodClassifier:
        """The method as a scikit-learn classifier."""
        return MethodClassifier(self.name, costs, random_state=random_state)


class MethodClassifier(ClassifierMixin, BaseEstimator):
    """A method of the study as a scikit-learn classifier.

    Parameters
    ----------
    method : str, default="csovo"
        One of `METHODS`.
    costs : dict, array of shape (k,) or (k, k), DataFrame, "balanced" or None, default=None
        What an error costs, as in `ApportionedSVC`.
    random_state : int, default=0
        Of the inner folds and of the method.

    Attributes
    ----------
    classes_ : array of shape (k,)
    best_params_ : dict
    best_cost_ : float
        The cost over the inner folds that the setting was chosen by.
    """

    def __init__(self, method: str = "csovo", costs: Any = None, *, random_state: int = 0) -> None:
        self.method = method
        self.costs = costs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> MethodClassifier:
        """Tune on X (n, d) and y (n,).

        Most methods keep these rows and train on all of them, with the setting found, in `predict`: kernels and probabilities
        are computed for the rows to decide on. They are remembered for the last of these, not the trained machine.
        """
        method = find_method(self.method)
        numbers, labels = validate_data(self, X, y, dtype=np.float64)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if not method.applies_to(len(self.classes_)):
            needs = f" and the package {method.needs}" if method.needs else ""
            raise ValueError(
                f"method={self.method!r} needs {method.classes} classes{needs}; y has {len(self.classes_)} classes."
            )
        costs = check_costs(self.costs, self.classes_, class_counts=np.bincount(codes))
        self._trained = method.train(Problem(numbers, codes, self.random_state), costs)
        self.best_params_, self.best_cost_ = self._trained.params, self._trained.inner_cost
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The classes decided for."""
        check_is_fitted(self)
        return self.classes_[self._trained.predict(validate_data(self, X, dtype=np.float64, reset=False))]


_GRID = {"C": rivals.CS, "width": rivals.WIDTHS["rbf"]}
_GRIDS: dict[tuple[str, ...], dict[str, Any]] = {
    rivals.RBF: _GRID,
    rivals.BOTH: {"C": rivals.CS, "width": rivals.WIDTHS},
    rivals.WEIGHED: {"C": rivals.CS, "width": rivals.WEIGHED_WIDTHS},
}
# as ParameterGrid takes it: each kernel has widths of its own
_BOTH_GRID = [{"kernel": [kind], "C": rivals.CS, "width": widths} for kind, widths in rivals.WIDTHS.items()]
_LINEAR = {"C": rivals.LINEAR_CS}
_TREES = {"max_features": ("sqrt", 0.5), "min_samples_leaf": (1, 2, 5)}
_BOOST = {"learning_rate": (0.05, 0.2), "max_leaf_nodes": (7, 31), "max_iter": (rivals.BOOSTING_ROUNDS[-1],)}


def _kernel(name: str, label: str, machine: Any, kinds: tuple[str, ...] = rivals.RBF) -> Method:
    train = partial(search_kernels, machine=machine, kinds=kinds)
    return Method(name, label, train, settings=_GRIDS[kinds])


def _multiclass(
    name: str, label: str, machine: Any, kinds: tuple[str, ...] = rivals.RBF, version: int = 1
) -> Method:
    train = partial(multiclass, machine=machine, kinds=kinds)
    return Method(name, label, train, version=version, settings=_GRIDS[kinds])


def _probability(name: str, label: str, grid: Any, held: Any = None) -> Method:
    return Method(name, label, Probabilities(name, grid, held or getattr(rivals, name)), settings=grid)


def _reduction(name: str, label: str, make: Any) -> Method:
    train = partial(rivals.search_estimator, make=make)
    return Method(name, label, train, classes="many", needs="costsensitive", settings=_LINEAR)


_ALL = (
    Method("apportioned", "ApportionedSVCCV", rivals.ours, version=5),
    _kernel("csovo", "CSOVO", rivals.one_vs_one),
    _kernel("csovo2", "CSOVO, RBF or Laplacian", rivals.one_vs_one, BOTH),
    _kernel("csovo3", "CSOVO, RBF or Laplacian, weighed columns", rivals.one_vs_one, WEIGHED),
    _multiclass("csova", "CSOVA", ONE_VS_REST),
    _multiclass("csova2", "CSOVA, RBF or Laplacian", ONE_VS_REST, BOTH),
    _multiclass("cscs", "CSCS", Apportioned("crammer-singer", **COUPLED), version=2),
    Method(
        "cscs-linear",
        "CSCS, linear",
        partial(rivals.search_estimator, make=rivals.linear_crammer_singer),
        settings=_LINEAR,
    ),
    _multiclass("weston-watkins", "Weston-Watkins", Apportioned("weston-watkins", **COUPLED), version=2),
    _multiclass("lee-lin-wahba", "Lee-Lin-Wahba", Apportioned("lee-lin-wahba", **COUPLED), version=2),
    _multiclass("reinforced", "Reinforced", Apportioned("reinforced", **COUPLED), version=2),
    _kernel("paper", "The paper's machine", Apportioned("apportioned", 1.0, 0.0, None)),
    Method("bias-shift", "Bias shift", rivals.shift_bias, classes="two", version=2, settings=_GRID),
    _kernel("wsvm-size", "WSVM, inverse class size", rivals.inverse_size),
    _kernel("wsvm-kpcm", "WSVM, possibilistic c-means", rivals.possibilistic),
    _kernel("wsvm-kpcm2", "WSVM, possibilistic c-means, RBF or Laplacian", rivals.possibilistic, BOTH),
    _probability("logistic", "Logistic regression + Bayes", _LINEAR),
    _probability("calibrated", "Calibrated SVC + Bayes", _GRID),
    _probability("calibrated2", "Calibrated SVC + Bayes, RBF or Laplacian", _BOTH_GRID, rivals.calibrated),
    Method("threshold", "Tuned threshold, logistic", rivals.tuned_threshold, classes="two", settings=_LINEAR),
    _probability("forest", "Random forest + Bayes", _TREES),
    _probability("boosting", "HistGradientBoosting + Bayes", _BOOST),
    _reduction("all-pairs", "Weighted all-pairs, logistic", rivals.all_pairs),
    _reduction("weighted-ovr", "Weighted one-vs-rest, logistic", rivals.weighted_one_vs_rest),
    _reduction("regressed-costs", "Costs by ridge regression", rivals.regressed_costs),
)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}


def find_method(name: str | Method) -> Method:
    """A method by its name; one that is given is taken as it is."""
    if isinstance(name, Method):
        return name
    if name not in METHODS:
        raise ValueError(f"method={name!r} is not known; the methods are {', '.join(METHODS)}.")
    return METHODS[name]
