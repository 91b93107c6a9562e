"""The exact solver on the features themselves, dense or CSR: which form solves what is said in dual.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import coordinate, newton, working_sets
from .dual import solve_kernel
from .kernels import Kernel, Precomputed, make_kernel
from .losses import LossTable
from .multipliers import free_intercept
from .parts import Binary, balanced, binary_parts, gather, spread
from .products import pull, raw_scores, squared_lengths
from .solution import Array, Settings, Solution, relative
from .threads import Room, threads

SMALL = 2000  # so few examples are solved through their kernel matrix
BRIEFLY = 20  # rounds on it, before Newton's method tries where it can


def solve_linear(
    table: LossTable,
    X: Any,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    start: Array | None = None,
) -> Solution:
    """Solve on X (n, d), dense or CSR, from alpha `start` (n, R) where it is given."""
    by_newton = newton_serves(table, X, settings)
    if X.shape[0] <= SMALL and not by_newton:
        solution = solve_kernel(table, _products(X), y, sample_weight, settings, start)
        return replace(solution, coef=pull(X, solution.beta(table, y)))
    if settings.offset is not None or by_newton:
        return _linear(table, X, y, sample_weight, settings, None, start)

    def solve(t: float, shift: Array | None, alpha: Array | None, tol: float, max_iter: int) -> Solution:
        inner = replace(settings, offset=t, tol=tol, max_iter=max_iter)
        return _linear(table, X, y, sample_weight, inner, shift, alpha)

    def quadratic(beta: Array) -> tuple[Array, float]:
        W = pull(X, beta)
        return raw_scores(X, W), float((W**2).sum())

    t = max(float(squared_lengths(X).mean()), 1e-6)
    solution = free_intercept(solve, quadratic, table, y, sample_weight, t, settings, start)
    return replace(solution, coef=pull(X, solution.beta(table, y)))


def newton_serves(table: LossTable, X: Any, settings: Settings) -> bool:
    return binary_parts(table) is not None and _newton_fits(X, settings)


def solve_linear_kernel(
    table: LossTable,
    X: Any,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    start: Array | None = None,
) -> Solution:
    """As `solve_linear` where Newton's method serves, certified for w = sum_i beta_i x_i: the machine on the linear kernel.

    Where the sum is not close enough, working sets go on; for a few rounds only where Newton's method has found the solution: what
    rounding of large features takes from the sum they cannot mend.
    """
    solution, found = _parts(table, X, y, sample_weight, settings, None, start, summed=True)
    if solution.gap <= settings.tol:
        return solution
    kernel = make_kernel(X, "linear", cache_size=settings.cache_size / 2)
    if found <= settings.tol:
        settings = replace(settings, max_iter=min(BRIEFLY, settings.max_iter))
    other = solve_kernel(table, kernel, y, sample_weight, settings, solution.alpha)
    return min(solution, other, key=lambda each: each.gap)


def _products(X: Any) -> Kernel:
    """The linear kernel of few examples."""
    if sparse.issparse(X):
        X = X.astype(float, copy=False)  # products of single precision would be off by more than a small tol
        return Precomputed((X @ X.T).toarray(), np.arange(X.shape[0]))
    return make_kernel(X, "linear")


NEWTON_FIRST = 150  # with more features it is the second choice
SUMMING, SUMMED = 4, 3000  # steps of _summed, and examples inside their bounds that they move


def _newton_fits(X: Any, settings: Settings) -> bool:
    n, d = X.shape
    if sparse.issparse(X) or n < 5 * d or d > 1000:
        return False
    # sums of squares need room in single precision
    return X.dtype == np.float64 or (settings.tol >= 1e-5 and max(X.max(), -X.min()) < 1e12)


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
    if binary_parts(table) is not None:
        return _parts(table, X, y, sample_weight, settings, shift, start)[0]
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


def _parts(
    table: LossTable,
    X: Any,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    shift: Array | None,
    start: Array | None,
    summed: bool = False,
) -> tuple[Solution, float]:
    """The binary problems of a table, one after the other or, where they are many, in threads.

    `summed`: w is to be the sum of the examples; the second number is the gap as it was before that.
    """
    parts = binary_parts(table) or []
    alpha = np.zeros((X.shape[0], table.codes.shape[1]))
    intercept, coef = np.zeros(table.n_outputs), np.zeros((table.n_outputs, X.shape[1]))
    inner = settings if len(parts) == 1 else replace(settings, n_jobs=1)

    def one(part: Binary) -> tuple[float, float, float, int]:
        return _binary_linear(part, X, y, sample_weight, inner, shift, start, summed, alpha, intercept, coef)

    with threads(settings.n_jobs) as each:
        done = list((map if len(parts) == 1 else each)(one, parts))
    primal, gap, before = (sum(column) for column in list(zip(*done, strict=True))[:3])
    rounds = max(d[3] for d in done)
    return Solution(alpha, intercept, primal, relative(gap, primal), rounds, coef), relative(before, primal)


def _binary_linear(
    part: Binary,
    X: Any,
    y: NDArray[np.intp],
    sample_weight: Array,
    settings: Settings,
    shift: Array | None,
    start: Array | None,
    summed: bool,
    alpha: Array,
    intercept: Array,
    coef: Array,
) -> tuple[float, float, float, int]:
    """Solve one part; writes its alpha, intercepts and weights, returns (primal, gap, gap before it was summed up, rounds)."""
    members = np.isin(y, part.classes)
    rows = np.flatnonzero(members)
    if not len(rows):  # no class of the part has an example of positive weight
        return 0.0, 0.0, 0.0, 0
    if not members.all():
        X, sample_weight, y = X[rows], sample_weight[rows], y[rows]
    labels = np.searchsorted(part.classes, y)
    own, at, side = part.solved()
    box = settings.C * part.weight[own]
    problem = _Outputs(X, labels, sample_weight, part.sign[own], part.margin[own], box)
    beta: Any = (
        None if start is None else gather(part, own, rows, labels, start, box[:, labels] * sample_weight)
    )
    centre = None if shift is None else shift[part.outputs[own]]

    def by_kernel(beta: Any, max_iter: int = settings.max_iter) -> _Outcome:
        return _by_kernel(problem, replace(settings, max_iter=max_iter), beta)

    def by_kernel_briefly(beta: Any) -> _Outcome:
        return by_kernel(beta, min(BRIEFLY, settings.max_iter))

    def by_newton(beta: Any) -> _Outcome:
        return _by_newton(problem, settings, beta)

    def by_newton_in_double(beta: Any) -> _Outcome:
        return _by_newton(problem._replace(X=X.astype(float)), settings, None)

    def by_coordinates(beta: Any) -> _Outcome:
        return _by_coordinates(problem, settings, beta, centre)

    ways: list[Callable[[Any], _Outcome]]
    if len(rows) <= SMALL and centre is None:
        # large features that overlap take the kernel form for ever, large ones that can be separated Newton's method
        ways = [by_kernel_briefly, by_newton, by_kernel] if _newton_fits(X, settings) else [by_kernel]
        ways = ways[:2] if summed else ways  # all parts together go on by their kernel
    elif settings.offset is None:
        ways = [by_newton]
    elif centre is not None or not _newton_fits(X, settings):
        ways = [by_coordinates]
    else:  # an iteration of Newton's method costs d times as much as a sweep
        ways = [by_newton, by_coordinates] if X.shape[1] <= NEWTON_FIRST else [by_coordinates, by_newton]
    if by_newton in ways and X.dtype != np.float64:
        ways.append(by_newton_in_double)
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
    before = float(gaps[at].sum())
    if summed:
        W, b, beta, primals, gaps = _summed(problem, settings.offset, W, b, beta)
    spread(part, rows, labels, beta[at], alpha)
    coef[part.outputs] = side[:, None] * W[at]
    intercept[part.outputs] = side * b[at]
    return float(primals[at].sum()), float(gaps[at].sum()), before, done


class _Outputs(NamedTuple):
    """m binary problems on n examples."""

    X: Any  # (n, d), dense or CSR
    y: NDArray[np.intp]
    weight: Array
    sign: Array  # (m, k), as the next two
    margin: Array
    box: Array


# W (m, d), b (m,), beta (m, n), primal (m,), gap (m,), iterations
_Outcome = tuple[Array, Array, Array, Array, Array, int]


def _by_kernel(outputs: _Outputs, settings: Settings, beta: Any) -> _Outcome:
    X, y, weight, sign, margin, box = outputs
    order = np.argsort(y, kind="stable")
    starts = np.searchsorted(y[order], np.arange(sign.shape[1] + 1))
    problem = working_sets.BinaryOutputs(
        _products(X[order]),
        starts,
        sign,
        margin,
        box,
        weight[order],
        settings.offset,
        Room(settings.largest, len(y), 1),
    )
    if beta is not None:
        beta = balanced(beta[:, order]) if settings.offset is None else beta[:, order]
    sorted_beta, b, primal, gap, rounds = working_sets.solve_binary_outputs(
        problem, tol=settings.tol, max_iter=settings.max_iter, each=map, beta=beta, watch=settings.watch
    )
    beta = np.empty_like(sorted_beta)
    beta[:, order] = sorted_beta
    return pull(X, beta.T), b, beta, primal, gap, rounds


def _by_newton(outputs: _Outputs, settings: Settings, beta: Any) -> _Outcome:
    t, warm = settings.offset, None
    if beta is not None:
        warm = pull(outputs.X, beta.T), (t or 0.0) * beta.sum(axis=1)
    with threads(settings.n_jobs) as each:
        return newton.solve_newton(
            *outputs,
            t,
            tol=settings.tol,
            max_iter=settings.max_iter,
            each=each,
            start=warm,
            watch=settings.watch,
        )


def _by_coordinates(outputs: _Outputs, settings: Settings, beta: Any, shift: Any) -> _Outcome:
    X, y, weight, sign, margin, box = outputs
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


def _summed(
    outputs: _Outputs, t: float | None, W: Array, b: Array, beta: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """(W, b, beta, primal, gap) with W = sum_i beta_i x_i, and b = t sum_i beta_i or sum_i beta_i = 0.

    Newton's method leaves a little between the two, which tells where features are large. The examples inside their bounds take
    it up: of all changes that do, the one that is least in comparison with the room each has.
    """
    X, y, weight, sign, margin, box = outputs
    upper, beta = box[:, y] * weight, beta.copy()
    root = 1.0 if t is None else np.sqrt(t)  # of the constant feature
    for j in range(len(beta)):
        signs = sign[j][y]
        wanted = np.append(W[j], 0.0 if not t else b[j] / root)
        for _ in range(SUMMING):
            missing = wanted - np.append(pull(X, beta[j][:, None])[0], root * beta[j].sum())
            room = np.minimum(np.abs(beta[j]), upper[j] - np.abs(beta[j]))
            inside = np.flatnonzero(room > 0)
            if np.linalg.norm(missing) <= 1e-13 * np.linalg.norm(wanted) or not len(inside):
                break
            if len(inside) > (most := max(SUMMED, 4 * len(wanted))):  # more than enough
                inside = inside[np.argpartition(-room[inside], most)[:most]]
            features = np.column_stack([X[inside], np.full(len(inside), root)]) * room[inside, None]
            size = np.linalg.norm(features, axis=0)
            features /= np.where(size > 0, size, 1.0)
            normal = features.T @ features  # what it loses in digits the next step finds
            share = np.linalg.lstsq(normal, missing / np.where(size > 0, size, np.inf), rcond=1e-14)[0]
            moved = beta[j, inside] + room[inside] * (features @ share)
            beta[j, inside] = signs[inside] * np.clip(signs[inside] * moved, 0.0, upper[j, inside])
    beta = balanced(beta) if t is None else beta
    W, total = pull(X, beta.T), beta.sum(axis=1)
    b = b if t is None else t * total
    alpha, signs, margins = np.abs(beta), sign[:, y], margin[:, y]
    z = margins - signs * (raw_scores(X, W).T + b[:, None])
    hinge = (upper * np.maximum(z, 0.0)).sum(axis=1)
    square = (W**2).sum(axis=1) + (0.0 if t is None else t * total**2)
    primal = 0.5 * square + hinge
    return W, b, beta, primal, primal - ((alpha * margins).sum(axis=1) - 0.5 * square)
