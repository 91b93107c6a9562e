"""Fisher consistency by linear program: does the minimiser of the expected loss decide at least cost?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import null_space
from scipy.optimize import linprog
from sklearn.utils import check_random_state

from ..costs import Costs, check_costs
from ..losses import LossTable, loss_table
from .machine import Array, check


class Minimizer(NamedTuple):
    """The minimiser of the expected loss at one point."""

    scores: Array  # (m,) raw scores
    class_scores: Array  # (k,)
    decision: int  # position of the class decided for; the first of equals
    value: float  # expected loss
    regret: float  # expected cost of the decision less the least there is


def population_minimizer(
    loss: Any,
    P: ArrayLike,
    costs: Any = None,
    *,
    margin_power: float | None = None,
    slack_power: float | None = None,
    sum_to_zero: bool = False,
) -> Minimizer:
    """Minimise sum_y P_y loss(f, y) over the raw scores f, by linear program.

    Parameters
    ----------
    loss : str or LossTable
    P : array of shape (k,)
        Probabilities of the classes at one point.
    costs : as in the estimators
        Also for a table of your own: its regret is counted in them.
    margin_power, slack_power : as in the estimators
    sum_to_zero : bool, default=False
        Add the constraint sum_j f_j = 0, as the paper's lemma does.

    Examples
    --------
    >>> from apportion.guarantees import population_minimizer
    >>> population_minimizer("apportioned", [0.4, 0.6], [5, 1]).decision  # costs 2.0; class 0 costs 0.6
    1
    >>> population_minimizer("lee-lin-wahba", [0.4, 0.6], [5, 1]).decision
    0
    """
    p = np.asarray(P, dtype=float)
    good = p.ndim == 1 and len(p) >= 2 and bool(np.all(p >= 0)) and bool(np.isclose(p.sum(), 1))
    check("P", P, good, "the probabilities of at least 2 classes: numbers >= 0 that sum to 1")
    checked = check_costs(costs, np.arange(len(p)))
    table = loss_table(loss, checked, margin_power=margin_power, slack_power=slack_power)
    return _minimise(table, p, checked, sum_to_zero)


def _minimise(table: LossTable, P: Array, costs: Costs, sum_to_zero: bool) -> Minimizer:
    m = table.n_outputs
    weight = P[:, None] * table.weights  # (k, R)
    keep = weight > 0
    codes, margins = table.codes[keep], table.margins[keep]
    if table.shared:
        owner = np.nonzero(keep)[0]  # one slack a class
        price: Array = P * table.weights[:, 0]
    else:  # equal rows of several classes share a slack: their weights add up
        rows, owner = np.unique(np.column_stack([codes, margins]), axis=0, return_inverse=True)
        price = np.asarray(np.bincount(owner.reshape(-1), weights=weight[keep]), dtype=float)
        codes, margins, owner = rows[:, :-1], rows[:, -1], np.arange(len(rows))
    # variables (f, slack):  margin - code . f <= slack;  f outside the span of the codes does not matter: 0
    fixed = np.vstack([null_space(table.codes.reshape(-1, m)).T, np.ones((int(sum_to_zero), m))])
    found = linprog(
        np.r_[np.zeros(m), price],
        A_ub=np.hstack([-codes, -np.eye(len(price))[owner]]),
        b_ub=-margins,
        A_eq=np.hstack([fixed, np.zeros((len(fixed), len(price)))]),
        b_eq=np.zeros(len(fixed)),
        bounds=[(None, None)] * m + [(0, None)] * len(price),
    )
    if found.status != 0:
        raise ValueError(f"this loss table has no minimiser at P={P.tolist()}: {found.message}")
    class_scores = table.decide(found.x[None, :m])[0]
    best = class_scores.max()
    decision = int(np.flatnonzero(class_scores >= best - 1e-9 * max(1.0, abs(best)))[0])
    risk = P @ costs.matrix  # (k,) expected cost of each decision
    regret = float(risk[decision] - risk.min())
    return Minimizer(found.x[:m], class_scores, decision, float(found.fun), regret)


@dataclass(frozen=True)
class ConsistencyReport:
    """How often the minimiser of the expected loss decides at least cost; `print` it."""

    loss: str
    n_classes: int
    n_draws: int
    optimal: float  # share of the draws
    regret: float  # mean expected cost above the least
    worst_regret: float
    worst_P: Array  # (k,) where that was: a counterexample for `population_minimizer`
    worst_costs: Array  # (k,) or (k, k)

    def __str__(self) -> str:
        words = (
            f"{self.loss}, k = {self.n_classes}: cost-optimal in {self.optimal:.1%} of {self.n_draws} draws, "
            f"mean regret {self.regret:.3g}"
        )
        if self.optimal == 1:
            return words + "; no counterexample found."
        P, costs = np.round(self.worst_P, 3).tolist(), np.round(self.worst_costs, 3).tolist()
        return words + f"; worst {self.worst_regret:.3g} at P = {P}, costs = {costs}."


def consistency_report(
    loss: Any,
    n_classes: int = 3,
    *,
    n_draws: int = 200,
    cost_values: ArrayLike = (1.0, 2.0, 5.0, 10.0),
    matrix: bool = False,
    margin_power: float | None = None,
    slack_power: float | None = None,
    sum_to_zero: bool = False,
    random_state: Any = 0,
) -> ConsistencyReport:
    """Draw distributions and costs; ask each time whether the loss's minimiser decides at least cost.

    Parameters
    ----------
    loss : str or LossTable
    n_classes : int, default=3
    n_draws : int, default=200
    cost_values : array, default=(1, 2, 5, 10)
        The cost of each class is one of these.
    matrix : bool, default=False
        Draw full cost matrices: for each pair an exponential variable times one of `cost_values`.
    margin_power, slack_power, sum_to_zero : as in `population_minimizer`
    random_state : int, RandomState or None, default=0

    Notes
    -----
    P is uniform on the simplex. Where the minimiser has equal class scores the first of them is decided for,
    as a machine does.
    """
    check("n_classes", n_classes, n_classes >= 2, "at least 2")
    check("n_draws", n_draws, n_draws >= 1, "at least 1")
    values = np.asarray(cost_values, dtype=float)
    good = values.ndim == 1 and len(values) > 0 and bool(np.all((values > 0) & np.isfinite(values)))
    check("cost_values", cost_values, good, "a list of positive finite numbers")
    draw = check_random_state(random_state)
    regrets, cases = [], []
    for _ in range(n_draws):
        P = draw.dirichlet(np.ones(n_classes))
        costs = draw.choice(values, n_classes)
        if matrix:
            costs = draw.exponential(size=(n_classes, n_classes)) * draw.choice(
                values, (n_classes, n_classes)
            )
            np.fill_diagonal(costs, 0.0)
        found = population_minimizer(
            loss, P, costs, margin_power=margin_power, slack_power=slack_power, sum_to_zero=sum_to_zero
        )
        regrets.append(found.regret)
        cases.append((P, costs))
    worst = int(np.argmax(regrets))
    return ConsistencyReport(
        loss=loss if isinstance(loss, str) else "loss table",
        n_classes=n_classes,
        n_draws=n_draws,
        optimal=float(np.mean(np.array(regrets) <= 1e-9)),
        regret=float(np.mean(regrets)),
        worst_regret=regrets[worst],
        worst_P=cases[worst][0],
        worst_costs=cases[worst][1],
    )
