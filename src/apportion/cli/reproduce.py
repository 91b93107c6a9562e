"""apportion reproduce: the paper's experiments again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from .application import app
from .screen import remark

reproduce = typer.Typer(help="Run the paper's experiments again.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


@reproduce.callback()
def _reproduce() -> None:
    """Run the paper's experiments again."""


@reproduce.command()
def neural(
    seeds: Annotated[int, typer.Option(min=2, help="Networks for each method.")] = 30,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the device.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="2 seeds, 5 epochs, a fifth of the images: minutes on a CPU.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="cifar100_4.npz; without it CIFAR-100 is downloaded.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File of the results; a run that was stopped goes on from it.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Page whose tables are written anew.")] = None,
) -> None:
    """The superclass experiment: every loss, both readings of the paper's dropout, beside its Table 4."""
    from ..study import superclass, superclass_tables

    if page is not None:
        superclass_tables.around(page, "superclass")  # before the work is done, not after it
    settings = superclass.QUICK if quick else superclass.Settings(seeds=seeds)
    drops = superclass.DROPS[:1] if quick else superclass.DROPS
    out = out or Path("results") / ("superclass-quick.json" if quick else "superclass.json")
    results = superclass.run(out, drops, settings, device, data, workers, remark)
    text = superclass_tables.markdown(results)
    if page is not None:
        superclass_tables.write_into(page, "superclass", text)
    Console().print(Markdown(text))
