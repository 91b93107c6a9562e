"""What decisions cost: metrics of predictions, and scorers that let model selection minimise the user's cost.

    expected cost   mean of costs[true, predicted] over the examples
    cost savings    1 - cost / cost of the best constant decision
    sensitivity     share of the examples of each class that are recognised (recall)

Every function takes the costs in each form `check_costs` does. Labels are numbers, text or other hashable
scalars that are not missing; tuples are not, as numpy makes columns of them. The classes are the first of
these that is there: `labels`; the labels that `costs` itself names (dict, Series, DataFrame); the sorted
labels found in `y_true` and `y_pred`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import confusion_matrix, recall_score
from sklearn.utils.metadata_routing import UNUSED

from .costs import check_costs, labels_of

Array = NDArray[np.float64]


def expected_cost(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    costs: Any = None,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> float:
    """Mean cost of a decision: the average of costs[true, predicted].

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        The right labels and the predicted ones.
    costs : None, "balanced", dict, Series, array of shape (k,) or (k, k), or DataFrame
        None: every error costs 1, so the result is the error rate. "balanced": an error on class y costs
        n / (k n_y), where n_y counts `y_true` and k the classes found there, so the result is 1 - balanced
        accuracy. A dict or Series maps each label to the cost of an error on it. Arrays follow the order of
        `labels`. A DataFrame has the true labels as index, the predicted ones as columns.
    sample_weight : array-like of shape (n,), optional
        Weight of each example, >= 0; weight 2 is the example twice.
    labels : array-like of shape (k,), optional
        The classes, in the order that arrays of costs follow. Needed only where such an array also speaks of
        a class that is found neither in `y_true` nor in `y_pred`.

    Returns
    -------
    cost : float

    Examples
    --------
    >>> from apportion.metrics import expected_cost
    >>> y_true, y_pred = ["ill", "ill", "well", "well"], ["ill", "well", "well", "ill"]
    >>> expected_cost(y_true, y_pred, costs={"ill": 5, "well": 1})
    1.5
    """
    classes, true, pred, weight = _encode(y_true, y_pred, costs, sample_weight, labels)
    counts = _counts(true, pred, weight, len(classes))
    return float((counts * _cost_matrix(costs, classes, counts)).sum() / counts.sum())


def cost_savings(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    costs: Any = None,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> float:
    """Share of the best constant decision's cost that the predictions save: 1 - cost / cost of that decision.

    1 is perfect, 0 no better than always deciding the one class that is cheapest on `y_true`, negative worse
    than that. Where a constant decision costs nothing (one class only in `y_true`) there is nothing to save;
    as in `sklearn.metrics.r2_score` the result is then 1 if the predictions cost nothing either, else 0.

    Parameters
    ----------
    y_true, y_pred, costs, sample_weight, labels
        As in `expected_cost`. The constant decisions compared are those for the classes.

    Returns
    -------
    savings : float
        At most 1.

    Examples
    --------
    >>> from apportion.metrics import cost_savings
    >>> y_true, y_pred = ["ill", "well", "well", "well", "well"], ["ill", "ill", "well", "well", "well"]
    >>> cost_savings(y_true, y_pred, costs={"ill": 5, "well": 1})
    0.75
    """
    classes, true, pred, weight = _encode(y_true, y_pred, costs, sample_weight, labels)
    counts = _counts(true, pred, weight, len(classes))
    matrix = _cost_matrix(costs, classes, counts)
    cost = (counts * matrix).sum()
    constant = (counts.sum(axis=1) @ matrix).min()
    if constant == 0:
        return 1.0 if cost == 0 else 0.0
    return float(1 - cost / constant)


def class_sensitivity(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Array:
    """Share of the examples of each class that are recognised as such.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        The right labels and the predicted ones.
    labels : array-like of shape (k,), optional
        The classes, in the order of the result; by default the sorted labels found in `y_true` and `y_pred`.
    sample_weight : array-like of shape (n,), optional
        Weight of each example, >= 0.

    Returns
    -------
    sensitivity : array of shape (k,)
        NaN for a class without examples (or without weight): its sensitivity is unknown, and any number would
        pull an average. `np.nanmean` of the result is the balanced accuracy.

    Examples
    --------
    >>> from apportion.metrics import class_sensitivity
    >>> class_sensitivity(["ill", "ill", "well"], ["ill", "well", "well"], labels=["ill", "well", "unsure"])
    array([0.5, 1. , nan])
    """
    classes, true, pred, weight = _encode(y_true, y_pred, None, sample_weight, labels)
    return np.asarray(
        recall_score(
            true,
            pred,
            labels=np.arange(len(classes)),
            average=None,
            sample_weight=weight,
            zero_division=np.nan,
        ),
        dtype=float,
    )


class CostScorer(BaseEstimator):
    """A scorer, `scorer(estimator, X, y)`, greater is better; made by `cost_scorer` and `savings_scorer`.

    Use it as `scoring=` wherever scikit-learn takes one. Arrays of costs follow `estimator.classes_`, so that
    a test fold may lack a class. `set_score_request(sample_weight=True)` has metadata routing pass the sample
    weights on, as for any scorer of scikit-learn.

    Parameters
    ----------
    costs : None, "balanced", dict, Series, array of shape (k,) or (k, k), or DataFrame
        As in `expected_cost`; "balanced" counts the examples that are scored.
    savings : bool, default=False
        Score `cost_savings` instead of the negative `expected_cost`.
    """

    # scikit-learn takes the arguments of `score` other than X and y for metadata; the estimator is none
    __metadata_request__score: ClassVar[dict[str, str]] = {"estimator": UNUSED}

    def __init__(self, costs: Any = None, *, savings: bool = False) -> None:
        self.costs = costs
        self.savings = savings

    def score(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Score the decisions `estimator.predict(X)` against `y`."""
        y_pred = estimator.predict(X)
        labels = None if _names_no_order(self.costs) else _classes_of(estimator)
        return self._sign * self._score_func(
            y, y_pred, **self._kwargs, sample_weight=sample_weight, labels=labels
        )

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The same as `score`: the way scikit-learn calls a scorer."""
        return self.score(estimator, X, y, sample_weight=sample_weight)

    # TunedThresholdClassifierCV scores decisions at many thresholds by these three, which it reads off a scorer

    @property
    def _score_func(self) -> Callable[..., float]:
        return cost_savings if self.savings else expected_cost

    @property
    def _sign(self) -> int:
        return 1 if self.savings else -1

    @property
    def _kwargs(self) -> dict[str, Any]:
        return {"costs": self.costs}

    def _accept_sample_weight(self) -> bool:  # asked by scikit-learn's searches while metadata routing is off
        return True


def cost_scorer(costs: Any = None) -> CostScorer:
    """A scorer that returns the negative expected cost.

    Parameters
    ----------
    costs : None, "balanced", dict, Series, array of shape (k,) or (k, k), or DataFrame
        As in `expected_cost`. Arrays follow `estimator.classes_`; "balanced" counts the examples scored.

    Returns
    -------
    scorer : CostScorer

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from apportion.metrics import cost_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> scores = cross_val_score(DecisionTreeClassifier(), X, y, scoring=cost_scorer([1, 1, 5]))
    >>> bool(scores.max() <= 0)
    True
    """
    return CostScorer(costs)


def savings_scorer(costs: Any = None) -> CostScorer:
    """A scorer that returns `cost_savings`: 1 is perfect, 0 is the best constant decision.

    Parameters
    ----------
    costs : None, "balanced", dict, Series, array of shape (k,) or (k, k), or DataFrame
        As in `cost_scorer`.

    Returns
    -------
    scorer : CostScorer

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from apportion.metrics import savings_scorer
    >>> X, y = [[0], [0], [0]], ["ill", "well", "well"]
    >>> decline = DummyClassifier(strategy="constant", constant="ill").fit(X, y)
    >>> savings_scorer({"ill": 5, "well": 1})(decline, X, y)
    0.0
    """
    return CostScorer(costs, savings=True)


# ---------------------------------------------------------------- labels to positions


def _encode(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    costs: Any,
    sample_weight: ArrayLike | None,
    labels: ArrayLike | None,
) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp], Array | None]:
    """The classes (k,), the positions of y_true and y_pred among them (n,), the checked weights (n,)."""
    true, pred = _list("y_true", y_true), _list("y_pred", y_pred)
    if len(true) != len(pred):
        raise ValueError(
            f"y_pred has {len(pred)} entries and y_true {len(true)}; they must have the same number."
        )
    if not true:
        raise ValueError("y_true is empty; at least one example is needed.")
    weight = _weight(sample_weight, len(true))
    if labels is not None:
        classes, source = _list("labels", labels), "labels"
        if len(set(classes)) < len(classes):
            raise ValueError(f"labels={classes!r} names a class twice; each must stand there once.")
    elif (own := _own_labels(costs)) is not None:
        classes, source = own, "the labels of costs"
    else:
        classes, source = _in_order(set(true) | set(pred)), "the labels found"
    position = {label: c for c, label in enumerate(classes)}
    for name, column in (("y_true", true), ("y_pred", pred)):
        unknown = [label for label in column if label not in position]
        if unknown:
            raise ValueError(f"{name} holds {unknown[0]!r}, which is not among {source} {classes!r}.")
    if source == "the labels found" and costs is not None and not isinstance(costs, str):
        shape = np.asarray(costs, dtype=object).shape
        if shape[:1] != (len(classes),):
            raise ValueError(
                f"costs has shape {shape} and y_true and y_pred hold the {len(classes)} labels {classes!r}; "
                "give labels= to say which classes the costs are of."
            )
    names = np.empty(len(classes), dtype=object)
    names[:] = classes
    return names, np.array([position[c] for c in true]), np.array([position[c] for c in pred]), weight


def _list(name: str, values: ArrayLike) -> list[Any]:
    # numpy would turn the list [1, "a"] into strings
    array = np.asarray(values, dtype=object if isinstance(values, (list, tuple)) else None)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; it must be one-dimensional.")
    entries = labels_of(array)
    for entry in entries:
        # pd.NA has no truth value: != of it can be asked of nothing
        if type(entry).__name__ == "NAType" or entry != entry:
            word = "NaN" if isinstance(entry, float) else str(entry)
            raise ValueError(f"{name} holds {word}, which is no label.")
    return entries


def _weight(sample_weight: ArrayLike | None, n: int) -> Array | None:
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=float)
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}; with {n} examples it must have shape ({n},)."
        )
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        i = int(np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))[0])
        raise ValueError(f"sample_weight[{i}] is {weight[i]}; a weight must be a finite number >= 0.")
    if weight.sum() == 0:
        raise ValueError(
            "sample_weight is zero throughout; at least one example must have a positive weight."
        )
    return weight


def _own_labels(costs: Any) -> list[Any] | None:
    """The labels that a DataFrame, dict or Series names; None for other forms."""
    if hasattr(costs, "columns") and hasattr(costs, "index"):
        own = costs.index
    elif isinstance(costs, Mapping) or hasattr(costs, "items"):
        own = costs.keys()
    else:
        return None
    return list(dict.fromkeys(own))


def _in_order(labels: set[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"y_true and y_pred mix labels of the types {kinds}, which have no order; give labels=."
        ) from None


def _names_no_order(costs: Any) -> bool:
    """Whether the costs mean the same in whatever order the classes stand."""
    return costs is None or isinstance(costs, str) or _own_labels(costs) is not None


def _classes_of(estimator: Any) -> NDArray[Any]:
    if not hasattr(estimator, "classes_"):
        raise ValueError(
            f"costs as an array follow estimator.classes_, which {type(estimator).__name__} does not have; "
            "give the costs as a dict or a DataFrame."
        )
    return np.asarray(estimator.classes_)


# ---------------------------------------------------------------- counts and costs


def _counts(true: NDArray[np.intp], pred: NDArray[np.intp], weight: Array | None, k: int) -> Array:
    """(k, k) the weight of the examples of each true class (row) and decision (column)."""
    return confusion_matrix(true, pred, labels=np.arange(k), sample_weight=weight).astype(float)


def _cost_matrix(costs: Any, classes: NDArray[Any], counts: Array) -> Array:
    if not (isinstance(costs, str) and costs == "balanced"):
        return check_costs(costs, classes).matrix
    seen = counts.sum(axis=1) > 0  # a class without examples has no errors: its row does not matter
    theta = np.zeros(len(classes))
    theta[seen] = check_costs(costs, classes[seen], class_counts=counts[seen].sum(axis=1)).array
    return theta[:, None] * (1 - np.eye(len(classes)))
