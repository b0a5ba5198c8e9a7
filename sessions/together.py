"""Group commit: what several threads want written at the same moment, one of them writes for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Together(Generic[T, R]):
    """Calls `work` with one item or with all that wait, one call at a time; nobody waits for company.

    1. Who finds no call going on makes one at once, with its item alone.
    2. What comes meanwhile waits. When the call returns, the first that waits makes the next one, for all.
    3. `work` returns an answer for each item. What it raises with several is tried again with each alone,
       so that one bad item fails only itself; whoever brought it gets the exception. One of `hopeless`
       is not tried again: all get it.
    """

    def __init__(
        self, work: Callable[[Sequence[T]], Sequence[R]], *, most: int, hopeless: tuple[type[Exception], ...] = ()
    ) -> None:
        self._work, self._most, self._hopeless = work, most, hopeless
        self._lock = threading.Lock()
        self._waiting: list[_Place[T, R]] = []
        self._busy = False

    def __call__(self, item: T) -> R:
        place = _Place[T, R](item)
        with self._lock:
            self._waiting.append(place)
            first, self._busy = not self._busy, True
        if not first:
            place.called.wait()
        if not place.done:
            self._lead()
        return place.answer()

    def _lead(self) -> None:
        with self._lock:
            share, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        try:
            self._do(share)
        finally:
            with self._lock:
                following = self._waiting[0] if self._waiting else None
                self._busy = following is not None
            for place in share:
                place.done = True
                place.called.set()
            if following:
                following.called.set()

    def _do(self, share: Sequence[_Place[T, R]]) -> None:
        try:
            for place, answer in zip(share, self._work([place.item for place in share]), strict=True):
                place.answers = [answer]
        except Exception as error:
            alone = len(share) == 1 or isinstance(error, self._hopeless)
            for place in share:
                if alone:
                    place.error = error
                else:
                    self._do([place])


class _Place(Generic[T, R]):
    """Where a thread waits, and what it is given."""

    def __init__(self, item: T) -> None:
        self.item = item
        self.called = threading.Event()
        self.done = False
        self.answers: list[R] = []
        self.error: BaseException | None = None

    def answer(self) -> R:
        if self.error:
            raise self.error
        if not self.answers:
            raise RuntimeError("whoever did this for us was stopped")
        return self.answers[0]
