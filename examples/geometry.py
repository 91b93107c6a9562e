"""Draw docs/geometry.png: the boundary divides the margin in the ratio of the costs.

Run it with `python examples/geometry.py [file]`; it needs matplotlib.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

from apportion import ApportionedLinearSVC
from apportion.show import DecisionRegionsDisplay
from apportion.show.style import COLOURS, INK, PALE

REACH = 3.4
PLAIN = {"extent": [-REACH, REACH] * 2, "grid_resolution": 400, "margins": False}
TWO = {"dear": 10, "cheap": 1}
FOUR = {"a": 8, "b": 4, "c": 2, "d": 1}


def two_classes():
    """Two clouds with a wide gap between them."""
    rng = np.random.default_rng(3)
    y = np.repeat(list(TWO), 26)
    along, away = rng.uniform(-3, 3, len(y)), 1.4 + np.minimum(rng.gamma(1.6, 0.36, len(y)), 1.3)
    X = np.column_stack([np.where(y == "dear", -away, away), along])
    return X @ [[0.95, -0.3], [0.3, 0.95]], y


def four_classes():
    """The same cloud, turned, in each corner."""
    rng = np.random.default_rng(7)
    angle, radius = rng.uniform(0, np.pi, 13), 0.95 * np.sqrt(rng.uniform(0, 1, 13))
    half = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    cloud = np.add([2.75, 0], np.vstack([half, half * [1, -1]]))
    turns = np.deg2rad([135, 45, -45, -135])
    X = [cloud @ [[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]] for t in turns]
    return np.vstack(X), np.repeat(list(FOUR), len(cloud))


def hard_margin(costs):
    """Our machine without slack and with a free intercept: the geometry and nothing else."""
    return ApportionedLinearSVC(costs, C=np.inf, intercept="free", tol=1e-6)


def paint(ax, machine, X, y, costs):
    """Regions of the decisions, their boundaries, the examples."""
    colour = dict(zip(costs, COLOURS, strict=False))
    palette = [colour[c] for c in machine.classes_]
    DecisionRegionsDisplay.from_estimator(machine, X, y, ax=ax, palette=palette, **PLAIN)
    ax.get_legend().remove()
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="", title="", aspect="equal")
    for spine in ax.spines.values():
        spine.set_color("#bbbbbb")


def measure(ax, machine, X, y, at):
    """The support lines, and how many shares of the way between them each class keeps."""
    origin = machine.decision_function([[0, 0]])[0]
    w = machine.decision_function(np.eye(2)) - origin
    level, w = -origin / np.linalg.norm(w), w / np.linalg.norm(w)
    low, high = (X[y == machine.classes_[0]] @ w).max(), (X[y == machine.classes_[1]] @ w).min()
    along = np.array([-w[1], w[0]]) * np.sign(w[0])
    for edge in (low, high):
        ax.plot(*(edge * w + np.outer([-9, 9], along)).T, color=PALE, linewidth=1, linestyle=(0, (5, 4)))
    unit = min(level - low, high - level)
    for edge in (low, high):
        ends = np.array([level * w, edge * w]) + at * along
        ax.plot(*ends.T, color=INK, linewidth=1.3, marker="|", markersize=9, zorder=2)
        where = ends.mean(axis=0) + 0.27 * along
        ax.text(*where, f"{abs(level - edge) / unit:.3g}", fontsize=12.5, color=INK, ha="center", va="center")


def caption(ax, title, note):
    ax.text(0.5, 1.085, title, transform=ax.transAxes, ha="center", fontsize=14, weight="bold", color=INK)
    ax.text(0.5, 1.03, note, transform=ax.transAxes, ha="center", fontsize=10, color=PALE)


def name_regions(ax, places, texts):
    for (x, y), text in zip(places, texts, strict=True):
        ax.text(
            x, y, text, fontsize=12, style="italic", color=INK, ha="left" if x < 0 else "right", va="center"
        )


def figure():
    """The three panels."""
    fig, axes = plt.subplots(1, 3, figsize=(13.2, 4.95))
    fig.subplots_adjust(left=0.008, right=0.992, bottom=0.015, top=0.87, wspace=0.03)
    X, y = two_classes()
    machines = SVC(kernel="linear", C=1e6, class_weight=TWO), hard_margin(TWO)
    for ax, machine in zip(axes[:2], machines, strict=True):
        paint(ax, machine.fit(X, y), X, y, TWO)
        measure(ax, machine, X, y, at=0.2)
        name_regions(ax, [(-3.2, 3.1), (3.2, -3.1)], ["costs 10", "costs 1"])
    caption(axes[0], "SVC, class_weight 10 : 1", "the boundary stays in the middle, at any weight")
    caption(axes[1], "apportion, costs 10 : 1", "the dear class keeps ten shares of the margin")
    X, y = four_classes()
    paint(axes[2], hard_margin(FOUR).fit(X, y), X, y, FOUR)
    thin = {"fill": False, "colors": "#8a8a8a", "linewidths": 0.9}
    DecisionRegionsDisplay.from_estimator(hard_margin(None).fit(X, y), X, ax=axes[2], **thin, **PLAIN)
    axes[2].set(xlabel="", ylabel="", title="")
    caption(
        axes[2], "apportion, costs 8 : 4 : 2 : 1", "the dearer neighbour has more room; thin: equal costs"
    )
    corners = [(-3.2, 3.1), (3.2, 3.1), (3.2, -3.1), (-3.2, -3.1)]
    name_regions(axes[2], corners, [f"costs {cost}" for cost in FOUR.values()])
    return fig


if __name__ == "__main__":
    plt.switch_backend("Agg")
    target = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "geometry.png"
    figure().savefig(target, dpi=150)
