"""The exact solver: (loss table, data) -> Solution with its certificate.

    min  1/2 |W|^2 + C sum_i weight_i loss(W x_i + b, y_i)
    max  sum_ir alpha_ir margin_ir - 1/2 sum_j |sum_ir alpha_ir code_irj phi(x_i)|^2,   0 <= alpha_ir <= C weight_i weight_ir

Penalised intercept: b is the weight of a constant feature of value sqrt(t). Free: no penalty, so that sum_i beta_ij = 0 for each
output j in the dual. None: b = 0.

Which form solves what (all stop at the same relative duality gap):

    table \\ data                     kernel, few examples      dense, n >> d       other dense           CSR
    one output a row (one-vs-rest,   working_sets.py           newton.py           coordinate.py: a row of X is loaded once and
    apportioned, pairwise)                                                         serves eight outputs
    any other                        coupled.py                coordinate.py: all outputs of an example at once

Of one output a row working_sets.py and newton.py set a free intercept themselves; all others find it by the method of multipliers
(multipliers.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from scipy import sparse

from . import coordinate, coupled, newton, products, working_sets
from .kernels import Kernel, Precomputed, Remembered, make_kernel
from .losses import LossTable
from .multipliers import free_intercept
from .panels import panel
from .parts import Binary, balanced, binary_parts, gather, spread
from .solution import Array, Settings, Solution, relative
from .threads import Each, threads

# ---------------------------------------------------------------- kernel machines


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
        settings.largest,
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


# ---------------------------------------------------------------- linear machines

SMALL = 2000  # so few examples are solved through their kernel matrix


def solve_linear(
    table: LossTable,
    X: Any,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    start: Array | None = None,
) -> Solution:
    """Solve on X (n, d), dense or CSR, from alpha `start` (n, R) where it is given."""
    if X.shape[0] <= SMALL:
        solution = solve_kernel(table, _products(X), y, sample_weight, settings, start)
        return replace(solution, coef=products.pull(X, solution.beta(table, y)))
    if settings.offset is not None or (binary_parts(table) is not None and _newton_fits(X, settings)):
        return _linear(table, X, y, sample_weight, settings, None, start)

    def solve(t: float, shift: Array | None, alpha: Array | None, tol: float, max_iter: int) -> Solution:
        inner = replace(settings, offset=t, tol=tol, max_iter=max_iter)
        return _linear(table, X, y, sample_weight, inner, shift, alpha)

    def quadratic(beta: Array) -> tuple[Array, float]:
        W = products.pull(X, beta)
        return products.raw_scores(X, W), float((W**2).sum())

    t = max(float(products.squared_lengths(X).mean()), 1e-6)
    solution = free_intercept(solve, quadratic, table, y, sample_weight, t, settings, start)
    return replace(solution, coef=products.pull(X, solution.beta(table, y)))


def _products(X: Any) -> Kernel:
    """The linear kernel of few examples."""
    if sparse.issparse(X):
        X = X.astype(float, copy=False)  # products of single precision would be off by more than a small tol
        return Precomputed((X @ X.T).toarray(), np.arange(X.shape[0]))
    return make_kernel(X, "linear")


NEWTON_FIRST = 150  # with more features it is the second choice


def _newton_fits(X: Any, settings: Settings) -> bool:
    n, d = X.shape
    return (
        not sparse.issparse(X)
        and n >= 5 * d
        and d <= 1000
        and (X.dtype == np.float64 or settings.tol >= 1e-5)
    )


def _linear(
    table: LossTable,
    X: Any,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    shift: Array | None,
    start: Array | None,
) -> Solution:
    """The intercept penalised around `shift` (m,), free, or none."""
    n, d = X.shape
    parts = binary_parts(table)
    if parts is None:
        assert settings.offset is not None, "a free intercept of coupled outputs goes through multipliers.py"
        W, b, alpha, primal, gap, sweeps = coordinate.solve_table(
            X,
            y,
            sample_weight,
            table.codes,
            table.margins,
            settings.C * table.weights,
            table.shared,
            settings.offset,
            tol=settings.tol,
            max_iter=settings.max_iter,
            shift=shift,
            alpha=start,
            watch=settings.watch,
        )
        return Solution(alpha, b, primal, relative(gap, primal), sweeps, W)
    solution = Solution(
        np.zeros((n, table.codes.shape[1])),
        np.zeros(table.n_outputs),
        0.0,
        0.0,
        0,
        np.zeros((table.n_outputs, d)),
    )
    for part in parts:
        _binary_linear(part, X, y, sample_weight, settings, shift, start, solution)
    return replace(solution, gap=relative(solution.gap, solution.objective))


def _binary_linear(
    part: Binary,
    X: Any,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    shift: Array | None,
    start: Array | None,
    solution: Solution,
) -> None:
    """Solve one part and add it to the solution (its gap in absolute terms)."""
    members = np.isin(y, part.classes)
    rows = np.flatnonzero(members)
    if not len(rows):  # no class of the part has an example of positive weight
        return
    if not members.all():
        X, sample_weight, y = X[rows], sample_weight[rows], y[rows]
    labels = np.searchsorted(part.classes, y)
    if len(rows) <= SMALL and shift is None:
        alpha, begin = np.zeros((len(rows), solution.alpha.shape[1])), None if start is None else start[rows]
        kernel = _products(X)
        primal, gap, done = _binary_kernel(
            part,
            kernel,
            _sorted(y, int(part.classes[-1]) + 1),
            sample_weight,
            settings,
            begin,
            map,
            alpha,
            solution.intercept,
        )
        solution.alpha[rows] += alpha
        every, here = np.arange(len(part.outputs)), np.arange(len(rows))
        pull = products.pull(X, gather(part, every, here, labels, alpha, np.array(np.inf)).T)
        solution.coef[part.outputs] = pull  # type: ignore[index]
        _add(solution, primal, gap, done)
        return
    own, at, side = part.solved()
    problem = sample_weight, part.sign[own], part.margin[own], settings.C * part.weight[own]
    beta: Any = (
        None
        if start is None
        else gather(part, own, rows, labels, start, problem[3][:, labels] * sample_weight)
    )
    centre = None if shift is None else shift[part.outputs[own]]

    def by_newton(beta: Any) -> _Outcome:
        return _by_newton(X, labels, *problem, settings, beta)

    def by_coordinates(beta: Any) -> _Outcome:
        return _by_coordinates(X, labels, *problem, settings, beta, centre)

    if settings.offset is None:
        ways = [by_newton]
    elif centre is not None or not _newton_fits(X, settings):
        ways = [by_coordinates]
    else:  # an iteration of Newton's method costs d times as much as a sweep
        ways = [by_newton, by_coordinates] if X.shape[1] <= NEWTON_FIRST else [by_coordinates, by_newton]
    found: list[_Outcome] = []
    for way in ways:
        found.append(way(beta))
        beta, primals, gaps = found[-1][2:5]
        if gaps.sum() <= settings.tol * primals.sum():
            break
    W, b, _, primals, _, done = min(found, key=lambda outcome: float(outcome[3].sum()))
    highest = max(found, key=lambda outcome: float((outcome[3] - outcome[4]).sum()))  # of the dual values
    above = primals - highest[3]
    beta, gaps = highest[2], highest[4] + above + 1e-14 * np.abs(above)  # what cancels leaves its rounding
    spread(part, rows, labels, beta[at], solution.alpha)
    solution.coef[part.outputs] = side[:, None] * W[at]  # type: ignore[index]
    solution.intercept[part.outputs] = side * b[at]
    _add(solution, float(primals[at].sum()), float(gaps[at].sum()), done)


def _add(solution: Solution, primal: float, gap: float, iterations: int) -> None:
    solution.objective += primal
    solution.gap += gap
    solution.n_iter = max(solution.n_iter, iterations)


# W (m, d), b (m,), beta (m, n), primal (m,), gap (m,), iterations
_Outcome = tuple[Array, Array, Array, Array, Array, int]


def _by_newton(
    X: Any, y: Any, weight: Array, sign: Array, margin: Array, box: Array, settings: Settings, beta: Any
) -> _Outcome:
    t, warm = settings.offset, None
    if beta is not None:
        warm = products.pull(X, beta.T), (t or 0.0) * beta.sum(axis=1)
    with threads(settings.n_jobs) as each:
        return newton.solve_newton(
            X,
            y,
            weight,
            sign,
            margin,
            box,
            t,
            tol=settings.tol,
            max_iter=settings.max_iter,
            each=each,
            start=warm,
            watch=settings.watch,
        )


def _by_coordinates(
    X: Any,
    y: Any,
    weight: Array,
    sign: Array,
    margin: Array,
    box: Array,
    settings: Settings,
    beta: Any,
    shift: Any,
) -> _Outcome:
    assert settings.offset is not None, "a free intercept goes through Newton's method or multipliers.py"
    offset = settings.offset
    groups = -(-len(sign) // coordinate.LANES)
    groups += groups > 1 and groups % 2  # an even number, so that two threads share the work

    def one(part: NDArray[np.intp]) -> tuple[Array, Array, Array, float, float, int]:
        return coordinate.solve_outputs(
            X,
            y,
            weight,
            sign[part],
            margin[part],
            box[part],
            offset,
            tol=settings.tol,
            max_iter=settings.max_iter,
            shift=None if shift is None else shift[part],
            alpha=None if beta is None else np.abs(beta[part]).T,
            watch=settings.watch,
        )

    with threads(settings.n_jobs) as each:
        done = list(each(one, np.array_split(np.arange(len(sign)), groups)))
    W, b = np.concatenate([d[0] for d in done]), np.concatenate([d[1] for d in done])
    alpha = np.concatenate([d[2] for d in done], axis=1).T
    # the solver certifies a group as a whole: its outputs share its value and gap equally
    sizes = [len(d[1]) for d in done]
    primal = np.concatenate([np.full(s, d[3] / s) for s, d in zip(sizes, done, strict=True)])
    gap = np.concatenate([np.full(s, d[4] / s) for s, d in zip(sizes, done, strict=True)])
    return W, b, sign[:, y] * alpha, primal, gap, max(d[5] for d in done)
