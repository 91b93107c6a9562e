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

    def __init__(
        self, kernel: KernelChoice, loss: LossChoice, C: float, scores: Any, search: Search, seconds: Array
    ) -> None:
        self.kernel, self.loss, self.C, self.scores, self.seconds = kernel, loss, C, scores, seconds
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

    def by(self, scaling: str) -> tuple[Any, Any]:
        """The scaler, and what it makes of the rows."""
        if scaling not in self.known:
            scale = fitted_scaler(scaling, self.X, self.y, self.weight)
            self.known[scaling] = scale, scale.transform(self.X)
        return self.known[scaling]

    def fit(self, found: Found, costs: Costs, deadline: float | None) -> Pipeline:
        """The machine as a fitted pipeline, taken as it is at the deadline."""
        scale, X = self.by(found.kernel.scaling)
        steps = found.machine(costs, self.X.shape[0])
        for step in steps[:-1]:
            X = step.fit_transform(X)
        steps[-1]._deadline = deadline
        steps[-1].fit(X, self.y, sample_weight=self.weight)
        del steps[-1]._deadline
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
        finalists = n_finalists(len(kernels), n_folds)
        if finalists < len(kernels):
            race = deadline
            if deadline is not None:  # of the time that is left, the race has its share of the tasks
                share = len(kernels) * RACE_FOLDS / n_tasks(len(kernels), n_folds)
                race = time.monotonic() + share * (deadline - time.monotonic())
            self._work(kernels, losses, done, RACE_FOLDS, race)
            tried = [kernel for kernel in kernels if len(done[kernel]) == RACE_FOLDS]
            tried.sort(key=lambda kernel: self._promise(done[kernel]))
            kept = tried[: (len(tried) + 1) // 2]
            self.clock.total -= (finalists - len(kept)) * (n_folds - RACE_FOLDS)
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
                yield delayed(_timed_scores)(
                    kernel, losses, kernels[kernel], self.costs, train, self.y[rows], self.weight[rows], test
                )

        before = self.clock.done
        for (kernel, _), part in zip(todo, self._parallel()(tasks()), strict=False):
            done[kernel].append(part)
            self.clock.tick()
        self.clock.total -= len(todo) - (self.clock.done - before)  # for which there was no time

    def _parallel(self) -> Parallel:
        """Results as they come where the backend can; multiprocessing, and with it ray's, gives all at the end."""
        try:
            return Parallel(n_jobs=self.n_jobs, return_as="generator", pre_dispatch="n_jobs")
        except ValueError:
            return Parallel(n_jobs=self.n_jobs, pre_dispatch="n_jobs")

    def _promise(self, parts: list[Any]) -> float:
        """The least criterion of a kernel on the folds it has been tried on."""
        rows = np.concatenate([test for _, test in self.splits[: len(parts)]])
        scores = np.concatenate([part for part, _ in parts], axis=2)
        y, weight = self.y[rows], self.weight[rows]
        return min(_judge(s, y, weight, self.costs)[0] for s in scores.reshape(-1, *scores.shape[2:]))

    def _collect(self, kernel: KernelChoice, losses: list[LossChoice], Cs: Array, folds: list[Any]) -> None:
        scores = np.full((len(losses), len(Cs), len(self.y), len(self.costs.classes)), np.nan, np.float32)
        for (_, test), (part, _) in zip(self.splits, folds, strict=True):
            scores[:, :, test] = part
        seconds = np.array([spent for _, spent in folds]) / (len(losses) * len(Cs))
        for at, loss in enumerate(losses):
            self.found += [
                Found(kernel, loss, float(C), scores[at, c], self, seconds) for c, C in enumerate(Cs)
            ]

    def best_kernels(self, count: int) -> list[KernelChoice]:
        best: dict[KernelChoice, float] = {}
        for f in self.found:
            best[f.kernel] = min(best.get(f.kernel, np.inf), f.criterion)
        return sorted(best, key=lambda kernel: best[kernel])[:count]

    def results(self) -> dict[str, Any]:
        """cv_results_ of scikit-learn: scores are negative costs, in the user's unit.

        Candidates of a kernel are fitted and scored together: each has an equal share of their time, all of it as that of fitting.
        """
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
        results["rank_test_score"] = rankdata(-results["mean_test_score"], method="min").astype(np.int32)
        results["criterion"] = self.unit * np.array([f.criterion for f in self.found])
        results["rank_criterion"] = rankdata(results["criterion"], method="min").astype(np.int32)
        seconds = np.array([f.seconds for f in self.found])
        for name, values in (("fit", seconds), ("score", np.zeros_like(seconds))):
            results[f"mean_{name}_time"], results[f"std_{name}_time"] = (
                values.mean(axis=1),
                values.std(axis=1),
            )
        return results


def n_finalists(n_kernels: int, n_folds: int) -> int:
    """So many kernels are tried on all folds: the better half where there is a race, else all."""
    return (n_kernels + 1) // 2 if n_kernels >= RACE_KERNELS and n_folds > RACE_FOLDS else n_kernels


def n_tasks(n_kernels: int, n_folds: int) -> int:
    """Of a search that is not cut short: a kernel on a fold each."""
    finalists = n_finalists(n_kernels, n_folds)
    return finalists * n_folds + (n_kernels - finalists) * RACE_FOLDS


def _timed_scores(*task: Any) -> tuple[Any, float]:
    begun = time.monotonic()
    return held_out_scores(*task), time.monotonic() - begun


class Clock:
    """Counts tasks, and tells the user how many are left and for how long."""

    def __init__(self, estimator: Any, started: float, total: int) -> None:
        self.estimator, self.started, self.total, self.done, self.said = estimator, started, total, 0, 0.0
        self.phase()

    def phase(self) -> None:
        """Tasks of another kind begin, which take another time."""
        self.begun, self.before = time.monotonic(), self.done

    def tick(self) -> None:
        self.done += 1
        if self.estimator._progress is not None:
            self.estimator._progress(self.done, self.total)
        now = time.monotonic()
        if self.estimator.verbose and (now - self.said > 1 or self.done == self.total):
            self.said = now
            left = (now - self.begun) / (self.done - self.before) * (self.total - self.done)
            if self.estimator.max_time is not None:
                left = min(left, max(self.started + self.estimator.max_time - now, 0.0))
            print(
                f"[ApportionedSVCCV] {self.done} of {self.total} tasks, about {left:.0f} s left", flush=True
            )
