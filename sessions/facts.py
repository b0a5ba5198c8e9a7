"""Facts about sessions that other apps add to how a session is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

Fact = Callable[[Sequence[UUID]], dict[UUID, Any]]

_facts: dict[str, tuple[Fact, Any]] = {}


def register(name: str, fact: Fact, *, default: Any) -> None:
    """Add a fact: given session ids, it returns the value for each that has one; `default` stands for the rest."""
    _facts[name] = (fact, default)


def facts_of(session_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return all registered facts of the sessions, one query a fact."""
    shown: dict[UUID, dict[str, Any]] = {session_id: {} for session_id in session_ids}
    for name, (fact, default) in _facts.items():
        values = fact(session_ids)
        for session_id in session_ids:
            shown[session_id][name] = values.get(session_id, default)
    return shown
