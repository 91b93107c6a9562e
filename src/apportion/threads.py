"""One map over a few threads, for work that lets go of the interpreter: compiled loops and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from threadpoolctl import ThreadpoolController

Each = Callable[..., Iterable[Any]]  # map, or the map of a pool of threads

_BLAS: list[ThreadpoolController] = []  # made once: it looks through all loaded libraries


@contextmanager
def threads(n_jobs: int) -> Iterator[Each]:
    """A map over `n_jobs` threads. Matrix products inside use one thread each: results do not depend on n_jobs."""
    if not _BLAS:
        _BLAS.append(ThreadpoolController())
    with _BLAS[0].limit(limits=1, user_api="blas"):
        if n_jobs == 1:
            yield map
        else:
            with ThreadPoolExecutor(n_jobs - 1) as pool:
                yield partial(_shared_map, pool, n_jobs)


def _shared_map(
    pool: Executor, n_jobs: int, function: Callable[[Any], Any], items: Iterable[Any]
) -> list[Any]:
    """[function(item) for item in items], the calling thread among the workers.

    Each worker takes the next item as it becomes free. A future for every item would cost as much as a short task itself.
    """
    items = list(items)
    results: list[Any] = [None] * len(items)
    turns = iter(range(len(items)))

    def work() -> None:
        try:
            for at in turns:
                results[at] = function(items[at])
        finally:
            list(turns)  # after an error nobody starts another

    helpers = [pool.submit(work) for _ in range(min(n_jobs, len(items)) - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            helper.result()
    return results
