"""From the held-out scores of many machines to one set of class probabilities, and from these to decisions.

A machine trained with costs theta says, if softmax(a S) is taken as its opinion of P_y theta_y, that

    P_y  is proportional to  exp(a S_y) / theta_y                                            (n, k) class scores S

so that the largest score is the Bayes decision: its costs are in its scores already. `temperature` finds the one number a of a
machine, `calibrate` a and an offset b_y for each class of an average of machines,

    P_y  is proportional to  exp(a S_y + b_y) / theta_y ,

by maximum likelihood on held-out scores. A ridge on b keeps the decision where the machines put it unless the data disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from .costs import Costs

Array = NDArray[np.float64]
Members = NDArray[np.intp]

TEMPERATURES = np.geomspace(0.2, 12.0, 12)  # in units of 1 / mean |score|
OFFSET_RIDGE = 10.0  # as strong as some ten examples
SLOPE_RIDGE = 0.1


def decide(probabilities: Array, costs: Costs) -> Members:
    """(n,) the decision with the least expected cost: argmin_j sum_y P_y costs[y, j]."""
    if costs.theta is not None:
        return np.argmax(probabilities * costs.theta, axis=1)
    return np.argmin(probabilities @ costs.matrix, axis=1)


def temperature(scores: Array, y: Members, weight: Array) -> tuple[float, float]:
    """(a, loss): the factor for `scores` (n, k) with the least weighted mean of -log softmax(a scores)_y, and that mean."""
    size = float(np.abs(scores).mean()) or 1.0
    # log softmax(z)_y = -log sum_j exp(z_j - z_y)
    lead = np.asarray(scores - scores[np.arange(len(y)), y][:, None], dtype=float) / size
    top, share = np.maximum(lead.max(axis=1), 0.0), weight / weight.sum()
    losses = [
        float(share @ (a * top + np.log(np.exp(a * (lead - top[:, None])).sum(axis=1)))) for a in TEMPERATURES
    ]
    best = int(np.argmin(losses))
    return float(TEMPERATURES[best] / size), losses[best]


@dataclass(frozen=True)
class Calibration:
    """Probabilities from averaged class scores."""

    slope: float
    offset: Array  # (k,)
    theta: Array  # (k,)

    def __call__(self, scores: Array) -> Array:
        """(n, k) class scores -> (n, k) probabilities."""
        return np.asarray(softmax(self.slope * scores + self.offset - np.log(self.theta), axis=1))


def calibrate(scores: Array, y: Members, weight: Array, theta: Array) -> Calibration:
    """Fit on held-out `scores` (n, k) of examples of classes y (n,)."""
    n, k = scores.shape
    rows, log_theta = np.arange(n), np.log(theta)

    def loss_and_gradient(v: Array) -> tuple[float, Array]:
        a, b = np.exp(v[0]), v[1:]
        log_p = log_softmax(a * scores + b - log_theta, axis=1)
        loss = -weight @ log_p[rows, y] + 0.5 * SLOPE_RIDGE * v[0] ** 2 + 0.5 * OFFSET_RIDGE * b @ b
        residual = np.exp(log_p)
        residual[rows, y] -= 1
        residual *= weight[:, None]
        slope = a * (residual * scores).sum() + SLOPE_RIDGE * v[0]
        return float(loss), np.append(slope, residual.sum(axis=0) + OFFSET_RIDGE * b)

    v = minimize(loss_and_gradient, np.zeros(k + 1), jac=True, method="L-BFGS-B").x
    return Calibration(float(np.exp(v[0])), v[1:], theta)
