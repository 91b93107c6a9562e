"""What the training data alone promise: leave-one-out errors enclosed by the dual, and sample compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp
from sklearn.base import clone

from ..losses import PairVotes
from .machine import Array, Index, Mask, Training, check_delta, squares, training, unwrap
from .margins import leads


@dataclass(frozen=True)
class LeaveOneOut:
    """How the machine fitted without it would decide each training example, as far as the dual tells."""

    classes: NDArray[Any]  # (k,)
    labels: Index  # (n,) position of the true class
    right: Mask  # (n,) certainly right
    wrong: Mask  # (n,) certainly wrong
    support: Mask  # (n,) has a non-zero dual variable

    @property
    def low(self) -> Array:
        """(k,) least leave-one-out error rate of each class."""
        return self._share(self.wrong)

    @property
    def high(self) -> Array:
        """(k,) largest leave-one-out error rate of each class."""
        return self._share(~self.right)

    def _share(self, mark: Mask) -> Array:
        own = [mark[self.labels == c] for c in range(len(self.classes))]
        return np.array([marks.mean() if len(marks) else np.nan for marks in own])


def leave_one_out(
    est: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, refit: bool = False
) -> LeaveOneOut:
    """Leave-one-out errors of each class without a fit: a certificate from the dual, for every loss table.

    Let (W, alpha) have the duality gap G, beta_i = codes' alpha_i and K_i = |phi(x_i)|^2. The scores f'_i
    that the optimal machine without example i gives to it satisfy

        |f'_i - (f_i - K_i beta_i / 2)|^2 <= K_i (G + K_i |beta_i|^2 / 4)

    and, where the table falls apart into outputs, the same in each output. With one output and G = 0 this is
    the bound of Jaakkola and Haussler (1999). An example whose leads are positive in the whole ball is
    certainly right. The mean of the leave-one-out error over samples is the error of a machine of n - 1
    examples, so `high` is above that error on average. With intercept="free" the intercept may move: only
    examples that are no support vectors are certain, as far as the fit is exact.

    Parameters
    ----------
    est : fitted machine, or a pipeline that ends in one
        Costs, kernel width and the steps before it are held fixed. Fit with a small `tol` (1e-6): the gap
        widens the ball.
    X, y, sample_weight : what it was fitted on
    refit : bool, default=False
        Fit without each example that is still open, and so decide all of them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from apportion import ApportionedSVC
    >>> from apportion.guarantees import leave_one_out
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(leave_one_out(ApportionedSVC(C=10, tol=1e-6).fit(X, y), X, y).high[0] < 0.1)
    True
    """
    machine, X = unwrap(est, X)
    if getattr(machine, "kernel", None) == "sigmoid":
        raise ValueError(
            "kernel='sigmoid' is no inner product, so that the certificate does not hold; allowed: others."
        )
    data = training(machine, X, y, sample_weight)
    labels, k = data.labels, len(machine.classes_)
    support = np.asarray(data.beta.any(axis=1))
    least, most = _lead_ranges(machine, data, support)
    own = np.arange(k) == labels[:, None]
    right = np.all((least > 0) | own, axis=1)
    if isinstance(machine.table_.decide, PairVotes):
        wrong = np.all((most < 0) | own, axis=1)  # wins no pair, so that another class has more votes
    else:
        wrong = np.any((most < 0) & ~own, axis=1)
    if refit:
        for i in np.flatnonzero(~(right | wrong)):
            right[i] = _right_without(machine, data, int(i))
            wrong[i] = not right[i]
    return LeaveOneOut(machine.classes_, labels, right, wrong, support)


def _lead_ranges(machine: Any, data: Training, support: Mask) -> tuple[Array, Array]:
    """(n, k) least and largest lead of the own class over class j, without the example."""
    a, c = leads(machine.table_)
    f, beta = data.scores, data.beta
    if machine.intercept == "free":
        centre, ball = f, np.where(support, np.inf, 0.0)
        box = np.repeat(ball[:, None], beta.shape[1], axis=1)
    else:
        from ..dual import binary_parts  # brings numba

        # linear machines: f from the primal, f + change from the dual point; the ball is around their middle
        K, change = squares(machine, data.X), data.dual_scores - f
        centre = f + change / 2 - K[:, None] * beta / 2
        radius = np.maximum(K[:, None] * beta**2 / 4 - beta * change / 2, 0.0)  # (n, m), squared, over K
        ball = np.sqrt(K * (data.gap + radius.sum(axis=1)))
        apart = binary_parts(machine.table_) is not None
        box = (
            np.sqrt(K[:, None] * (data.gap + radius)) if apart else np.repeat(ball[:, None], beta.shape[1], 1)
        )
    least, most = np.zeros((2, len(f), len(machine.classes_)))
    for j in range(len(machine.classes_)):
        toward = a[data.labels, j]  # (n, m), zero where j is the own class
        lead = np.einsum("no,no->n", toward, centre) + c[data.labels, j]
        used = toward != 0  # the box may be infinite, and 0 * inf is no number
        in_box = np.where(used, np.abs(toward), 1.0) * np.where(used, box, 0.0)
        in_ball = np.linalg.norm(toward, axis=1) + ~used.any(axis=1)
        reach = np.minimum(in_box.sum(axis=1), in_ball * np.where(used.any(axis=1), ball, 0.0))
        least[:, j], most[:, j] = lead - reach, lead + reach
    return least, most


def _right_without(machine: Any, data: Training, i: int) -> bool:
    """Whether the machine fitted without example i decides it right."""
    rest = np.arange(len(data.labels)) != i
    if len(np.unique(data.labels[rest])) < len(machine.classes_):
        return False  # it was the only one of its class
    fresh = clone(machine).set_params(
        loss=machine.table_, costs=None, margin_power=None, slack_power=None, warm_start=False
    )
    if hasattr(machine, "_gamma"):
        fresh.set_params(gamma=machine._gamma)
    X, x = data.X[rest], data.X[i : i + 1]
    if machine._pairwise:
        X, x = X[:, rest], x[:, rest]
    fresh.fit(X, data.labels[rest], sample_weight=data.weight[rest])
    return bool(fresh.predict(x)[0] == data.labels[i])


# ---------------------------------------------------------------- sample compression


class Compression(NamedTuple):
    """Bounds from the training data alone, by the rows that are no support vectors."""

    bound: Array  # (k,) on the error rate of each class; each holds with probability 1 - delta
    total: float  # on the error rate
    size: int  # rows the machine is made of
    agreement: (
        float  # share of the training data on which the machine of these rows decides as the fitted one
    )


def compression_bound(est: Any, X: Any, y: ArrayLike, delta: float = 0.05) -> Compression:
    """A machine is made of its support vectors; the other rows are a test it was one of few to be put to.

        error rate of class c <= largest p with P(Binomial(n_c - s_c, p) <= e_c) >= delta / (n (n over s))

    s of the n rows are kept, s_c of class c, and e_c errors are made on the others of class c (Littlestone,
    Warmuth 1986; Langford 2005, with the binomial tail itself). The machine is fitted again on the rows kept,
    and the bound is for that one; `agreement` says how far it is the one given.

    Parameters
    ----------
    est : a fitted machine, without `sample_weight`
        What it was fitted with must not depend on these rows: costs="balanced", gamma="scale" and
        kernel="precomputed" are refused, and a scaler before it should have been fitted on other rows.
    X, y : the training data
    delta : float, default=0.05
    """
    machine, X = unwrap(est, X)
    check_delta(delta)
    for name, dependent in (("costs", "balanced"), ("gamma", "scale"), ("kernel", "precomputed")):
        setting = getattr(machine, name, None)
        if isinstance(setting, str) and setting == dependent:
            raise ValueError(
                f"{name}={dependent!r} depends on all training rows, so that this bound does not hold; "
                + ("give a kernel that is computed from X." if name == "kernel" else "give numbers.")
            )
    data = training(machine, X, y, None)
    labels, k = data.labels, len(machine.classes_)
    keep = np.asarray(data.beta.any(axis=1))
    for c in range(k):
        if not keep[labels == c].any():
            keep[np.flatnonzero(labels == c)[0]] = True
    again = clone(machine).set_params(warm_start=False).fit(data.X[keep], machine.classes_[labels[keep]])
    decided = again.predict(data.X)
    n, s = len(labels), int(keep.sum())
    rest, wrong = labels[~keep], (decided != machine.classes_[labels])[~keep]
    ways = float(gammaln(n + 1) - gammaln(s + 1) - gammaln(n - s + 1))  # log (n over s)
    level = float(np.log(delta) - np.log(n)) - ways
    bound = [_largest_rate(int(wrong[rest == c].sum()), int((rest == c).sum()), level) for c in range(k)]
    agreement = float(np.mean(decided == machine.predict(data.X)))
    return Compression(np.array(bound), _largest_rate(int(wrong.sum()), len(rest), level), s, agreement)


def _largest_rate(errors: int, n: int, log_level: float) -> float:
    """The rate at which `errors` or fewer of n have probability exp(log_level), by bisection from above.

    In logarithms: the level is that of one among (n over s) machines, and soon smaller than the least float.
    """
    if errors >= n:
        return 1.0
    low, high = float(-np.expm1(log_level / n)), 1.0  # (1 - p)^n is a part of the tail
    if errors == 0:
        return low
    i = np.arange(errors + 1)
    ways = gammaln(n + 1) - gammaln(i + 1) - gammaln(n - i + 1)  # log (n over i)
    while low < (p := (low + high) / 2) < high:
        tail = float(logsumexp(ways + i * np.log(p) + (n - i) * np.log1p(-p)))
        low, high = (p, high) if tail >= log_level else (low, p)
    return high
