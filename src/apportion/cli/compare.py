"""apportion compare: methods beside each other on your data, under your costs."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from .application import Data, Jobs, Json, app
from .data import check_place, check_plot, read_data
from .fit import chosen_costs, machine_costs
from .screen import Grid, answer, console_for, one_line, progress, remark, show_costs, show_data


def list_methods(asked: bool) -> None:
    """The methods there are; needs no data."""
    if not asked:
        return
    from ..study.methods import METHODS

    grid = Grid("name", "method", "classes", box=None)
    for name, method in METHODS.items():
        grid.add_row(name, method.label, method.classes)
    console_for().print(grid)
    raise typer.Exit


@app.command()
def compare(
    data: Data,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    costs: Annotated[
        str | None,
        typer.Option(help="What an error on each class costs: malignant=10,benign=1, or balanced."),
    ] = None,
    cost_matrix: Annotated[
        Path | None, typer.Option(help="A CSV file: true classes down, decisions across, costs within.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Names with commas between them, or all; see --list.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times the whole is repeated on other folds.")] = 1,
    folds: Annotated[int, typer.Option(min=2, help="Parts, each to test on once.")] = 5,
    rows: Annotated[int, typer.Option(min=100, help="At most so many rows, drawn stratified.")] = 5000,
    out: Annotated[
        Path | None, typer.Option(help="File of finished cells; a run that was stopped goes on from it.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the plot: a PNG, SVG or PDF file.")] = None,
    jobs: Jobs = -1,
    seed: Annotated[int, typer.Option(min=0, help="Of the folds.")] = 0,
    _list: Annotated[
        bool, typer.Option("--list", help="Show the methods there are.", is_eager=True, callback=list_methods)
    ] = False,
    as_json: Json = False,
) -> None:
    """Methods on your data, each tuned on your costs in nested cross-validation."""
    import numpy as np

    from ..study import verdict
    from ..study.compare import Cells, Splits, known_methods, run, tasks_for
    from ..study.methods import METHODS

    places = out, markdown, csv, plot
    for at, path in enumerate(places):
        if path is not None:
            check_place(path, data, cost_matrix, *places[:at])
    check_plot(plot)
    table = read_data(data)
    X, y = table.split(target)
    classes = np.unique(y)
    asked = chosen_costs(table, target, classes, costs, cost_matrix)
    names = known_methods(_names(methods, len(classes)), len(classes))
    source, columns, said = _numbers(table, X, y, rows, seed)
    splits = Splits(folds=folds, seed=seed)
    tasks = tasks_for(source, [asked], splits, repeats)
    console = console_for(as_json)
    show_data(console, table, source.y, columns)
    for line in said:
        console.print(line)
    checked = machine_costs(asked, source.y)
    show_costs(console, classes, checked)
    with tempfile.TemporaryDirectory() as folder:
        cells = Cells(out if out is not None else Path(folder) / "cells.jsonl")
        with progress("comparing") as tell:
            records = run(tasks, cells, names, n_jobs=jobs, progress=tell)
        failed = list(cells.errors().values())
    for name in names:
        lost = len(tasks) - sum(r["method"] == name for r in records.values())
        if lost:
            reasons = [r["error"] for r in failed if (r.get("method"), r.get("data")) == (name, source.name)]
            reason = reasons[-1] if reasons else "no reason is known"
            remark(f"{METHODS[name].label} failed on {lost} of {len(tasks)} splits: {reason}")
    lines = verdict.lines(list(records.values()), splits.ratio)
    head, body = verdict.cells_of(lines, classes.tolist(), checked.array)
    _write(lines, head, body, classes.tolist(), markdown, csv, plot)
    if as_json:
        fields = [{key: _finite(value) for key, value in vars(line).items()} for line in lines]
        answer(
            {
                "data": table.name,
                "classes": classes.tolist(),
                "costs": checked.array.tolist(),
                "methods": fields,
            }
        )
        return
    grid = Grid(box=None, padding=(0, 1, 0, 0))
    for j, word in enumerate(head):
        grid.add_column(one_line(word.removeprefix(verdict.FOUND)), no_wrap=j < 5, overflow="fold")
    for row in body:
        grid.add_row(*(one_line(word) for word in row))
    console.print()
    console.print(grid)
    against = next((line.label for line in lines if math.isnan(line.p) and line.difference == 0), "")
    how = f"{folds} folds" + (f", {repeats} times" if repeats > 1 else "")
    part = " (m of n): over those m that the method finished." if any(line.partial for line in lines) else ""
    console.print(
        f"\nCost of a decision, the mean over {len(tasks)} test folds ({how}); intervals and p values are corrected for folds that "
        f"overlap, p also for the number of methods. Dearer: than {against}, over the folds of both.{part} "
        "The last columns: the share of each class that is found."
    )


def _names(methods: str | None, k: int) -> list[str] | None:
    from ..study.methods import METHODS

    if methods is None:
        return None
    if methods == "all":
        return [name for name, method in METHODS.items() if method.applies_to(k)]
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise ValueError("--methods names none; see: apportion compare --list.")
    return names


def _numbers(table: Any, X: Any, y: Any, rows: int, seed: int) -> tuple[Any, list[Any], list[str]]:
    """What is compared on, what its columns are taken for, and what to say about it."""
    import numpy as np
    from scipy import sparse

    from ..fitting import stratified
    from ..frames import align, describe_columns, preprocessor
    from ..study.compare import Data as Source

    said: list[str] = []
    name = Path(table.name).name  # finished cells are known again from whatever folder the file is named
    if len(y) > rows:
        said.append(f"{rows} of {len(y)} rows are used, drawn stratified; --rows takes more.")
        drawn = np.sort(stratified(y, rows, seed))
        lost = np.setdiff1d(y, y[drawn])
        if len(lost):
            raise ValueError(
                f"the class {lost[0]!s} is so rare that it has no row among {rows} that are drawn; take more by --rows."
            )
        X = X.iloc[drawn].reset_index(drop=True) if table.frame is not None else X[drawn]
        y = y[drawn]
    if table.frame is None:
        if X.shape[0] * X.shape[1] > 50_000_000:
            raise ValueError(
                f"{table.name} has {X.shape[1]} columns: too many for methods that take dense rows only; use apportion fit."
            )
        return Source(name, X.toarray() if sparse.issparse(X) else X, y), [], said
    columns = describe_columns(X, {})
    prepare = preprocessor(columns)
    X, _ = align(X, prepare)
    return Source(name, X, y, prepare), columns, said


def _write(lines: Any, head: Any, body: Any, classes: Any, markdown: Any, csv: Any, plot: Any) -> None:
    from ..files import write_figure, write_whole
    from ..study import verdict

    if markdown is not None:
        write_whole(markdown, verdict.markdown(head, body).encode())
    if csv is not None:
        write_whole(csv, verdict.as_csv(lines, classes).encode())
    if plot is not None:
        import matplotlib

        matplotlib.use("agg")
        write_figure(plot, verdict.plot_intervals(lines).figure, dpi=150)


def _finite(value: Any) -> Any:
    """NaN is no JSON."""
    return None if isinstance(value, float) and math.isnan(value) else value
