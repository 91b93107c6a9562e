"""The report: one HTML file that shows someone who does not program what the errors of a model will cost.

It needs no network and no other file. The figures are written by Python, so that a preview without scripts shows them; with
scripts, every cost has a slider, and the page decides all held-out cases anew and rewrites every figure.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import math
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import __version__
from ..costs import Costs, check_costs
from ..files import write_whole
from . import markup
from .markup import LEAST, MOST, printable
from .summary import UNIT, Z, hold
from .wording import PER, STEPS, TICKS, Page, figures, grouped

Array = NDArray[np.float64]

DIGITS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)  # of the levels a slider has, in each decade


def write_report(
    path: str | os.PathLike[str],
    *,
    y: ArrayLike,
    probabilities: ArrayLike,
    classes: ArrayLike,
    costs: Any = None,
    title: str = "What the errors will cost",
    data_name: str = "",
    model_text: str = "",
    unit: str = "",
    max_rows: int = 20_000,
) -> Path:
    """Write the report on held-out cases.

    Parameters
    ----------
    path : path
        The HTML file. It is replaced only once the new one is whole.
    y : array of shape (n,)
        True labels of cases that were not used to train the model.
    probabilities : array of shape (n, k)
        Probability of each class for each case; rows sum to 1. They are rounded to millionths.
    classes : array of shape (k,)
        The labels, in the order of the columns.
    costs : None, "balanced", dict, Series, array of shape (k,) or (k, k), or DataFrame
        What errors cost, as in `expected_cost`; between 0.0001 and 1e9, or 0 in a matrix. The reader can change them.
    title, data_name, model_text : str
        Shown as plain text: the heading, the data or their file, a description of the model.
    unit : str
        Of the costs, such as "EUR".
    max_rows : int, default=20_000
        Of more cases the page holds a sample of so many, which keeps rare classes whole; counts are scaled up, and the page
        says so.

    Returns
    -------
    path : Path

    Examples
    --------
    >>> import os, tempfile
    >>> from apportion.show import write_report
    >>> file = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> y, probabilities = ["ill", "well", "well"], [[0.3, 0.7], [0.2, 0.8], [0, 1]]
    >>> costs = {"ill": 5, "well": 1}
    >>> write_report(file, y=y, probabilities=probabilities, classes=["ill", "well"], costs=costs).name
    'report.html'
    """
    for name, text in (
        ("title", title),
        ("data_name", data_name),
        ("model_text", model_text),
        ("unit", unit),
    ):
        if not isinstance(text, str):
            raise ValueError(f"{name}={text!r} must be a string.")
    page, checked = make_page(y, probabilities, classes, costs, unit, max_rows)
    text = _html(page, checked.array, one_line(title), one_line(data_name, ""), model_text)
    write_whole(path, text.encode())
    return Path(path)


def write_model_report(
    path: str | os.PathLike[str], model: Any, X: Any, y: ArrayLike, *, costs: Any = None, **options: Any
) -> Path:
    """Write the report of a fitted model with `predict_proba` on cases it was not trained on.

    Parameters
    ----------
    path : path
        The HTML file.
    model : fitted classifier, pipeline or search
    X : array, sparse matrix or DataFrame of shape (n, d)
    y : array of shape (n,)
    costs : as in `write_report`, optional
        By default the costs that the model was trained with, `costs_`.
    **options
        As in `write_report`. `model_text` is by default the model as scikit-learn prints it.

    Returns
    -------
    path : Path
    """
    if not hasattr(model, "predict_proba"):
        raise ValueError(
            f"model={model!r} has no predict_proba, which the report needs; use ApportionedSVCCV, or wrap the model in "
            "sklearn.calibration.CalibratedClassifierCV."
        )
    return write_report(
        path,
        y=y,
        probabilities=model.predict_proba(X),
        classes=model.classes_,
        costs=_costs_of(model) if costs is None else costs,
        **{"model_text": repr(model), **options},
    )


def make_page(
    y: ArrayLike, probabilities: ArrayLike, classes: ArrayLike, costs: Any, unit: str, max_rows: int
) -> tuple[Page, Costs]:
    """What the page holds, and the checked costs it starts with."""
    cases = hold(y, probabilities, classes, max_rows)
    checked = check_costs(costs, classes, class_counts=cases.totals)
    labels = [one_line(label) for label in np.asarray(classes).tolist()]
    return Page(cases, labels, one_line(unit, ""), *_levels(checked)), checked


def _costs_of(model: Any) -> Any:
    if hasattr(model, "costs_"):
        return model.costs_
    if hasattr(model, "best_estimator_"):
        return _costs_of(model.best_estimator_)
    if hasattr(model, "steps"):
        return _costs_of(model[-1])
    raise ValueError(f"model={model!r} has no costs_; say with costs= what errors cost.")


def _levels(costs: Costs) -> tuple[list[float], list[float]]:
    """Costs that sliders stop at and the curve is drawn through (for a matrix: factors), and their places from 0 to 1."""
    given = costs.array[costs.array > 0]
    if given.min() < LEAST or given.max() > MOST:
        bad = given.min() if given.min() < LEAST else given.max()
        raise ValueError(
            f"costs holds {bad:g}; the report can show costs from {LEAST:g} to {MOST:g}: scale them, only their ratios matter."
        )
    if costs.theta is None:
        given, first, last = np.array([1.0]), -2, 2
    else:  # at least a tenth of the least, and 30 times the largest
        first, last = math.floor(math.log10(given.min() / 10)), math.ceil(math.log10(given.max() * 30))
    grid = [float(f"{digit}e{power}") for power in range(first, last) for digit in DIGITS]
    levels = sorted({*grid, float(f"1e{last}"), *given.tolist()})
    span = math.log(levels[-1] / levels[0])
    return levels, [round(math.log(level / levels[0]) / span, 4) for level in levels]


# ---------------------------------------------------------------- the file


def one_line(value: Any, empty: str = "(empty)") -> str:
    """Text from data as one line that can be shown: no control characters, no lone surrogates."""
    return printable(" ".join(str(value).split())) or empty


def _json(value: Any) -> str:
    """JSON that can stand in a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _html(page: Page, costs: Array, title: str, data_name: str, model_text: str) -> str:
    cases, vector = page.cases, costs.ndim == 1
    shown = int((costs if vector else costs.max(axis=1)).argmax())
    drawn = figures(page, costs, shown)

    def text(name: str, tag: str = "span", also: str = "") -> str:
        return f'<{tag} data-t="{name}"{also}>{escape(drawn.texts[name])}</{tag}>'

    folder = files(__package__)
    style, script, template = (
        (folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js", "html")
    )
    n = grouped(str(int(cases.totals.sum())))
    data = {
        "labels": page.labels,
        "unit": page.unit,
        "vector": vector,
        "costs": costs.tolist(),
        "shown": shown,
        "totals": cases.totals.tolist(),
        "kept": cases.kept.tolist(),
        "levels": page.levels,
        "at": page.at,
        "parts": UNIT,
        "z": Z,
        "per": PER,
        "ticks": TICKS,
        "steps": STEPS,
        "P": cases.P[:, :-1].astype(int).ravel().tolist(),
    }
    return Template(template).substitute(
        script_hash=_hash(script),
        style_hash=_hash(style),
        style=style,
        script=script,
        data=_json(data),
        title=escape(title),
        about=" · ".join(
            [*([f"<bdi>{escape(data_name)}</bdi>"] if data_name else []), f"{n} held-out cases"]
        ),
        how="Move a slider or type a cost." if vector else "Type other costs.",
        kind=" ".join(["many"] * (len(page.labels) > 3) + ["table"] * (not vector and len(page.labels) > 3)),
        n=n,
        per=f"{PER:,}",
        in_unit=f" in <bdi>{escape(page.unit)}</bdi>" if page.unit else "",
        **{
            name: text(name)
            for name in ("cost", "interval", "on_constant", "on_equal", "ratio", "rule", "total")
        },
        controls=markup.sliders(page, costs) if vector else markup.fields(page, costs),
        bars=markup.bars(drawn, text),
        confusion=markup.confusion(page, drawn, text),
        sensitivity=markup.sensitivity(page, drawn, text),
        curve=markup.curve(page, drawn, text, shown),
        notes=markup.notes(page, model_text),
        made=f"Written by apportion {__version__} on {datetime.date.today()}.",
    )
