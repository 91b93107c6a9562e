"""One map over a few threads, for work that lets go of the interpreter: compiled loops and matrix products."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from threading import Condition, Event, Lock, local
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Each = Callable[..., Iterable[Any]]  # map, or the map of a pool of threads


class Stopped(Exception):
    """Another worker of the same map has failed, or the user has interrupted it."""


_HERE = local()


def go_on() -> None:
    """Called between rounds and sweeps: ends the work of a thread whose map is over."""
    stop = getattr(_HERE, "stop", None)
    if stop is not None and stop.is_set():
        raise Stopped


SMALL = 1 / 16  # of the memory: for all threads together, matrices so small need not wait


class Room:
    """Memory for kernel matrices of up to `side` rows, in several threads; who asks for more than is free waits.

    Of what threads allocate themselves the system's allocator keeps some for each of them, long after they have given it back. For
    small matrices that is welcome: they are allocated so.
    """

    def __init__(self, largest: int, n: int, n_jobs: int) -> None:
        """For matrices of some of n examples and one more; one of `largest` examples in double precision fills it."""
        self.side = min(largest, n) + 1
        # numbers; handed out by the system as they are written to
        self.memory = np.empty(min((largest + 1) ** 2, n_jobs * self.side**2))
        self.free = SMALL / n_jobs * len(self.memory)
        self.taken: list[tuple[int, int]] = []  # (start, end), in order
        self.changed = Condition()

    @contextmanager
    def square(self, side: int, dtype: Any) -> Iterator[NDArray[Any]]:
        """A matrix (side, side) that holds anything."""
        size = -(-(side**2) * np.dtype(dtype).itemsize // 8)
        if size <= self.free:
            yield np.empty((side, side), dtype)
            return
        own: tuple[int, int] | None = None
        try:
            with self.changed:
                self.changed.wait_for(lambda: self._gap(size) is not None)
                start = self._gap(size) or 0
                own = start, start + size
                insort(self.taken, own)
            go_on()
            yield self.memory[slice(*own)].view(dtype)[: side**2].reshape(side, side)
        finally:
            with self.changed:
                if own in self.taken:
                    self.taken.remove(own)
                self.changed.notify_all()

    def _gap(self, size: int) -> int | None:
        """Where the first free piece of that size begins, if there is one."""
        ends, starts = [0], []
        for start, end in self.taken:
            starts.append(start)
            ends.append(end)
        starts.append(len(self.memory))
        return next((end for end, start in zip(ends, starts, strict=True) if start - end >= size), None)


class _SerialProducts:
    """While it is entered, by however many threads, matrix products of the process use one thread each."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.libraries: Any = None  # made once: it looks through all that are loaded
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.libraries is None:
                self.libraries = ThreadpoolController()
            if self.inside == 0:
                self.limit = self.libraries.limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.restore_original_limits()


_SERIAL_PRODUCTS = _SerialProducts()


@contextmanager
def threads(n_jobs: int) -> Iterator[Each]:
    """A map over `n_jobs` threads. Matrix products inside use one thread each: results do not depend on n_jobs."""
    with _SERIAL_PRODUCTS:
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

    stop = Event()

    def work() -> None:
        before, _HERE.stop = getattr(_HERE, "stop", None), stop
        try:
            for at in turns:
                results[at] = function(items[at])
        except Stopped:
            pass
        except BaseException:
            stop.set()
            raise
        finally:
            _HERE.stop = before
            list(turns)  # after an error nobody starts another

    helpers = [pool.submit(work) for _ in range(min(n_jobs, len(items)) - 1)]
    try:
        work()
    except BaseException:
        wait(helpers)
        raise
    try:
        for helper in helpers:
            helper.result()
    except BaseException:  # an interrupt while waiting for them
        stop.set()
        wait(helpers)
        raise
    return results
