"""The linear machine on a Dask cluster: python benchmarks/cluster.py [part ...]

    machines  every loss on 4 worker processes, beside one machine                            about 3 minutes
    kills     20 fits in which one of 4 workers gets SIGKILL at a random moment               about 5 minutes
    bytes     what a worker sends and receives in a round, counted at its sockets             about 2 minutes
    rounds    rounds to a gap of 1e-3 for many n, d, k, C and P, simulated in one process,
              beside CoCoA+ (the updates of all parts added)                                  about 10 minutes

Each part writes its records into results/cluster.json and the tables of docs/scale.md; without names all of them run.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
import time
import warnings
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from distributed import Client, LocalCluster

import cluster_report
from apportion import ApportionedLinearSVC
from apportion.cluster import DaskApportionedLinearSVC
from apportion.costs import check_costs
from apportion.losses import LOSSES, loss_table
from apportion.partitions import Answer, Part, Problem, Rounds, answer, make_teams
from cluster_report import LIMIT

ROOT = Path(__file__).resolve().parent.parent
TOL, WORKERS, TRIALS = 1e-3, 4, 20
Record = dict[str, Any]


# ---------------------------------------------------------------- data, made block by block where they are needed


def costs_of(k: int) -> np.ndarray:
    return np.array([1.0, 2.0, 5.0, 10.0])[np.arange(k) % 4]


def dense_block(seed: int, rows: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping clusters in correlated features of size 1."""
    world = np.random.default_rng(12345)
    mix = np.linalg.qr(world.normal(size=(d, d)))[0] * np.logspace(0, -1, d)[:, None]
    mix = mix @ np.linalg.qr(world.normal(size=(d, d)))[0]
    centres = world.normal(size=(k, d)) * 2.0 / np.sqrt(d)
    random = np.random.default_rng(seed)
    y = random.integers(0, k, rows)
    X = (centres[y] + random.normal(size=(rows, d))) @ mix
    return X / np.sqrt((mix**2).sum(axis=0)), y


def sparse_block(seed: int, rows: int, d: int, k: int, nnz: int = 50) -> tuple[sp.csr_matrix, np.ndarray]:
    """Like text: few columns are frequent, rows of length 1, labels from a linear model with noise."""
    world, random = np.random.default_rng(12345), np.random.default_rng(seed)
    share = 1 / (np.arange(d) + 20.0) ** 0.9
    columns = random.choice(d, size=(rows, nnz), p=share / share.sum())
    values = 1 + random.exponential(0.5, size=(rows, nnz))
    X = sp.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, rows * nnz + 1, nnz)), shape=(rows, d))
    X.sum_duplicates()
    X = sp.csr_matrix(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))))
    scores = X @ (world.normal(size=(d, k)) * (world.random((d, k)) < 0.1))
    return X, (scores + 0.1 * scores.std() * random.normal(size=scores.shape)).argmax(axis=1)


MAKERS = {"dense": dense_block, "sparse": sparse_block}


def blocks_of(kind: str, n: int, d: int, k: int, n_blocks: int) -> list[tuple[Any, np.ndarray]]:
    return [MAKERS[kind](i, n // n_blocks, d, k) for i in range(n_blocks)]


def on_workers(kind: str, n: int, d: int, k: int, n_blocks: int) -> tuple[da.Array, da.Array]:
    made = [dask.delayed(MAKERS[kind], nout=2)(i, n // n_blocks, d, k) for i in range(n_blocks)]
    rows = n // n_blocks
    meta = np.empty((0, 0)) if kind == "dense" else sp.csr_matrix((0, d))
    X = da.concatenate([da.from_delayed(x, (rows, d), meta=meta) for x, _ in made])
    return X, da.concatenate([da.from_delayed(y, (rows,), dtype=int) for _, y in made])


@contextmanager
def local_cluster(n_workers: int) -> Any:
    settings = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "memory_limit": 0}
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),  # a new worker may be slow to come
        LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, **settings) as cluster,
        Client(cluster) as client,
    ):
        yield client


# ---------------------------------------------------------------- machines


def machines() -> list[Record]:
    """The objective of the cluster beside that of one machine at a gap of 1e-6."""
    cases = [("dense", loss, 20_000, 50, 6, 0.01) for loss in LOSSES]
    cases += [
        ("dense", "apportioned", 100_000, 100, 10, 0.01),
        ("sparse", "apportioned", 40_000, 20_000, 10, 0.1),
    ]
    records = []
    with local_cluster(WORKERS):
        for kind, loss, n, d, k, C in cases:
            setting = {"loss": loss, "C": C, "tol": TOL}
            ours = DaskApportionedLinearSVC(costs_of(k), **setting).fit(*on_workers(kind, n, d, k, 8))
            X, y = zip(*blocks_of(kind, n, d, k, 8), strict=True)
            X = np.concatenate(X) if kind == "dense" else sp.vstack(X, format="csr")
            one = ApportionedLinearSVC(costs_of(k), max_iter=10**5, **(setting | {"tol": 1e-6}))
            best = one.fit(X, np.concatenate(y)).objective_
            records.append(
                {"kind": kind, "loss": loss, "n": n, "d": d, "k": k, "C": C, "rounds": ours.n_iter_}
                | {"gap": ours.dual_gap_, "excess": ours.objective_ / best - 1, "parts": ours.n_parts_}
            )
            print(records[-1], flush=True)
    return records


# ---------------------------------------------------------------- kills


def kills() -> list[Record]:
    """Fits with one worker killed at a moment drawn from the time an undisturbed fit takes; one that ends before is drawn again."""
    n, d, k, C = 100_000, 100, 10, 0.01
    random, records = np.random.default_rng(0), []
    machine = DaskApportionedLinearSVC(costs_of(k), C=C, tol=TOL)
    with local_cluster(WORKERS) as client:
        X, y = on_workers("dense", n, d, k, 8)
        machine.fit(X, y)  # imports, compiled code
        start = time.perf_counter()
        undisturbed = machine.fit(X, y).objective_
        usual = time.perf_counter() - start
        while len(records) < TRIALS:
            client.wait_for_workers(WORKERS, timeout=120)
            pids = list(client.run(os.getpid).values())
            moment, victim = float(random.uniform(0, usual)), int(random.choice(pids))
            dead = threading.Event()

            def shoot(victim: int = victim, dead: threading.Event = dead) -> None:
                os.kill(victim, signal.SIGKILL)
                dead.set()

            timer = threading.Timer(moment, shoot)
            timer.start()
            start = time.perf_counter()
            machine.fit(X, y)
            seconds = time.perf_counter() - start
            timer.cancel()
            if not dead.is_set():
                continue
            records.append(
                {"moment": moment / usual, "seconds": seconds / usual, "rounds": machine.n_iter_}
                | {"gap": machine.dual_gap_, "difference": machine.objective_ / undisturbed - 1}
            )
            print(len(records), records[-1], flush=True)
    return records


# ---------------------------------------------------------------- bytes


def _meter() -> None:
    """On a worker: count all bytes that pass its sockets, in both directions."""
    from distributed.comm import tcp

    tcp.SENT, tcp.RECEIVED = 0, 0
    write, read = tcp.TCP.write, tcp.read_bytes_rw

    async def counted_write(self: Any, *args: Any, **kwargs: Any) -> int:
        sent = await write(self, *args, **kwargs)
        tcp.SENT += sent
        return sent

    async def counted_read(stream: Any, n: int) -> Any:
        tcp.RECEIVED += n
        return await read(stream, n)

    tcp.TCP.write, tcp.read_bytes_rw = counted_write, counted_read


def _counters() -> tuple[int, int]:
    from distributed.comm import tcp

    return tcp.SENT, tcp.RECEIVED


@contextmanager
def counting(client: Client, moments: tuple[int, int]) -> Any:
    """The counters of all workers after two of the rounds of the fit within."""
    take, seen = Rounds.take, []

    def take_and_count(self: Rounds, *args: Any) -> None:
        take(self, *args)
        if self.n_iter in moments:
            seen.append(client.run(_counters))

    Rounds.take = take_and_count
    try:
        yield seen
    finally:
        Rounds.take = take


def bytes_per_round() -> list[Record]:
    """Bytes of a worker with one part, mean of ten rounds."""
    records, first, last = [], 2, 12
    cases = [(2, 8000, 50, 2), (2, 8000, 50, 10), (2, 8000, 200, 10), (2, 8000, 800, 10), (2, 64000, 50, 10)]
    cases += [(4, 16000, 50, 10), (4, 16000, 200, 10)]
    for workers in (2, 4):
        with local_cluster(workers) as client, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few rounds
            client.run(_meter)
            for _, n, d, k in (case for case in cases if case[0] == workers):
                with counting(client, (first, last)) as seen:
                    machine = DaskApportionedLinearSVC(C=0.01, tol=1e-12, max_iter=last)
                    machine.fit(*on_workers("dense", n, d, k, workers))
                passed = [np.subtract(seen[1][worker], seen[0][worker]) for worker in seen[1]]
                sent, received = np.sum(passed, axis=0) / machine.n_parts_ / (last - first)
                records.append(
                    {"workers": workers, "n": n, "d": d, "k": k, "parts": machine.n_parts_}
                    | {"sent": sent, "received": received, "payload": 2 * 8 * k * (d + 1)}
                )
                print(records[-1], flush=True)
    return records


# ---------------------------------------------------------------- rounds


def added_updates(parts: list[Part], max_iter: int) -> int:
    """CoCoA+: sigma = number of parts, the new alphas are taken whole, W is what they pull. Rounds to the gap."""
    d = parts[0].X.shape[1]
    state = Rounds(parts[0].problem, d, [1] * len(parts))
    state.sigma, best = float(len(parts)), np.inf
    for number in range(1, max_iter + 1):
        state.best = state.own.sum(axis=1)  # the query is W itself
        answers = [answer(part, task) for part, task in zip(parts, state.tasks(), strict=True)]
        best = min(best, 0.5 * (state.best**2).sum() + sum(a.loss.sum() for a in answers))
        if best - state.dual <= TOL * best:
            return number
        state.own = np.stack([a.pulls[1].reshape(state.best.shape) for a in answers], axis=1)
        state.duals = sum(a.gains[1] for a in answers) - 0.5 * (state.own.sum(axis=1) ** 2).sum(axis=1)
        # the gap of the local ascents follows `gap`
        state.n_iter, state.primals = number, state.duals + (best - state.dual) / len(state.duals)
    return max_iter + 1


def make_parts(kind: str, n: int, d: int, k: int, C: float, P: int, ordered: bool = False) -> list[Part]:
    """P parts, their rows alike or, `ordered`, of few classes each."""
    problem = Problem(loss_table("apportioned", check_costs(costs_of(k), np.arange(k))), C, 1.0)
    blocks = blocks_of(kind, n, d, k, P)
    if ordered:
        X, y = (np.concatenate(column) for column in zip(*blocks, strict=True))
        blocks = [(X[rows], y[rows]) for rows in np.array_split(np.argsort(y, kind="stable"), P)]
    return [Part(X, y, np.ones(len(y)), problem) for X, y in blocks]


def simulate(
    kind: str, n: int, d: int, k: int, C: float, P: int, teams: int | None = None, ordered: bool = False
) -> Record:
    parts = make_parts(kind, n, d, k, C, P, ordered)
    problem = parts[0].problem
    groups = make_teams(problem, d, P) if teams is None else np.array_split(np.arange(P), teams)
    rounds = Rounds(problem, d, [len(group) for group in groups])
    work = client = 0.0
    while rounds.gap > TOL and rounds.n_iter < LIMIT:
        start = time.process_time()
        answers = [
            reduce(Answer.__add__, (answer(parts[p], task) for p in group))
            for group, task in zip(groups, rounds.tasks(), strict=True)
        ]
        middle = time.process_time()
        rounds.take(answers, TOL)
        work, client = work + middle - start, client + time.process_time() - middle
    record = {"kind": kind, "n": n, "d": d, "k": k, "C": C, "P": P, "teams": len(groups), "ordered": ordered}
    record |= {"rounds": rounds.n_iter, "gap": rounds.gap, "row_seconds": work / n / rounds.n_iter}
    return record | {"client_seconds": client / rounds.n_iter}


def rounds_needed() -> list[Record]:
    base = {"kind": "dense", "n": 64_000, "d": 50, "k": 5, "C": 0.01, "P": 16}
    simulate(**base | {"n": 16_000})  # compiles
    cases = [base | {"P": P} for P in (4, 16, 64, 256)]
    cases += [base | {"P": 256, "teams": teams} for teams in (64, 16)]
    cases += [base | {"C": C} for C in (1e-4, 1e-3, 0.1, 1.0, 10.0)]
    cases += [base | {"n": n, "C": 640 / n} for n in (16_000, 256_000, 1_024_000)]
    cases += [base | {"n": n, "C": 640 / n, "P": 256} for n in (256_000, 1_024_000)]
    cases += [base | {"ordered": True, "P": P} for P in (4, 16, 64)]
    cases += [base | {"d": d} for d in (10, 250)] + [base | {"k": k} for k in (2, 20)]
    cases += [base | {"n": 256_000, "d": 100, "k": 10, "P": 256}]
    text = {"kind": "sparse", "n": 40_000, "d": 20_000, "k": 5, "C": 0.1}
    cases += [text | {"P": P} for P in (4, 16, 64)]
    records = []
    for case in cases:
        record = simulate(**case)
        if case in cases[:4] or case["kind"] == "sparse":
            problem = Problem(
                loss_table("apportioned", check_costs(costs_of(5), np.arange(5))), case["C"], 1.0
            )
            blocks = blocks_of(case["kind"], case["n"], case["d"], 5, case["P"])
            limit = 300
            record["added"] = added_updates([Part(X, y, np.ones(len(y)), problem) for X, y in blocks], limit)
        records.append(record)
        print(records[-1], flush=True)
    return records


PARTS = {"machines": machines, "kills": kills, "bytes": bytes_per_round, "rounds": rounds_needed}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / "results/cluster.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/scale.md")
    parser.add_argument("--tables", action="store_true", help="write the tables from the file; run nothing")
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    results = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in [] if given.tables else given.parts or PARTS:
        results[name] = PARTS[name]()
        cluster_report.write_json(given.out, results)
    cluster_report.write_page(given.page, results)


if __name__ == "__main__":
    main()
