"""Extra [torch]: the loss tables as torch modules, the rivals' losses, the networks (torch and numpy only).

The formula of `losses.py` over a batch of logits f (n, m) and classes y (n,):

    loss(f, y) = sum_r weights[y, r] * max(0, margins[y, r] - codes[y, r] . f)    (shared slack: the largest)

Every module here has `forward(logits, y)`, `scores(logits)` (class scores, n x k), `decide(logits)` (their
argmax) and `n_outputs`. The rivals take the costs as their authors or their users do; LDAM and logit
adjustment are the published losses for long tails when theta_y = n / (k n_y).

References: Kukar, Kononenko 1998 (squared cost); Cao et al. 2019 (LDAM); Menon et al. 2021 (logit
adjustment); Elkan 2001 (Bayes decision).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .costs import Costs, check_costs
from .losses import LossTable, PerClass, loss_table

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError("the neural machine needs torch: pip install apportion[torch]") from error

REDUCTIONS = ("mean", "sum", "none")


def _checked(costs: Any) -> Costs:
    """Costs of the classes 0 .. k-1; a `Costs` is taken as it is."""
    if isinstance(costs, Costs):
        return costs
    if costs is None or isinstance(costs, str):
        raise ValueError(
            f"costs={costs!r} does not say how many classes there are; "
            "give a dict, an array (k,) or a matrix (k, k)."
        )
    return check_costs(costs, np.arange(len(costs)))


def _vector(costs: Costs, name: str) -> Tensor:
    if costs.theta is None:
        raise ValueError(
            f"{name} takes one cost a class, and this cost matrix has rows with unequal entries."
        )
    return _tensor(costs.theta)


def _tensor(array: NDArray[np.float64]) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.get_default_dtype())


class CostLoss(nn.Module):
    """What all losses share: shape checks, reduction, decision. Subclasses say `terms`, some `scores`."""

    costs: Costs

    def __init__(self, costs: Any, reduction: str = "mean", n_outputs: int | None = None) -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is not known; allowed: {list(REDUCTIONS)}.")
        self.costs = _checked(costs)
        self.reduction = reduction
        self.n_outputs = len(self.costs.classes) if n_outputs is None else n_outputs

    def terms(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n, m) logits, (n,) classes -> (n,) or (n, R) terms; an example's loss is their sum."""
        raise NotImplementedError

    def scores(self, logits: Tensor) -> Tensor:
        """(n, m) logits -> (n, k) class scores; the largest decides."""
        return logits

    def decide(self, logits: Tensor) -> Tensor:
        """(n, m) logits -> (n,) classes 0 .. k-1."""
        return self.scores(logits).argmax(-1)

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        if logits.ndim != 2 or logits.shape[1] != self.n_outputs:
            raise ValueError(
                f"logits has shape {tuple(logits.shape)}; this loss needs (n, {self.n_outputs})."
            )
        if y.shape != logits.shape[:1] or y.is_floating_point() or y.dtype == torch.bool:
            raise ValueError(
                f"y has shape {tuple(y.shape)} and dtype {y.dtype}; "
                f"it must hold {logits.shape[0]} class numbers (integers)."
            )
        k = len(self.costs.classes)
        if not (y.is_cuda or torch.compiler.is_compiling()) and bool(((y < 0) | (y >= k)).any()):
            raise ValueError(
                f"y holds {y[(y < 0) | (y >= k)][0].item()}; allowed are the classes 0 to {k - 1}."
            )
        # under autocast too: no sums in half precision
        full = torch.promote_types(logits.dtype, torch.float32)
        terms = self.terms(logits.to(full), y.long())
        if self.reduction == "none":
            return terms.sum(1) if terms.ndim == 2 else terms
        return terms.sum() / len(y) if self.reduction == "mean" else terms.sum()


# ---------------------------------------------------------------- the tables


def per_output(table: LossTable) -> tuple[NDArray[np.float64], NDArray[np.float64], float] | None:
    """(A, M, c) such that the table's terms are  max(0, M[y] - A[y] * (f + c sum f)),  or None: no such form.

    It exists where each row looks at one output after a common shift c sum(f): codes[y, r] = a e_j + a c 1.
    Then nothing larger than n x m is needed. M and A are (k, m) with the weights (>= 0) multiplied in;
    an output that no row of class y looks at has M = A = 0.
    """
    codes, live = table.codes, table.weights > 0
    k, R, m = codes.shape
    if m < 3:
        return None  # the full product is as cheap
    rest = np.median(codes[:, :, :3], axis=2)  # (k, R): the value of all entries of a row but one, if any
    differs = codes != rest[:, :, None]
    own = differs.argmax(2)  # (k, R): the output that row r of class y looks at
    a = np.take_along_axis(codes, own[:, :, None], 2)[:, :, 0] - rest
    classes = np.broadcast_to(np.arange(k)[:, None], (k, R))
    rows = np.zeros((k, m), dtype=int)
    np.add.at(rows, (classes[live], own[live]), 1)
    if not live.any() or np.any(differs.sum(2)[live] != 1) or np.any(rows > 1):
        return None
    shift = rest[live] / a[live]
    if not np.allclose(shift, shift[0], rtol=1e-12, atol=0):
        return None
    A, M = np.zeros((k, m)), np.zeros((k, m))
    A[classes[live], own[live]] = (table.weights * a)[live]
    M[classes[live], own[live]] = (table.weights * table.margins)[live]
    return A, M, float(shift[0])


class ApportionedMarginLoss(CostLoss):
    """A loss table on logits: every loss of `losses.py`, or a `LossTable` of your own.

    Parameters
    ----------
    costs : array (k,) or (k, k), dict {class number: cost}, or Costs
        What an error on each class costs, or costs[true, predicted].
    loss : str or LossTable
        "apportioned" (the paper's), "lee-lin-wahba" (consistent; takes a cost matrix), "one-vs-rest",
        "pairwise" (k (k-1) / 2 logits), "weston-watkins", "crammer-singer", "reinforced".
    margin_power, slack_power : float, optional
        p and q; None: the loss's own, (1, 0) for "apportioned" and (0, 1) for the others.
    reduction : "mean", "sum" or "none"

    >>> loss = ApportionedMarginLoss([2.0, 1.0, 1.0])
    >>> loss(torch.zeros(2, 3), torch.tensor([0, 1]))  # (3 * 2 + 3 * 1) / 2
    tensor(4.5000)
    """

    A: Tensor
    M: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(
        self,
        costs: Any,
        loss: str | LossTable = "apportioned",
        margin_power: float | None = None,
        slack_power: float | None = None,
        reduction: str = "mean",
    ) -> None:
        costs = _checked(costs)
        table = loss_table(loss, costs, margin_power=margin_power, slack_power=slack_power)
        super().__init__(costs, reduction, table.n_outputs)
        self.shared = table.shared
        form = per_output(table)
        self.factored = form is not None
        if form is not None:
            A, M, self.common = form
            self.register_buffer("A", _tensor(A))  # (k, m)
            self.register_buffer("M", _tensor(M))  # (k, m)
        else:
            self.register_buffer("A", _tensor(table.weights[:, :, None] * table.codes))  # (k, R, m)
            self.register_buffer("M", _tensor(table.weights * table.margins))  # (k, R)
        # where no code sees a common shift of the logits, the loss leaves it open: take those that sum to 0
        self.centred = bool(np.allclose(table.codes.sum(2) * table.weights, 0.0, atol=1e-9))
        self._decide = table.decide
        if isinstance(table.decide, PerClass):
            self.register_buffer("scale", _tensor(table.decide.scale))
            self.register_buffer("offset", _tensor(table.decide.offset))

    def terms(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.factored:  # (n, m)
            f = logits if self.common == 0 else logits + self.common * logits.sum(1, keepdim=True)
            hinges = F.relu(torch.addcmul(self.M[y], self.A[y], f, value=-1))
        else:  # (n, R) through (n, R, m); a product and a sum, which autocast leaves in full precision
            hinges = F.relu(self.M[y] - (self.A[y] * logits[:, None, :]).sum(2))
        return hinges.amax(1) if self.shared else hinges

    def scores(self, logits: Tensor) -> Tensor:
        f = logits - logits.mean(-1, keepdim=True) if self.centred else logits
        if isinstance(self._decide, PerClass):
            return f * self.scale + self.offset
        votes = self._decide(f.detach().cpu().double().numpy())  # in numpy: votes have no gradient to lose
        return torch.as_tensor(votes).to(f)


class WeightedHingeLoss(ApportionedMarginLoss):
    """theta_y sum_j [1 - s_yj f_j]_+ : the one-vs-rest hinge with class weights, the paper's second rival."""

    def __init__(self, costs: Any, reduction: str = "mean") -> None:
        super().__init__(costs, "one-vs-rest", reduction=reduction)


# ---------------------------------------------------------------- the rivals


class SoftmaxBayesLoss(CostLoss):
    """Cross entropy; decides by the least expected cost, argmin_j sum_y P(y|x) cost[y, j]. Takes a matrix."""

    matrix: Tensor

    def __init__(self, costs: Any, reduction: str = "mean") -> None:
        super().__init__(costs, reduction)
        self.register_buffer("matrix", _tensor(self.costs.matrix))

    def terms(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, y, reduction="none")

    def scores(self, logits: Tensor) -> Tensor:
        return -(logits.softmax(-1).to(self.matrix.dtype) @ self.matrix)


class WeightedSoftmaxLoss(CostLoss):
    """theta_y times the cross entropy: class weights as everybody uses them, the paper's first rival."""

    theta: Tensor

    def __init__(self, costs: Any, reduction: str = "mean") -> None:
        super().__init__(costs, reduction)
        self.register_buffer("theta", _vector(self.costs, "weighted softmax"))

    def terms(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.theta[y] * F.cross_entropy(logits, y, reduction="none")


class SquaredCostLoss(CostLoss):
    """Kukar and Kononenko: 1/2 sum_j ((1[j = y] - o_j) K[y, j])^2, sigmoid outputs o. Takes a matrix.

    K[y, j] is the cost of saying j, and K[y, y] the mean cost of an error on y.
    """

    K: Tensor

    def __init__(self, costs: Any, reduction: str = "mean") -> None:
        super().__init__(costs, reduction)
        matrix = self.costs.matrix
        self.register_buffer("K", _tensor(matrix + np.diag(matrix.sum(1) / (len(matrix) - 1))))

    def terms(self, logits: Tensor, y: Tensor) -> Tensor:
        return 0.5 * ((F.one_hot(y, self.n_outputs) - logits.sigmoid()) * self.K[y]) ** 2


class LDAMLoss(CostLoss):
    """LDAM: cross entropy of scale * (f - margin_y e_y), margin_y ~ theta_y^(1/4), at most `max_margin`.

    The examples carry the weight theta_y (the published second stage, from the start). Made for cosine
    logits: end the network with `NormedLinear`, as its authors do.
    """

    theta: Tensor
    margins: Tensor

    def __init__(
        self, costs: Any, reduction: str = "mean", *, max_margin: float = 0.5, scale: float = 30.0
    ) -> None:
        super().__init__(costs, reduction)
        for name, number in (("max_margin", max_margin), ("scale", scale)):
            if not (math.isfinite(number) and number > 0):
                raise ValueError(f"{name}={number!r} must be a positive finite number.")
        theta = _vector(self.costs, "LDAM")
        self.scale = scale
        self.register_buffer("theta", theta)
        self.register_buffer("margins", max_margin * (theta / theta.max()) ** 0.25)

    def terms(self, logits: Tensor, y: Tensor) -> Tensor:
        margins = F.one_hot(y, self.n_outputs) * self.margins
        return self.theta[y] * F.cross_entropy(self.scale * (logits - margins), y, reduction="none")


class LogitAdjustedLoss(CostLoss):
    """Logit adjustment: cross entropy of f - tau log theta, so that f learns log(theta_y^tau P(y | x))."""

    shift: Tensor

    def __init__(self, costs: Any, reduction: str = "mean", *, tau: float = 1.0) -> None:
        super().__init__(costs, reduction)
        if not math.isfinite(tau):
            raise ValueError(f"tau={tau!r} must be a finite number.")
        self.register_buffer("shift", tau * _vector(self.costs, "logit adjustment").log())

    def terms(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits - self.shift, y, reduction="none")


# ---------------------------------------------------------------- the networks


class NormedLinear(nn.Module):
    """Cosines between the features and one direction per output, the last layer LDAM is made for."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))


class Standardize(nn.Module):
    """(x - mean) / deviation of the training rows X, per feature or image channel; a constant becomes 0."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, X: Tensor) -> None:
        super().__init__()
        X = X.double()
        over = tuple(d for d in range(X.ndim) if d != 1)
        mean, deviation = X.mean(over, keepdim=True), X.std(over, keepdim=True, correction=0)
        self.register_buffer("mean", mean.float())
        self.register_buffer("deviation", torch.where(deviation > 0, deviation, 1.0).float())

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


def paper_net(
    n_outputs: int,
    *,
    drop: float = 0.25,
    channels: int = 3,
    size: tuple[int, int] = (32, 32),
    head: Callable[[int, int], nn.Module] = nn.Linear,
) -> nn.Sequential:
    """The paper's network: conv 5x5x24, 5x5x48 stride 2, 4x4x64 stride 2, dense 200, output.

    Batch norm, ReLU and dropout follow each but the last.

    The paper writes dropout "with probability 0.75" and not whether a unit is kept or dropped with it:
    drop=0.25 or drop=0.75.
    """
    if not 0 <= drop < 1:
        raise ValueError(f"drop={drop!r} must lie in [0, 1): the probability that a unit is dropped.")
    if min(size) < 4:
        raise ValueError(
            f"images of size {size} are too small for the paper's network; it needs at least 4 x 4."
        )

    def conv(inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding)
        return [layer, nn.BatchNorm2d(outputs), nn.ReLU(), nn.Dropout(drop)]

    height, width = (((n + 1) // 2) // 2 for n in size)  # two strides of 2
    return nn.Sequential(
        *conv(channels, 24, 5, 1, 2),
        *conv(24, 48, 5, 2, 2),
        *conv(48, 64, 4, 2, 1),
        nn.Flatten(),
        *(nn.Linear(64 * height * width, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Dropout(drop)),
        head(200, n_outputs),
    )


def mlp(
    n_features: int, n_outputs: int, *, hidden: tuple[int, ...] = (256, 256), drop: float = 0.1
) -> nn.Sequential:
    """A plain network for tables: dense layers with ReLU and dropout."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip((n_features, *hidden[:-1]), hidden, strict=True):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(drop)]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], n_outputs))
