"""apportion predict: decisions on new rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .application import Data, Json, Model, app
from .data import check_place, read_data
from .screen import answer, console_for, remark

if TYPE_CHECKING:
    from ..frames import Table


@app.command()
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The CSV file to write; without it, to stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide on new rows: their columns in any order, then the decision and the probability of each class."""
    if out is not None:
        check_place(out, data, model)
    import numpy as np
    import pandas as pd

    from ..files import write_whole

    machine, notes = load_model(model)
    table = read_data(data, machine.n_features_in_, notes.get("zero_based"))
    X, said = features(machine, table, notes.get("target"))
    for line in (*table.said, *said):
        remark(line)
    decided = machine.predict(X)
    classes = machine.classes_.tolist()
    shares = machine.predict_proba(X) if hasattr(machine, "predict_proba") else np.empty((len(decided), 0))
    frame = pd.DataFrame(index=range(len(decided))) if table.frame is None else table.frame.copy()
    new = {
        "decision": decided,
        **{f"probability of {c}": share for c, share in zip(classes, shares.T, strict=False)},
    }
    for name, values in new.items():
        while name in frame.columns:
            name += "_"
        frame[name] = values
    text = frame.to_csv(index=False, lineterminator="\n")
    if out is not None:
        write_whole(out, text.encode())
    if as_json:
        answer({"classes": classes, "decisions": decided.tolist(), "probabilities": shares.tolist()})
        return
    if out is None:
        sys.stdout.write(text)
        return
    counts = {c: int((decided == c).sum()) for c in classes}
    found = ", ".join(f"{count} {c}" for c, count in counts.items())
    console_for().print(f"{len(decided)} rows: {found}. Written to {out}.")


def load_model(path: Path) -> tuple[Any, dict[str, Any]]:
    """(a fitted classifier, the notes saved with it)."""
    from sklearn.utils.validation import check_is_fitted

    from ..persist import load, read_notes

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; make a model by: apportion fit.")
    machine, notes = load(path), read_notes(path)
    if not hasattr(machine, "predict") or not hasattr(machine, "classes_"):
        raise ValueError(
            f"{path} holds a {type(machine).__name__}, which does not decide; fit a model first."
        )
    check_is_fitted(machine)
    return machine, notes


def features(machine: Any, table: Table, target: str | None) -> tuple[Any, list[str]]:
    """(what the model takes of a table, what to tell the user)."""
    from ..frames import align

    prepare = machine[0] if hasattr(machine, "steps") else machine
    if table.frame is None:
        if hasattr(prepare, "feature_names_in_"):
            raise ValueError(f"the model needs named columns, which {table.name} (svmlight) does not have.")
        return table.rows, []
    if not hasattr(prepare, "feature_names_in_"):
        raise ValueError(
            f"the model was trained on an svmlight file or a bare array, without names; {table.name} must be svmlight too."
        )
    frame = table.frame
    return align(frame.drop(columns=target) if target in frame.columns else frame, prepare)
