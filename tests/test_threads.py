"""Threads share memory, wait for each other, and end together."""

import time
from threading import Event

import numpy as np
import pytest

from apportion import threads as threads_module
from apportion.threads import Room, Stopped, threads


def test_matrices_of_a_room_lie_apart_and_within_it():
    room = Room(100, 80, 4)
    assert room.side == 81
    with room.square(60, np.float64) as first, room.square(60, np.float64) as second:
        for matrix in (first, second):
            assert matrix.shape == (60, 60) and np.shares_memory(matrix, room.memory)
        assert not np.shares_memory(first, second)
        with room.square(70, np.float32) as third:  # half the size
            assert third.dtype == np.float32 and not any(np.shares_memory(third, m) for m in (first, second))
    assert not room.taken


def test_a_small_matrix_has_memory_of_its_own():
    room = Room(100, 100, 2)
    with room.square(101, np.float64), room.square(17, np.float64) as small:
        assert not np.shares_memory(small, room.memory)


def test_who_finds_no_room_waits_and_who_fails_gives_it_back():
    room, inside, asked, order = Room(50, 50, 2), Event(), Event(), []

    def one(turn):
        if turn == 1:
            inside.wait(60)
            asked.set()
        with room.square(51, np.float64):
            order.append((turn, "in"))
            if turn == 0:
                inside.set()
                asked.wait(60)
                time.sleep(0.05)  # time for the other to come in if it could
            order.append((turn, "out"))

    with threads(2) as each:
        list(each(one, [0, 1]))
    assert order == [(0, "in"), (0, "out"), (1, "in"), (1, "out")] and not room.taken
    with pytest.raises(ZeroDivisionError), room.square(51, np.float64):
        1 / 0  # noqa: B018
    assert not room.taken


def test_a_worker_whose_map_is_over_begins_with_no_matrix(monkeypatch):
    room, over = Room(50, 50, 2), Event()
    over.set()
    monkeypatch.setattr(threads_module._HERE, "stop", over, raising=False)
    with pytest.raises(Stopped), room.square(51, np.float64):
        raise AssertionError("it has begun")
    assert not room.taken
