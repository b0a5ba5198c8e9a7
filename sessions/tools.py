"""Session tools: the functions an agent can call inside its own turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID


@dataclass(frozen=True)
class ToolContext:
    """Who calls a tool: a live turn of one session.

    `triggered` is true for a turn that no person's message is part of; `depth` counts the turns
    in the chain of wakes that led to this one, 0 for a person's.
    """

    session_id: UUID
    turn_id: UUID
    triggered: bool
    depth: int


class SessionTool(Protocol):
    """A tool offered to every session's agent while `enabled()`.

    `call` returns a JSON object and raises nothing for bad input: its answer is then
    `{"error": {"code", "message"}}`, written for a model to correct itself by.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    def enabled(self) -> bool: ...

    def schema(self) -> dict[str, Any]: ...

    def call(self, context: ToolContext, args: dict[str, Any], *, now: datetime) -> dict[str, Any]: ...


@dataclass(frozen=True)
class BoundTool:
    """A session tool, bound to one turn: what an adapter offers to its agent."""

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[dict[str, Any]], dict[str, Any]]


_tools: dict[str, SessionTool] = {}


def register(tool: SessionTool) -> None:
    """Offer a tool to every session. A second tool of the same name is refused."""
    if tool.name in _tools and type(_tools[tool.name]) is not type(tool):
        raise ValueError(f"two session tools are called {tool.name!r}")
    _tools[tool.name] = tool


def enabled_tools() -> list[SessionTool]:
    """Return the tools that are on offer now, by name."""
    return [_tools[name] for name in sorted(_tools) if _tools[name].enabled()]
