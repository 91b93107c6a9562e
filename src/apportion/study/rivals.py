"""How each method of the study is trained: tuned over the inner folds, then trained on all rows.

The rivals are tuned on the expected cost; ours, `ApportionedSVCCV`, on the cost and the log loss together.
A method is a function train(problem, costs) -> Trained. The `Problem` computes once what methods and costs share. Kernel machines
search the same C and widths. Probability methods decide by Bayes' rule: the class whose expected cost under the probabilities is
the lowest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import make_scorer
from sklearn.model_selection import ParameterGrid, StratifiedKFold, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from ..costs import Costs, check_costs
from ..losses import LossTable, loss_table
from ..search import class_costs
from .problem import Array, Codes, Part, Problem

CS = tuple(2.0**i for i in range(-3, 10, 2))
LINEAR_CS = tuple(2.0**i for i in range(-9, 4, 2))
# times 1 / number of columns
WIDTHS: dict[str, tuple[float, ...]] = {
    "rbf": (1 / 16, 1 / 4, 1.0, 4.0),
    "laplacian": (0.1, 0.3, 1.0, 3.0),
}
# these and the same on columns weighed by what they tell
WEIGHED_WIDTHS = WIDTHS | {f"{kind} weighed": widths for kind, widths in WIDTHS.items()}
RBF, BOTH, WEIGHED = ("rbf",), ("rbf", "laplacian"), tuple(WEIGHED_WIDTHS)
SVC_STEPS = 100_000  # a guard: with a large C libsvm may need hours for nothing
BOOSTING_ROUNDS = (25, 50, 100)
TREES, SEARCH_TREES = 300, 100  # settings are told apart by fewer trees than decisions are made by
SHIFTS = 100  # thresholds that TunedThresholdClassifierCV tries


@dataclass
class Trained:
    """A trained method."""

    predict: Callable[[Array], Codes]  # X (n, d) -> classes as 0 .. k - 1
    params: dict[str, Any]  # what the search chose
    inner_cost: float  # the expected cost it chose them by


# ---------------------------------------------------------------- choosing


def mean_cost(costs: Costs, y: Codes, decided: Codes) -> float:
    return float(costs.matrix[y, decided].mean())


def cheapest(
    problem: Problem, costs: Costs, tried: Iterable[tuple[dict[str, Any], Codes]]
) -> tuple[dict[str, Any], float]:
    """The setting whose out-of-fold decisions cost least; of equals the first, as in GridSearchCV."""
    found = [(mean_cost(costs, problem.y, decided), params) for params, decided in tried]
    cost, params = min(found, key=lambda pair: pair[0])
    return params, cost


def _quiet(fit: Callable[[], Any]) -> Any:
    """A search meets settings that do not converge; those lose by their cost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit()


# ---------------------------------------------------------------- kernel machines

# (K (n, n), K_held (n', n), y, costs, C, start) -> (classes of the held rows, start of the next C)
Machine = Callable[[Array, Array, Codes, Costs, float, Any], tuple[Codes, Any]]


def search_kernels(
    problem: Problem,
    costs: Costs,
    machine: Machine,
    kinds: tuple[str, ...] = RBF,
    Cs: tuple[float, ...] = CS,
    widths: dict[str, tuple[float, ...]] = WEIGHED_WIDTHS,
) -> Trained:
    """A kernel machine over the growing `Cs` and the widths of the kernels; the setting that costs least on the held rows."""

    def tried(kind: str) -> list[tuple[dict[str, Any], Codes]]:
        decided = np.empty((len(widths[kind]), len(Cs), len(problem.y)), dtype=np.intp)
        for w, width in enumerate(widths[kind]):
            for part, (_, held) in zip(problem.parts, problem.inner, strict=True):
                K, K_held = part.kernel(kind, width)
                start = None
                for c, C in enumerate(Cs):
                    decided[w, c, held], start = machine(K, K_held, part.y, costs, C, start)
        return [
            ({"kernel": kind, "width": width, "C": C}, decided[w, c])
            for w, width in enumerate(widths[kind])
            for c, C in enumerate(Cs)
        ]

    key = (machine, costs.matrix.tobytes(), Cs)
    both = [pair for kind in kinds for pair in problem.once((*key, kind, widths[kind]), partial(tried, kind))]
    params, cost = cheapest(problem, costs, both)

    def predict(X: Array) -> Codes:
        K, K_held = problem.whole(X).kernel(params["kernel"], params["width"])
        start = None
        for C in Cs[
            : Cs.index(params["C"]) + 1
        ]:  # the way the search came: a large C is far from a cold start
            decided, start = machine(K, K_held, problem.y, costs, C, start)
        return decided

    return Trained(predict, params, cost)


def _svc(C: float, theta: Array | None = None) -> SVC:
    weight = None if theta is None else dict(enumerate(theta.tolist()))
    return SVC(kernel="precomputed", C=C, class_weight=weight, max_iter=SVC_STEPS)


def one_vs_one(K: Array, K_held: Array, y: Codes, costs: Costs, C: float, start: Any) -> tuple[Codes, Any]:
    """SVC(class_weight=costs): one machine a pair of classes, votes."""
    machine = _quiet(lambda: _svc(C, class_costs(costs)).fit(K, y))
    return machine.predict(K_held), None


def inverse_size(K: Array, K_held: Array, y: Codes, costs: Costs, C: float, start: Any) -> tuple[Codes, Any]:
    """WSVM: weights cost / size of the class, of mean 1 over the rows where costs are equal."""
    sizes = np.bincount(y)
    weight = class_costs(costs) * len(y) / (len(sizes) * sizes)
    machine = _quiet(lambda: _svc(C, weight).fit(K, y))
    return machine.predict(K_held), None


def possibilistic(K: Array, K_held: Array, y: Codes, costs: Costs, C: float, start: Any) -> tuple[Codes, Any]:
    """WSVM of Yang, Song and Cao (2005): rows far from the centre of their class weigh less, times the cost."""
    typical = np.ones(len(y)) if start is None else start
    if start is None:
        for c in range(int(y.max()) + 1):
            rows = np.flatnonzero(y == c)
            typical[rows] = typicality(K[np.ix_(rows, rows)])
    machine = _quiet(lambda: _svc(C, class_costs(costs)).fit(K, y, sample_weight=np.maximum(typical, 1e-3)))
    return machine.predict(K_held), typical


def typicality(K: Array, rounds: int = 50) -> Array:
    """Kernel possibilistic c-means with one centre v, fuzzifier 2: u_i = 1 / (1 + |phi(x_i) - v|^2 / eta).

    v is the mean of the phi(x_i) weighted by u_i^2, eta the mean of the squared distances weighted likewise, held after the
    first round as Krishnapuram and Keller (1993) advise.
    """
    u = np.ones(len(K))
    eta = 0.0
    for _ in range(rounds):
        share = u**2 / (u**2).sum()
        distance = np.maximum(np.diag(K) - 2 * K @ share + share @ K @ share, 0.0)
        eta = eta or float(share @ distance)
        if eta <= 1e-12:  # all rows are one point
            return u
        new = 1 / (1 + distance / eta)
        if np.abs(new - u).max() < 1e-4:
            break
        u = new
    return new


def _table(loss: str, costs: Costs, p: float | None, q: float | None) -> LossTable:
    """A loss that takes one cost a class gets the mean of its row of a full matrix."""
    if loss != "lee-lin-wahba":
        costs = check_costs(class_costs(costs), costs.classes)
    return loss_table(loss, costs, margin_power=p, slack_power=q)


@dataclass(frozen=True)
class Apportioned:
    """A loss table trained by our own solver, the way of C warm started."""

    loss: str
    p: float | None = None
    q: float | None = None
    offset: float | None = 1.0  # None: a free intercept, as in libsvm
    tol: float = 1e-3
    max_iter: int = 1000

    def __call__(
        self, K: Array, K_held: Array, y: Codes, costs: Costs, C: float, start: Any
    ) -> tuple[Codes, Any]:
        from ..dual import Settings, solve_kernel
        from ..kernels import Precomputed

        table = _table(self.loss, costs, self.p, self.q)
        settings = Settings(C=C, offset=self.offset, tol=self.tol, max_iter=self.max_iter)
        n = len(y)
        solution = solve_kernel(table, Precomputed(K, np.arange(n)), y, np.ones(n), settings, start)
        scores = table.decide(K_held @ solution.beta(table, y) + solution.intercept)
        return scores.argmax(axis=1), solution.alpha


# OneVsRestClassifier(SVC(class_weight)), as a test shows
ONE_VS_REST = Apportioned("one-vs-rest", offset=None)
# coupled outputs are slow to solve to the end; decisions settle before
COUPLED: dict[str, Any] = {"tol": 1e-2, "max_iter": 100}


def multiclass(
    problem: Problem, costs: Costs, machine: Machine, kinds: tuple[str, ...] = RBF, **grid: Any
) -> Trained:
    """As `search_kernels`; with two classes all these machines are the one binary SVM, and take the decisions of SVC."""
    return search_kernels(problem, costs, one_vs_one if problem.k == 2 else machine, kinds, **grid)


def shift_bias(problem: Problem, costs: Costs) -> Trained:
    """Two classes: an SVC without weights whose threshold is moved to where the held rows cost least."""

    def scores() -> list[tuple[dict[str, Any], Array]]:
        return [
            (
                {"kernel": "rbf", "width": width, "C": C},
                problem.out_of_fold(partial(decide, width=width, C=C)),
            )
            for width in WIDTHS["rbf"]
            for C in CS
        ]

    def decide(part: Part, width: float, C: float) -> Array:
        K, K_held = part.kernel("rbf", width)
        return _quiet(lambda: _svc(C).fit(K, part.y)).decision_function(K_held)

    def best_threshold(score: Array) -> tuple[float, float]:
        order = np.argsort(score)
        first, second = class_costs(costs)
        ranked = problem.y[order]
        # everything above place i is decided for class 1: the errors of class 1 below, those of class 0 above
        cost = second * np.append(0, np.cumsum(ranked == 1)) + first * np.append(
            np.cumsum((ranked == 0)[::-1])[::-1], 0
        )
        edges = np.concatenate([[score.min() - 1], score[order], [score.max() + 1]])
        i = int(np.where(edges[:-1] < edges[1:], cost, np.inf).argmin())  # no threshold parts equal scores
        return float((edges[i] + edges[i + 1]) / 2), float(cost[i] / len(score))

    found = [(best_threshold(score), params) for params, score in problem.once("bias shift", scores)]
    (threshold, cost), params = min(found, key=lambda pair: pair[0][1])

    def predict(X: Array) -> Codes:
        part = problem.whole(X)
        return (decide(part, params["width"], params["C"]) > threshold).astype(np.intp)

    return Trained(predict, {**params, "threshold": threshold}, cost)


# ---------------------------------------------------------------- probabilities and Bayes' rule


def bayes_rule(probability: Array, costs: Costs) -> Codes:
    """(n,) the class j with the least sum_y P[:, y] cost[y, j]."""
    return (probability @ costs.matrix).argmin(axis=1)


@dataclass(frozen=True)
class Probabilities:
    """Tuned on the cost of Bayes' rule; probabilities do not depend on costs and are computed once for all of them."""

    name: str
    grid: Any  # one of ParameterGrid
    # (part, params, seed, final) -> [(params, probabilities)]
    held: Callable[..., list[tuple[dict[str, Any], Array]]]

    def __call__(self, problem: Problem, costs: Costs) -> Trained:
        tried = problem.once(("probabilities", self.name), lambda: self._tried(problem))
        params, cost = cheapest(problem, costs, ((params, bayes_rule(P, costs)) for params, P in tried))

        def probability(X: Array) -> Array:
            return self.held(problem.whole(X), params, problem.seed, final=True)[-1][1]

        def predict(X: Array) -> Codes:
            key = ("decided", self.name, tuple(params.items()))
            return bayes_rule(problem.whole(X).once(key, lambda: probability(X)), costs)

        return Trained(predict, params, cost)

    def _tried(self, problem: Problem) -> list[tuple[dict[str, Any], Array]]:
        tried: dict[tuple[Any, ...], tuple[dict[str, Any], Array]] = {}
        for point in ParameterGrid(self.grid):
            for part, (_, held) in zip(problem.parts, problem.inner, strict=True):
                for params, P in self.held(part, point, problem.seed):
                    out = tried.setdefault(
                        tuple(params.items()), (params, np.empty((len(problem.y), problem.k)))
                    )
                    out[1][held] = P
        return list(tried.values())


def logistic(
    part: Part, params: dict[str, Any], seed: int, final: bool = False
) -> list[tuple[dict[str, Any], Array]]:
    model = _quiet(lambda: LogisticRegression(**params, max_iter=1000).fit(part.X, part.y))
    return [(params, model.predict_proba(part.X_held))]


def forest(
    part: Part, params: dict[str, Any], seed: int, final: bool = False
) -> list[tuple[dict[str, Any], Array]]:
    trees = TREES if final else SEARCH_TREES
    model = RandomForestClassifier(trees, **params, random_state=seed).fit(part.X, part.y)
    return [(params, model.predict_proba(part.X_held))]


def boosting(
    part: Part, params: dict[str, Any], seed: int, final: bool = False
) -> list[tuple[dict[str, Any], Array]]:
    """One fit serves every number of rounds up to its last."""
    rounds = params["max_iter"]
    stages = [i for i in BOOSTING_ROUNDS if i <= rounds]
    model = HistGradientBoostingClassifier(**params, random_state=seed).fit(part.X, part.y)
    return [
        ({**params, "max_iter": i + 1}, P)
        for i, P in enumerate(model.staged_predict_proba(part.X_held))
        if i + 1 in stages
    ]


def calibrated(
    part: Part, params: dict[str, Any], seed: int, final: bool = False
) -> list[tuple[dict[str, Any], Array]]:
    K, K_held = part.kernel(params.get("kernel", "rbf"), params["width"])
    folds = StratifiedKFold(max(2, min(5, int(np.bincount(part.y).min()))), shuffle=True, random_state=seed)
    model = CalibratedClassifierCV(_svc(params["C"]), cv=folds, ensemble=False)
    return [(params, _quiet(lambda: model.fit(K, part.y)).predict_proba(K_held))]


def tuned_threshold(problem: Problem, costs: Costs) -> Trained:
    """Two classes: scikit-learn's TunedThresholdClassifierCV on logistic regression."""
    scorer = make_scorer(lambda y, decided: mean_cost(costs, y, decided), greater_is_better=False)

    def tuned(C: float) -> TunedThresholdClassifierCV:
        base = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
        search = TunedThresholdClassifierCV(base, scoring=scorer, thresholds=SHIFTS, cv=problem.inner)
        return _quiet(lambda: search.fit(problem.X, problem.y))

    best = max((tuned(C) for C in LINEAR_CS), key=lambda search: search.best_score_)
    params = {"C": best.estimator[-1].C, "threshold": float(best.best_threshold_)}
    return Trained(lambda X: best.predict(X).astype(np.intp), params, -float(best.best_score_))


# ---------------------------------------------------------------- linear machines and reductions


def search_estimator(
    problem: Problem, costs: Costs, make: Callable[[Costs, float], Any], Cs: tuple[float, ...] = LINEAR_CS
) -> Trained:
    """make(costs, C) is the fit of an estimator: (X, y) -> the fitted; over `Cs`."""

    def decide(part: Part, C: float) -> Codes:
        return _quiet(lambda: make(costs, C)(part.X, part.y)).predict(part.X_held).astype(np.intp)

    tried = (({"C": C}, problem.out_of_fold(partial(decide, C=C))) for C in Cs)
    params, cost = cheapest(problem, costs, tried)
    return Trained(lambda X: decide(problem.whole(X), params["C"]), params, cost)


def linear_crammer_singer(costs: Costs, C: float) -> Callable[[Array, Codes], Any]:
    weight = dict(enumerate(class_costs(costs).tolist()))
    return LinearSVC(multi_class="crammer_singer", C=C, class_weight=weight, random_state=0).fit


def all_pairs(costs: Costs, C: float) -> Callable[[Array, Codes], Any]:
    """costsensitive's reduction to weighted pairs (Beygelzimer et al. 2008) on logistic regression."""
    from costsensitive import WeightedAllPairs

    return _reduction(WeightedAllPairs(LogisticRegression(C=C, max_iter=1000), njobs=1), costs)


def weighted_one_vs_rest(costs: Costs, C: float) -> Callable[[Array, Codes], Any]:
    """costsensitive's reduction to one weighted problem a class (Beygelzimer et al. 2005) on logistic regression."""
    from costsensitive import WeightedOneVsRest

    return _reduction(WeightedOneVsRest(LogisticRegression(C=C, max_iter=1000), njobs=1), costs)


def regressed_costs(costs: Costs, C: float) -> Callable[[Array, Codes], Any]:
    """costsensitive's regression of the cost of each decision, the least of which is taken; ridge regression."""
    from costsensitive import RegressionOneVsRest

    return _reduction(RegressionOneVsRest(Ridge(alpha=1 / C), njobs=1), costs)


def _reduction(model: Any, costs: Costs) -> Callable[[Array, Codes], Any]:
    def fit(X: Array, y: Codes) -> Any:
        model.fit(X, costs.matrix[y])
        return model

    return fit


# ---------------------------------------------------------------- ours


def ours(problem: Problem, costs: Costs) -> Trained:
    from ..tuning import ApportionedSVCCV

    machine = ApportionedSVCCV(costs.array, random_state=problem.seed).fit(problem.X, problem.y)
    params = {key: value for key, value in machine.best_params_.items() if not callable(value)}
    return Trained(lambda X: machine.predict(X).astype(np.intp), params, float(machine.best_cost_))
