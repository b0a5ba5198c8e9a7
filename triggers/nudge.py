"""The nudge: tells the clock, once the transaction has committed, that a nearer instant may be due."""

from __future__ import annotations

import threading

from django.db import connection, transaction

CHANNEL = "rewake_clock"

here = threading.Event()  # wakes a clock in this process


def clock() -> None:
    """Nudge the clock: through PostgreSQL's NOTIFY where there is one, and in this process.

    Like the doorbell it may be lost: the clock looks again after TRIGGERS_TICK_INTERVAL_SECONDS.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"NOTIFY {CHANNEL}")  # delivered by the server at commit, dropped by a rollback
    transaction.on_commit(here.set)
