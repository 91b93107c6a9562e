"""What a comparison says: intervals on one data set, ranks and tests over many, as tables and plots.

On one data set the splits overlap, so that the variance of their mean is (1 / J + n_test / n_train) s^2 over J splits (Nadeau and
Bengio 2003), not s^2 / J; all intervals and p values here are corrected so. Over many data sets: the Friedman test, Wilcoxon's
signed rank test of every pair with Holm's correction, and the critical difference diagram, by scikit-posthocs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .compare import Record
from .methods import METHODS
from .superclass_tables import table

Array = NDArray[np.float64]

MOST = 3  # classes that have a column in a table to read
FOUND = "found of "


# ---------------------------------------------------------------- one data set


def corrected_interval(values: Array, ratio: float, level: float = 0.95) -> tuple[float, float]:
    """Of the mean over J overlapping splits; `ratio` is n_test / n_train."""
    if len(values) < 2:
        return float("nan"), float("nan")
    half = stats.t.ppf(0.5 + level / 2, len(values) - 1) * _corrected_error(values, ratio)
    return float(values.mean() - half), float(values.mean() + half)


def corrected_t_test(a: Array, b: Array, ratio: float) -> float:
    """p of the corrected resampled t test of paired values; 1 where they are equal throughout."""
    difference = a - b
    if len(difference) < 2:
        return float("nan")
    error = _corrected_error(difference, ratio)
    if error == 0:
        return 1.0 if np.all(difference == 0) else 0.0
    return float(2 * stats.t.sf(abs(difference.mean()) / error, len(difference) - 1))


def _corrected_error(values: Array, ratio: float) -> float:
    return float(np.sqrt((1 / len(values) + ratio) * values.var(ddof=1)))


def holm(p: Sequence[float]) -> Array:
    """Holm's correction: sorted, p_(i) becomes the largest of (m - j) p_(j) over j <= i, at most 1; NaN stays."""
    values = np.asarray(p, dtype=float)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known])]
    steps = (len(order) - np.arange(len(order))) * values[order]
    out = values.copy()
    out[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return out


@dataclass(frozen=True)
class Line:
    """One method on one data set."""

    method: str
    label: str
    cost: float  # over the splits that it finished, as the interval is
    low: float
    high: float
    difference: float  # to the reference, over the splits of both; positive where the method is dearer
    p: float  # of the difference, Holm-corrected; NaN for the reference itself
    sensitivity: tuple[float, ...]  # of each class
    splits: int
    all_splits: int  # that any method finished
    seconds: float  # of one split

    @property
    def partial(self) -> bool:
        """Whether the cost is of part of the splits."""
        return self.splits < self.all_splits


def lines(records: Sequence[Record], ratio: float, reference: str | None = None) -> list[Line]:
    """The methods, the cheapest first, against `reference` (without it, ours; else the cheapest)."""
    by_method: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: (r["repeat"], r["fold"])):
        by_method.setdefault(record["method"], []).append(record)
    if not by_method:
        raise ValueError("there are no finished cells to make a table of.")
    costs = {name: np.array([r["cost"] for r in rows]) for name, rows in by_method.items()}
    order = sorted(by_method, key=lambda name: costs[name].mean())
    if reference is None:
        reference = "apportioned" if "apportioned" in by_method else order[0]
    others = [name for name in order if name != reference]
    p, difference = {}, {reference: 0.0}
    for name in others:
        mine = {(r["repeat"], r["fold"]): r["cost"] for r in by_method[name]}
        theirs = {(r["repeat"], r["fold"]): r["cost"] for r in by_method[reference]}
        # a method that failed on a hard split is not the cheaper for it
        both = sorted(mine.keys() & theirs.keys())
        a, b = np.array([mine[s] for s in both]), np.array([theirs[s] for s in both])
        p[name] = corrected_t_test(a, b, ratio)
        difference[name] = float(a.mean() - b.mean()) if both else float("nan")
    corrected = dict(zip(others, holm([p[name] for name in others]).tolist(), strict=True))
    all_splits = len({(r["repeat"], r["fold"]) for r in records})
    found = []
    for name in order:
        confusion = np.sum([r["confusion"] for r in by_method[name]], axis=0)
        found.append(
            Line(
                name,
                METHODS[name].label if name in METHODS else name,
                float(costs[name].mean()),
                *corrected_interval(costs[name], ratio),
                difference[name],
                corrected.get(name, float("nan")),
                tuple((np.diag(confusion) / confusion.sum(axis=1)).tolist()),
                len(costs[name]),
                all_splits,
                float(np.mean([r["seconds"] for r in by_method[name]])),
            )
        )
    return found


def cells_of(
    found: Sequence[Line], classes: Sequence[Any], costs: Array
) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table, as text; of many classes only the dearest have a column of what is found of them.

    A cost "0.250 (3 of 4)" is of three of four splits: the method failed on the other.
    """
    dearness = costs if costs.ndim == 1 else costs.max(axis=1)
    shown = [c for c in range(len(classes)) if len(classes) <= MOST or dearness[c] == dearness.max()][:MOST]
    head = ["method", "cost", "95 % interval", "dearer", "p", *(f"{FOUND}{classes[c]}" for c in shown)]
    rows = [
        [
            line.label,
            f"{line.cost:.3f}" + (f" ({line.splits} of {line.all_splits})" if line.partial else ""),
            "" if np.isnan(line.low) else f"{max(line.low, 0):.3f} to {line.high:.3f}",
            "" if np.isnan(line.p) else f"{line.difference:+.3f}",
            "" if np.isnan(line.p) else f"{line.p:.2g}",
            *(f"{100 * line.sensitivity[c]:.1f} %" for c in shown),
        ]
        for line in found
    ]
    return head, rows


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text."""
    clean = [[" ".join(str(cell).replace("|", "\\|").split()) for cell in row] for row in (head, *rows)]
    return table(clean[0], clean[1:]) + "\n"


def as_csv(found: Sequence[Line], classes: Sequence[Any]) -> str:
    """All digits, one method a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ["method", "cost", "low", "high", "difference", "p", "splits", "all_splits", "seconds"]
    writer.writerow([*names, *(f"sensitivity {c}" for c in classes)])
    for line in found:
        writer.writerow([*(getattr(line, name) for name in names), *line.sensitivity])
    return out.getvalue()


def plot_intervals(found: Sequence[Line], ax: Any = None) -> Any:
    """Costs and their intervals, the cheapest on top; returns the axes."""
    import matplotlib.pyplot as plt

    ax = ax or plt.subplots(figsize=(7, 0.8 + 0.35 * len(found)), layout="constrained")[1]
    at = np.arange(len(found))[::-1]
    for y, line in zip(at, found, strict=True):
        colour = "C0" if line.method == "apportioned" else "0.35"
        if not np.isnan(line.low):
            ax.plot([max(line.low, 0), line.high], [y, y], color=colour, lw=2, alpha=0.6)
        ax.plot(line.cost, y, "o", color=colour)
    ax.set_yticks(at, [line.label for line in found])
    ax.set_xlabel("expected cost of a decision, 95 % interval")
    ax.set_xlim(left=0)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


# ---------------------------------------------------------------- many data sets


@dataclass(frozen=True)
class Ranking:
    """Methods over many blocks (data sets, or data sets with costs)."""

    methods: tuple[str, ...]  # the best mean rank first
    costs: Array  # (blocks, methods)
    ranks: Array  # (methods,) mean rank, 1 is the cheapest
    friedman: float  # p
    p: Array  # (methods, methods) Wilcoxon, Holm-corrected over all pairs


def rank(costs: Array, methods: Sequence[str]) -> Ranking:
    """Ranks and tests of costs (blocks, methods); three methods or more."""
    try:
        import scikit_posthocs
    except ImportError:
        raise ImportError("the tests need scikit-posthocs: pip install apportion[study]") from None
    if costs.ndim != 2 or costs.shape[1] != len(methods) or len(methods) < 3 or len(costs) < 2:
        raise ValueError(
            f"costs has shape {costs.shape}; it must be (blocks, {len(methods)}), two blocks and three methods at least."
        )
    ranks = stats.rankdata(costs.round(9), axis=1).mean(axis=0)
    order = np.argsort(ranks, kind="stable")
    costs, ranks = costs[:, order], ranks[order]
    friedman = float(stats.friedmanchisquare(*costs.T).pvalue)
    # equal costs are halves for both sides: zsplit
    p = scikit_posthocs.posthoc_wilcoxon(
        list(costs.T.round(9)), method="approx", p_adjust="holm", zero_method="zsplit"
    )
    return Ranking(tuple(np.array(methods)[order].tolist()), costs, ranks, friedman, p.to_numpy())


def plot_ranks(ranking: Ranking, ax: Any = None) -> Any:
    """The critical difference diagram: methods whose ranks no test tells apart are joined; returns the axes."""
    import matplotlib.pyplot as plt
    import pandas as pd
    import scikit_posthocs

    ax = ax or plt.subplots(figsize=(10, 0.6 + 0.22 * len(ranking.methods)), layout="constrained")[1]
    names = [METHODS[name].label for name in ranking.methods]
    scikit_posthocs.critical_difference_diagram(
        dict(zip(names, ranking.ranks.tolist(), strict=True)),
        pd.DataFrame(ranking.p, index=names, columns=names),
        ax=ax,
        label_fmt_left="{label} ({rank:.2f})",
        label_fmt_right="({rank:.2f}) {label}",
        color_palette={
            n: "C0" if m == "apportioned" else "0.35" for n, m in zip(names, ranking.methods, strict=True)
        },
    )
    return ax
