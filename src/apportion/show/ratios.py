"""What decisions do as one error grows dearer: their cost, and how many of each class they find."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ..costs import Costs, check_costs
from .style import COLOURS, PALE, Display, axes, shown, style
from .summary import decide, positions, tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Labels = NDArray[Any]
RATIOS = np.geomspace(0.01, 100, 81)


class _Path:
    """Decisions where errors on the class `shown` cost `ratio` times as much as `costs` says."""

    def __init__(
        self,
        y: ArrayLike,
        classes: Labels,
        costs: Any,
        label: Any,
        ratios: ArrayLike | None,
        default: int,
        decided: Callable[[Costs], NDArray[np.intp]],  # (n,) positions among the classes
    ) -> None:
        self.classes, self.decided, known = classes, decided, classes.tolist()
        if label is not None and label not in known:
            raise ValueError(f"label={label!r} is not a class; the classes are {known}.")
        self.shown = default if label is None else known.index(label)
        self.y = positions(y, classes)
        self.base = check_costs(costs, classes, class_counts=np.bincount(self.y, minlength=len(known)))
        self.ratios = RATIOS if ratios is None else np.asarray(ratios, dtype=float)
        if (
            self.ratios.ndim != 1
            or not len(self.ratios)
            or not np.all(np.isfinite(self.ratios) & (self.ratios > 0))
        ):
            raise ValueError(f"ratios={ratios!r} must be positive finite numbers.")

    def costs(self, ratio: float) -> Costs:
        array = self.base.array.copy()
        array[self.shown] *= ratio
        return check_costs(array, self.classes)

    def counts(self, ratio: float) -> NDArray[np.intp]:
        """(k, k) examples by true class and decision."""
        return tally(self.y, self.decided(self.costs(ratio)), len(self.classes))


def _path_of_predictions(
    y: ArrayLike,
    probabilities: ArrayLike,
    classes: ArrayLike | None,
    costs: Any,
    label: Any,
    ratios: ArrayLike | None,
) -> _Path:
    P, n = np.asarray(probabilities, dtype=float), len(np.asarray(y))
    if P.ndim == 1:
        P = np.column_stack([1 - P, P])
    names = np.unique(np.asarray(y)) if classes is None else np.asarray(classes)
    if P.shape != (n, len(names)):
        raise ValueError(
            f"probabilities has shape {P.shape}; with {n} labels of the classes {names.tolist()} it must be ({n}, {len(names)})."
        )
    return _Path(y, names, costs, label, ratios, len(names) - 1, lambda c: decide(P, c.matrix))


def _path_of_estimator(
    estimator: Any, X: Any, y: ArrayLike, costs: Any, label: Any, ratios: ArrayLike | None
) -> _Path:
    check_is_fitted(estimator)
    classes = np.asarray(estimator.classes_)
    machine, data = estimator, X
    while hasattr(machine, "steps"):
        machine, data = machine[-1], machine[:-1].transform(data) if len(machine) > 1 else data
    own = np.asarray(getattr(machine, "costs_", np.ones(len(classes))))
    dearest = (
        int((own if own.ndim == 1 else own.max(axis=1)).argmax()) if np.ptp(own) > 0 else len(classes) - 1
    )
    if hasattr(estimator, "predict_proba"):
        P = np.asarray(estimator.predict_proba(X), dtype=float)
        return _Path(y, classes, costs, label, ratios, dearest, lambda c: decide(P, c.matrix))
    if hasattr(machine, "reapportion"):

        def again(c: Costs) -> NDArray[np.intp]:
            return positions(machine.reapportion(c.array).predict(data), classes)

        return _Path(y, classes, costs, label, ratios, dearest, again)
    raise ValueError(
        f"estimator={estimator!r} has neither predict_proba nor reapportion, so it cannot decide for other costs; wrap it in "
        "sklearn.calibration.CalibratedClassifierCV."
    )


class CostCurveDisplay(Display):
    """Expected cost against the cost ratio, beside the constant decisions.

    Make it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    ratios : array of shape (p,)
        Errors on the class `label` cost so many times what they do at ratio 1.
    cost : array of shape (p,)
        Expected cost of the decisions made for that ratio.
    equal_cost : array of shape (p,)
        That of the decisions made for ratio 1 throughout.
    constant_costs : array of shape (p, k)
        That of always deciding one class.
    classes : array of shape (k,)
    label : object
    name : str, optional
    """

    def __init__(
        self,
        *,
        ratios: Array,
        cost: Array,
        equal_cost: Array,
        constant_costs: Array,
        classes: Labels,
        label: Any,
        name: str | None = None,
    ) -> None:
        self.ratios, self.cost, self.equal_cost = ratios, cost, equal_cost
        self.constant_costs = constant_costs
        self.classes, self.label, self.name = classes, label, name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        costs: Any = None,
        label: Any = None,
        ratios: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> CostCurveDisplay:
        """Decide for every ratio without training again: by the Bayes rule on `predict_proba`, or by `reapportion`.

        Parameters
        ----------
        estimator : fitted classifier or pipeline
        X, y : data to judge it by
        costs : as in `expected_cost`, optional
            Costs at ratio 1; by default every error costs 1, so that the ratio is that of an error on `label` to any other.
        label : object, optional
            The class whose errors grow dearer; by default the dearest of the estimator's `costs_`, or the last.
        ratios : array of shape (p,), optional
            By default 0.01 to 100.
        name : str, optional
            For the legend.
        ax : Axes, optional
        **options
            Of `plot`.
        """
        path = _path_of_estimator(estimator, X, y, costs, label, ratios)
        display = cls._from_path(path, type(estimator).__name__ if name is None else name)
        return display.plot(ax, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        probabilities: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        costs: Any = None,
        label: Any = None,
        ratios: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> CostCurveDisplay:
        """Decide by the Bayes rule on probabilities (n, k), or (n,) of the second of two classes.

        `classes` are by default the sorted labels of `y_true`, and `label` is the last of them; the rest as in `from_estimator`.
        """
        path = _path_of_predictions(y_true, probabilities, classes, costs, label, ratios)
        return cls._from_path(path, name).plot(ax, **options)

    @classmethod
    def _from_path(cls, path: _Path, name: str | None) -> CostCurveDisplay:
        matrices = np.array([path.costs(ratio).matrix for ratio in path.ratios])  # (p, k, k)
        decided = np.array([path.counts(ratio) for ratio in path.ratios])
        n = len(path.y)
        return cls(
            ratios=path.ratios,
            cost=(decided * matrices).sum(axis=(1, 2)) / n,
            equal_cost=(path.counts(1.0) * matrices).sum(axis=(1, 2)) / n,
            constant_costs=np.bincount(path.y, minlength=len(path.classes)) @ matrices / n,
            classes=path.classes,
            label=path.classes[path.shown],
            name=name,
        )

    def plot(self, ax: Axes | None = None, *, references: bool = True, **line: Any) -> CostCurveDisplay:
        """Draw; `references=False` leaves out all but the curve, to add it to axes that have them. `line`: of `Axes.plot`."""
        ax = axes(ax)
        if references:
            for c, cost in enumerate(self.constant_costs.T):
                label = "always one class" if c == 0 else None
                ax.plot(self.ratios, cost, color=PALE, linestyle=":", linewidth=1.2, label=label)
            ax.plot(self.ratios, self.equal_cost, color="#D55E00", linestyle="--", label="decided at ratio 1")
            top = max(self.constant_costs.min(axis=1).max(), self.cost.max())
            ax.set(xscale="log", ylim=(0, 1.08 * top), title="What decisions cost, as one error grows dearer")
            ax.set(
                xlabel=f"cost ratio: an error on {shown(self.label)} to the others",
                ylabel="expected cost per decision",
            )
        look = {
            "color": COLOURS[0],
            "linewidth": 2.2,
            "label": shown(self.name or "decided at each ratio"),
            **line,
        }
        self.line_ = ax.plot(self.ratios, self.cost, **look)[0]
        ax.xaxis.set_major_formatter("{x:g}")
        ax.legend()
        return self._drawn(ax)


class SensitivityPathDisplay(Display):
    """Sensitivity of each class against the cost ratio.

    Make it with `from_estimator` or `from_predictions`; for a path of machines that are each trained with their own costs, give
    their sensitivities to the constructor.

    Parameters
    ----------
    ratios : array of shape (p,)
    sensitivity : array of shape (p, k)
        Share of the examples of each class that are recognised.
    classes : array of shape (k,)
    label : object
        The class whose errors cost `ratio` times as much.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from apportion import ApportionedSVC, class_sensitivity
    >>> from apportion.show import SensitivityPathDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> ratios = np.array([0.1, 1.0, 10.0])
    >>> machines = [ApportionedSVC([1, 1, ratio], loss="one-vs-rest").fit(X[::2], y[::2]) for ratio in ratios]
    >>> path = np.array([class_sensitivity(y[1::2], machine.predict(X[1::2])) for machine in machines])
    >>> display = SensitivityPathDisplay(ratios=ratios, sensitivity=path, classes=np.arange(3), label=2)
    """

    def __init__(self, *, ratios: Array, sensitivity: Array, classes: Labels, label: Any) -> None:
        self.ratios, self.sensitivity, self.classes, self.label = ratios, sensitivity, classes, label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        costs: Any = None,
        label: Any = None,
        ratios: ArrayLike | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> SensitivityPathDisplay:
        """Decide for every ratio without training again; the parameters are those of `CostCurveDisplay.from_estimator`."""
        path = _path_of_estimator(estimator, X, y, costs, label, ratios)
        return cls._from_path(path).plot(ax, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        probabilities: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        costs: Any = None,
        label: Any = None,
        ratios: ArrayLike | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> SensitivityPathDisplay:
        """Decide by the Bayes rule; the parameters are those of `CostCurveDisplay.from_predictions`."""
        path = _path_of_predictions(y_true, probabilities, classes, costs, label, ratios)
        return cls._from_path(path).plot(ax, **options)

    @classmethod
    def _from_path(cls, path: _Path) -> SensitivityPathDisplay:
        counts = np.array([path.counts(ratio) for ratio in path.ratios])  # (p, k, k)
        cases = counts.sum(axis=2)
        found = np.where(cases > 0, np.einsum("pyy->py", counts) / np.maximum(cases, 1), np.nan)
        return cls(
            ratios=path.ratios, sensitivity=found, classes=path.classes, label=path.classes[path.shown]
        )

    def plot(self, ax: Axes | None = None, **line: Any) -> SensitivityPathDisplay:
        """Draw; `line` goes to `Axes.plot`."""
        ax = axes(ax)
        self.lines_ = [
            ax.plot(self.ratios, 100 * found, **{**style(c), "linewidth": 2, "label": shown(label), **line})[
                0
            ]
            for c, (label, found) in enumerate(zip(self.classes, self.sensitivity.T, strict=True))
        ]
        ax.set(
            xscale="log", ylim=(-2, 102), title="How many of each class are found, as one error grows dearer"
        )
        ax.set(xlabel=f"cost ratio: an error on {shown(self.label)} to the others", ylabel="sensitivity (%)")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.grid(alpha=0.3)
        ax.legend(title="class")
        return self._drawn(ax)
