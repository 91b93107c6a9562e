"""The candidates of `ApportionedSVCCV`: tried on held-out rows, judged by what their errors cost, and fitted on all rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline

from .calibration import decide, temperature
from .costs import Costs
from .estimators import ApportionedLinearSVC, ApportionedSVC
from .scalings import fitted_scaler
from .search import KernelChoice, LossChoice, class_costs, held_out_scores, in_units
from .solution import Array

# weight of the log loss in what a machine is chosen by: costs alone are coarse where errors are few
SMOOTHING = 1.0
KERNEL_ROWS = 50_000  # more rows have Nystroem features in place of kernels
COMPONENTS = 500
# after so many folds the worse half of the kernels is dropped, where there are at least so many
RACE_FOLDS, RACE_KERNELS = 2, 6


def _judge(scores: Any, y: Any, weight: Array, costs: Costs) -> tuple[float, float, Array]:
    """(criterion, factor, paid) of held-out class scores (n, k): what to choose by, 1 / temperature, what each example costs."""
    theta = class_costs(costs)
    factor, log_loss = temperature(scores, y, weight * theta[y])
    P = np.exp(factor * (scores - scores.max(axis=1, keepdims=True))) / theta
    paid = costs.matrix[y, decide(P, costs)]
    # both in units of cost: the log loss is a mean over examples weighted by their costs
    return float(weight @ (paid + SMOOTHING * log_loss * theta[y]) / weight.sum()), factor, paid


class Found:
    """A candidate with its held-out scores, and what it is chosen by."""

    def __init__(self, kernel: KernelChoice, loss: LossChoice, C: float, scores: Any, search: Search) -> None:
        self.kernel, self.loss, self.C, self.scores = kernel, loss, C, scores
        self.criterion, self.factor, self.paid = _judge(scores, search.y, search.weight, search.costs)

    @property
    def params(self) -> dict[str, Any]:
        return {**vars(self.kernel), **vars(self.loss), "C": self.C}

    def machine(self, costs: Costs, n: int) -> list[Any]:
        """The steps after the scaling, not fitted: the machine, after Nystroem features where n is too large for kernels."""
        full = self.loss.loss == "lee-lin-wahba"
        form: dict[str, Any] = {
            **vars(self.loss),
            "C": self.C,
            "costs": costs.array if full else class_costs(costs),
        }
        kernel: dict[str, Any] = {"kernel": self.kernel.kernel, "gamma": self.kernel.gamma}
        if self.kernel.kernel == "linear":
            return [ApportionedLinearSVC(**form)]
        if n <= KERNEL_ROWS:
            return [ApportionedSVC(**kernel, **form)]
        features = Nystroem(**kernel, n_components=COMPONENTS, random_state=0).set_output(transform="default")
        return [features, ApportionedLinearSVC(**form)]


class Scaled:
    """All rows under each scaling, computed once for the machines that share it."""

    def __init__(self, X: Any, y: Any, weight: Array) -> None:
        self.X, self.y, self.weight = X, y, weight
        self.known: dict[str, tuple[Any, Any]] = {}

    def fit(self, found: Found, costs: Costs) -> Pipeline:
        """The machine as a fitted pipeline."""
        scaling = found.kernel.scaling
        if scaling not in self.known:
            scale = fitted_scaler(scaling, self.X, self.y, self.weight)
            self.known[scaling] = scale, scale.transform(self.X)
        scale, X = self.known[scaling]
        steps = found.machine(costs, self.X.shape[0])
        for step in steps[:-1]:
            X = step.fit_transform(X)
        steps[-1].fit(X, self.y, sample_weight=self.weight)
        return make_pipeline(scale, *steps)


class Search:
    """Tasks (kernel, fold) and what they found; costs in units of the cheapest class's."""

    def __init__(
        self, costs: Costs, X: Any, y: Any, weight: Array, splits: Any, n_jobs: Any, clock: Clock
    ) -> None:
        self.costs, self.unit = in_units(costs)
        self.X, self.y, self.weight, self.splits = X, y, weight, splits
        self.n_jobs, self.clock = n_jobs, clock
        self.found: list[Found] = []
        self.scaled: dict[tuple[str, int], tuple[Any, Any]] = {}

    def scaled_rows(self, scaling: str, fold: int) -> tuple[Any, Any]:
        """The training and the test rows of a fold under a scaling, computed once."""
        if (scaling, fold) not in self.scaled:
            train, test = self.splits[fold]
            rows = self.X[train]
            scale = fitted_scaler(scaling, rows, self.y[train], self.weight[train])
            self.scaled[scaling, fold] = scale.transform(rows), scale.transform(self.X[test])
        return self.scaled[scaling, fold]

    def run(
        self, kernels: dict[KernelChoice, Array], losses: list[LossChoice], deadline: float | None
    ) -> None:
        """Try each loss and C on each kernel. After the deadline no task is started, but the best kernel so far is finished."""
        n_folds = len(self.splits)
        done: dict[KernelChoice, list[Any]] = {kernel: [] for kernel in kernels}
        if len(kernels) >= RACE_KERNELS and n_folds > RACE_FOLDS:
            self._work(kernels, losses, done, RACE_FOLDS, deadline)
            tried = [kernel for kernel in kernels if len(done[kernel]) == RACE_FOLDS]
            tried.sort(key=lambda kernel: self._promise(done[kernel]))
            kept = tried[: (len(tried) + 1) // 2]
            self.clock.total -= (len(kernels) - len(kept)) * (n_folds - RACE_FOLDS)
            kernels = {kernel: kernels[kernel] for kernel in kept}
        self._work(kernels, losses, done, n_folds, deadline)
        for kernel, Cs in kernels.items():
            if len(done[kernel]) == n_folds:
                self._collect(kernel, losses, Cs, done[kernel])

    def _work(
        self,
        kernels: dict[KernelChoice, Array],
        losses: list[LossChoice],
        done: dict[KernelChoice, list[Any]],
        n_folds: int,
        deadline: float | None,
    ) -> None:
        """Go on to `n_folds` folds of each kernel; writes into `done`."""
        todo = [(kernel, fold) for kernel in kernels for fold in range(len(done[kernel]), n_folds)]
        must = 0 if self.found else sum(kernel == todo[0][0] for kernel, _ in todo)

        def tasks() -> Iterator[Any]:
            for at, (kernel, fold) in enumerate(todo):
                if at >= must and deadline is not None and time.monotonic() > deadline:
                    return
                rows, (train, test) = self.splits[fold][0], self.scaled_rows(kernel.scaling, fold)
                yield delayed(held_out_scores)(
                    kernel, losses, kernels[kernel], self.costs, train, self.y[rows], self.weight[rows], test
                )

        for (kernel, _), part in zip(todo, self._parallel()(tasks()), strict=False):
            done[kernel].append(part)
            self.clock.tick()

    def _parallel(self) -> Parallel:
        """Results as they come where the backend can; multiprocessing, and with it ray's, gives all at the end."""
        try:
            return Parallel(n_jobs=self.n_jobs, return_as="generator", pre_dispatch="n_jobs")
        except ValueError:
            return Parallel(n_jobs=self.n_jobs, pre_dispatch="n_jobs")

    def _promise(self, parts: list[Any]) -> float:
        """The least criterion of a kernel on the folds it has been tried on."""
        rows = np.concatenate([test for _, test in self.splits[: len(parts)]])
        scores = np.concatenate(parts, axis=2)
        y, weight = self.y[rows], self.weight[rows]
        return min(_judge(s, y, weight, self.costs)[0] for s in scores.reshape(-1, *scores.shape[2:]))

    def _collect(self, kernel: KernelChoice, losses: list[LossChoice], Cs: Array, folds: list[Any]) -> None:
        scores = np.full((len(losses), len(Cs), len(self.y), len(self.costs.classes)), np.nan, np.float32)
        for (_, test), part in zip(self.splits, folds, strict=True):
            scores[:, :, test] = part
        for at, loss in enumerate(losses):
            self.found += [Found(kernel, loss, float(C), scores[at, c], self) for c, C in enumerate(Cs)]

    def best_kernels(self, count: int) -> list[KernelChoice]:
        best: dict[KernelChoice, float] = {}
        for f in self.found:
            best[f.kernel] = min(best.get(f.kernel, np.inf), f.criterion)
        return sorted(best, key=lambda kernel: best[kernel])[:count]

    def results(self) -> dict[str, Any]:
        """cv_results_ of scikit-learn: scores are negative costs, in the user's unit."""
        params = [f.params for f in self.found]
        results: dict[str, Any] = {"params": params}
        for name in params[0]:
            results[f"param_{name}"] = np.ma.array([p[name] for p in params], dtype=object)
        paid = self.unit * np.array([f.paid for f in self.found])
        scores = []
        for at, (_, test) in enumerate(self.splits):
            share = self.weight[test] / self.weight[test].sum()
            scores.append(-paid[:, test] @ share)
            results[f"split{at}_test_score"] = scores[-1]
        results["mean_test_score"], results["std_test_score"] = (
            np.mean(scores, axis=0),
            np.std(scores, axis=0),
        )
        criterion = self.unit * np.array([f.criterion for f in self.found])
        results["criterion"] = criterion
        results["rank_test_score"] = rankdata(criterion, method="min").astype(np.int32)
        return results


class Clock:
    """Counts tasks, and tells the user how many are left and for how long."""

    def __init__(self, estimator: Any, started: float, total: int) -> None:
        self.estimator, self.started, self.total, self.done, self.said = estimator, started, total, 0, 0.0

    def tick(self) -> None:
        self.done += 1
        if self.estimator._progress is not None:
            self.estimator._progress(self.done, self.total)
        now = time.monotonic()
        if self.estimator.verbose and (now - self.said > 1 or self.done == self.total):
            self.said = now
            left = (now - self.started) / self.done * (self.total - self.done)
            print(
                f"[ApportionedSVCCV] {self.done} of {self.total} tasks, about {left:.0f} s left", flush=True
            )
