"""The paper's superclass experiment: dolphin, beaver (an error costs 2), orchid, sunflower (1).

    apportion reproduce neural                  the readings of the paper's dropout, 30 seeds
    python src/apportion/study/superclass.py    the same where only torch and numpy are installed

How a method is judged. Its learning rate, and its powers where its name says tuned, are chosen on validation
images: a fifth of the training images, another fifth for each tuning seed, scored by the mean cost. So set,
it is trained on all training images once for each seed, and the test images are looked at once, after the
last epoch. Network, epochs, decay and batch are fixed beforehand and the same for all. A seed gives methods
the same initial weights and the same batches, so they are compared seed by seed. Not so pairwise and LDAM,
whose heads draw another amount of random numbers, before the batches are drawn: with the others they share
the initial weights below the head, and not the batches. Methods that train alike and decide differently
(softmax; softmax + Bayes) share their networks.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file: the package without its __init__, which needs more than torch and numpy
    import types

    bare = types.ModuleType("apportion")
    bare.__path__ = [str(Path(__file__).resolve().parents[1])]
    sys.modules["apportion"] = bare

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.nets import (
    ApportionedMarginLoss,
    CostLoss,
    LDAMLoss,
    LogitAdjustedLoss,
    NormedLinear,
    SoftmaxBayesLoss,
    SquaredCostLoss,
    Standardize,
    WeightedHingeLoss,
    WeightedSoftmaxLoss,
    paper_net,
)
from apportion.study import cifar

THETA = np.array([2.0, 2.0, 1.0, 1.0])  # dolphin, beaver, orchid, sunflower
SUPERCLASS = np.array([0, 0, 1, 1])  # aquatic mammals, flowers
# "to favor misclassifying a dolphin as a beaver over a dolphin as an orchid": no theta says it, a matrix does
MATRIX = np.where(SUPERCLASS[:, None] == SUPERCLASS, 0.2, THETA[:, None]) * (1 - np.eye(4))
DROPS = (0.25, 0.75, 0.5)  # the paper's 0.75 read as kept, read as dropped; and the middle


@dataclass(frozen=True)
class Settings:
    seeds: int = 30
    tuning_seeds: int = 5
    epochs: int = 40
    batch: int = 100
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    decay: float = 0.95  # of the learning rate, each epoch
    images: int = 2000  # training images, the same number of each class


FULL = Settings()
QUICK = Settings(seeds=2, tuning_seeds=1, epochs=5, rates=(1e-3,), images=400)

# ---------------------------------------------------------------- what is trained, and how it decides

MakeLoss = Callable[[], CostLoss]
QS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # class weights theta^q: six trainings for a tuned method
PQS = ((1.0, 0.0), (0.5, 0.5), (0.5, 1.0), (1.0, 0.5), (1.0, 1.0), (2.0, 0.0))


def _table(loss: str, p: float | None = None, q: float | None = None, costs: Any = THETA) -> MakeLoss:
    return partial(ApportionedMarginLoss, costs, loss, p, q)


LOSSES: dict[str, MakeLoss] = {  # what is trained
    "softmax": partial(SoftmaxBayesLoss, np.ones(4)),
    **{f"weighted softmax q={q:g}": partial(WeightedSoftmaxLoss, THETA**q) for q in QS},
    **{f"weighted hinge q={q:g}": partial(WeightedHingeLoss, THETA**q) for q in QS},
    "squared cost": partial(SquaredCostLoss, THETA),
    "LDAM": partial(LDAMLoss, THETA),
    "logit adjustment": partial(LogitAdjustedLoss, THETA),
    "weston-watkins": _table("weston-watkins"),
    "crammer-singer": _table("crammer-singer"),
    "reinforced": _table("reinforced"),
    "pairwise": _table("pairwise"),
    **{f"apportioned p={p:g} q={q:g}": _table("apportioned", p, q) for p, q in PQS},
    **{f"lee-lin-wahba q={q:g}": _table("lee-lin-wahba", 0, q) for q in QS},
    "squared cost, matrix": partial(SquaredCostLoss, MATRIX),
    "lee-lin-wahba, matrix": _table("lee-lin-wahba", costs=MATRIX),
}


@dataclass(frozen=True)
class Method:
    """Pairs (what is trained, what decides) to choose from, by the score `judge` on the validation images."""

    choices: tuple[tuple[str, MakeLoss], ...]
    judge: str = "cost"


def _as_trained(*losses: str, judge: str = "cost") -> Method:
    return Method(tuple((loss, LOSSES[loss]) for loss in losses), judge)


METHODS: dict[str, Method] = {
    "softmax": _as_trained("softmax"),
    "softmax + Bayes": Method((("softmax", partial(SoftmaxBayesLoss, THETA)),)),
    "weighted softmax": _as_trained("weighted softmax q=1"),
    "weighted softmax, tuned": _as_trained(*(f"weighted softmax q={q:g}" for q in QS)),
    "weighted hinge": _as_trained("weighted hinge q=1"),
    "weighted hinge, tuned": _as_trained(*(f"weighted hinge q={q:g}" for q in QS)),
    **{name: _as_trained(name) for name in ("squared cost", "LDAM", "logit adjustment")},
    **{name: _as_trained(name) for name in ("weston-watkins", "crammer-singer", "reinforced", "pairwise")},
    "apportioned": _as_trained("apportioned p=1 q=0"),
    "apportioned, tuned": _as_trained(*(f"apportioned p={p:g} q={q:g}" for p, q in PQS)),
    "lee-lin-wahba": _as_trained("lee-lin-wahba q=1"),
    # 18 settings where the others have six: p is a matter of the decision, and takes no training
    "lee-lin-wahba, tuned": Method(
        tuple((f"lee-lin-wahba q={q:g}", _table("lee-lin-wahba", p, q)) for q in QS for p in (0.0, 0.5, 1.0))
    ),
    "softmax + Bayes, matrix": Method((("softmax", partial(SoftmaxBayesLoss, MATRIX)),), "matrix_cost"),
    "squared cost, matrix": _as_trained("squared cost, matrix", judge="matrix_cost"),
    "lee-lin-wahba, matrix": _as_trained("lee-lin-wahba, matrix", judge="matrix_cost"),
}

# ---------------------------------------------------------------- training


class Trainer:
    """The paper's net under one loss. On a GPU an epoch is one CUDA graph, replayed for every seed."""

    def __init__(self, loss: str, drop: float, x: Tensor, y: Tensor, settings: Settings) -> None:
        self.settings, self.x, self.y = settings, x, y
        self.loss = LOSSES[loss]().to(x.device)
        head = NormedLinear if loss == "LDAM" else nn.Linear  # LDAM is made for cosines
        self.fresh = partial(paper_net, self.loss.n_outputs, drop=drop, head=head)
        self.net = self.fresh().to(x.device)
        self.rate = torch.tensor(0.0, device=x.device)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=self.rate, capturable=x.is_cuda, fused=True)
        self.order = torch.arange(len(y), device=x.device)
        self.epoch: Callable[[], None] = self._epoch
        if x.is_cuda:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._epoch()  # warm up: Adam's state, the choice of kernels
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._epoch()
            self.epoch = graph.replay

    def _epoch(self) -> None:
        for rows in self.order.split(self.settings.batch):
            self.adam.zero_grad(set_to_none=True)
            self.loss(self.net(self.x[rows]), self.y[rows]).backward()
            self.adam.step()

    def train(self, seed: int, rate: float) -> nn.Module:
        """The net trained from the weights and with the batches of this seed; the next call overwrites it."""
        torch.manual_seed(seed)
        self.net.load_state_dict(self.fresh().state_dict())
        for state in self.adam.state.values():
            for tensor in state.values():
                tensor.zero_()
        self.net.train()
        for epoch in range(self.settings.epochs):
            self.order.copy_(torch.randperm(len(self.y)))
            self.rate.fill_(rate * self.settings.decay**epoch)
            self.epoch()
        return self.net.eval()


def scores(decided: NDArray[np.int64], y: NDArray[np.int64]) -> dict[str, float]:
    """Cost, error and sensitivity to the aquatic mammals, of the four classes and of the two superclasses."""
    wrong, astray, dear = decided != y, SUPERCLASS[decided] != SUPERCLASS[y], SUPERCLASS[y] == 0
    return {
        "cost": float(np.mean(THETA[y] * wrong)),
        "error": float(np.mean(wrong)),
        "sensitivity": float(np.mean(~wrong[dear])),
        "super_cost": float(np.mean(THETA[y] * astray)),
        "super_sensitivity": float(np.mean(~astray[dear])),
        "matrix_cost": float(np.mean(MATRIX[y, decided])),
    }


def judged(net: nn.Module, decide: CostLoss, x: Tensor, y: Tensor) -> dict[str, float]:
    with torch.no_grad():
        return scores(decide.to(x.device).decide(net(x)).cpu().numpy(), y.cpu().numpy())


def split(y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train and rows to validate, a fifth of each class."""
    rng, labels = np.random.default_rng(seed), y.cpu().numpy()
    held = np.zeros(len(labels), dtype=bool)
    for c in range(4):
        rows = np.flatnonzero(labels == c)
        held[rng.permutation(rows)[: len(rows) // 5]] = True
    train, validate = (torch.from_numpy(np.flatnonzero(rows)).to(y.device) for rows in (~held, held))
    return train, validate


@lru_cache(maxsize=1)
def on_device(data: str | None, images: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x_train, y_train, x_test, y_test: standardized, channels first; the first images of each class."""
    found = cifar.load(data)
    rows = np.sort(np.concatenate([np.flatnonzero(found.y_train == c)[: images // 4] for c in range(4)]))
    x_train, x_test = (
        torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).float()
        for x in (found.x_train[rows], found.x_test)
    )
    scale = Standardize(x_train)
    y_train, y_test = torch.from_numpy(found.y_train[rows]), torch.from_numpy(found.y_test)
    return scale(x_train).to(device), y_train.to(device), scale(x_test).to(device), y_test.to(device)


@dataclass(frozen=True)
class Bench:
    """Where the work is done. A task is a function of it and a few names, so that any process can do it."""

    settings: Settings
    device: str
    data: str | None

    def tune(self, drop: float, loss: str) -> list[dict[str, Any]]:
        """Validation scores of every choice that trains this loss, at every rate, averaged over seeds."""
        x, y, _, _ = on_device(self.data, self.settings.images, self.device)
        found: dict[tuple[str, int, float], list[dict[str, float]]] = {}
        trainer: Trainer | None = None
        for seed in range(self.settings.tuning_seeds):
            train, held = split(y, seed)
            if trainer is None:
                trainer = Trainer(loss, drop, x[train], y[train], self.settings)
            trainer.x.copy_(x[train])
            trainer.y.copy_(y[train])
            for rate in self.settings.rates:
                net = trainer.train(10_000 + seed, rate)
                for name, method in METHODS.items():
                    for choice, (trained, decide) in enumerate(method.choices):
                        if trained == loss:
                            seen = judged(net, decide(), x[held], y[held])
                            found.setdefault((name, choice, rate), []).append(seen)
        rows = []
        for (name, choice, rate), seens in found.items():
            means = {key: float(np.mean([seen[key] for seen in seens])) for key in ("cost", "matrix_cost")}
            rows.append({"method": name, "choice": choice, "loss": loss, "rate": rate, **means})
        return rows

    def test(
        self, drop: float, loss: str, rate: float, best: dict[str, int], seeds: range
    ) -> list[dict[str, Any]]:
        """Test scores of the methods in `best`, {name: its choice}, which train this loss at this rate."""
        x, y, x_test, y_test = on_device(self.data, self.settings.images, self.device)
        trainer = Trainer(loss, drop, x, y, self.settings)
        rows = []
        for seed in seeds:
            net = trainer.train(seed, rate)
            for name, choice in best.items():
                seen = judged(net, METHODS[name].choices[choice][1](), x_test, y_test)
                rows.append({"method": name, "seed": seed, **seen})
        return rows


# ---------------------------------------------------------------- the command

Task = tuple[float, str, Callable[[], list[dict[str, Any]]]]  # dropout, loss, what is to be done


def chosen(tuning: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The setting of a method that did best on the validation images."""
    return min((row for row in tuning if row["method"] == name), key=lambda row: row[METHODS[name].judge])


def run(
    out: Path,
    drops: tuple[float, ...] = DROPS,
    settings: Settings = FULL,
    device: str = "auto",
    data: str | Path | None = None,
    workers: int = 1,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Do what `out` does not hold yet, write it after every task (a killed run goes on), return it whole.

    `workers` processes share the device; on a GPU that pays where NVIDIA's MPS runs.
    """
    if workers < 1:
        raise ValueError(f"workers={workers} must be at least 1.")
    for drop in drops:
        if not 0 <= drop < 1:
            raise ValueError(f"drops holds {drop!r}; a dropout must lie in [0, 1).")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    bench = Bench(settings, device, None if data is None else str(data))
    whole = opened(out, settings)
    for drop in drops:
        empty = {"tuning": [], "tests": [], "torch": torch.__version__, "device": device_name(device)}
        whole["readings"].setdefault(f"{drop:g}", empty)

    def finish(kind: str, tasks: list[Task]) -> None:
        if tasks:
            cifar.load(data)  # downloads once, before the workers ask for it
        began = time.perf_counter()
        for done, ((drop, loss, _), rows) in enumerate(spread(tasks, workers), 1):
            whole["readings"][f"{drop:g}"][kind] += rows
            written(out, whole)
            spent = time.perf_counter() - began
            say(f"{kind:6s} {done:4d} of {len(tasks)} {spent:7.1f} s   dropout {drop:g}  {loss}")

    tasks: list[Task] = []
    for drop in drops:
        known = {row["loss"] for row in whole["readings"][f"{drop:g}"]["tuning"]}
        tasks += [(drop, loss, partial(bench.tune, drop, loss)) for loss in LOSSES if loss not in known]
    finish("tuning", tasks)

    tasks = []
    for drop in drops:
        found = whole["readings"][f"{drop:g}"]
        tested = {(row["method"], row["seed"]) for row in found["tests"]}
        best = {name: chosen(found["tuning"], name) for name in METHODS}
        for loss, rate in sorted({(row["loss"], row["rate"]) for row in best.values()}):
            wanted = {
                n: row["choice"] for n, row in best.items() if (row["loss"], row["rate"]) == (loss, rate)
            }
            for first in range(0, settings.seeds, 10):
                seeds = range(first, min(first + 10, settings.seeds))
                if not all((name, seed) in tested for name in wanted for seed in seeds):
                    tasks.append((drop, loss, partial(bench.test, drop, loss, rate, wanted, seeds)))
    finish("tests", tasks)
    return whole


def spread(tasks: list[Task], workers: int) -> Iterator[tuple[Task, list[dict[str, Any]]]]:
    """The tasks and what they gave, as they end."""
    if workers == 1:
        torch.backends.cudnn.benchmark = True
        yield from ((task, task[2]()) for task in tasks)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin) as pool:
        futures = {pool.submit(task[2]): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _begin() -> None:
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(1)


def device_name(device: str) -> str:
    return (
        torch.cuda.get_device_name() if device == "cuda" else f"{device}, {torch.get_num_threads()} threads"
    )


def opened(out: Path, settings: Settings) -> dict[str, Any]:
    """What the file holds, or nothing yet."""
    wanted = json.loads(json.dumps(asdict(settings)))
    if not out.exists():
        return {"settings": wanted, "readings": {}}
    whole: dict[str, Any] = json.loads(out.read_text())
    if whole["settings"] != wanted:
        raise ValueError(
            f"out={str(out)!r} holds results of other settings, {whole['settings']}; name another file."
        )
    return whole


def written(out: Path, whole: dict[str, Any]) -> None:
    """One row a line, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    part.write_text(re.sub(r"\n {5,}|\n {4}(?=})", " ", json.dumps(whole, indent=1)) + "\n")
    part.replace(out)


def main() -> None:
    parser = argparse.ArgumentParser(description="The superclass experiment; needs torch and numpy.")
    parser.add_argument("--out", type=Path, default=Path("results/superclass.json"))
    parser.add_argument("--drop", type=float, action="append", help=f"dropout; may be repeated {DROPS}")
    parser.add_argument("--seeds", type=int, default=Settings.seeds)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the device")
    parser.add_argument("--data", type=Path, help="cifar100_4.npz, if it is not in the data folder")
    parser.add_argument("--quick", action="store_true", help="2 seeds, 5 epochs, a fifth of the images")
    given = parser.parse_args()
    settings = QUICK if given.quick else Settings(seeds=given.seeds)
    say = partial(print, flush=True)
    run(given.out, tuple(given.drop or DROPS), settings, given.device, given.data, given.workers, say)


if __name__ == "__main__":
    main()
