"""Threads share memory, wait for each other, and end together."""

from threading import Event

import numpy as np
import pytest

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
    room, inside, order = Room(50, 50, 2), Event(), []

    def one(turn):
        if turn == 1:
            inside.wait()
        with room.square(51, np.float64):
            order.append(turn)
            if turn == 0:
                inside.set()
                with room.changed:  # the other is waiting by now, or has not asked yet
                    assert len(room.taken) == 1
        order.append(turn)

    with threads(2) as each:
        list(each(one, [0, 1]))
    assert order.index(1) > 0 and not room.taken
    with pytest.raises(ZeroDivisionError), room.square(51, np.float64):
        1 / 0  # noqa: B018
    assert not room.taken


def test_who_waits_for_room_does_not_begin_after_another_has_failed():
    room, has, begun = Room(50, 50, 2), Event(), []

    def one(turn):
        if turn == 1:
            has.wait()
            with room.square(51, np.float64):
                begun.append(turn)
        else:
            with room.square(51, np.float64):
                has.set()
                raise ZeroDivisionError

    with threads(2) as each, pytest.raises((ZeroDivisionError, Stopped)):
        list(each(one, [0, 1]))
    assert not room.taken
