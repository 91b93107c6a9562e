"""The parts of the report's page as HTML, with the figures of the costs given. Everything from data is escaped."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from html import escape

import numpy as np
from numpy.typing import NDArray

from .wording import TICKS, Figures, Page, grouped, number, percent, place, quoted

Array = NDArray[np.float64]
LEAST, MOST = 1e-4, 1e9  # costs that four digits can tell apart on a page
Text = Callable[..., str]


def printable(text: str) -> str:
    """Text without control characters, save line ends, and without lone surrogates, which no file can hold."""
    return "".join(
        "\ufffd" if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t" else char
        for char in text
    )


def _shape(drawn: Figures, name: str, tag: str, attributes: str) -> str:
    """An SVG element that changes with the costs."""
    own = " ".join(f'{key}="{escape(value)}"' for key, value in drawn.shapes.get(name, {}).items())
    mark = f'data-s="{name}" ' if name in drawn.shapes else ""
    return f"<{tag} {mark}{attributes} {own}/>"


def _label(page: Page, c: int) -> str:
    return f"<bdi>{escape(page.labels[c])}</bdi>"


def _narrow(page: Page, c: int) -> str:
    """A label that may be broken after every 14 characters."""
    words = page.labels[c].split(" ")
    pieces = ("<wbr>".join(escape(word[i : i + 14]) for i in range(0, len(word), 14)) for word in words)
    return f"<bdi>{' '.join(pieces)}</bdi>"


def _number_field(cost: float, name: str, where: str, least: float) -> str:
    written = number(cost).replace(",", "")
    return (
        f'<input type="number" inputmode="decimal" step="any" min="{least:g}" max="{MOST:.0f}" value="{written}" '
        f'aria-label="{escape(name)}" {where}>'
    )


def sliders(page: Page, costs: Array) -> str:
    parts = []
    for c, cost in enumerate(costs.tolist()):
        other = f"“{_label(page, 1 - c)}”" if len(costs) == 2 else "any other class"
        name = f"cost of an error on {quoted(page.labels[c])}"
        parts.append(
            f'<div class="cost"><label for="cost-{c}">Taking “{_label(page, c)}” for {other} costs</label>'
            f'<div class="dial"><input type="range" class="live" id="cost-{c}" min="0" max="{len(page.levels) - 1}" step="1" '
            f'value="{page.levels.index(cost)}" aria-valuetext="{number(cost)}" data-y="{c}">'
            + _number_field(cost, name, f'data-y="{c}"', LEAST)
            + (f" <span><bdi>{escape(page.unit)}</bdi></span>" if page.unit else "")
            + "</div></div>"
        )
    return "\n".join(parts)


def _table(page: Page, body: Callable[[int, int], str], row: Callable[[int], str], foot: str = "") -> str:
    """True classes down, decisions across."""
    k = len(page.labels)
    head = "".join(f'<th scope="col">{_narrow(page, j)}</th>' for j in range(k))
    rows = "\n".join(
        f'<tr><th scope="row">{row(y)}</th>{"".join(body(y, j) for j in range(k))}</tr>' for y in range(k)
    )
    return (
        f'<thead><tr><td></td><th class="axis" colspan="{k}" scope="colgroup">decided</th></tr>'
        f'<tr><th class="axis" scope="col">truly</th>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>{foot}'
    )


def fields(page: Page, costs: Array) -> str:
    def cell(y: int, j: int) -> str:
        if y == j:
            return '<td class="right">0</td>'
        name = f"cost of taking {quoted(page.labels[y])} for {quoted(page.labels[j])}"
        where = f'data-y="{y}" data-j="{j}"'
        return f"<td>{_number_field(float(costs[y, j]), name, where, 0)}</td>"

    return f'<div class="scroll"><table class="grid">{_table(page, cell, lambda y: _narrow(page, y))}</table></div>'


def bars(drawn: Figures, text: Text) -> str:
    names = {
        "model": "<span>This model with these costs</span>",
        "equal": "<span>The same model, the costs ignored</span>",
        "constant": text("bar.constant.name"),
    }
    return "\n".join(
        f'<div class="bar"><p class="name">{name}{text(f"bar.{key}.cost", "b")}</p>'
        '<svg height="20" aria-hidden="true"><rect class="track" y="3" width="100%" height="14" rx="3"/>'
        + _shape(drawn, f"bar.{key}", "rect", f'class="fill-{key}" y="3" height="14" rx="3"')
        + _shape(drawn, f"bar.{key}.reach", "line", 'class="reach" y1="10" y2="10"')
        + f"</svg><small>{text(f'bar.{key}.interval')}</small></div>"
        for key, name in names.items()
    )


def confusion(page: Page, drawn: Figures, text: Text) -> str:
    def cell(y: int, j: int) -> str:
        count = text(f"n.{y}.{j}", "b")
        if y == j:
            return f'<td class="right">{count}<small>right</small></td>'
        level = drawn.shapes[f"cell.{y}.{j}"]["data-level"]
        return f'<td data-s="cell.{y}.{j}" data-level="{level}">{count}{text(f"c.{y}.{j}", "small")}</td>'

    def row(y: int) -> str:
        return f"{_narrow(page, y)}<small>{grouped(str(int(page.cases.totals[y])))} cases</small>"

    right = "".join(text(f"predictive.{j}", "td") for j in range(len(page.labels)))
    foot = f'<tfoot><tr><th scope="row">right when so decided</th>{right}</tr></tfoot>'
    table = f"<table>{_table(page, cell, row, foot)}</table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Table of decisions">{table}</div>'


def sensitivity(page: Page, drawn: Figures, text: Text) -> str:
    parts = []
    for y in range(len(page.labels)):
        name = f'<p class="name"><span>{_label(page, y)} <small>{text(f"found.{y}.of")}</small></span>{text(f"found.{y}", "b")}</p>'
        if f"found.{y}.bar" not in drawn.shapes:
            parts.append(f'<div class="bar">{name}</div>')
            continue
        parts.append(
            f'<div class="bar">{name}<svg height="20" aria-hidden="true">'
            '<rect class="track" y="3" width="100%" height="14" rx="3"/>'
            + _shape(drawn, f"found.{y}.bar", "rect", 'class="fill-model" y="3" height="14" rx="3"')
            + _shape(drawn, f"found.{y}.reach", "line", 'class="reach" y1="10" y2="10"')
            + _shape(drawn, f"found.{y}.mark", "line", 'class="mark" y1="0" y2="20"')
            + f"</svg><small>{text(f'found.{y}.interval')}; {text(f'found.{y}.equal')}</small></div>"
        )
    return "\n".join(parts)


def curve(page: Page, drawn: Figures, text: Text, shown: int) -> str:
    options = "".join(
        f'<option value="{c}"{" selected" if c == shown else ""}>{escape(label)}</option>'
        for c, label in enumerate(page.labels)
    )
    keys = {
        "model": "this model, decided with that cost",
        "equal": "the same model, the costs ignored",
        "constant": "no model, the best single decision",
    }
    legend = "".join(
        f'<li><svg aria-hidden="true"><line class="line line-{key}" y1="50%" x2="100%" y2="50%"/></svg>{words}</li>'
        for key, words in keys.items()
    )
    grid = "".join(
        _shape(drawn, f"grid.{i}", "line", 'class="grid-line" x2="100%"') for i in range(1, TICKS + 1)
    )
    lines = "".join(
        _shape(drawn, f"curve.{key}", "path", f'class="line line-{key}"')
        for key in ("constant", "equal", "model")
    )
    at = drawn.shapes
    ticks = "".join(
        text(
            f"tick.{i}",
            "text",
            f' data-s="tick.{i}" y="{at[f"tick.{i}"]["y"]}" visibility="{at[f"tick.{i}"]["visibility"]}" dy="-4"',
        )
        for i in range(1, TICKS + 1)
    )
    decades = [level for level in page.levels if abs(math.log10(level) - round(math.log10(level))) < 1e-9]
    below = "".join(
        f'<text x="{percent(place(page, level))}" y="15" text-anchor="{_anchor(place(page, level))}">{number(level)}</text>'
        for level in decades
    )
    return (
        f'<p class="pick live"><label for="pick">Errors on</label> <select id="pick">{options}</select></p>'
        f'<ul class="keys">{legend}</ul>\n<div class="plot"><svg height="260" role="img" aria-label="Cost of the errors against '
        f'the cost of one error">{grid}<line class="base" x2="100%" y1="100%" y2="100%"/>'
        f'<svg width="100%" height="100%" viewBox="0 0 1000 1000" preserveAspectRatio="none">{lines}</svg>'
        + _shape(drawn, "now", "line", 'class="now" y1="0" y2="100%"')
        + f"{ticks}"
        + _shape(drawn, "dot", "circle", 'class="dot" r="7"')
        + f'</svg>\n<svg height="20" aria-hidden="true">{below}</svg>{text("curve.x", "p", " class=x")}</div>'
    )


def _anchor(at: float) -> str:
    return "start" if at < 0.02 else "end" if at > 0.98 else "middle"


def notes(page: Page, model_text: str) -> str:
    cases = page.cases
    notes = [
        "The figures are as good as the cases: each must be decided by a model that was not trained on it, and the cases to come "
        "must be like them. Where the settings of the model were chosen by these cases, new ones may cost a little more.",
        "A decision is the one whose expected cost, by the probabilities the model gives, is least. So other costs need no "
        "other model, only other decisions: this is what the sliders do.",
        "A 95% interval says how far chance in the draw of the cases may have moved a figure. Costs: the gamma interval of Fay "
        "and Feuer, sound for few errors too. Savings: the normal interval of the differences, case by case. Sensitivity: "
        "the interval of Wilson.",
        "Only the ratios of the costs matter for the decisions.",
    ]
    if int(cases.kept.sum()) < int(cases.totals.sum()):
        notes.append(
            f"To stay small, this page holds {grouped(str(int(cases.kept.sum())))} of the {grouped(str(int(cases.totals.sum())))} "
            "cases, drawn at random within each class, rare classes whole: "
            + ", ".join(
                f"{grouped(str(m))} of {grouped(str(n))} of {quoted(label)}"
                for m, n, label in zip(cases.kept.tolist(), cases.totals.tolist(), page.labels, strict=True)
                if m < n
            )
            + ". Counts and costs are scaled up to all cases; the intervals allow for the smaller number."
        )
    notes.append(
        "This file needs no network and sends nothing. Of each case it holds its class and its probabilities, nothing else."
    )
    model = printable(model_text).strip()
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<ul>{listed}</ul>" + (f"<pre>{escape(model)}</pre>" if model else "")
