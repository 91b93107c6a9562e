"""The exact solver: (loss table, data) -> Solution with its certificate.

    min  1/2 |W|^2 + C sum_i weight_i loss(W x_i + b, y_i)
    max  sum_ir alpha_ir margin_ir - 1/2 sum_j |sum_ir alpha_ir code_irj phi(x_i)|^2,   0 <= alpha_ir <= C weight_i weight_ir

Penalised intercept: b is the weight of a constant feature of value sqrt(t). Free: no penalty, so that sum_i beta_ij = 0 for each
output j in the dual. None: b = 0.

Which form solves what (all stop at the same relative duality gap):

    table \\ data                     kernel, few examples*     dense, n >> d       other dense           CSR
    one output a row (one-vs-rest,   working_sets.py           newton.py           coordinate.py: a row of X is loaded once and
    apportioned, pairwise)                                                         serves eight outputs
    any other                        coupled.py                coordinate.py: all outputs of an example at once

* Few examples of n >> d columns go to Newton's method where the first rounds on their kernel do not get there.

Of one output a row working_sets.py and newton.py set a free intercept themselves; all others find it by the method of multipliers
(multipliers.py). This module has the kernel machines, linear.py the linear ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray

from . import coupled, working_sets
from .kernels import Kernel, Remembered
from .losses import LossTable
from .multipliers import free_intercept
from .panels import panel
from .parts import Binary, balanced, binary_parts, gather, spread
from .solution import Array, Settings, Solution, relative
from .threads import Each, Room, threads


def solve_kernel(
    table: LossTable,
    kernel: Kernel,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    start: Array | None = None,
) -> Solution:
    """Solve on a kernel over the n examples, from alpha `start` (n, R) where it is given."""
    parts = binary_parts(table)
    with threads(settings.n_jobs) as each:
        if parts is None:
            return _coupled_kernel(table, kernel, y, sample_weight, settings, start, each)
        room = Room(settings.largest, len(y), settings.n_jobs)
        alpha, intercept = np.zeros((len(y), table.codes.shape[1])), np.zeros(table.n_outputs)
        serial = len(parts) > 1  # many small problems: one thread each; one large problem: threads within
        if serial and isinstance(kernel, Remembered):
            # a share for each core, whatever n_jobs: what is remembered is summed up first, which shows in the last digits
            kernel = Remembered(
                kernel.source, kernel.megabytes / min(max(cpu_count(), settings.n_jobs), len(parts))
            )
        by_class = _sorted(y, table.n_classes)

        def one(part: Binary) -> tuple[float, float, int]:
            return _binary_kernel(
                part,
                kernel,
                by_class,
                sample_weight,
                settings,
                room,
                start,
                map if serial else each,
                alpha,
                intercept,
            )

        done = list((each if serial else map)(one, parts))
    objective, gap = sum(d[0] for d in done), sum(d[1] for d in done)
    return Solution(alpha, intercept, objective, relative(gap, objective), max(d[2] for d in done))


def _sorted(y: NDArray[np.intp], k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The examples in the order of their classes, and where each class starts (k + 1,)."""
    order = np.argsort(y, kind="stable")
    return order, np.searchsorted(y[order], np.arange(k + 1))


def _binary_kernel(
    part: Binary,
    kernel: Kernel,
    by_class: tuple[NDArray[np.intp], NDArray[np.intp]],
    sample_weight: Array,
    settings: Settings,
    room: Room,
    start: Array | None,
    each: Each,
    alpha: Array,
    intercept: Array,
) -> tuple[float, float, int]:
    """Solve one part; writes its alpha and intercepts, returns (primal, gap, rounds). by_class: see _sorted."""
    order, starts = by_class
    order = np.concatenate([order[starts[c] : starts[c + 1]] for c in part.classes])
    if not len(order):  # no class of the part has an example of positive weight
        return 0.0, 0.0, 0
    sizes = starts[part.classes + 1] - starts[part.classes]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    own, at, side = part.solved()
    whole = len(order) == kernel.n and np.all(np.diff(order) == 1)
    problem = working_sets.BinaryOutputs(
        kernel if whole else kernel.take(order),
        np.append(0, np.cumsum(sizes)),
        part.sign[own],
        part.margin[own],
        settings.C * part.weight[own],
        sample_weight[order],
        settings.offset,
        room,
    )
    beta = None
    if start is not None:
        beta = gather(part, own, order, labels, start, problem.box[:, labels] * problem.weight)
        beta = balanced(beta) if settings.offset is None else beta
    beta, b, primal, gap, rounds = working_sets.solve_binary_outputs(
        problem, tol=settings.tol, max_iter=settings.max_iter, each=each, beta=beta, watch=settings.watch
    )
    spread(part, order, labels, beta[at], alpha)
    intercept[part.outputs] = side * b[at]
    return float(primal[at].sum()), float(gap[at].sum()), rounds


def _coupled_kernel(
    table: LossTable,
    kernel: Kernel,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    start: Array | None,
    each: Each,
) -> Solution:
    order, starts = _sorted(y, table.n_classes)
    sorted_kernel = kernel if np.all(np.diff(order) == 1) else kernel.take(order)
    weight, boxes = sample_weight[order], settings.C * table.weights

    def solve(t: float, shift: Array | None, alpha: Array | None, tol: float, max_iter: int) -> Solution:
        b, alpha, primal, gap, rounds = coupled.solve_table_kernel(
            sorted_kernel,
            starts,
            weight,
            table.codes,
            table.margins,
            boxes,
            table.shared,
            t,
            tol=tol,
            max_iter=max_iter,
            each=each,
            largest=settings.largest,
            shift=shift,
            alpha=alpha,
            watch=settings.watch,
        )
        return Solution(alpha, b, primal, relative(gap, primal), rounds)

    def quadratic(beta: Array) -> tuple[Array, float]:
        """K beta (n, m) and beta' K beta."""
        rows = np.flatnonzero(beta.any(axis=1))
        scores = np.zeros((beta.shape[1], len(beta)))
        panel(sorted_kernel, rows, -beta[rows].T, np.arange(beta.shape[1]), scores, each)
        return scores.T, float((beta * scores.T).sum())

    begin = None if start is None else start[order]
    if settings.offset is None:
        scale = float(np.mean(sorted_kernel.diagonal()))
        solution = free_intercept(solve, quadratic, table, y[order], weight, scale, settings, begin)
    else:
        solution = solve(settings.offset, None, begin, settings.tol, settings.max_iter)
    alpha = np.empty_like(solution.alpha)
    alpha[order] = solution.alpha
    return replace(solution, alpha=alpha)
