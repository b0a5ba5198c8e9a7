"""The closed sets of the sessions app, and which status may follow which."""

from __future__ import annotations

from enum import StrEnum

from sessions.machine import Machine


class SessionStatus(StrEnum):
    """Derived, never stored: a session runs while it has a live turn."""

    IDLE = "idle"
    RUNNING = "running"
    TERMINATED = "terminated"


class WakeSource(StrEnum):
    TRIGGER = "trigger"
    PERSON = "person"
    PEER = "peer"


class Action(StrEnum):
    """How a wake joins a session: into the live turn or a shared one, or in a turn of its own."""

    MESSAGE = "message"
    START = "start"


class WakeStatus(StrEnum):
    PENDING = "pending"
    TAKEN = "taken"
    DONE = "done"
    QUARANTINED = "quarantined"
    WITHDRAWN = "withdrawn"


class TurnStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"


class EventType(StrEnum):
    USER = "user"
    TURN_STARTED = "turn_started"
    ASSISTANT = "assistant"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    TRIGGER_ARMED = "trigger_armed"
    TRIGGER_FIRED = "trigger_fired"
    TRIGGER_STATUS = "trigger_status"
    WAKE_REQUEUED = "wake_requeued"
    WAKE_QUARANTINED = "wake_quarantined"
    TURN_ENDED = "turn_ended"
    SESSION_TERMINATED = "session_terminated"


WAKES = Machine(
    {
        WakeStatus.PENDING: [WakeStatus.TAKEN, WakeStatus.WITHDRAWN],
        WakeStatus.TAKEN: [WakeStatus.DONE, WakeStatus.PENDING, WakeStatus.QUARANTINED, WakeStatus.WITHDRAWN],
        WakeStatus.QUARANTINED: [WakeStatus.PENDING],  # by an operator's retry
        WakeStatus.DONE: [],
        WakeStatus.WITHDRAWN: [],
    }
)

TURNS = Machine(
    {
        TurnStatus.RUNNING: [TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.INTERRUPTED, TurnStatus.LOST],
        TurnStatus.COMPLETED: [],
        TurnStatus.FAILED: [],
        TurnStatus.INTERRUPTED: [],
        TurnStatus.LOST: [],
    }
)
