"""The golden five-point cases, worked out once with an interior point method.

    python tests/make_golden.py > tests/golden.json

Five points in the plane, three classes, unequal costs; not separable, so that bounds, margins and slack all
play a part. For each loss a case with every kind of intercept, with an RBF kernel and with sample weights,
and then the forms that some losses have besides. `value` is the optimal primal value; `alpha` certifies it
(the duality gap there is zero); `W` and `b` are one optimum.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from apportion.costs import check_costs
from apportion.losses import loss_table
from oracles import LOSSES, primal_cvxpy

X = [[0.0, 1.0], [1.0, 0.5], [1.5, 2.0], [-1.0, 0.0], [0.5, 1.5]]
Y = [0, 1, 2, 0, 1]
VECTOR = [1.0, 4.0, 2.0]
MATRIX = [[0.0, 1.0, 3.0], [4.0, 0.0, 0.5], [2.0, 0.0, 0.0]]
WEIGHTS = [1.0, 2.0, 0.5, 1.0, 3.0]


def cases() -> list[dict[str, Any]]:
    plain: dict[str, Any] = {
        "costs": VECTOR,
        "margin_power": None,
        "slack_power": None,
        "C": 0.8,
        "sample_weight": None,
        "intercept": "penalized",
        "intercept_scaling": 1.0,
        "gamma": None,  # of the RBF kernel; None: the linear machine
    }
    found: list[dict[str, Any]] = []
    for loss in LOSSES:
        for intercept in ("penalized", "free", "none"):
            found.append({"loss": loss, **plain, "intercept": intercept})
        found.append({"loss": loss, **plain, "gamma": 0.7})
        found.append({"loss": loss, **plain, "sample_weight": WEIGHTS, "intercept_scaling": 2.0})
    for powers in ({"margin_power": 0.5, "slack_power": 0.5}, {"margin_power": 1.0, "slack_power": 1.0}):
        for loss in ("apportioned", "pairwise"):
            found.append({"loss": loss, **plain, **powers})
    found.append({"loss": "lee-lin-wahba", **plain, "costs": MATRIX})
    return found


def solve(case: dict[str, Any]) -> Any:
    costs = check_costs(case["costs"], [0, 1, 2])
    table = loss_table(
        case["loss"], costs, margin_power=case["margin_power"], slack_power=case["slack_power"]
    )
    kernel = case["gamma"] is not None
    points = rbf_kernel(X, gamma=case["gamma"]) if kernel else X
    return primal_cvxpy(
        table,
        points,
        Y,
        case["C"],
        case["sample_weight"],
        case["intercept"],
        case["intercept_scaling"],
        kernel=kernel,
    )


def main() -> None:
    solved = []
    for case in cases():
        best = solve(case)
        numbers = {"W": best.W, "b": best.b, "alpha": np.maximum(best.alpha, 0.0)}
        if case["gamma"] is not None:
            del numbers["W"]  # in features of the kernel that mean nothing elsewhere
        rounded = {name: (np.round(array, 10) + 0.0).tolist() for name, array in numbers.items()}
        solved.append({**case, "value": round(best.value, 10), **rounded})
    lines = ",\n  ".join(json.dumps(case) for case in solved)
    print(f'{{"X": {json.dumps(X)},\n "y": {json.dumps(Y)},\n "cases": [\n  {lines}\n]}}')


if __name__ == "__main__":
    main()
