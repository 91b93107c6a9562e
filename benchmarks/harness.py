"""How the methods are run: tasks, measurements in fresh processes, certificates, races."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import objective
import report
from data import load
from measure import busy_seconds
from peers import METHODS

HERE = Path(__file__).resolve().parent
SLOW_S = 15.0  # a method slower than this is measured once
DEFAULT_TOL = 1e-3
Record = dict[str, Any]  # one method on one problem; what results/solvers.json holds


@dataclass(frozen=True)
class Task:
    method: str
    data: str
    threads: int
    params: dict[str, Any]
    loss: str = "one-vs-rest"  # what the method is judged by, with `intercept`
    intercept: str = "free"
    note: str = ""
    rival: bool = True  # counts as a peer when the fastest is looked for

    @property
    def linear(self) -> bool:
        return self.data in ("dense", "sparse")

    @property
    def label(self) -> str:
        return METHODS[self.method].label + (f", {self.note}" if self.note else "")


@dataclass
class Bench:
    repeats: int
    quick: bool
    limit: float  # seconds a measurement may take
    peers: list[str] | None
    pythons: dict[str, str]
    patience: float
    started: float = field(default_factory=time.perf_counter)

    def say(self, text: str) -> None:
        print(f"[{time.perf_counter() - self.started:7.1f} s] {text}", flush=True)

    def rows(self, task: Task) -> int | None:
        return (4000 if task.linear else 1500) if self.quick else None

    def run(self, task: Task, coefficients: Path | None = None) -> dict[str, Any]:
        """One measurement in a fresh process."""
        self.wait_for_quiet()
        with tempfile.TemporaryDirectory() as folder:
            order, answer = Path(folder, "task.json"), Path(folder, "result.json")
            wish = {"method": task.method, "data": task.data, "threads": task.threads, "params": task.params}
            order.write_text(json.dumps(wish | {"rows": self.rows(task)}))
            python = self.pythons.get(METHODS[task.method].package, sys.executable)
            paths = [HERE / "measure.py", order, answer, *([coefficients] if coefficients else [])]
            done, timed_out = _run_limited([python, *map(str, paths)], self.limit + 30, threads=task.threads)
            if timed_out:
                return {"status": f"more than {self.limit:.0f} s"}
            if not answer.exists():
                return {"status": f"failed: exit {done}"}
            return json.loads(answer.read_text())

    def certify(self, task: Task, coefficients: Path) -> dict[str, Any]:
        """Primal, dual and gap of what a method returned."""
        X, y, _, _ = load(task.data, self.rows(task))
        table = objective.table_for(task.loss, int(y.max()) + 1, task.params.get("costs"))
        C = task.params["C"]
        with np.load(coefficients) as stored:
            found = dict(stored)
        if not task.linear:
            gamma = task.params["gamma"]
            certificate = objective.kernel_certificate(
                table, X, y, found["support"], found["beta"], C=C, gamma=gamma, intercept=task.intercept
            )
        else:
            certificate = objective.linear_certificate(table, X, y, found["W"], found["b"], C=C)
            if "beta" in found:
                dual = objective.linear_dual_certificate(
                    table, X, y, found["support"], found["beta"], C=C
                ).dual
                certificate = objective.Certificate(certificate.primal, dual)
        support = {"support": len(found["support"])} if "support" in found else {}
        return {"primal": certificate.primal, "dual": certificate.dual, "gap": certificate.gap} | support

    def wait_for_quiet(self, window: float = 0.25, idle: float = 0.3) -> None:
        """Other work on the machine spoils a measurement: wait a little. What remains is recorded."""
        deadline = time.perf_counter() + self.patience
        while time.perf_counter() < deadline:
            before, start = busy_seconds(), time.perf_counter()
            time.sleep(window)
            if (busy_seconds() - before) / (time.perf_counter() - start) < idle:
                return


def _run_limited(command: list[str], seconds: float, threads: int) -> tuple[int | None, bool]:
    """Exit code, and whether the time was over. BLAS and OpenMP get `threads`."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    env = os.environ | {name: str(threads) for name in names}
    with tempfile.TemporaryFile() as noise:
        try:
            done = subprocess.run(command, env=env, timeout=seconds, stdout=noise, stderr=noise)
            return done.returncode, False
        except subprocess.TimeoutExpired:
            return None, True


class Race:
    """Methods on one problem: each runs once when it enters; `finish` repeats them in turns."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.entries: list[tuple[Task, Record]] = []

    def enter(self, task: Task, keep: bool = True) -> Record:
        bench, method = self.bench, METHODS[task.method]
        if not method.ours and bench.peers is not None and task.method not in bench.peers:
            return {"status": "not chosen"}
        record: Record = {
            "data": task.data,
            "method": task.method,
            "label": task.label,
            "ours": method.ours,
            "rival": task.rival and method.solver and not method.ours,
            "threads": task.threads,
            "params": task.params,
            "loss": task.loss,
            "intercept": task.intercept,
            "runs": [],
        }
        with tempfile.TemporaryDirectory() as folder:
            coefficients = Path(folder, "coefficients.npz")
            run = bench.run(task, coefficients)
            record["status"] = run.pop("status")
            if record["status"] == "ok":
                record["runs"].append(run)
                try:
                    record |= bench.certify(task, coefficients)
                except Exception as error:  # a method that returns nonsense must not end the whole run
                    record |= {"status": "failed: no certificate", "detail": repr(error), "runs": []}
            else:
                record["detail"] = run.get("detail", "")
        bench.say(report.line(record))
        if keep:
            self.entries.append((task, record))
        return record

    def enter_to_gap(self, task: Task, target: float) -> Record:
        """Ours with the tolerance that brings its measured gap to `target` or below."""
        tol = target
        for _ in range(3):
            attempt = replace(task, params=task.params | {"tol": tol})
            record = self.enter(attempt, keep=False)
            if record["status"] != "ok" or record["gap"] <= target:
                break
            tol *= 0.8 * target / record["gap"]
        record["target"] = target
        self.entries.append((attempt, record))
        return record

    def enter_to_primal(self, task: Task, target: float) -> Record:
        """Ours with the loosest tolerance, 1e-3 at most, whose primal value is `target` or below."""
        for tol in (DEFAULT_TOL, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6):
            attempt = replace(task, params=task.params | {"tol": tol})
            record = self.enter(attempt, keep=False)
            if record["status"] != "ok" or record["primal"] <= target:
                break
            if tol == DEFAULT_TOL:  # what a user gets without asking: shown too
                record["label"] += ", default tol"
                self.entries.append((attempt, record))
        record["target_primal"] = target
        self.entries.append((attempt, record))
        return record

    def finish(self, repeats: int | None = None) -> list[Record]:
        for _ in range(1, repeats or self.bench.repeats):
            for task, record in self.entries:
                if record["status"] == "ok" and record["runs"][0]["fit"] <= SLOW_S:
                    run = self.bench.run(task)
                    if run.pop("status") == "ok":
                        record["runs"].append(run)
        for _, record in self.entries:
            if len(record["runs"]) > 1:
                self.bench.say(f"median of {len(record['runs'])}: {report.line(record)}")
        return [record for _, record in self.entries]
