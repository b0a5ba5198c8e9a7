from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sessions.together import Together

PATIENCE = 10.0


class Desk:
    """Work that waits, once, until it is let go on; it doubles numbers, and refuses 13."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        if 13 in items:
            raise ValueError("13")
        if 99 in items:
            raise ConnectionError("gone")
        return [2 * item for item in items]


def _beside_a_call(desk: Desk, *items: int, most: int = 10) -> list[Future[int]]:
    """Bring items, in this order, while a call with 0 goes on; then let everything go on."""
    together = Together(desk, most=most, hopeless=(ConnectionError,))
    with ThreadPoolExecutor(len(items) + 1) as pool:
        first = pool.submit(together, 0)
        assert desk.begun.wait(PATIENCE)
        waiting = []
        for number, item in enumerate(items, 1):
            waiting.append(pool.submit(together, item))
            _until(lambda number=number: len(together._waiting) == number)
        desk.go_on.set()
        assert first.result(PATIENCE) == 0
    return waiting


def _until(holds: object) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if holds():  # type: ignore[operator]
            return
        pause.wait(0.01)
    raise AssertionError("not in time")


def test_it_does_one_item_at_once_and_alone() -> None:
    desk = Desk()
    desk.go_on.set()
    together = Together(desk, most=10)

    assert [together(1), together(2)] == [2, 4]
    assert desk.calls == [[1], [2]]


def test_it_does_together_what_came_during_a_call() -> None:
    desk = Desk()

    answers = _beside_a_call(desk, 1, 2, 3)

    assert [answer.result() for answer in answers] == [2, 4, 6]
    assert desk.calls == [[0], [1, 2, 3]]


def test_it_does_no_more_at_a_time_than_it_may() -> None:
    desk = Desk()

    answers = _beside_a_call(desk, 1, 2, 3, most=2)

    assert [answer.result() for answer in answers] == [2, 4, 6]
    assert desk.calls == [[0], [1, 2], [3]]


def test_it_lets_a_bad_item_fail_only_itself() -> None:
    desk = Desk()

    one, bad, other = _beside_a_call(desk, 1, 13, 3)

    assert (one.result(), other.result()) == (2, 6)
    with pytest.raises(ValueError, match="13"):
        bad.result()


def test_it_does_not_try_again_what_is_hopeless() -> None:
    desk = Desk()

    answers = _beside_a_call(desk, 1, 99, 3)

    assert [type(answer.exception()) for answer in answers] == [ConnectionError] * 3
    assert desk.calls == [[0], [1, 99, 3]]


def test_it_goes_on_after_a_failure() -> None:
    desk = Desk()
    desk.go_on.set()
    together = Together(desk, most=10)
    with pytest.raises(ValueError, match="13"):
        together(13)

    assert together(1) == 2
