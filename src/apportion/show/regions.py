"""What a machine does with scores: regions over two features, margins of examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ..guarantees.machine import unwrap
from ..losses import terms
from .style import COLOURS, INK, MARKERS, PALE, Display, axes, shown, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Labels = NDArray[Any]


class DecisionRegionsDisplay(Display):
    """Decisions over two features.

    Make it with `from_estimator`.

    Parameters
    ----------
    xx, yy : array of shape (r, r)
        The grid.
    region : array of shape (r, r)
        Position of the decision among `classes` at each of its points.
    leads : array of shape (k, r, r)
        By how much the score of each class leads the best of the others; boundaries lie where it is zero. Where the decision is
        not the class of the largest score: 1 in the region of the class, -1 elsewhere.
    slack : array of shape (k, r, r) or None
        How far an example of each class would be from fulfilling its margins, negative where it does; None for estimators
        that are not machines of this library.
    classes : array of shape (k,)
    X, y : arrays of shape (n, 2) and (n,), or None
        Examples to draw.
    feature_names : tuple of two strings
    """

    def __init__(
        self,
        *,
        xx: Array,
        yy: Array,
        region: NDArray[np.intp],
        leads: Array,
        slack: Array | None,
        classes: Labels,
        X: Array | None = None,
        y: Labels | None = None,
        feature_names: tuple[str, str] = ("first feature", "second feature"),
    ) -> None:
        self.xx, self.yy, self.region, self.leads, self.slack = xx, yy, region, leads, slack
        self.classes, self.X, self.y, self.feature_names = classes, X, y, feature_names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        extent: tuple[float, float, float, float] | None = None,
        grid_resolution: int = 300,
        ax: Axes | None = None,
        **options: Any,
    ) -> DecisionRegionsDisplay:
        """Decide on a grid.

        Parameters
        ----------
        estimator : fitted classifier of two features, or a pipeline
        X : array or DataFrame of shape (n, 2)
        y : array of shape (n,), optional
            Labels; without them no examples are drawn.
        extent : (left, right, bottom, top), optional
            By default the range of X and a tenth more on each side.
        grid_resolution : int, default=300
            Points along each side.
        ax : Axes, optional
        **options
            Of `plot`.
        """
        check_is_fitted(estimator)
        names = (
            tuple(str(name) for name in X.columns)
            if hasattr(X, "columns")
            else ("first feature", "second feature")
        )
        values = np.asarray(X, dtype=float)
        if values.ndim != 2 or values.shape[1] != 2:
            raise ValueError(
                f"X has shape {values.shape}; decision regions are drawn for two features, shape (n, 2)."
            )
        if not isinstance(grid_resolution, (int, np.integer)) or grid_resolution < 2:
            raise ValueError(f"grid_resolution={grid_resolution!r} must be a whole number >= 2.")
        if extent is None:
            low, high = values.min(axis=0), values.max(axis=0)
            room = np.where(high > low, 0.1 * (high - low), 1.0)
            extent = (low[0] - room[0], high[0] + room[0], low[1] - room[1], high[1] + room[1])
        xx, yy = np.meshgrid(
            np.linspace(*extent[:2], grid_resolution), np.linspace(*extent[2:], grid_resolution)
        )
        points: Any = np.column_stack([xx.ravel(), yy.ravel()])
        if hasattr(X, "columns"):
            points = type(X)(points, columns=X.columns)
        classes = np.asarray(estimator.classes_)
        region = np.searchsorted(classes, estimator.predict(points))
        leads = np.where(region[:, None] == np.arange(len(classes)), 1.0, -1.0)
        if hasattr(estimator, "decision_function"):
            scores = class_scores(estimator.decision_function(points))
            # scores of pairs of classes, or a decision by something else, draw boundaries where none are
            if scores.shape == leads.shape and np.all(
                scores[np.arange(len(region)), region] == scores.max(axis=1)
            ):
                leads = leads_of(scores)
        shape = (len(classes), *xx.shape)
        slack = _slack(estimator, points)
        display = cls(
            xx=xx,
            yy=yy,
            region=region.reshape(xx.shape),
            leads=leads.T.reshape(shape),
            slack=None if slack is None else slack.T.reshape(shape),
            classes=classes,
            X=None if y is None else values,
            y=None if y is None else np.asarray(y),
            feature_names=(names[0], names[1]),
        )
        return display.plot(ax, **options)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        fill: bool = True,
        margins: bool = True,
        palette: Sequence[Any] | None = None,
        **boundary: Any,
    ) -> DecisionRegionsDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
        fill : bool, default=True
            Tint the regions.
        margins : bool, default=True
            Draw, for machines of this library, the support hyperplanes of each class: there its examples begin to have slack.
        palette : sequence of k colours, optional
            Of the classes.
        **boundary
            Style of the boundaries, for `Axes.contour`.
        """
        ax = axes(ax)
        from matplotlib.colors import ListedColormap

        k = len(self.classes)
        tint = [COLOURS[c % len(COLOURS)] for c in range(k)] if palette is None else list(palette)
        if len(tint) != k:
            raise ValueError(f"palette={palette!r} must hold {k} colours, one a class.")
        extent = (self.xx.min(), self.xx.max(), self.yy.min(), self.yy.max())
        if fill:
            look: dict[str, Any] = {
                "cmap": ListedColormap(tint),
                "vmin": 0,
                "vmax": k - 1,
                "alpha": 0.18,
                "zorder": 0,
            }
            ax.imshow(
                self.region, origin="lower", extent=extent, interpolation="nearest", aspect="auto", **look
            )
        if margins and self.slack is not None:
            for c in range(k):
                if self.slack[c].min() < 0 < self.slack[c].max():
                    ax.contour(
                        self.xx,
                        self.yy,
                        self.slack[c],
                        [0],
                        colors=[tint[c]],
                        linestyles="--",
                        linewidths=1.4,
                    )
        for lead in self.leads[: k - 1]:
            if lead.min() < 0 < lead.max():
                ax.contour(self.xx, self.yy, lead, levels=[0], **{"colors": INK, "linewidths": 2, **boundary})
        if self.X is not None and self.y is not None:
            for c, label in enumerate(self.classes):
                own = self.X[self.y == label]
                ax.scatter(
                    own[:, 0],
                    own[:, 1],
                    s=34,
                    color=tint[c],
                    marker=MARKERS[c % len(MARKERS)],
                    edgecolor="white",
                    linewidth=0.7,
                    zorder=3,
                    label=shown(label),
                )
            ax.legend(title="true class", framealpha=0.9)
        dashed = "; dashed: support hyperplanes" if margins and self.slack is not None else ""
        ax.set(
            xlim=extent[:2],
            ylim=extent[2:],
            xlabel=shown(self.feature_names[0]),
            ylabel=shown(self.feature_names[1]),
        )
        ax.set_title(f"Decision regions{dashed}")
        return self._drawn(ax)


def class_scores(scores: ArrayLike) -> Array:
    """(n, k) from what `decision_function` returns."""
    given = np.asarray(scores, dtype=float)
    return np.column_stack([-given, given]) / 2 if given.ndim == 1 else given


def leads_of(scores: Array) -> Array:
    """(n, k) by how much the score of each class leads the best of the others."""
    second, first = np.sort(scores, axis=1)[:, -2:].T
    best = np.where(scores == first[:, None], second[:, None], first[:, None])
    return scores - best


def _slack(estimator: Any, points: Any) -> Array | None:
    """(n, k) the largest hinge argument that each class would have there; zero on its support hyperplanes."""
    try:
        machine, inner = unwrap(estimator, points)
    except ValueError:
        return None
    scores, table = machine._raw_scores(inner), machine.table_
    out = np.empty((len(scores), table.n_classes))
    for c in range(table.n_classes):
        hinge = terms(table, scores, np.full(len(scores), c))
        out[:, c] = hinge[:, table.weights[c] > 0].max(axis=1)
    return out


class MarginDistributionDisplay(Display):
    """For each class, the share of its examples whose margin is at most so much.

    The margin of an example is the score of its class less the best of the other scores (for two classes: the decision function,
    positive where it is right). At zero the curve tells the share of errors.

    Parameters
    ----------
    margins : list of k arrays
        Margins of the examples of each class.
    classes : array of shape (k,)
    """

    def __init__(self, *, margins: list[Array], classes: Labels) -> None:
        self.margins, self.classes = margins, classes

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, ax: Axes | None = None, **options: Any
    ) -> MarginDistributionDisplay:
        """Margins of a fitted classifier with a `decision_function`."""
        check_is_fitted(estimator)
        if not hasattr(estimator, "decision_function"):
            raise ValueError(f"estimator={estimator!r} has no decision_function, so it has no margins.")
        return cls.from_predictions(
            y, estimator.decision_function(X), classes=estimator.classes_, ax=ax, **options
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        scores: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> MarginDistributionDisplay:
        """Margins from scores, (n, k), or (n,) for two classes; `classes` are by default the sorted labels of `y_true`."""
        y = np.asarray(y_true)
        names = np.unique(y) if classes is None else np.asarray(classes)
        given = np.asarray(scores, dtype=float)
        if given.shape != ((len(y),) if given.ndim == 1 and len(names) == 2 else (len(y), len(names))):
            raise ValueError(
                f"scores has shape {given.shape}; with {len(y)} labels of {len(names)} classes it must be "
                f"({len(y)}, {len(names)})."
            )
        leads = leads_of(class_scores(given))
        return cls(margins=[leads[y == label, c] for c, label in enumerate(names)], classes=names).plot(
            ax, **options
        )

    def plot(self, ax: Axes | None = None, **line: Any) -> MarginDistributionDisplay:
        """Draw; `line` goes to `Axes.ecdf`."""
        ax = axes(ax)
        ax.axvline(0, color=PALE, linewidth=1)
        for c, (label, margin) in enumerate(zip(self.classes, self.margins, strict=True)):
            if len(margin):
                text = f"{shown(label)}: {100 * np.mean(margin < 0):.1f} % errors"
                ax.ecdf(margin, **{**style(c), "linewidth": 2, "label": text, **line})
        ax.set(title="Margins of the examples", ylim=(0, 1.02))
        ax.set(
            xlabel="margin: score of the true class less the best other",
            ylabel="share of the class with at most this margin",
        )
        ax.grid(alpha=0.3)
        ax.legend(title="class")
        return self._drawn(ax)
