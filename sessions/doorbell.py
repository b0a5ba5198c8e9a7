"""The doorbell: tells a worker that sessions have wakes. It carries nothing, so it may be lost."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from uuid import UUID

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

RUN = "sessions.run"  # the task that answers
BATCH = 10  # sessions a message: publishing is dearer than taking several at once

log = logging.getLogger("rewake.doorbell")


def ring(session_ids: Iterable[UUID]) -> None:
    """Ring for the sessions once the current transaction has committed.

    A broker that cannot be reached costs latency only, since the beat rings again for every
    session that has waited for longer than a moment.
    """
    ids = [str(session_id) for session_id in dict.fromkeys(session_ids)]
    if ids:
        transaction.on_commit(partial(_send, ids))


def _send(ids: list[str]) -> None:
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        try:
            current_app.send_task(RUN, args=[batch], queue="long")
        except (OperationalError, OSError) as error:
            about = {"action": "ring_lost", "error": str(error)}
            log.warning("broker unreachable, the beat will ring again", extra=about)
            return
