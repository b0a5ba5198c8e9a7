"""Wrong credentials, counted by whom they come from: what slows down those who guess."""

from __future__ import annotations

import threading
from collections import OrderedDict

GUESSES_A_MINUTE = 20  # wrong credentials from one address, before it is asked to wait
ADDRESSES = 10_000  # whose guesses are remembered at a time


class Guesses:
    """Counts wrong credentials by address within a minute, for a bounded number of addresses.

    A key that is right is never held up: guessing one of 256 random bits is hopeless anyway, and behind a proxy all
    callers may share an address. A password can be guessed: while its address must wait, none is even looked at.
    """

    def __init__(self, *, limit: int = GUESSES_A_MINUTE, window: float = 60.0, addresses: int = ADDRESSES) -> None:
        self._limit, self._window, self._addresses = limit, window, addresses
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, address: str, *, at: float) -> float:
        """Count one more wrong guess; return for how many seconds the address should wait, 0 if it need not."""
        with self._lock:
            since, count = self._recent(address, at)
            self._seen[address] = (since, count + 1)
            self._seen.move_to_end(address)
            while len(self._seen) > self._addresses:
                self._seen.popitem(last=False)
        return self._left(since, count, at)

    def wait(self, address: str, *, at: float) -> float:
        """Return for how many seconds an address must wait before its next guess, 0 if it need not; count nothing."""
        with self._lock:
            return self._left(*self._recent(address, at), at)

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()

    def _recent(self, address: str, at: float) -> tuple[float, int]:
        since, count = self._seen.get(address, (at, 0))
        return (since, count) if at - since < self._window else (at, 0)

    def _left(self, since: float, count: int, at: float) -> float:
        return self._window - (at - since) if count >= self._limit else 0.0


KEYS = Guesses()  # and turn tokens
PASSWORDS = Guesses()  # apart, so that wrong keys lock nobody out of the console
