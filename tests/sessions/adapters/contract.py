"""What every adapter is held to, and the stand-in for the runner that holds it.

A test module of an adapter, `test_<name>.py`, has a `RIG`: how to make that adapter's agent do things.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sessions.runtime.adapters.base import Fault, TurnRequest
from sessions.tools import BoundTool

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Rig:
    """Prompts that make an adapter's agent say a word, call the tool, be busy for long, or fail."""

    model: str
    say: Callable[[str], str]
    call_tool: str
    be_busy: str
    fail: Mapping[Fault, str]


@dataclass
class Stage:
    """Stands in for the runner: makes requests, and notes what the adapter does and in which thread."""

    model: str
    steering: list[list[str]] = field(default_factory=list)  # what each call of take_steering returns
    stop: threading.Event = field(default_factory=threading.Event)
    answer: Callable[[dict[str, Any]], dict[str, Any]] = lambda args: {
        "id": "t1",
        "status": "armed",
        "describe": "soon",
    }
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    threads: dict[str, set[int]] = field(default_factory=dict)

    def request(self, prompt: str, history: list[Any] | None = None, **changes: Any) -> TurnRequest:
        request = TurnRequest(
            session_id=UUID(int=1),
            turn_id=UUID(int=2),
            prompt=prompt,
            history=history or [],
            state={},
            model=self.model,
            tools=[BoundTool("schedule_trigger", "Arms triggers.", {"type": "object", "properties": {}}, self._tool)],
            turn_token="token",
            deadline=NOW,
            clock=self._clock,
            emit=self._emit,
            take_steering=self._take_steering,
            interrupted=self.stop.is_set,
        )
        return replace(request, **changes)

    def types(self) -> list[str]:
        return [type_ for type_, _ in self.events]

    def said(self) -> list[str]:
        return [payload["text"] for type_, payload in self.events if type_ == "assistant"]

    def stop_after(self, seconds: float) -> None:
        threading.Timer(seconds, self.stop.set).start()

    def stop_in_tool(self, **answer: str) -> None:
        """Let the interrupt come while the tool is at work, which still answers."""

        def stop(args: dict[str, Any]) -> dict[str, Any]:
            self.stop.set()
            return dict(answer)

        self.answer = stop

    def _tool(self, args: dict[str, Any]) -> dict[str, Any]:
        self._seen("tool")
        self.events.append(("tool_call", args))
        answer = self.answer(args)
        self.events.append(("tool_result", answer))
        return answer

    def _clock(self) -> datetime:
        self._seen("clock")
        return NOW

    def _emit(self, type_: str, payload: dict[str, Any]) -> None:
        self._seen("emit")
        self.events.append((type_, payload))

    def _take_steering(self) -> list[str]:
        self._seen("take_steering")
        return self.steering.pop(0) if self.steering else []

    def _seen(self, what: str) -> None:
        self.threads.setdefault(what, set()).add(threading.get_ident())
