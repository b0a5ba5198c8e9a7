"""Keeps Python's garbage collection out of the way of what must not be late."""

from __future__ import annotations

import gc


def freeze() -> None:
    """Exempt all there is from garbage collection: for a process that has loaded what it will use.

    A full collection looks through every object, and everything else in the process waits. With what Django, Celery
    and the adapters leave behind when they are loaded, that took a tenth of a second, each time in the midst of some
    turn's begin or some tick.
    """
    gc.collect()
    gc.freeze()
