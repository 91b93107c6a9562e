"""Tell malignant tumours from benign ones, where missing a malignant one costs ten times a false alarm.

Run it with `make demo`, or `python examples/demo.py`.
"""

from collections import Counter

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from apportion import ApportionedSVC, class_sensitivity, cost_savings, cost_scorer, expected_cost

COSTS = {"malignant": 10, "benign": 1}
POWERS = [
    (0, 1),
    (0.5, 0.5),
    (1, 0),
    (0.5, 1),
]  # how costs enter margins and slack; (1, 0) is the paper's machine

BEFORE = """\
Breast cancer: {n} tumours, {d} features, {malignant} malignant.
Missing a malignant tumour costs 10, a false alarm costs 1.
{folds}-fold cross-validated decisions; each method tuned on cost within each fold, over {settings} settings.

                    expected             ----- sensitivity ----   duality
method                  cost   savings     malignant      benign       gap"""

ROW = "{name:18}{cost:10.4f}{savings:10.1%}{malignant:14.1%}{benign:12.1%}{gap:10.1e}"

AFTER = """
{verdict}
Another draw of the folds may turn this round: it is an example, not a verdict.

expected cost  average cost of a decision; less is better
savings        share saved of what the best constant decision would cost
sensitivity    share of the tumours of this kind that are recognised
duality gap    (primal - dual) / primal: training is at most this far from its optimum (worst of {folds};
               ours is dual_gap_, that of SVC is computed here from its dual variables)
powers         (margin_power, slack_power), how costs enter ours, as tuning chose them: {powers}"""


def searches(size, folds):
    """The two methods, each tuned on cost over size^2 settings: same ranges, same inner folds."""

    def search(machine, grid):
        pipeline = Pipeline([("scale", StandardScaler()), ("svc", machine)])
        inner = StratifiedKFold(folds, shuffle=True, random_state=1)
        return GridSearchCV(pipeline, grid, scoring=cost_scorer(COSTS), cv=inner)

    def grid(size, **fixed):
        C, gamma = np.logspace(-1, 3, size), np.logspace(-3.5, -0.5, size)
        return {
            "svc__C": C,
            "svc__gamma": gamma,
            **{f"svc__{name}": [value] for name, value in fixed.items()},
        }

    ours = [grid(size // 2, margin_power=p, slack_power=q) for p, q in POWERS]
    return {
        "ApportionedSVC": search(ApportionedSVC(COSTS), ours),
        "SVC(class_weight)": search(SVC(class_weight=COSTS), grid(size)),
    }


def svc_gap(svc, X, y):
    """Relative duality gap of a fitted two-class SVC, which does not report one: (primal - dual) / primal."""
    cost = np.array([COSTS[label] for label in y])
    sign = np.where(y == svc.classes_[1], 1.0, -1.0)
    score = svc.decision_function(X)
    beta = svc.dual_coef_[0]
    square = beta @ (score[svc.support_] - svc.intercept_[0])  # |w|^2 = beta' K beta
    primal = 0.5 * square + svc.C * cost @ np.maximum(0.0, 1.0 - sign * score)
    dual = np.abs(beta).sum() - 0.5 * square
    return (primal - dual) / primal


def judge(search, X, y, folds):
    """Decisions on examples that neither training nor tuning has seen, the worst gap, the powers chosen."""
    decision, gaps, powers = np.empty_like(y), [], Counter()
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y):
        fitted = clone(search).fit(X[train], y[train])
        decision[test] = fitted.predict(X[test])
        scale, machine = fitted.best_estimator_["scale"], fitted.best_estimator_["svc"]
        if isinstance(machine, ApportionedSVC):
            gaps.append(machine.dual_gap_)
            powers[machine.margin_power, machine.slack_power] += 1
        else:
            gaps.append(svc_gap(machine, scale.transform(X[train]), y[train]))
    return decision, max(gaps), powers


def main(size=6, folds=5):
    """Print the table; `size` is the side of the grid on which each method is tuned."""
    data = load_breast_cancer()
    X, y = data.data, data.target_names[data.target].astype(str)
    (n, d), count = X.shape, np.sum(y == "malignant")
    print(BEFORE.format(n=n, d=d, malignant=count, folds=folds, settings=size**2))
    costs, chosen = {}, Counter()
    for name, search in searches(size, folds).items():
        decision, gap, powers = judge(search, X, y, folds)
        cost = costs[name] = expected_cost(y, decision, costs=COSTS)
        savings = cost_savings(y, decision, costs=COSTS)
        malignant, benign = class_sensitivity(y, decision, labels=["malignant", "benign"])
        row = {
            "name": name,
            "cost": cost,
            "savings": savings,
            "malignant": malignant,
            "benign": benign,
            "gap": gap,
        }
        print(ROW.format(**row), flush=True)
        chosen += powers
    less, more = sorted(costs, key=costs.get)
    units = round(n * (costs[more] - costs[less]))
    verdict = (
        f"Here {less} costs less: by {units} in all, where a missed malignant tumour is 10, a false alarm 1."
    )
    picked = ", ".join(f"({p:g}, {q:g}) {times}x" for (p, q), times in chosen.most_common())
    print(AFTER.format(verdict=verdict if units else "Here both cost the same.", folds=folds, powers=picked))


if __name__ == "__main__":
    main()
