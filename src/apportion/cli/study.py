"""apportion reproduce study: all methods on all data sets of the study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .application import Jobs
from .data import check_place, check_plot
from .reproduce import reproduce
from .screen import console_for, long_progress, remark_on


@reproduce.command()
def study(
    repeats: Annotated[int, typer.Option(min=1, help="Draws of rows, dear class and split.")] = 3,
    rows: Annotated[int, typer.Option(min=100, help="At most so many rows of a table.")] = 1000,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set; may be given several times. All without it.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="A method; may be given several times. All without it.")
    ] = None,
    cells: Annotated[
        Path, typer.Option(help="File of finished cells; a run that was stopped goes on from it.")
    ] = Path("study-cells.jsonl"),
    out: Annotated[Path | None, typer.Option(help="File of results to write.")] = None,
    page: Annotated[Path | None, typer.Option(help="Page whose tables are written anew.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="File of the critical difference diagram: PNG, SVG, PDF.")
    ] = None,
    jobs: Jobs = -1,
    only_tables: Annotated[
        bool, typer.Option("--only-tables", help="Compute nothing: tables from the file of results.")
    ] = False,
) -> None:
    """Every method on every data set, cost ratios 2, 5 and 20: hours of computing, resumable."""
    from ..study import large, large_tables
    from ..study.compare import Cells
    from ..study.datasets import STUDY
    from ..study.superclass_tables import around

    for path, taken in ((out, (cells, page)), (plot, (cells, page, out))):
        if path is not None:
            check_place(path, *taken)
    check_plot(plot)
    if page is not None:
        around(page, "study")
    if only_tables:
        if out is None:
            raise ValueError("--only-tables makes tables from a file of results: say which by --out.")
        entries = large_tables.read_results(out)
    else:
        unknown = [name for name in data or () if name not in STUDY]
        if unknown:
            raise ValueError(f"--data {unknown[0]} is none of the study's: {', '.join(STUDY)}.")
        store = Cells(cells)
        with long_progress("computing") as tell:
            entries = large.run_study(
                store,
                names=data or STUDY,
                methods=method,
                repeats=repeats,
                rows=rows,
                n_jobs=jobs,
                progress=tell,
            )
        remark_on(store.errors())
        if out is not None:
            large_tables.write_results(out, entries)
    text = large_tables.page_text(entries)
    if page is not None:
        large_tables.write_page(page, text)
    if plot is not None:
        large_tables.write_plot(plot, entries)
    console_for().print(text)
