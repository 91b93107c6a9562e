"""A loss is a table.

    loss(f, y) = sum_r weights[y, r] * max(0, margins[y, r] - codes[y, r] . f)

or, with shared slack, the largest of these terms instead of their sum. `f` are the m raw scores of an example, y its class, r the
rows of the table. The solvers, the torch module and the population program read the three arrays and know no loss by name.

    theta_y   cost of an error on class y         p   margin power         q   slack power
    e_j       unit vector                         P   I - 1/k, the projection onto scores that sum to zero

    loss              rows r     code              margin     weight                         class score
    apportioned       each j     +e_j if j == y    theta_y^p  theta_y^q                      f_j / theta_j^p
                                 -e_j otherwise
    one-vs-rest       the same with p = 0, q = 1
    pairwise          j != y     +-e_pair          theta_y^p  theta_y^q                      votes of the pairs
    weston-watkins    j != y     e_y - e_j         1          theta_y^q                      f_j
    crammer-singer    j != y     e_y - e_j         1          theta_y^q (shared slack)       f_j
    lee-lin-wahba     j != y     -P e_j            1          theta_y^q, or cost[y, j]^q     theta_j^p (f_j + 1)
    reinforced        y          P e_y             k - 1      g theta_y^q                    f_j
                      j != y     -P e_j            1          (1 - g) theta_y^q

References: Gottlieb, Kaufman, Kontorovich (apportioned margins); Weston, Watkins 1999; Crammer, Singer 2001; Lee, Lin, Wahba 2004;
Liu, Yuan 2011 (reinforced).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .costs import Costs

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PerClass:
    """Class scores `scale_j f_j + offset_j` (one raw score a class)."""

    scale: Array  # (k,)
    offset: Array  # (k,)

    def __call__(self, scores: Array) -> Array:
        return scores * self.scale + self.offset


@dataclass(frozen=True)
class PairVotes:
    """Class scores of pairs a < b: the number of pairs won, ties broken by the summed margins.

    Output (a, b) has its support hyperplanes at f = reach_a (class a) and f = -reach_b; a wins where its distance to them, in
    shares of `ratio`, is the smaller one: (f / reach_a - 1) / ratio_a > (-f / reach_b - 1) / ratio_b. With ratio = 1 that is f > 0.
    """

    reach: Array  # (k,)
    ratio: Array  # (k,)

    def __call__(self, scores: Array) -> Array:
        lead = self._lead(scores)
        votes, margins = self._totals(np.sign(lead - 0.5 * (lead == 0))), self._totals(lead)
        # the second term stays under 1/3: it only breaks ties
        return 0.5 * (votes + len(self.reach) - 1) + margins / (3 * (np.abs(margins) + 1))

    def soft(self, scores: Array) -> Array:
        """Class scores without votes: the mean margin over the pairs of a class, each cut at 1.5 support hyperplanes."""
        return self._totals(np.clip(self._lead(scores) / 2, -1.5, 1.5)) / (len(self.reach) - 1)

    def _lead(self, scores: Array) -> Array:
        """(n, pairs) positive where the first class of the pair wins; in this form exactly f > 0 for ratio = 1."""
        first, second = np.triu_indices(len(self.reach), 1)
        share = 1 / self.ratio
        slope = share[first] / self.reach[first] + share[second] / self.reach[second]
        return scores * slope + (share[second] - share[first])

    def _totals(self, lead: Array) -> Array:
        """(n, k) sums over the pairs of each class, the sign turned for the second of a pair."""
        total = np.zeros((len(lead), len(self.reach)))
        for pair, (a, b) in enumerate(zip(*np.triu_indices(len(self.reach), 1), strict=True)):
            total[:, a] += lead[:, pair]
            total[:, b] -= lead[:, pair]
        return total


@dataclass(frozen=True, eq=False)
class LossTable:
    """A loss as arrays. Pass one of your own as `loss=` to any estimator; it is checked on construction."""

    codes: Array  # (k, R, m)
    margins: Array  # (k, R)
    weights: Array  # (k, R), >= 0; a row of weight zero does not exist
    decide: Callable[[Array], Array]  # raw scores (n, m) -> class scores (n, k)
    shared: bool = False  # the largest term instead of the sum

    def __post_init__(self) -> None:
        for name in ("codes", "margins", "weights"):
            array = np.array(getattr(self, name), dtype=float, order="C")  # a copy: what is checked stays so
            if not np.all(np.isfinite(array)):
                raise ValueError(f"{name} of a loss table must be finite; got {array!r}.")
            object.__setattr__(self, name, array)
        if self.codes.ndim != 3:
            raise ValueError(f"codes of a loss table must have shape (k, R, m); got {self.codes.shape}.")
        for name in ("margins", "weights"):
            if getattr(self, name).shape != self.codes.shape[:2]:
                raise ValueError(
                    f"{name} of a loss table must have shape {self.codes.shape[:2]} as codes say; got {getattr(self, name).shape}."
                )
        if np.any(self.weights < 0):
            raise ValueError(f"weights of a loss table must be >= 0; the least is {self.weights.min()}.")
        if not np.any(self.weights > 0):
            raise ValueError("weights of a loss table are all zero: there is nothing to learn from.")
        if not np.any(self.codes[self.weights > 0]):
            raise ValueError(
                "codes of a loss table are zero in each row of positive weight: no score matters."
            )
        if self.shared and np.any(self.weights != self.weights[:, :1]):
            raise ValueError(
                "with shared slack the rows of a class share one weight; weights[y] must be constant."
            )

        if not callable(self.decide):
            raise ValueError(f"decide of a loss table must be a function of raw scores; got {self.decide!r}.")
        raw = np.arange(2.0 * self.n_outputs).reshape(2, self.n_outputs)
        decided = self.decide(raw)
        if np.shape(decided) != (2, self.n_classes) or not np.all(np.isfinite(decided)):
            raise ValueError(
                f"decide of a loss table must make (n, {self.n_classes}) finite class scores of (n, {self.n_outputs}) raw ones; "
                f"of {raw.tolist()} it made {decided!r}."
            )

    @property
    def n_classes(self) -> int:
        return self.codes.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.codes.shape[2]


def terms(table: LossTable, scores: Array, y: NDArray[np.intp]) -> Array:
    """(n, R) hinge arguments margins - codes . f; positive where a row is violated."""
    return table.margins[y] - np.einsum("irm,im->ir", table.codes[y], scores)


def value(table: LossTable, scores: Array, y: NDArray[np.intp]) -> Array:
    """(n,) loss of each example."""
    hinges = table.weights[y] * np.maximum(terms(table, scores, y), 0.0)
    return hinges.max(axis=1) if table.shared else hinges.sum(axis=1)


def subgradient(table: LossTable, scores: Array, y: NDArray[np.intp]) -> Array:
    """(n, m) a subgradient in the raw scores: -sum of weight * code over the violated rows (shared slack: the worst one)."""
    hinge = terms(table, scores, y)
    active = hinge > 0
    if table.shared:
        active &= np.arange(hinge.shape[1]) == hinge.argmax(axis=1)[:, None]
    return -np.einsum("ir,irm->im", table.weights[y] * active, table.codes[y])


# ---------------------------------------------------------------- the seven losses


def _vector(costs: Costs, loss: str) -> Array:
    if costs.theta is None:
        raise ValueError(
            f"loss={loss!r} takes one cost a class, and this cost matrix has rows with unequal entries; "
            "use loss='lee-lin-wahba', which is trained on the whole matrix."
        )
    return costs.theta


def _no_margin_power(p: float, loss: str) -> None:
    if p != 0:
        raise ValueError(f"margin_power={p} has no meaning for loss={loss!r}; allowed: None or 0.")


def _others(k: int) -> NDArray[np.intp]:
    """(k, k - 1): row y lists the classes other than y."""
    return np.array([[j for j in range(k) if j != y] for y in range(k)])


def _apportioned(
    costs: Costs, p: float, q: float, ratio: Array | None, loss: str = "apportioned"
) -> LossTable:
    theta = _vector(costs, loss)
    k = len(theta)
    unit = np.eye(k)
    codes = (2 * unit - 1)[:, :, None] * unit  # codes[y, j] = s_yj e_j
    rho = np.ones(k) if ratio is None else ratio
    # hyperplane of class j at f_j = theta_j^p; boundaries share the way between two of them by rho: (f_j / theta_j^p - 1) / rho_j
    decide = PerClass(1 / (theta**p * rho), 1 - 1 / rho)
    return LossTable(
        codes, np.repeat(theta[:, None] ** p, k, 1), np.repeat(theta[:, None] ** q, k, 1), decide
    )


def _one_vs_rest(costs: Costs, p: float, q: float, ratio: Array | None) -> LossTable:
    return _apportioned(costs, p, q, ratio, "one-vs-rest")


def _pairwise(costs: Costs, p: float, q: float, ratio: Array | None) -> LossTable:
    theta = _vector(costs, "pairwise")
    k = len(theta)
    codes = np.zeros((k, k - 1, k * (k - 1) // 2))
    row = np.zeros(k, dtype=int)
    for pair, (a, b) in enumerate(zip(*np.triu_indices(k, 1), strict=True)):
        codes[a, row[a], pair], codes[b, row[b], pair] = 1.0, -1.0
        row[[a, b]] += 1
    decide = PairVotes(theta**p, np.ones(k) if ratio is None else ratio)
    return LossTable(
        codes, np.repeat(theta[:, None] ** p, k - 1, 1), np.repeat(theta[:, None] ** q, k - 1, 1), decide
    )


def _differences(costs: Costs, p: float, q: float, ratio: Array | None, loss: str) -> LossTable:
    theta = _vector(costs, loss)
    _no_margin_power(p, loss)
    _no_ratio(ratio, loss)
    k = len(theta)
    unit = np.eye(k)
    codes = unit[:, None, :] - unit[_others(k)]
    return LossTable(
        codes,
        np.ones((k, k - 1)),
        np.repeat(theta[:, None] ** q, k - 1, 1),
        PerClass(np.ones(k), np.zeros(k)),
        shared=loss == "crammer-singer",
    )


def _weston_watkins(costs: Costs, p: float, q: float, ratio: Array | None) -> LossTable:
    return _differences(costs, p, q, ratio, "weston-watkins")


def _crammer_singer(costs: Costs, p: float, q: float, ratio: Array | None) -> LossTable:
    return _differences(costs, p, q, ratio, "crammer-singer")


def _lee_lin_wahba(costs: Costs, p: float, q: float, ratio: Array | None) -> LossTable:
    k = len(costs.classes)
    if p != 0:
        _vector(costs, f"lee-lin-wahba with margin_power={p}")
    theta = np.ones(k) if costs.theta is None else costs.theta
    others = _others(k)
    weights = np.take_along_axis(costs.matrix, others, axis=1)
    # an error that costs nothing stays free for q = 0 too
    weights = np.where(weights > 0, weights, 1.0) ** q * (weights > 0)
    scale = theta**p * (1.0 if ratio is None else ratio)
    return LossTable(-(np.eye(k) - 1 / k)[others], np.ones((k, k - 1)), weights, PerClass(scale, scale))


def reinforced(
    costs: Costs,
    margin_power: float = 0.0,
    slack_power: float = 1.0,
    ratio: Array | None = None,
    *,
    reinforcement: float = 0.5,
) -> LossTable:
    """The reinforced multicategory loss; consistent at equal costs for `reinforcement` in [0, 1/2]."""
    theta = _vector(costs, "reinforced")
    _no_margin_power(margin_power, "reinforced")
    _no_ratio(ratio, "reinforced")
    if not 0 <= reinforcement <= 1:
        raise ValueError(f"reinforcement={reinforcement} must lie in [0, 1].")
    k = len(theta)
    own = np.eye(k, dtype=bool)
    codes = np.where(own, 1.0, -1.0)[:, :, None] * (np.eye(k) - 1 / k)  # codes[y, j] = s_yj P e_j
    weights = np.where(own, reinforcement, 1 - reinforcement) * theta[:, None] ** slack_power
    return LossTable(codes, np.where(own, k - 1.0, 1.0), weights, PerClass(np.ones(k), np.zeros(k)))


def _no_ratio(ratio: Array | None, loss: str) -> None:
    if ratio is not None:
        raise ValueError(
            f"loss={loss!r} has no margin per class that could be apportioned anew; fit it again with the new costs. "
            "Machines that can: 'apportioned', 'one-vs-rest', 'pairwise', 'lee-lin-wahba'."
        )


LOSSES: dict[
    str, tuple[Callable[..., LossTable], tuple[float, float]]
] = {  # name: builder, default powers (p, q)
    "apportioned": (_apportioned, (1.0, 0.0)),
    "one-vs-rest": (_one_vs_rest, (0.0, 1.0)),
    "pairwise": (_pairwise, (0.0, 1.0)),
    "weston-watkins": (_weston_watkins, (0.0, 1.0)),
    "crammer-singer": (_crammer_singer, (0.0, 1.0)),
    "lee-lin-wahba": (_lee_lin_wahba, (0.0, 1.0)),
    "reinforced": (reinforced, (0.0, 1.0)),
}


def loss_table(
    loss: Any,
    costs: Costs,
    *,
    margin_power: float | None = None,
    slack_power: float | None = None,
    ratio: Array | None = None,
) -> LossTable:
    """The table of a loss by its name, or the user's own table, checked against the number of classes.

    `ratio` (k,) re-apportions the decision of a trained machine: new costs / costs it was trained with.
    """
    k = len(costs.classes)
    if isinstance(loss, LossTable):
        if loss.n_classes != k:
            raise ValueError(f"the loss table is for {loss.n_classes} classes and the data have {k}.")
        if margin_power is not None or slack_power is not None:
            raise ValueError(
                "margin_power and slack_power belong to the losses by name; a loss table has them built in."
            )
        if ratio is not None:
            _no_ratio(ratio, "a table of your own")
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not known; allowed: {sorted(LOSSES)} or a LossTable.")
    build, (p, q) = LOSSES[loss]
    p = _power("margin_power", margin_power, p)
    q = _power("slack_power", slack_power, q)
    return build(costs, p, q, ratio)


def _power(name: str, power: Any, default: float) -> float:
    if power is None:
        return default
    if not isinstance(power, (int, float, np.number)) or isinstance(power, bool) or not np.isfinite(power):
        raise ValueError(f"{name}={power!r} must be None or a finite number.")
    return float(power)
