"""What people see: answers on stdout, progress on stderr, and text from data as it is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

if TYPE_CHECKING:
    from ..frames import Column, Table
    from ..show.summary import Estimate, Summary

PAUSE = 60.0  # seconds between two lines of progress where there is no terminal


def console_for(as_json: bool = False) -> Console:
    """For text that may hold anything: [red] and :smile: in a label stay what they are."""
    return Console(markup=False, emoji=False, highlight=False, quiet=as_json, soft_wrap=True)


def one_line(text: Any) -> str:
    """Without line breaks, and without the control characters by which text from data could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in " ".join(str(text).split()))


def complain(text: Any) -> None:
    print(f"error: {one_line(text)}", file=sys.stderr)


def remark(text: Any) -> None:
    print(f"note: {one_line(text)}", file=sys.stderr)


def answer(content: dict[str, Any]) -> None:
    print(json.dumps(content, default=float))


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left, on a terminal; call what it yields with (done, total)."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def long_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """The same for hours of work: where there is no terminal, a line a minute."""
    spoken = 0.0
    with progress(what) as bar:

        def tell(done: int, total: int) -> None:
            nonlocal spoken
            bar(done, total)
            if not sys.stderr.isatty() and time.monotonic() - spoken > PAUSE:
                spoken = time.monotonic()
                remark(f"{what}: {done} of {total} cells")

        yield tell


def remark_on(failed: dict[str, dict[str, Any]]) -> None:
    """Cells that have failed: how many, and why one of them did."""
    if failed:
        why = next(iter(failed.values()))["error"]
        remark(
            f"{len(failed)} cells of the file have failed and are tried again when they are asked for, such as {why}"
        )


def show_data(console: Console, table: Table, y: Any, columns: list[Column]) -> None:
    from ..frames.words import listed

    said = "".join(f"; {line}" for line in table.said)
    width = len(columns) if columns else table.rows.shape[1]
    console.print(f"{one_line(table.name)}: {len(y)} rows, {width} columns{said}")
    groups: dict[str, list[str]] = {}
    for column in columns:
        groups.setdefault(column.treatment, []).append(column.name)
    grid = Grid("column", "taken as", box=None, padding=(0, 2, 0, 0))
    for treatment, names in groups.items():
        grid.add_row(one_line(listed(names, 4)), one_line(treatment))
    if groups:
        console.print(grid)


def show_costs(console: Console, classes: Any, costs: Any) -> None:
    labels = [one_line(c) for c in classes.tolist()]
    console.print()
    if costs.theta is not None:
        for label, cost in zip(labels, costs.theta, strict=True):
            console.print(f"An error on {label} costs {cost:.4g}.")
        return
    grid = Grid("what it costs", *(f"decide {label}" for label in labels), box=None)
    for label, row in zip(labels, costs.matrix, strict=True):
        grid.add_row(f"true {label}", *(f"{cost:.4g}" for cost in row))
    console.print(grid)


def show_summary(console: Console, summary: Summary, classes: Any, how: str) -> None:
    from ..show.wording import PER, amount, share

    def interval(estimate: Estimate) -> str:
        return f"{amount(PER * estimate.low)} to {amount(PER * estimate.high)}"

    labels = [one_line(c) for c in classes.tolist()]
    cost = Grid(f"cost of {PER} cases, {how}", "", "95 % interval", box=None)
    for name, estimate in (
        ("this model", summary.cost),
        ("the same, costs ignored", summary.equal_cost),
        (f"no model: always {labels[summary.constant]}", summary.constant_cost),
    ):
        cost.add_row(name, amount(PER * estimate.mean), interval(estimate))
    found = Grid("class", "cases", "found", "95 % interval", "costs ignored", box=None)
    for y, label in enumerate(labels):
        own, ignored = summary.sensitivity[y], summary.equal_sensitivity[y]
        cases = int(summary.counts[y].sum())
        found.add_row(
            label, str(cases), share(own.mean), f"{share(own.low)} to {share(own.high)}", share(ignored)
        )
    console.print()
    console.print(cost)
    console.print()
    console.print(found)


def figures(summary: Summary, classes: Any) -> dict[str, Any]:
    return {
        "cost": vars(summary.cost),
        "cost_ignoring_costs": vars(summary.equal_cost),
        "cost_without_model": vars(summary.constant_cost),
        "best_single_decision": classes.tolist()[summary.constant],
        "confusion": summary.counts.tolist(),
        "sensitivity": [vars(estimate) for estimate in summary.sensitivity],
    }


def machine_in_words(machine: Any) -> str:
    """What an ApportionedSVCCV has become."""
    best = machine.best_params_
    width = "" if best["gamma"] is None else f", gamma {best['gamma']:.3g}"
    powers = f"powers {best['margin_power']:g} and {best['slack_power']:g}"
    n = len(machine.machines_)
    made = "one machine," if n == 1 else f"the average of {n} machines, each"
    return (
        f"The model is {made} at most {100 * machine.dual_gap_:.2g} % from its optimum. {'The first' if n > 1 else 'It has'}: "
        f"{best['loss']} loss with {powers}, C {best['C']:.3g}, {best['kernel']} kernel{width}, {best['scaling']} scaling."
    )
