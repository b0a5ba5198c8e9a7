"""Wrong keys, counted by whom they come from."""

from __future__ import annotations

import threading
from collections import OrderedDict

FAILURES_A_MINUTE = 20  # wrong keys from one address, before they are answered 429
ADDRESSES = 10_000  # whose failures are remembered at a time


class Failures:
    """Counts failed authentications by address within a minute, for a bounded number of addresses.

    A key that is right is never held up: guessing one of 256 random bits is hopeless anyway, and
    behind a proxy all callers may share an address.
    """

    def __init__(self, *, limit: int = FAILURES_A_MINUTE, window: float = 60.0, addresses: int = ADDRESSES) -> None:
        self._limit, self._window, self._addresses = limit, window, addresses
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, address: str, *, at: float) -> float:
        """Count one more failure; return for how many seconds the address should wait, 0 if it need not."""
        with self._lock:
            since, count = self._seen.pop(address, (at, 0))
            if at - since >= self._window:
                since, count = at, 0
            self._seen[address] = (since, count + 1)
            while len(self._seen) > self._addresses:
                self._seen.popitem(last=False)
        return self._window - (at - since) if count >= self._limit else 0.0

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()


failures = Failures()
