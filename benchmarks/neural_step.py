"""One training step of the paper's net under a loss table, against the same step under cross entropy.

    python benchmarks/neural_step.py [--device cpu|cuda] [--out results/neural_step.json]
    python benchmarks/neural_step.py --page docs/neural.md      its table anew, from the file

The steps of the losses take turns (one of each, again and again), so that a change of clock or load meets all
alike; the ratio is that of the medians. Also measured: the largest tensor any operation of the loss makes, in
numbers, so that k x k numbers for each example cannot hide. Needs torch and numpy, nothing more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import types
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "apportion"
bare = types.ModuleType(
    "apportion"
)  # the package without its __init__, which needs more than torch and numpy
bare.__path__ = [str(SOURCE)]
sys.modules.setdefault("apportion", bare)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from apportion.nets import ApportionedMarginLoss, paper_net  # noqa: E402

BATCH = 100


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor made while it is entered, forward and backward."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return made


def largest_tensor(loss: torch.nn.Module, k: int) -> int:
    logits = torch.randn(BATCH, k, requires_grad=True)
    y = torch.randint(k, (BATCH,))
    with Largest() as seen:
        loss(logits, y).backward()
    return seen.numbers


class Step:
    def __init__(self, loss: torch.nn.Module, k: int, device: str) -> None:
        torch.manual_seed(0)
        self.net, self.loss = paper_net(k).to(device), loss.to(device)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.x, self.y = (
            torch.randn(BATCH, 3, 32, 32, device=device),
            torch.randint(k, (BATCH,), device=device),
        )

    def seconds(self) -> float:
        wait = torch.cuda.synchronize if self.x.is_cuda else (lambda: None)
        wait()
        began = time.perf_counter()
        self.adam.zero_grad(set_to_none=True)
        self.loss(self.net(self.x), self.y).backward()
        self.adam.step()
        wait()
        return time.perf_counter() - began


def measure(k: int, device: str, repeats: int) -> list[dict[str, object]]:
    theta = np.random.default_rng(0).choice([1.0, 2.0, 5.0], k)
    losses: dict[str, torch.nn.Module] = {"cross entropy": torch.nn.CrossEntropyLoss()}
    losses |= {name: ApportionedMarginLoss(theta, name) for name in ("apportioned", "lee-lin-wahba")}
    largest = {name: largest_tensor(loss, k) for name, loss in losses.items()}
    steps = {name: Step(loss, k, device) for name, loss in losses.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + repeats // 5):
        for name, step in steps.items():
            seconds = step.seconds()
            if turn >= repeats // 5:  # the first turns warm up
                times[name].append(seconds)
    base = float(np.median(times["cross entropy"]))
    return [
        {
            "device": torch.cuda.get_device_name()
            if device == "cuda"
            else f"cpu, {torch.get_num_threads()} threads",
            "k": k,
            "loss": name,
            "milliseconds": round(1e3 * float(np.median(seconds)), 4),
            "ratio": round(float(np.median(seconds)) / base, 3),
            "largest_tensor": largest[name],
        }
        for name, seconds in times.items()
    ]


def markdown(steps: list[dict[str, object]]) -> str:
    lines = ["| device | k | loss | milliseconds | ratio | largest tensor |", "|---|---:|---|---:|---:|---:|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row.values())) + " |" for row in steps]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--device", action="append", choices=["cpu", "cuda"], help="may be repeated; all there are"
    )
    parser.add_argument("--k", type=int, action="append", help="classes; may be repeated (4, 100, 1000)")
    parser.add_argument("--out", type=Path, default=Path("results/neural_step.json"))
    parser.add_argument(
        "--page", type=Path, help="write the table of the results that are there into this page"
    )
    given = parser.parse_args()
    if given.page is not None:
        head, rest = given.page.read_text().split("<!-- begin step -->\n")
        text = markdown(json.loads(given.out.read_text())["steps"])
        given.page.write_text(head + "<!-- begin step -->\n" + text + rest[rest.index("<!-- end step -->") :])
        return
    rows = []
    for device in given.device or ["cpu"] + ["cuda"] * torch.cuda.is_available():
        for k in given.k or [4, 100, 1000]:
            rows += measure(k, device, 100 if device == "cpu" else 1000)
            for row in rows[-3:]:
                print(*(f"{value!s:>16}" for value in row.values()), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(
        json.dumps({"torch": torch.__version__, "batch": BATCH, "steps": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
