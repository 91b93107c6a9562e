"""apportion datasets: the built-in tables. Where data come from, and where answers go."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .application import Json, app
from .screen import Grid, answer, console_for, one_line, progress, remark

if TYPE_CHECKING:
    from ..frames import Table


@app.command()
def datasets(as_json: Json = False) -> None:
    """The built-in tables: their size, and what errors on them cost unless you say otherwise."""
    from ..study.datasets import NAMES, load_table

    rows, absent = [], ""
    with progress("reading") as done:
        for i, name in enumerate(NAMES):
            done(i, len(NAMES))
            try:
                table = load_table(name)
            except ImportError as error:
                absent = str(error)
                continue
            n, d = table.X.shape
            rows.append({"name": name, "rows": n, "columns": d, "costs": table.costs, "source": table.source})
    if as_json:
        answer({"tables": rows})
        return
    grid = Grid("name", "rows", "columns", "classes", "costs unless you say otherwise", box=None)
    for row in rows:
        dear = {label: cost for label, cost in row["costs"].items() if cost != 1} or row["costs"]
        words = ", ".join(f"{one_line(label)} {cost:.4g}" for label, cost in dear.items())
        words += ", others 1" if len(dear) < len(row["costs"]) else ""
        grid.add_row(row["name"], str(row["rows"]), str(row["columns"]), str(len(row["costs"])), words)
    console = console_for()
    console.print(grid)
    if absent:
        remark(f"there are more: {absent}")


def read_data(source: str, n_features: int | None = None, zero_based: bool | None = None) -> Table:
    """A file, or a built-in table by its name. The columns of an svmlight file are those of a model, where they are given."""
    from ..frames import SKLEARN, Table, read_table, sklearn_table
    from ..study.datasets import NAMES, load_table

    if Path(source).is_file() or source not in {*NAMES, *SKLEARN}:
        if not os.path.lexists(source):
            raise FileNotFoundError(
                f"{source} does not exist, nor is it a built-in table: see apportion datasets."
            )
        return read_table(source, n_features, zero_based)
    import pandas as pd

    if source in SKLEARN:
        table = sklearn_table(source)
        try:
            table.costs = load_table(source).costs
        except ImportError:  # the costs of iris come with another package
            pass
        return table
    known = load_table(source)
    frame = pd.DataFrame(known.X, columns=[f"x{j + 1}" for j in range(known.X.shape[1])])
    for j in known.categorical:
        frame[f"x{j + 1}"] = frame[f"x{j + 1}"].map(lambda code: f"{code:g}").astype(object)
    return Table(source, frame.assign(**{"class": known.y}), target="class", costs=known.costs)


def check_place(path: Path, *taken: str | Path | None) -> None:
    """Before the work is done, not after it: whether the answer can be written, and not over a file that is `taken`.

    That is one that is read, or that another answer is written to.
    """
    if any(name is not None and _same(path, Path(name)) for name in taken):
        raise ValueError(f"{path} is read, or written to, already; give another name to write to.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file to write.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"nothing may be written to the folder {path.parent}; choose another.")


def _same(a: Path, b: Path) -> bool:
    return a.samefile(b) if a.exists() and b.exists() else a.resolve() == b.resolve()


def check_plot(path: Path | None) -> None:
    """Whether the name of a plot's file says what to draw, and whether there is something to draw with."""
    if path is not None and path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot {path}: {path.suffix!r} is not known; allowed: .png, .svg, .pdf.")
    if path is not None and find_spec("matplotlib") is None:
        raise ImportError("--plot needs matplotlib; install it by: pip install 'apportion[plots]'.")
