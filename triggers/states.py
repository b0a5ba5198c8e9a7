"""The closed sets of the triggers app, and which status may follow which."""

from __future__ import annotations

from enum import StrEnum

from sessions.machine import Machine
from sessions.states import WakeStatus


class TriggerStatus(StrEnum):
    ARMED = "armed"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """What became of a fire: derived from its wake, but for `skipped`, which has none."""

    DELIVERED = "delivered"
    PENDING = "pending"
    RUNNING = "running"
    QUARANTINED = "quarantined"
    WITHDRAWN = "withdrawn"
    SKIPPED = "skipped"


TRIGGERS = Machine(
    {
        TriggerStatus.ARMED: [
            TriggerStatus.PAUSED,
            TriggerStatus.COMPLETED,
            TriggerStatus.FAILED,
            TriggerStatus.EXPIRED,
            TriggerStatus.CANCELLED,
        ],
        TriggerStatus.PAUSED: [TriggerStatus.ARMED, TriggerStatus.CANCELLED],
        TriggerStatus.COMPLETED: [],
        TriggerStatus.FAILED: [],
        TriggerStatus.EXPIRED: [],
        TriggerStatus.CANCELLED: [],
    }
)

OUTCOMES = {
    WakeStatus.PENDING: Outcome.PENDING,
    WakeStatus.TAKEN: Outcome.RUNNING,
    WakeStatus.DONE: Outcome.DELIVERED,
    WakeStatus.QUARANTINED: Outcome.QUARANTINED,
    WakeStatus.WITHDRAWN: Outcome.WITHDRAWN,
}
