"""apportion report: a page for people who do not program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .application import Json, Model, app
from .data import check_place, read_data
from .decide import features, load_model
from .screen import answer, console_for, figures, machine_in_words, show_summary


@app.command()
def report(
    model: Model,
    data: Annotated[str, typer.Argument(help="The training data again, or new data with the true classes.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Its heading.")] = "What the errors will cost",
    unit: Annotated[str, typer.Option(help="Of the costs, such as EUR.")] = "",
    as_json: Json = False,
) -> None:
    """Write a page for people who do not program: what the errors will cost, with sliders for the costs."""
    check_place(out, data, model)
    import numpy as np

    from ..frames import known_labels, row_digests
    from ..show import write_report
    from ..show.summary import hold, summarize

    machine, notes = load_model(model)
    last = machine[-1] if hasattr(machine, "steps") else machine
    if not hasattr(machine, "predict_proba") or not hasattr(last, "costs_"):
        raise ValueError(f"{model} gives no probabilities or knows no costs; make it by: apportion fit.")
    table = read_data(data, machine.n_features_in_, notes.get("zero_based"))
    target = notes.get("target") or table.target
    X, _ = features(machine, table, target)
    if table.frame is not None and target is None:
        raise ValueError(
            f"{model} does not say which column holds the true classes; make it by: apportion fit."
        )
    if table.frame is not None and target not in table.frame.columns:
        raise ValueError(f"{data} must hold the true classes, in the column {target!r}.")
    column = table.labels if table.frame is None else table.frame[target]
    y = known_labels(column, machine.classes_, data)
    place = held_out_places(last, notes.get("trained_on", []), row_digests(X, y))
    if np.all(place == UNJUDGED):
        raise ValueError(
            f"{model} was trained on every row of {data} and holds none of them out; give it new data."
        )
    new, held_out = place == NEW, place >= 0
    probabilities, n_held_out = np.empty((len(y), len(machine.classes_))), int(held_out.sum())
    if new.any():
        probabilities[new] = machine.predict_proba(X[new])
    if n_held_out:
        probabilities[held_out] = last.held_out_proba_[place[held_out]]
    y, probabilities = y[new | held_out], probabilities[new | held_out]
    how = "on these data"
    if n_held_out:
        how = "cross-validated on the training data"
        if new.any():
            how = f"{n_held_out} of the {len(y)} rows, equal to rows trained on, are cross-validated, the others are new"
    if len(y) < len(place):
        how += f"; left out: {len(place) - len(y)} rows trained on and never held out"
    bright = ", by which the settings were chosen too" if n_held_out else ""
    write_report(
        out,
        y=y,
        probabilities=probabilities,
        classes=machine.classes_,
        costs=last.costs_,
        title=title,
        data_name=f"{Path(data).name}, {how}{bright}",
        model_text=_in_words(last, notes["columns"]) if "columns" in notes else repr(machine),
        unit=unit,
    )
    summary = summarize(hold(y, probabilities, machine.classes_), last.costs_)
    if as_json:
        shown = figures(summary, machine.classes_)
        answer({"report": str(out), "rows": len(y), "cross_validated": n_held_out == len(y), **shown})
        return
    console = console_for()
    show_summary(console, summary, machine.classes_, how)
    if n_held_out:
        console.print("The settings were chosen by these figures, so new data may cost a little more.")
    console.print(f"\nWritten to {out}: open it in a browser.")


NEW, UNJUDGED = -1, -2


def held_out_places(machine: Any, trained_on: list[str], digests: list[str]) -> Any:
    """(n,) where each row stands among the held-out rows of the machine; or NEW; or UNJUDGED: trained on and never held out.

    Rows are known by their digests, wherever they stand. A row that was trained on stands for one equal row; further ones are new.
    """
    import numpy as np

    judged = getattr(machine, "held_out_rows_", np.empty(0, int))
    place = np.full(len(trained_on), UNJUDGED)
    if trained_on:  # else it is not known what the machine has seen
        place[judged] = np.arange(len(judged))
    places: dict[str, list[int]] = {}
    for digest, at in zip(trained_on, place.tolist(), strict=True):
        places.setdefault(digest, []).append(at)
    return np.array([left.pop() if (left := places.get(digest)) else NEW for digest in digests])


def _in_words(machine: Any, columns: list[dict[str, str]]) -> str:
    """The model, and what became of each column."""
    return "\n".join([machine_in_words(machine), "", *(f"{c['name']}: {c['treatment']}" for c in columns)])
