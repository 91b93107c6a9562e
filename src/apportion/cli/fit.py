"""apportion fit: from a table to a model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .application import Data, Jobs, Json, app
from .data import check_place, read_data
from .screen import (
    answer,
    console_for,
    figures,
    machine_in_words,
    progress,
    show_costs,
    show_data,
    show_summary,
)

if TYPE_CHECKING:
    from ..frames import Column, Table
    from ..show.summary import Summary


@app.command()
def fit(
    data: Data,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    costs: Annotated[
        str | None,
        typer.Option(help="What an error on each class costs: malignant=10,benign=1, or balanced."),
    ] = None,
    cost_matrix: Annotated[
        Path | None, typer.Option(help="A CSV file: true classes down, decisions across, costs within.")
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write the model to.")] = Path(
        "model.apportion"
    ),
    column: Annotated[
        list[str] | None, typer.Option(help="NAME=number, category, date or out; may be given several times.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Search few settings: a first look.")] = False,
    max_time: Annotated[
        float | None, typer.Option(min=1, help="Seconds after which to stop searching.")
    ] = None,
    jobs: Jobs = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the cross-validation.")] = 0,
    as_json: Json = False,
) -> None:
    """Train on a table, tuned on what errors cost you, and save the model."""
    check_place(out, data, cost_matrix)
    table = read_data(data)
    X, y = table.split(target)
    import numpy as np
    from sklearn.pipeline import Pipeline

    from ..frames import align, describe_columns, preprocessor, row_digests
    from ..persist import save
    from ..tuning import ApportionedSVCCV

    classes = np.unique(y)
    asked = chosen_costs(table, target, classes, costs, cost_matrix)
    machine = ApportionedSVCCV(
        asked, max_time=max_time, n_jobs=jobs, random_state=seed, **(QUICK if quick else {})
    )
    steps: list[tuple[str, Any]] = [("machine", machine)]
    columns: list[Column] = []
    if table.frame is not None:
        columns = describe_columns(X, _kinds(column))
        prepare = preprocessor(columns)
        X, _ = align(X, prepare)
        steps.insert(0, ("columns", prepare))
    elif column:
        raise ValueError(
            f"--column has no meaning for {data}: the columns of an svmlight file have no names."
        )
    console = console_for(as_json)
    show_data(console, table, y, columns)
    show_costs(console, classes, machine_costs(asked, y))
    model = Pipeline(steps)
    with progress("searching") as machine._progress:
        model.fit(X, y)
    del machine._progress  # a file cannot hold it
    summary = held_out_summary(y, machine)
    notes = {
        "source": table.name,
        "target": target or table.target,
        "zero_based": table.zero_based,
        "rows": len(y),
        "columns": [vars(each) for each in columns],
    }
    save(model, out, notes={**notes, "trained_on": row_digests(X, y)})
    if as_json:
        answer(
            {
                "model": str(out),
                **notes,
                "classes": classes.tolist(),
                "costs": machine.costs_.tolist(),
                "best_params": machine.best_params_,
                "machines": len(machine.machines_),
                "dual_gap": machine.dual_gap_,
                **figures(summary, classes),
            }
        )
        return
    show_summary(console, summary, classes, "cross-validated")
    console.print("The settings were chosen by these figures, so new data may cost a little more.\n")
    console.print(machine_in_words(machine))
    file, source = shlex.quote(str(out)), shlex.quote(data)
    console.print(f"\nSaved {out}. Next:")
    console.print(f"  apportion predict {file} NEW_DATA.csv -o decisions.csv")
    console.print(f"  apportion report {file} {source} -o report.html")


QUICK: dict[str, Any] = {
    "kernels": ("rbf", "linear"),
    "losses": ("apportioned",),
    "scaling": "standard",
    "Cs": (0.5, 8.0, 128.0),
    "n_machines": 10,
}


def _kinds(column: list[str] | None) -> dict[str, str]:
    kinds = {}
    for text in column or ():
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise ValueError(f"--column {text} is not NAME=KIND; write for example --column age=number.")
        kinds[name] = kind
    return kinds


def chosen_costs(
    table: Table, target: str | None, classes: Any, costs: str | None, cost_matrix: Path | None
) -> Any:
    """What --costs and --cost-matrix say, or else what is known of a built-in table."""
    from ..frames import parse_costs, read_cost_matrix, written_costs

    if costs is not None and cost_matrix is not None:
        raise ValueError("--costs and --cost-matrix say the same thing twice; give one of them.")
    if cost_matrix is not None:
        return read_cost_matrix(cost_matrix, classes)
    if costs is not None:
        return parse_costs(costs, classes)
    if table.costs is not None and target in (None, table.target):
        return {c: table.costs[str(c)] for c in classes.tolist()}
    example = written_costs(classes, [10] + [1] * (len(classes) - 1))
    raise ValueError(f"say what an error on each class costs, for example --costs {example}.")


def machine_costs(asked: Any, y: Any) -> Any:
    """The checked `Costs` of what was asked for."""
    import numpy as np

    from ..costs import check_costs

    classes, counts = np.unique(y, return_counts=True)
    return check_costs(asked, classes, class_counts=counts)


def held_out_summary(y: Any, machine: Any) -> Summary:
    """What the errors on the training rows cost, each decided by machines that were not trained on it."""
    from ..show.summary import hold, summarize

    return summarize(
        hold(y[machine.held_out_rows_], machine.held_out_proba_, machine.classes_), machine.costs_
    )
