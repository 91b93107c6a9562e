"""The paper's Figures 3, 4 and 5 again: four separable classes, and what priorities do to their boundaries.

    draw_all(folder)    # figure3.png, figure4.png, figure5.png

The paper gives neither the points nor the vectors of Figure 3; the points here are drawn, and the priorities {10, 10, 1, 1} of its
Figure 5 are among ours. Machines are linear and have no slack, so that what is seen is the geometry of each loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from ..estimators import ApportionedLinearSVC
from ..files import write_figure
from .regions import DecisionRegionsDisplay
from .style import axes

CLASSES = ("blue", "light blue", "yellow", "red")  # as the paper lists them
PALETTE = ("#0072B2", "#56B4E9", "#E6B800", "#D55E00")
CENTRES = ((-2.4, 2.2), (2.6, 2.6), (-2.6, -2.3), (2.3, -2.5))
PRIORITIES = ((1, 1, 1, 1), (10, 1, 1, 1), (10, 10, 1, 1), (1, 10, 10, 1))
PRIORITY = (10, 10, 1, 1)  # of Figure 5
REACH = 5.0
LARGE_C = 1e4  # of machines that know no C without bound; classes are separable

Machine = Any


def four_classes(per_class: int = 25, spread: float = 0.6) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Normal clouds about the centres, (n, 2), and their labels (n,): every class separable from all others by a line."""
    rng = np.random.default_rng(5)
    X = np.vstack([rng.normal(centre, spread, (per_class, 2)) for centre in CENTRES])
    return X, np.repeat(np.array(CLASSES), per_class)


def costs_of(priority: Sequence[float]) -> dict[str, float]:
    return dict(zip(CLASSES, map(float, priority), strict=True))


def machine_of(priority: Sequence[float], loss: str = "apportioned") -> ApportionedLinearSVC:
    """Without slack; Crammer and Singer's outputs hang together and take a large C instead."""
    if loss == "crammer-singer":
        return ApportionedLinearSVC(costs_of(priority), loss=loss, C=LARGE_C, tol=1e-5, max_iter=100_000)
    return ApportionedLinearSVC(costs_of(priority), loss=loss, C=np.inf, intercept="free", tol=1e-6)


def paint(ax: Any, machine: Machine, X: Any, y: Any, title: str) -> None:
    """Regions of the decisions and the points."""
    palette = [PALETTE[CLASSES.index(str(label))] for label in machine.classes_]
    extent = (-REACH, REACH, -REACH, REACH)
    DecisionRegionsDisplay.from_estimator(machine, X, y, ax=ax, extent=extent, margins=False, palette=palette)
    ax.get_legend().remove()
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="", aspect="equal")
    ax.set_title(title, fontsize=10)


def draw_priorities(file: Path) -> None:
    """Figure 3: the boundary moves away from the dear classes."""
    X, y = four_classes()
    figure, panels = _panels(2, 2)
    for ax, priority in zip(panels, PRIORITIES, strict=True):
        paint(ax, machine_of(priority).fit(X, y), X, y, "{" + ", ".join(map(str, priority)) + "}")
    figure.suptitle("Priorities of {blue, light blue, yellow, red}")
    _save(figure, file)


def draw_hyperplanes(file: Path) -> None:
    """Figure 4: decision regions, and each class's hyperplane w_j x + b_j = theta_j in its colour."""
    X, y = four_classes()
    machine = machine_of(PRIORITY).fit(X, y)
    figure, (ax,) = _panels(1, 1)
    paint(ax, machine, X, y, "Decision boundary and the hyperplanes w_j x + b_j = theta_j")
    along = np.array([-2 * REACH, 2 * REACH])
    for j, label in enumerate(machine.classes_):
        w, b, theta = machine.coef_[j], machine.intercept_[j], costs_of(PRIORITY)[str(label)]
        foot = (theta - b) * w / (w @ w)  # the point of the line that is next to the origin
        line = foot + along[:, None] * np.array([-w[1], w[0]]) / np.linalg.norm(w)
        colour = PALETTE[CLASSES.index(str(label))]
        ax.plot(*line.T, color=colour, linestyle="--", linewidth=1.8, label=f"{label}: theta = {theta:g}")
    ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH))
    ax.legend(loc="lower center", ncols=4, fontsize=7, framealpha=0.9)
    _save(figure, file)


def draw_rivals(file: Path) -> None:
    """Figure 5: one priority, four methods."""
    X, y = four_classes()
    machines: dict[str, Machine] = {
        "apportioned": machine_of(PRIORITY),
        "CSOVO: SVC(class_weight)": SVC(kernel="linear", C=LARGE_C, class_weight=costs_of(PRIORITY)),
        "CSOVA: one-vs-rest, weighted slack": machine_of(PRIORITY, "one-vs-rest"),
        "CSCS: Crammer-Singer, weighted slack": machine_of(PRIORITY, "crammer-singer"),
    }
    figure, panels = _panels(2, 2)
    for ax, (title, machine) in zip(panels, machines.items(), strict=True):
        paint(ax, machine.fit(X, y), X, y, title)
    figure.suptitle("Priority {10, 10, 1, 1} of {blue, light blue, yellow, red}")
    _save(figure, file)


def draw_all(folder: Path) -> list[Path]:
    """Draw the figures into a folder; returns their files."""
    drawn = []
    for number, draw in ((3, draw_priorities), (4, draw_hyperplanes), (5, draw_rivals)):
        drawn.append(folder / f"paper_figure{number}.png")
        draw(drawn[-1])
    return drawn


def _panels(rows: int, columns: int) -> tuple[Any, list[Any]]:
    first = axes(None)
    figure: Any = first.figure
    first.remove()
    alone = 2.0 if rows == columns == 1 else 0.0
    figure.set_size_inches(3.6 * columns + alone, 3.6 * rows + 0.4 + alone)
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def _save(figure: Any, file: Path) -> None:
    from matplotlib import pyplot

    write_figure(file, figure, dpi=110)
    pyplot.close(figure)
