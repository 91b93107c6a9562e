"""What the errors on held-out cases will cost, in numbers: `summarize`.

The report's page computes the same figures anew whenever a cost is changed, so this module is written to be mirrored, line by
line, by report.js: whole numbers where possible, sums in a fixed order, and nothing but + - * / and square roots, which every
machine rounds alike. Both therefore agree to the last digit shown.

    P_iy      probability of class y for case i, in parts of UNIT
    c_yj      cost of deciding j where y is true
    decision  argmin_j sum_y P_iy c_yj, the first of equal ones (the Bayes rule)
    n_y, m_y  cases of class y in the data, and in the page, which holds a sample of large data
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..costs import _names

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Labels = NDArray[Any]

UNIT = 1_000_000  # probabilities are kept as whole numbers of millionths
Z = 1.959963984540054  # of 95 % intervals


# ---------------------------------------------------------------- the held-out cases


@dataclass(frozen=True, eq=False)
class Cases:
    """Held-out cases, ordered by class."""

    totals: Index  # (k,) n_y
    kept: Index  # (k,) m_y
    y: Index  # (m,) the true classes, ascending
    P: Array  # (m, k) whole numbers >= 0; each row sums to UNIT


def hold(y: ArrayLike, probabilities: ArrayLike, classes: Any, max_rows: int = 20_000) -> Cases:
    """Check the held-out cases, round their probabilities, draw a sample where there are more than `max_rows`.

    The sample keeps rare classes whole: every class may have the same number of rows, and what some do not need is shared by
    the others.
    """
    names = np.asarray(classes)
    labels, P = np.asarray(y), np.asarray(probabilities, dtype=float)
    if names.ndim != 1 or len(names) < 2:
        raise ValueError(f"classes={classes!r} must hold at least two labels.")
    k = len(names)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"y has shape {labels.shape}; it must hold at least one label, shape (n,).")
    if P.shape != (len(labels), k):
        raise ValueError(
            f"probabilities has shape {P.shape}; with {len(labels)} labels and {k} classes it must be ({len(labels)}, {k})."
        )
    bad = ~(np.isfinite(P) & (P >= 0)).all(axis=1) | ~(np.abs(P.sum(axis=1) - 1) <= 1e-3)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"probabilities[{i}] is {P[i].tolist()}; a row must hold numbers >= 0 that sum to 1."
        )
    if not isinstance(max_rows, (int, np.integer)) or isinstance(max_rows, bool) or max_rows < k:
        raise ValueError(f"max_rows={max_rows!r} must be a whole number >= {k}, the number of classes.")
    at = positions(labels, names)
    totals = np.bincount(at, minlength=k)
    rng = np.random.default_rng(0)
    kept, rows = _quotas(totals, max_rows), []
    for c, quota in enumerate(kept):
        members = np.flatnonzero(at == c)
        rows.append(members if quota == len(members) else np.sort(rng.choice(members, quota, replace=False)))
    chosen = np.concatenate(rows)
    return Cases(totals, kept, at[chosen], _whole(P[chosen]))


def positions(y: ArrayLike, classes: Labels) -> Index:
    """(n,) where each label of `y` stands among the classes, in whatever order these are."""
    place = {label: c for c, label in enumerate(classes.tolist())}
    if len(place) < len(classes):
        raise ValueError(f"classes={_names(classes)} names a class twice; each must stand there once.")
    labels = np.asarray(y).tolist()
    unknown = [label for label in labels if label not in place]
    if unknown:
        raise ValueError(f"y holds {unknown[0]!r}, which is not among the classes {_names(classes)}.")
    return np.array([place[label] for label in labels], dtype=np.intp)


def _quotas(totals: Index, most: int) -> Index:
    """(k,) min(n_y, q), with the largest q whose sum is at most `most`; the largest classes share what is left over."""
    if totals.sum() <= most:
        return totals
    quotas, left = np.zeros_like(totals), most
    order = np.argsort(totals, kind="stable")
    for done, c in enumerate(order):
        quotas[c] = min(totals[c], left // (len(order) - done))
        left -= quotas[c]
    return quotas


def _whole(P: Array) -> Array:
    """Whole numbers that sum to UNIT in each row, by largest remainders."""
    exact = P / P.sum(axis=1, keepdims=True) * UNIT
    whole = np.floor(exact)
    missing = UNIT - whole.sum(axis=1, keepdims=True)
    rank = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    return whole + (rank < missing)


# ---------------------------------------------------------------- decisions


def decide(P: Array, costs: Array) -> Index:
    """(m,) the decision of least expected cost; `costs` is the (k, k) matrix."""
    risk = np.zeros_like(P)
    for y in range(
        len(costs)
    ):  # one class after the other, not a matrix product: the order of the sum is fixed
        risk += P[:, y : y + 1] * costs[y]
    return risk.argmin(axis=1)


def tally(y: Index, decided: Index, k: int) -> Index:
    """(k, k) cases by true class and decision."""
    return np.bincount(y * k + decided, minlength=k * k).reshape(k, k)


def matrix_of(costs: Array) -> Array:
    """(k, k): a vector means that every error on a class costs the same."""
    return costs[:, None] * (1.0 - np.eye(len(costs))) if costs.ndim == 1 else costs


# ---------------------------------------------------------------- means and intervals


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def mean_and_variance(
    cases: Cases, values: list[list[float]], counts: list[list[int]]
) -> tuple[float, float]:
    """The mean of a quantity over all cases, and the variance of that mean.

    values, counts : (k, r)
        Class y holds counts[y][r] kept cases whose quantity is values[y][r].

    With mu_y and s_y^2 the mean and variance within class y and p_y = n_y / n, the mean is mu = sum_y p_y mu_y, and its variance
    sum_y p_y^2 s_y^2 / m_y + (sum_y p_y mu_y^2 - mu^2) / n: that of a mean of n cases where all are kept.
    """
    n = int(cases.totals.sum())
    total = within = between = 0.0
    for n_y, m_y, own, count in zip(cases.totals.tolist(), cases.kept.tolist(), values, counts, strict=True):
        if n_y == 0:
            continue
        first = second = 0.0
        for value, times in zip(own, count, strict=True):
            first += times * value
            second += times * value * value
        mu, p = first / m_y, n_y / n
        total += n_y / m_y * first
        within += p * p * max(second / m_y - mu * mu, 0.0) / m_y
        between += p * mu * mu
    mean = total / n
    return mean, within + max(between - mean * mean, 0.0) / n


def cost_interval(
    mean: float, variance: float, step: float, largest: float = math.inf, back: float = 0.0
) -> Estimate:
    """The gamma interval of Fay and Feuer (1997) for a mean cost; `step` is what one more of the dearest errors adds to it.

    Right also for few errors, and for none, where a normal interval would be a point. The quantile of the gamma distribution
    with shape a is taken by Wilson and Hilferty: mean (1 - 1 / 9a + z / 3 sqrt(a))^3. No case costs more than `largest`. Above
    half of it the cases that cost less are the few: the interval is that of largest - cost, to which one more case without cost
    adds `back`.
    """

    def quantile(mean: float, variance: float, z: float) -> float:
        if variance <= 0 or mean <= 0:
            return mean
        a = mean * mean / variance
        root = max(1 - 1 / (9 * a) + z / (3 * math.sqrt(a)), 0.0)
        return mean * root * root * root

    if mean > largest / 2:
        rest = max(largest - mean, 0.0)
        low = largest - quantile(rest + back, variance + back * back, Z)
        return Estimate(mean, max(low, 0.0), largest - quantile(rest, variance, -Z))
    high = quantile(mean + step, variance + step * step, Z)
    return Estimate(mean, quantile(mean, variance, -Z), min(high, largest))


def share_interval(found: int, cases: int) -> Estimate:
    """Wilson's interval for a share; NaN throughout where there are no cases."""
    if cases == 0:
        return Estimate(math.nan, math.nan, math.nan)
    p, z2 = found / cases, Z * Z
    middle = (p + z2 / (2 * cases)) / (1 + z2 / cases)
    reach = Z * math.sqrt(p * (1 - p) / cases + z2 / (4 * cases * cases)) / (1 + z2 / cases)
    low, high = max(middle - reach, 0.0), min(middle + reach, 1.0)
    return Estimate(p, 0.0 if found == 0 else low, 1.0 if found == cases else high)


# ---------------------------------------------------------------- all figures


@dataclass(frozen=True, eq=False)
class Summary:
    """The figures of one set of costs; all means are per case."""

    counts: Index  # (k, k) kept cases by true class and decision
    equal_counts: Index  # (k, k) the same where the costs are ignored
    constant: int  # the one decision for everyone that costs least
    cost: Estimate
    equal_cost: Estimate  # the same probabilities, decided as if all errors cost the same
    constant_cost: Estimate
    saved_on_equal: Estimate  # cost less than with equal costs; normal interval of the paired differences
    saved_on_constant: Estimate
    sensitivity: list[Estimate]  # (k,)
    equal_sensitivity: list[float]  # (k,)
    predictive: list[float]  # (k,) share of the cases decided j that are j; NaN where none is


def summarize(cases: Cases, costs: Array) -> Summary:
    """Every figure of the report for these costs, a vector (k,) or a matrix (k, k)."""
    c = matrix_of(costs)
    k, n = len(c), int(cases.totals.sum())
    decided, equal = decide(cases.P, c), decide(cases.P, 1.0 - np.eye(k))
    counts, equal_counts = tally(cases.y, decided, k), tally(cases.y, equal, k)
    everywhere = constant_costs(cases, c)
    constant = everywhere.index(min(everywhere))
    scale = [
        n_y / m_y if m_y else 0.0 for n_y, m_y in zip(cases.totals.tolist(), cases.kept.tolist(), strict=True)
    ]
    dearest = max(s * float(row.max()) for s, row in zip(scale, c, strict=True)) / n
    dearest_constant = max(s * float(row[constant]) for s, row in zip(scale, c, strict=True)) / n
    largest, largest_constant = float(c.max()), float(c[:, constant].max())
    heaviest = max(scale) / n  # what a case counts for at most
    most, most_constant = (largest, heaviest * largest), (largest_constant, heaviest * largest_constant)

    rows = c.tolist()
    fixed = [[row[constant]] for row in rows]
    everyone = [[m_y] for m_y in cases.kept.tolist()]
    joint = np.bincount((cases.y * k + equal) * k + decided, minlength=k**3).reshape(k, k * k)
    on_equal = [[row[e] - row[j] for e in range(k) for j in range(k)] for row in rows]
    on_constant = [[row[constant] - cost for cost in row] for row in rows]

    def paired(values: list[list[float]], times: list[list[int]]) -> Estimate:
        mean, variance = mean_and_variance(cases, values, times)
        reach = Z * math.sqrt(variance)
        return Estimate(mean, mean - reach, mean + reach)

    column = [0.0] * k  # not sum(): newer Pythons compensate its rounding, JavaScript does not
    for s, times in zip(scale, counts.tolist(), strict=True):
        for j in range(k):
            column[j] += s * times[j]
    return Summary(
        counts=counts,
        equal_counts=equal_counts,
        constant=constant,
        cost=cost_interval(*mean_and_variance(cases, rows, counts.tolist()), dearest, *most),
        equal_cost=cost_interval(*mean_and_variance(cases, rows, equal_counts.tolist()), dearest, *most),
        constant_cost=cost_interval(
            *mean_and_variance(cases, fixed, everyone), dearest_constant, *most_constant
        ),
        saved_on_equal=paired(on_equal, joint.tolist()),
        saved_on_constant=paired(on_constant, counts.tolist()),
        sensitivity=[share_interval(int(counts[y, y]), int(cases.kept[y])) for y in range(k)],
        equal_sensitivity=[
            int(equal_counts[y, y]) / int(cases.kept[y]) if cases.kept[y] else math.nan for y in range(k)
        ],
        predictive=[
            scale[j] * int(counts[j, j]) / column[j] if column[j] > 0 else math.nan for j in range(k)
        ],
    )


def constant_costs(cases: Cases, c: Array) -> list[float]:
    """(k,) the total cost where everyone gets the same decision j."""
    cost = [0.0] * len(c)
    for n_y, row in zip(cases.totals.tolist(), c.tolist(), strict=True):
        for j in range(len(c)):
            cost[j] += n_y * row[j]
    return cost


@dataclass(frozen=True, eq=False)
class CostCurve:
    """Mean costs per case where the errors on one class cost x times `unit`, and all others what they do."""

    x: Array  # (p,)
    model: Array  # (p,) decided anew for each x
    equal: Array  # (p,) the costs ignored
    constants: Array  # (p, k) one decision for everyone

    @property
    def constant(self) -> Array:
        """(p,) the best of them."""
        return self.constants.min(axis=1)


def cost_curve(cases: Cases, costs: Array, shown: int, x: ArrayLike) -> CostCurve:
    """Costs against the cost of errors on the class `shown`.

    Of a vector, x is that cost itself; of a matrix, a factor on the costs in its row.
    """
    c = matrix_of(costs).copy()
    k, n = len(c), int(cases.totals.sum())
    unit = 1.0 - np.eye(k)[shown] if costs.ndim == 1 else c[shown].copy()
    c[shown] = 0.0
    others = np.zeros_like(cases.P)
    for y in range(k):
        if y != shown:
            others += cases.P[:, y : y + 1] * c[y]
    own = cases.P[:, shown : shown + 1] * unit
    equal = tally(cases.y, decide(cases.P, 1.0 - np.eye(k)), k)
    levels = np.asarray(x, dtype=float)
    model, ignored, constants = (np.empty((len(levels), *shape)) for shape in ((), (), (k,)))
    for p, level in enumerate(levels):
        decided = (others + level * own).argmin(axis=1)
        c[shown] = level * unit
        model[p] = _mean_cost(cases, tally(cases.y, decided, k), c)
        ignored[p] = _mean_cost(cases, equal, c)
        constants[p] = np.array(constant_costs(cases, c)) / n
    return CostCurve(levels, model, ignored, constants)


def _mean_cost(cases: Cases, counts: Index, c: Array) -> float:
    total = 0.0
    for n_y, m_y, times, own in zip(
        cases.totals.tolist(), cases.kept.tolist(), counts.tolist(), c.tolist(), strict=True
    ):
        if n_y:
            row = 0.0
            for count, cost in zip(times, own, strict=True):
                row += count * cost
            total += n_y / m_y * row
    return total / int(cases.totals.sum())
