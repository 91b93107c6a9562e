"""What the report says of its figures: every text and shape of the page that changes with the costs, by name.

report.js writes the same texts and shapes from the same formulas, so numbers are turned into digits by rules of our own, which
round alike in both languages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .summary import Cases, Estimate, Summary, cost_curve, matrix_of, summarize

Array = NDArray[np.float64]

PER = 1000  # costs are told per so many cases
MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"
TICKS = 4  # on the curve's axis of costs, at most
STEPS = [float(f"{digit}e{power}") for power in range(-8, 16) for digit in (1, 2, 5)]  # between them


# ---------------------------------------------------------------- digits


def fixed(x: float, digits: int) -> str:
    """x with so many decimals; halves are rounded away from zero."""
    power = 10**digits
    n = math.floor(abs(x) * power + 0.5)
    whole, part = divmod(n, power)
    sign = MINUS if x < 0 and n else ""
    return sign + str(whole) + (f".{part:0{digits}d}" if digits else "")


def grouped(text: str) -> str:
    """1234567.8 as 1,234,567.8."""
    whole, dot, part = text.partition(".")
    sign, whole = (MINUS, whole[1:]) if whole.startswith(MINUS) else ("", whole)
    return sign + f"{int(whole):,}" + dot + part


def amount(x: float) -> str:
    """Two digits that count, or all before the point: 1,235, 44, 0.044."""
    digits = 0
    while abs(x) * 10**digits < 10 and digits < 6:
        digits += 1
    return "0" if x == 0 else grouped(fixed(x, digits))


def number(x: float) -> str:
    """Four digits that count, without zeros at the end: 10, 1.342."""
    digits = 0
    while abs(x) * 10**digits < 1000 and digits < 6:
        digits += 1
    text = grouped(fixed(x, digits))
    return text.rstrip("0").rstrip(".") if "." in text else text


def share(x: float) -> str:
    return NONE if math.isnan(x) else fixed(100 * x, 1) + "%"


def percent(x: float) -> str:
    """A position or length in a drawing, of a share."""
    return fixed(100 * x, 2) + "%"


def quoted(label: str) -> str:
    """In quotation marks, and apart from the direction of the text around it."""
    return f"“\u2068{label}\u2069”"


# ---------------------------------------------------------------- the page


@dataclass(frozen=True, eq=False)
class Page:
    """What does not change with the costs."""

    cases: Cases
    labels: list[str]  # (k,)
    unit: str  # of the costs; may be empty
    levels: list[float]  # of the curve: costs, for a cost matrix factors
    at: list[float]  # their places from 0 to 1


@dataclass(frozen=True)
class Figures:
    """What changes with them."""

    texts: dict[str, str]
    shapes: dict[str, dict[str, str]]  # attributes of the element


def figures(page: Page, costs: Array, shown: int) -> Figures:
    """All texts and shapes for these costs, (k,) or (k, k); `shown` is the class of the cost curve."""
    summary = summarize(page.cases, costs)
    drawn = Figures({}, {})
    _answer(drawn, page, summary)
    _rule(drawn, page, costs)
    _confusion(drawn, page, summary, matrix_of(costs))
    _sensitivity(drawn, page, summary)
    _curve(drawn, page, summary, costs, shown)
    return drawn


def _answer(drawn: Figures, page: Page, summary: Summary) -> None:
    texts, shapes = drawn.texts, drawn.shapes

    def money(x: float) -> str:
        return amount(PER * x) + (f"\u00a0{page.unit}" if page.unit else "")

    def against(opening: str, other: Estimate, saved: Estimate) -> str:
        opening = f"{opening} {money(other.mean)}"
        if saved.low == 0 and saved.high == 0:
            return f"{opening}: the same."
        interval = f"95% interval {amount(PER * saved.low)} to {amount(PER * saved.high)}"
        chance = " This may be chance: the interval includes 0." if saved.low <= 0 <= saved.high else ""
        if saved.mean >= 0:
            part = f", or {share(saved.mean / other.mean)}" if other.mean > 0 else ""
            return f"{opening}: the model saves {money(saved.mean)}{part} ({interval}).{chance}"
        off = chance or " The probabilities of the model are not right for these cases: have them calibrated."
        return f"{opening}: {money(-saved.mean)} less than the model ({interval}).{off}"

    everyone = quoted(page.labels[summary.constant])
    texts["cost"] = money(summary.cost.mean)
    texts["interval"] = f"95% interval {amount(PER * summary.cost.low)} to {amount(PER * summary.cost.high)}"
    texts["on_constant"] = against(
        f"Without a model, the best single decision for everyone is {everyone}. It would cost",
        summary.constant_cost,
        summary.saved_on_constant,
    )
    texts["on_equal"] = against(
        "If it ignored the costs, the same model would cost", summary.equal_cost, summary.saved_on_equal
    )
    texts["bar.constant.name"] = f"No model: always {everyone}"
    bars = {"model": summary.cost, "equal": summary.equal_cost, "constant": summary.constant_cost}
    longest = max(max(estimate.high for estimate in bars.values()), 1e-300)
    for name, cost in bars.items():
        texts[f"bar.{name}.cost"] = amount(PER * cost.mean)
        texts[f"bar.{name}.interval"] = f"{amount(PER * cost.low)} to {amount(PER * cost.high)}"
        shapes[f"bar.{name}"] = {"width": percent(cost.mean / longest)}
        shapes[f"bar.{name}.reach"] = {"x1": percent(cost.low / longest), "x2": percent(cost.high / longest)}


def _rule(drawn: Figures, page: Page, costs: Array) -> None:
    """The costs in words, and what they mean for a decision."""
    labels, texts = page.labels, drawn.texts
    if costs.ndim == 2:
        off = [(y, j) for y in range(len(costs)) for j in range(len(costs)) if y != j]
        high, low = max(off, key=lambda at: costs[at]), min(off, key=lambda at: costs[at])
        texts["ratio"] = (
            f"The dearest error is taking {quoted(labels[high[0]])} for {quoted(labels[high[1]])}: it costs "
            f"{number(float(costs[high]))}. The cheapest, taking {quoted(labels[low[0]])} for "
            f"{quoted(labels[low[1]])}, costs {number(float(costs[low]))}."
        )
        texts["rule"] = "Each case gets the decision whose expected cost is least."
        return
    theta = costs.tolist()
    high_class, low_class = theta.index(max(theta)), theta.index(min(theta))
    dear, cheap = theta[high_class], theta[low_class]
    texts["ratio"] = (
        "All errors cost the same."
        if dear == cheap
        else f"One error on {quoted(labels[high_class])} weighs as much as {number(dear / cheap)} on {quoted(labels[low_class])}."
    )
    if len(theta) > 2:
        texts["rule"] = "Each case gets the decision whose expected cost is least."
        return
    threshold = theta[1 - high_class] / (theta[0] + theta[1])
    texts["rule"] = (
        f"So the decision is {quoted(labels[high_class])} once its probability passes {share(threshold)}."
    )


def _confusion(drawn: Figures, page: Page, summary: Summary, c: Array) -> None:
    texts, shapes, cases = drawn.texts, drawn.shapes, page.cases
    k = len(c)
    times, cost = np.zeros((k, k)), np.zeros((k, k))
    total = 0.0
    for y in range(k):
        scale = int(cases.totals[y]) / int(cases.kept[y]) if cases.kept[y] else 0.0
        for j in range(k):
            times[y, j] = scale * int(summary.counts[y, j])
            cost[y, j] = times[y, j] * c[y, j]
            total += cost[y, j]
    dearest = float(cost.max())
    for y in range(k):
        for j in range(k):
            texts[f"n.{y}.{j}"] = grouped(fixed(times[y, j], 0))
            if y != j:
                texts[f"c.{y}.{j}"] = f"cost {number(cost[y, j])}"
                level = 1 + math.floor(3.999 * cost[y, j] / dearest) if cost[y, j] > 0 else 0
                shapes[f"cell.{y}.{j}"] = {"data-level": str(level)}
    texts["total"] = number(total)
    for j in range(k):
        texts[f"predictive.{j}"] = share(summary.predictive[j])


def _sensitivity(drawn: Figures, page: Page, summary: Summary) -> None:
    texts, shapes, cases = drawn.texts, drawn.shapes, page.cases
    for y, found in enumerate(summary.sensitivity):
        total, kept = int(cases.totals[y]), int(cases.kept[y])
        ignored = summary.equal_sensitivity[y]
        texts[f"found.{y}"] = share(found.mean)
        if not kept:
            texts[f"found.{y}.of"] = "no cases"
            continue
        right = grouped(fixed(total / kept * int(summary.counts[y, y]), 0))
        texts[f"found.{y}.of"] = f"{right} of {grouped(str(total))}"
        texts[f"found.{y}.interval"] = f"95% interval {share(found.low)} to {share(found.high)}"
        texts[f"found.{y}.equal"] = f"costs ignored: {share(ignored)}"
        shapes[f"found.{y}.bar"] = {"width": percent(found.mean)}
        shapes[f"found.{y}.reach"] = {"x1": percent(found.low), "x2": percent(found.high)}
        shapes[f"found.{y}.mark"] = {"x1": percent(ignored), "x2": percent(ignored)}


def _curve(drawn: Figures, page: Page, summary: Summary, costs: Array, shown: int) -> None:
    texts, shapes = drawn.texts, drawn.shapes
    curve = cost_curve(page.cases, costs, shown, page.levels)
    highest = PER * max(float(curve.model.max()), float(curve.constant.max()))
    step = next((step for step in STEPS if TICKS * step >= highest), STEPS[-1])
    top = max(1.04 * highest, step)

    def path(costs: Array) -> str:  # in a box of 1000 x 1000, y downwards
        points = [
            f"{fixed(1000 * at, 1)} {fixed(1000 - 1000 * min(PER * float(cost) / top, 2.0), 1).replace(MINUS, '-')}"
            for at, cost in zip(page.at, costs, strict=True)
        ]
        return "M" + "L".join(points)

    for name, line in (("model", curve.model), ("equal", curve.equal), ("constant", curve.constant)):
        shapes[f"curve.{name}"] = {"d": path(line)}
    for i in range(1, TICKS + 1):
        at = step * i / top
        here = "visible" if at <= 1 else "hidden"
        texts[f"tick.{i}"] = number(step * i)
        shapes[f"tick.{i}"] = {"y": percent(1 - min(at, 1.0)), "visibility": here}
        shapes[f"grid.{i}"] = {
            "y1": percent(1 - min(at, 1.0)),
            "y2": percent(1 - min(at, 1.0)),
            "visibility": here,
        }
    x = place(page, float(costs[shown]) if costs.ndim == 1 else 1.0)
    shapes["now"] = {"x1": percent(x), "x2": percent(x)}
    # a cost that was typed may lie beyond the levels, and its dot above the drawing
    shapes["dot"] = {"cx": percent(x), "cy": percent(max(1 - PER * summary.cost.mean / top, 0.0))}
    label = quoted(page.labels[shown])
    texts["curve.x"] = (
        f"what an error on {label} costs, the others as set above"
        if costs.ndim == 1
        else f"all costs of errors on {label}, times what is set above"
    )


def place(page: Page, level: float) -> float:
    """Where a level lies between those of the curve, from 0 to 1."""
    levels, at = page.levels, page.at
    if level <= levels[0]:
        return at[0]
    for i in range(1, len(levels)):
        if level <= levels[i]:
            return at[i - 1] + (at[i] - at[i - 1]) * (level - levels[i - 1]) / (levels[i] - levels[i - 1])
    return at[-1]
