"""apportion reproduce paper: the paper's Tables 2 and 3, and its Figures 3, 4 and 5."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .application import Jobs
from .data import check_place
from .reproduce import reproduce
from .screen import console_for, long_progress, remark, remark_on


@reproduce.command()
def paper(
    quick: Annotated[
        bool, typer.Option("--quick", help="3 folds, a coarse grid, at most 400 rows: minutes.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The paper's protocol on all rows, letter too: days, resumable.")
    ] = False,
    data: Annotated[
        list[str] | None, typer.Option(help="A table; may be given several times. All eight without it.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="A method; may be given several times. All without it.")
    ] = None,
    cells: Annotated[
        Path, typer.Option(help="File of finished cells; a run that was stopped goes on from it.")
    ] = Path("paper-cells.jsonl"),
    out: Annotated[Path | None, typer.Option(help="File of results to write.")] = None,
    page: Annotated[Path | None, typer.Option(help="Page whose tables are written anew.")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder to draw Figures 3, 4 and 5 into, as PNG.")
    ] = None,
    jobs: Jobs = -1,
    only_cells: Annotated[
        bool, typer.Option("--only-cells", help="Compute nothing: results from the cells that are finished.")
    ] = False,
    only_tables: Annotated[
        bool, typer.Option("--only-tables", help="Compute nothing: tables from the file of results.")
    ] = False,
) -> None:
    """The paper's benchmarks, each figure beside the paper's. An hour; --quick takes minutes, --full days."""
    from ..study import paper as runs
    from ..study.compare import Cells
    from ..study.paper_tables import page_text
    from ..study.superclass_tables import around, write_into

    if quick and full:
        raise ValueError("--quick and --full exclude each other.")
    if out is not None:
        check_place(out, cells, page)
    if page is not None:
        around(page, "paper")
    if figures is not None and not figures.is_dir():
        raise NotADirectoryError(f"the folder {figures} does not exist; make it first.")
    protocol = runs.QUICK if quick else runs.FULL if full else runs.DEFAULT
    for option, given, known in (
        ("--data", data, protocol.tables),
        ("--method", method, protocol.methods),
    ):
        unknown = [name for name in given or () if name not in known]
        if unknown:
            raise ValueError(f"{option} {unknown[0]} is none of the paper's: {', '.join(known)}.")
    if only_tables:
        if out is None:
            raise ValueError("--only-tables makes tables from a file of results: say which by --out.")
        results = runs.read_results(out)
    else:
        protocol = replace(
            protocol, tables=tuple(data or protocol.tables), methods=tuple(method or protocol.methods)
        )
        store = Cells(cells)
        with long_progress("computing") as tell:
            results = runs.run_paper(store, protocol, n_jobs=jobs, progress=tell, compute=not only_cells)
        remark_on(store.errors())
        if out is not None:
            runs.write_results(out, results)
    text = page_text(results)
    if page is not None:
        write_into(page, "paper", text)
    if figures is not None:
        from ..show.paper_figures import draw_all

        for path in draw_all(figures):
            remark(f"drawn: {path}")
    console_for().print(text)
