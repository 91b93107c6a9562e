"""Displays in the manner of scikit-learn: `from_estimator` or `from_predictions` computes once, `plot(ax=...)` draws.

    DecisionRegionsDisplay      two features: regions, boundaries, support hyperplanes, examples
    CostCurveDisplay            expected cost against the cost ratio, beside the constant decisions
    SensitivityPathDisplay      sensitivity of each class against the cost ratio
    MarginDistributionDisplay   share of each class whose margin is at most so much
    ConvergenceDisplay          duality gap against iterations or time

Each keeps what it drew on in `ax_` and `figure_`. Colours are those of Okabe and Ito, told apart with every kind of colour
vision; markers and dashes differ too. matplotlib comes with the extra [plots].
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from .ratios import CostCurveDisplay, SensitivityPathDisplay
from .regions import DecisionRegionsDisplay, MarginDistributionDisplay
from .style import COLOURS, PALE, Display, axes, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "ConvergenceDisplay",
    "CostCurveDisplay",
    "DecisionRegionsDisplay",
    "MarginDistributionDisplay",
    "SensitivityPathDisplay",
]

Array = NDArray[np.float64]


class ConvergenceDisplay(Display):
    """Relative duality gap against iterations or time: how fast a fit came close to its optimum.

    Parameters
    ----------
    iterations, seconds, gaps : arrays of shape (t,)
        Number of the iteration, time since the solver began, and the gap, at each iteration that reported one.
    tol : float
        Where the fit may stop.
    name : str
    """

    def __init__(
        self, *, iterations: NDArray[np.intp], seconds: Array, gaps: Array, tol: float, name: str
    ) -> None:
        self.iterations, self.seconds, self.gaps, self.tol, self.name = iterations, seconds, gaps, tol, name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> ConvergenceDisplay:
        """Fit a clone of a machine, or of a pipeline that ends in one, and watch its gap. `options` are those of `plot`.

        Times include compilation where this is the first fit on a computer. On many rows a solver begins with a sample of them;
        the gap jumps up once, where the others come in.
        """
        machine, data = clone(estimator), X
        while hasattr(machine, "steps"):
            data = machine[:-1].fit_transform(data, y) if len(machine) > 1 else data
            machine = machine[-1]
        if not hasattr(machine, "_solve"):
            raise ValueError(
                f"estimator={estimator!r} must be an ApportionedLinearSVC or ApportionedSVC, or a pipeline that ends in one."
            )
        iterations, times, gaps, solve = [], [], [], machine._solve

        def watched(table: Any, X: Any, y: Any, weight: Any, settings: Any, start: Any) -> Any:
            began, told = time.perf_counter(), settings.watch

            def watch(iteration: int, gap: float) -> None:
                iterations.append(iteration)
                times.append(time.perf_counter() - began)
                gaps.append(gap)
                if told is not None:
                    told(iteration, gap)

            settings.watch = watch
            solution = solve(table, X, y, weight, settings, start)
            if not gaps or gaps[-1] != solution.gap:
                watch(solution.n_iter, solution.gap)
            return solution

        machine._solve = watched
        machine.fit(data, y, sample_weight=sample_weight)
        display = cls(
            iterations=np.array(iterations, dtype=np.intp),
            seconds=np.array(times),
            gaps=np.array(gaps),
            tol=machine.tol,
            name=type(machine).__name__ if name is None else name,
        )
        return display.plot(ax, **options)

    def plot(self, ax: Axes | None = None, *, x: str = "iteration", **line: Any) -> ConvergenceDisplay:
        """Draw against x="iteration" or x="time"; `line` goes to `Axes.plot`."""
        if x not in ("iteration", "time"):
            raise ValueError(f"x={x!r} is not known; allowed: 'iteration', 'time'.")
        ax = axes(ax)
        along = self.iterations if x == "iteration" else self.seconds
        colour = COLOURS[len(ax.get_legend_handles_labels()[0]) % len(COLOURS)]
        look = {"color": colour, "marker": "o", "markersize": 4, "label": shown(self.name), **line}
        self.line_ = ax.plot(along, np.maximum(self.gaps, 1e-16), **look)[0]
        ax.axhline(self.tol, color=PALE, linestyle=":", linewidth=1.2)
        ax.set(
            yscale="log",
            title="How far from its optimum a fit is at most",
            ylabel="relative duality gap (dotted: tol)",
        )
        ax.set_xlabel("iteration" if x == "iteration" else "time (s)")
        ax.grid(alpha=0.3)
        ax.legend()
        return self._drawn(ax)
