"""The tables of the study at large, made from the file of its results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import write_figure, write_whole
from .large import COUPLED, SLOW_CLASSES
from .methods import METHODS
from .superclass_tables import write_into
from .verdict import Ranking, markdown, plot_ranks, rank

Array = NDArray[np.float64]
Entry = dict[str, Any]
OURS = "apportioned"
# rivals that are given our kernels, and those that are given our weights of columns too; others are run as their users run them
SAME_KERNELS, SAME_WEIGHTS = ("csovo2", "csova2", "wsvm-kpcm2", "calibrated2"), ("csovo3",)


# ---------------------------------------------------------------- the file


def write_results(path: Path, entries: Sequence[Entry]) -> None:
    """One entry a line, so that a change is a change of few lines."""
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    write_whole(path, f'{{"entries": [\n{lines}\n]}}\n'.encode())


def read_results(path: Path) -> list[Entry]:
    try:
        entries = json.loads(path.read_text())["entries"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of results of the study: {error}.") from None
    return entries


# ---------------------------------------------------------------- what is compared


def blocks(
    entries: Sequence[Entry], methods: Sequence[str], by: Sequence[str] = ("data", "ratio", "dear")
) -> tuple[Array, list[tuple[Any, ...]]]:
    """(blocks, methods) mean costs over the entries that agree in `by`, and the names of the blocks.

    A block in which a method is missing is left out.
    """
    groups: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(tuple(entry[key] for key in by), []).append(entry)
    whole = {
        key: group
        for key, group in groups.items()
        if all(method in entry["cost"] for entry in group for method in methods)
    }
    costs = [[np.mean([entry["cost"][m] for entry in group]) for m in methods] for group in whole.values()]
    return np.array(costs, dtype=float).reshape(len(whole), len(methods)), list(whole)


def everywhere(entries: Sequence[Entry]) -> list[str]:
    """The methods that nearly every entry has: those that are not for some numbers of classes only."""
    return [m for m in METHODS if sum(m in entry["cost"] for entry in entries) > 0.95 * len(entries)]


# ---------------------------------------------------------------- tables


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def main_table(entries: Sequence[Entry], methods: Sequence[str]) -> str:
    """All methods, the best mean rank first; ours against each."""
    costs, _ = blocks(entries, methods)
    by_data, names = blocks(entries, methods, ("data",))
    ranking, of_data = rank(costs, methods), rank(by_data, methods)
    ours = costs[:, methods.index(OURS)]
    head = ["method", "mean cost", "ours is lower by", "mean rank", "cheaper / same / dearer than ours"]
    head += [f"p, {len(costs)} blocks", f"p, {len(names)} data sets"]
    lines = []
    for i, name in enumerate(ranking.methods):
        theirs = ranking.costs[:, i]
        line = [_label(name), f"{theirs.mean():.4f}"]
        if name == OURS:
            line += ["", f"{ranking.ranks[i]:.2f}", "", "", ""]
        else:
            difference = (theirs - ours).round(9)
            wins = [int(np.sum(difference < 0)), int(np.sum(difference == 0)), int(np.sum(difference > 0))]
            p = [r.p[r.methods.index(name), r.methods.index(OURS)] for r in (ranking, of_data)]
            line += [
                f"{100 * (1 - ours.mean() / theirs.mean()):.1f} %",
                f"{ranking.ranks[i]:.2f}",
                " / ".join(map(str, wins)),
                *map(_p, p),
            ]
        lines.append(line)
    return markdown(head, lines)


def _label(name: str) -> str:
    return f"**{METHODS[name].label}**" if name == OURS else METHODS[name].label


def part_table(
    entries: Sequence[Entry], methods: Sequence[str], parts: dict[str, Callable[[Entry], bool]]
) -> str:
    """Mean costs over parts of the entries."""
    columns = {}
    for title, keep in parts.items():
        costs, _ = blocks([entry for entry in entries if keep(entry)], methods)
        if len(costs):
            columns[title] = costs.mean(axis=0)
    order = np.argsort(np.mean(list(columns.values()), axis=0), kind="stable")
    lines = [
        [
            _label(methods[i]),
            *(f"**{c[i]:.4f}**" if c[i] == c.min() else f"{c[i]:.4f}" for c in columns.values()),
        ]
        for i in order
    ]
    return markdown(["method", *columns], lines)


def data_table(entries: Sequence[Entry], methods: Sequence[str]) -> str:
    """A line a data set: our cost beside that of the best rival in the mean, and of the one that is the best on it in hindsight.

    Those on which ours is the dearest against the former stand first.
    """
    costs, names = blocks(entries, methods, ("data",))
    mine = methods.index(OURS)
    rivals = [i for i in range(len(methods)) if i != mine]
    users = [i for i in rivals if methods[i] not in (*SAME_KERNELS, *SAME_WEIGHTS)]
    mean = min(users, key=lambda i: costs[:, i].mean())
    by_name = {entry["data"]: entry for entry in entries}
    order = np.argsort(costs[:, mean] - costs[:, mine], kind="stable")
    lines = []
    for row, (name,) in ((costs[i], names[i]) for i in order):
        best = rivals[int(row[rivals].argmin())]
        entry = by_name[name]
        place = 1 + int(np.sum(row[rivals].round(9) < row[mine].round(9)))
        lines.append(
            [
                name,
                str(entry["n"]),
                str(entry["k"]),
                f"{row[mine]:.4f}",
                f"{row[mean]:.4f}",
                f"{row[mine] - row[mean]:+.4f}",
                str(place),
                f"{row[best]:.4f}",
                METHODS[methods[best]].label,
            ]
        )
    other = METHODS[methods[mean]].label
    head = [
        "data",
        "rows",
        "classes",
        "ours",
        other,
        "difference",
        "place",
        "best rival in hindsight",
        "which",
    ]
    return markdown(head, lines)


def interval(costs: Array, mine: int, other: int) -> tuple[float, float]:
    """95 % interval of the share by which mean costs (n, methods) of ours are lower, were other data sets drawn like these n."""
    draws = np.random.default_rng(0).integers(len(costs), size=(10_000, len(costs)))
    lower, upper = np.quantile(
        1 - costs[draws, mine].mean(axis=1) / costs[draws, other].mean(axis=1), [0.025, 0.975]
    )
    return float(lower), float(upper)


def verdict(entries: Sequence[Entry], methods: Sequence[str]) -> str:
    """What was asked of the study, and what came out."""
    costs, _ = blocks(entries, methods)
    ranking = rank(costs, methods)
    mean = dict(zip(methods, costs.mean(axis=0).tolist(), strict=True))
    by_users = [m for m in methods if m not in (OURS, *SAME_KERNELS, *SAME_WEIGHTS)]
    by_data, _ = blocks(entries, methods, ("data",))
    known = {"data set": by_data.min(axis=1).mean(), "block": costs.min(axis=1).mean()}
    said, hindsight = [], []
    for rivals, how in (
        (by_users, "as its users run it"),
        (SAME_KERNELS, "given the same kernels"),
        (SAME_WEIGHTS, "given the same kernels and weights of columns"),
    ):
        there = [m for m in rivals if m in mean]
        if there:
            best = min(there, key=lambda m: mean[m])
            low, high = interval(by_data, list(methods).index(OURS), list(methods).index(best))
            said.append(
                f"Mean cost {mean[OURS]:.4f}, which is {100 * (1 - mean[OURS] / mean[best]):.1f} % under the best rival {how} "
                f"({METHODS[best].label}, {mean[best]:.4f}); 95 % interval over draws of data sets: {100 * low:.1f} to "
                f"{100 * high:.1f} %."
            )
            shares = (f"{100 * (1 - cost / mean[best]):.1f} %" for cost in known.values())
            hindsight.append(f"{' and '.join(shares)} under the best rival {how}")
    costs_known = " and ".join(f"{cost:.4f} for each {what}" for what, cost in known.items())
    said.append(
        f"Choosing in hindsight, by the test rows, the cheapest of all {len(methods)} methods, ours among them: {costs_known}; "
        f"that is {', '.join(hindsight)}."
    )
    at = ranking.methods.index(OURS)
    worst = max(p for i, p in enumerate(ranking.p[at]) if i != at)
    said.append(
        f"Mean rank {ranking.ranks[at]:.2f} of {len(methods)}, place {at + 1}; the largest p of the Wilcoxon tests against the "
        f"others, Holm-corrected over all pairs, is {_p(worst)}. Friedman test: p {_p(ranking.friedman)}."
    )
    return "\n".join(f"- {line}" for line in said) + "\n"


def _has(key: str, value: Any, entry: Entry) -> bool:
    return bool(entry[key] == value)


def page_text(entries: Sequence[Entry]) -> str:
    """All tables, as Markdown."""
    methods = everywhere(entries)
    data = {entry["data"] for entry in entries}
    if OURS not in methods or len(methods) < 3 or len(data) < 2:
        raise ValueError(
            "the tables need results of ApportionedSVCCV and of two other methods on all data sets, two at least."
        )
    repeats = len({entry["repeat"] for entry in entries})
    parts = [
        f"{len(data)} data sets, {repeats} repeat{'s' if repeats > 1 else ''}, {len(methods)} methods that run on all of them.\n",
        verdict(entries, methods),
        "### All methods\n",
        main_table(entries, methods),
        "### By cost ratio and dear class\n",
        part_table(
            entries,
            methods,
            {
                **{f"ratio {r:g}": partial(_has, "ratio", r) for r in sorted({e["ratio"] for e in entries})},
                "random class dear": lambda e: e["dear"] == "random",
                "rarest class dear": lambda e: e["dear"] == "rarest",
            },
        ),
        "### By number of classes\n",
        part_table(
            entries,
            methods,
            {
                "2": lambda e: e["k"] == 2,
                "3 to 5": lambda e: 3 <= e["k"] <= 5,
                "6 and more": lambda e: e["k"] >= 6,
            },
        ),
    ]
    for title, some in (
        ("Two classes, with the methods for two classes only", [e for e in entries if e["k"] == 2]),
        (
            f"Three to {SLOW_CLASSES} classes, with all coupled machines",
            [e for e in entries if 3 <= e["k"] <= SLOW_CLASSES],
        ),
    ):
        # with two classes these are CSOVO, which stands there already
        same = (*COUPLED, "csova", "csova2") if "Two" in title else ()
        there = [m for m in everywhere(some) if m not in same] if some else []
        if len({e["data"] for e in some}) > 1 and len(there) > 2:
            parts += [f"### {title}\n", main_table(some, there)]
    parts += ["### Data set by data set\n", data_table(entries, methods)]
    return "\n".join(parts)


def write_page(page: Path, text: str) -> None:
    write_into(page, "study", text)


def ranking_of(entries: Sequence[Entry]) -> Ranking:
    """All methods over all blocks: what the diagram is drawn from."""
    methods = everywhere(entries)
    return rank(blocks(entries, methods)[0], methods)


def write_plot(path: Path, entries: Sequence[Entry]) -> None:
    """The critical difference diagram."""
    import matplotlib

    matplotlib.use("agg")
    write_figure(path, plot_ranks(ranking_of(entries)).figure, dpi=150)
