"""Held-out class scores of many machines at once: the work behind `ApportionedSVCCV`.

A kernel (scaling, form, width) on one fold is one task: its matrix is computed once and serves every loss, every pair of powers
and every C, along a path that starts each C from the one before. Tables whose outputs are binary problems go through `paths`, all
others through the coupled solver. Tasks know nothing of each other, so joblib may send them anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .costs import Costs
from .losses import LossTable, PairVotes, loss_table
from .parts import binary_parts
from .solution import Array, Settings

Members = NDArray[np.intp]

KERNELS = ("rbf", "laplacian", "linear")
LOSSES = ("apportioned", "pairwise", "lee-lin-wahba")
SEARCH_TOL = 1e-2  # relative duality gap of a machine that is only compared with others
SEARCH_STEPS = 20_000  # of SMO for one machine: a C too large for its kernel is not worth more
COUPLED_ROUNDS = 20


@dataclass(frozen=True)
class KernelChoice:
    """What the machines of a task have in common."""

    scaling: str
    kernel: str
    gamma: float | None  # None for the linear kernel


@dataclass(frozen=True)
class LossChoice:
    """What tells the machines of a task apart, beside C."""

    loss: str
    margin_power: float
    slack_power: float

    def table(self, costs: Costs) -> LossTable:
        """The loss table; one cost a class stands for a cost matrix where the loss has no room for one."""
        if costs.theta is None and self.loss != "lee-lin-wahba":
            costs = Costs(costs.classes, costs.matrix, class_costs(costs))
        return loss_table(self.loss, costs, margin_power=self.margin_power, slack_power=self.slack_power)


def class_costs(costs: Costs) -> Array:
    """(k,) what an error on each class costs, on average over the wrong decisions."""
    return costs.matrix.sum(axis=1) / (len(costs.classes) - 1) if costs.theta is None else costs.theta


def in_units(costs: Costs) -> tuple[Costs, float]:
    """The costs in units of the cheapest class's, and that unit: dollars or cents, the machines are the same."""
    unit = float(class_costs(costs).min())
    theta = None if costs.theta is None else costs.theta / unit
    return Costs(costs.classes, costs.matrix / unit, theta), unit


def kernel_matrices(choice: KernelChoice, train: Any, test: Any) -> tuple[Array, Array]:
    """Kernel values of the training rows with themselves (n, n), and of the test rows with them (n_test, n)."""
    if choice.kernel == "linear":
        products = (train @ train.T, test @ train.T)
        return tuple(np.asarray(p.toarray() if sparse.issparse(p) else p, dtype=float) for p in products)  # type: ignore[return-value]
    from .kernels import cross_kernel  # brings numba

    kernel = cross_kernel(train, choice.kernel, choice.gamma or 0.0)
    return kernel(train), kernel(test)


def class_scores(table: LossTable, raw: Array) -> Array:
    """Class scores (n, k) that may be averaged over machines; for two classes minus and plus half the difference."""
    scores = table.decide.soft(raw) if isinstance(table.decide, PairVotes) else table.decide(raw)
    if scores.shape[1] == 2:
        half = (scores[:, 1] - scores[:, 0]) / 2
        return np.column_stack([-half, half])
    return scores


def held_out_scores(
    choice: KernelChoice,
    losses: list[LossChoice],
    Cs: Array,
    costs: Costs,
    train: Any,
    y: Members,
    weight: Array,
    test: Any,
) -> NDArray[np.float32]:
    """(n_losses, n_Cs, n_test, k) class scores of the test rows by machines fitted on the training rows, both scaled."""
    K, K_test = kernel_matrices(choice, train, test)
    out = np.empty((len(losses), len(Cs), len(K_test), len(costs.classes)), np.float32)
    grams: dict[tuple[int, ...], Any] = {}
    for at, loss in enumerate(losses):
        table = loss.table(costs)
        parts = binary_parts(table)
        if parts is None:
            raw = _coupled_path(table, K, K_test, y, weight, Cs)
        else:
            raw = _binary_path(table, parts, K, K_test, y, weight, Cs, grams)
        for c in range(len(Cs)):
            out[at, c] = class_scores(table, raw[c])
    return out


def _binary_path(
    table: LossTable,
    parts: list[Any],
    K: Array,
    K_test: Array,
    y: Members,
    weight: Array,
    Cs: Array,
    grams: dict[tuple[int, ...], Any],
) -> Array:
    """(n_Cs, n_test, m) raw scores, output by output; `grams` keeps the Gram matrix of each group of classes met."""
    from .paths import hinge_path, with_intercept

    raw = np.zeros((len(Cs), len(K_test), table.n_outputs))
    for part in parts:
        position = np.full(table.n_classes, -1)
        position[part.classes] = np.arange(len(part.classes))
        labels = position[y]
        rows = np.flatnonzero(labels >= 0)
        if not len(rows):
            continue
        labels = labels[rows]
        group = tuple(part.classes)
        if group not in grams:
            grams[group] = with_intercept(K, rows)
        against = K_test if len(rows) == len(y) else K_test[:, rows]
        for j, output in enumerate(part.outputs):
            if part.mirror[j] != j:
                raw[:, :, output] = -raw[:, :, part.outputs[part.mirror[j]]]
                continue
            beta, b, _ = hinge_path(
                grams[group],
                part.sign[j][labels],
                part.margin[j][labels],
                part.weight[j][labels] * weight[rows],
                Cs,
                SEARCH_TOL,
                SEARCH_STEPS,
            )
            raw[:, :, output] = (against @ beta.T + b).T
    return raw


def _coupled_path(table: LossTable, K: Array, K_test: Array, y: Members, weight: Array, Cs: Array) -> Array:
    """(n_Cs, n_test, m) raw scores of a table whose outputs hang together; each C starts from the one before."""
    from .dual import solve_kernel  # brings numba
    from .kernels import Precomputed

    kernel, start = Precomputed(K, np.arange(len(y))), None
    raw = np.empty((len(Cs), len(K_test), table.n_outputs))
    for c, C in enumerate(Cs):
        settings = Settings(C=float(C), tol=SEARCH_TOL, max_iter=COUPLED_ROUNDS)
        solution = solve_kernel(table, kernel, y, weight, settings, start)
        raw[c] = K_test @ solution.beta(table, y) + solution.intercept
        start = solution.alpha
    return raw
