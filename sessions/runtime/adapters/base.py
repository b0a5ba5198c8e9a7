"""The adapter contract: what a turn hands to an agent and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from sessions.tools import BoundTool


class Fault(StrEnum):
    """Whose fault a failed turn is, which decides what becomes of its wakes."""

    TRANSPORT = "transport"  # the way to the agent: the wakes go back and are tried again
    PERMANENT = "permanent"  # no retry can help: the wakes are quarantined at once
    AGENT = "agent"  # the agent's own error: the turn failed, its wakes are done


class AdapterError(Exception):
    """A turn that could not be run to its end.

    `message` is for an operator: what was wrong, where, what would be right. `retry_after` is in
    seconds and only meant for `Fault.TRANSPORT`: the provider's own wish. `reached` is what the
    turn had done before it failed: what it armed stays armed, so the next try must know of it.
    """

    def __init__(
        self, fault: Fault, message: str, *, retry_after: float | None = None, reached: TurnResult | None = None
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message
        self.retry_after = retry_after
        self.reached = reached


@dataclass(frozen=True)
class TurnRequest:
    """One turn, as an adapter sees it. Nothing in it knows of Django.

    `history` and `state` are what this adapter returned from earlier turns of the session:
    `history` a list of its own JSON messages, oldest first, `state` its own JSON object.
    The callables may be called from the thread that called `run`, and only from there.
    """

    session_id: UUID
    turn_id: UUID
    prompt: str
    history: list[Any]
    state: dict[str, Any]
    model: str
    tools: Sequence[BoundTool]
    turn_token: str
    deadline: datetime
    clock: Callable[[], datetime]
    emit: Callable[[str, dict[str, Any]], None]
    take_steering: Callable[[], list[str]]
    interrupted: Callable[[], bool]  # cheap, safe from any thread, to be asked often


@dataclass(frozen=True)
class TurnResult:
    """What a turn came to.

    `history` holds only what this turn added. `usage` maps `requests`, `input_tokens` and
    `output_tokens` to counts.
    """

    text: str
    history: list[Any] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)


class Adapter(Protocol):
    """A way to invoke a session's agent.

    `run` blocks until the agent has ended its turn. It raises `AdapterError` and nothing else for
    what it can foresee; once `request.interrupted()` is true it returns soon, with what it reached.
    `warm` loads what is slow to load, before the first turn has to wait for it.
    """

    name: str

    def warm(self) -> None: ...

    def run(self, request: TurnRequest) -> TurnResult: ...
