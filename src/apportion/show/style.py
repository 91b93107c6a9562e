"""What the Displays share: colours, axes, and where they keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# of Okabe and Ito, told apart with every kind of colour vision; markers and dashes differ too
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 2, 1, 2, 1, 2)))
INK, PALE = "#2b2b2b", "#666666"


def axes(ax: Axes | None) -> Axes:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(f"plots are drawn by matplotlib ({error}): pip install apportion[plots]") from None
    return pyplot.subplots(layout="constrained")[1] if ax is None else ax


def style(c: int) -> dict[str, Any]:
    """Of the line of class c."""
    return {"color": COLOURS[c % len(COLOURS)], "linestyle": DASHES[c % len(DASHES)]}


def shown(label: Any) -> str:
    """A label as matplotlib shows it: a $ is no mathematics, and a _ at the start does not hide it from legends."""
    text = str(label).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


class Display:
    """Holds the axes that `plot` drew on."""

    ax_: Any
    figure_: Any

    def _drawn(self, ax: Axes) -> Any:
        self.ax_, self.figure_ = ax, ax.figure
        return self
