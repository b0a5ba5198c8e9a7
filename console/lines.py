"""A transcript's events as lines for people: one function a type."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from sessions.states import EventType
from sessions.text import cut

SUMMARY_CHARS = 160


@dataclass(frozen=True)
class Block:
    """A stretch of text under a heading, which may be empty."""

    heading: str
    text: str


@dataclass(frozen=True)
class Said:
    """What a line says: `tone` is how it looks, `label` what it is, `data` the JSON behind it."""

    tone: str
    label: str
    summary: str = ""
    blocks: list[Block] = field(default_factory=list)
    status: str = ""
    trigger_id: str = ""
    data: Any = None
    data_label: str = "details"

    @property
    def folded(self) -> bool:
        """Whether the line is all there is to it, and opens to show its JSON."""
        return bool(self.data) and not self.blocks


@dataclass(frozen=True)
class Line:
    """One event of a transcript."""

    seq: int
    type: str
    at: datetime
    said: Said


Payload = dict[str, Any]

_TONES_OF_ENDINGS = {"completed": "quiet", "interrupted": "warn", "failed": "bad", "lost": "bad"}
_SOURCES = {"person": "Message", "trigger": "Wake prompt", "peer": "From a peer"}


def line(seq: int, type_: str, at: datetime, payload: Payload) -> Line:
    """Return an event as a line; one of an unknown type shows its JSON."""
    say = _SAYINGS.get(type_)
    return Line(seq, type_, at, say(payload) if say else Said("quiet", type_, data=payload))


def _user(payload: Payload) -> Said:
    wakes = [wake for wake in payload.get("wakes", []) if isinstance(wake, dict)]
    blocks = [Block(_SOURCES.get(_text(wake, "source"), "Wake"), _text(wake, "text")) for wake in wakes]
    by_person = [block.heading for block in blocks] == ["Message"]
    label = blocks[0].heading if len(blocks) == 1 else f"{len(blocks)} wakes"
    return Said(
        tone="user",
        label=label,
        summary="steered into the running turn" if payload.get("steered") else "",
        blocks=[Block("", block.text) for block in blocks] if len(blocks) == 1 else blocks,
        data=None if by_person else _text(payload, "text"),
        data_label="prompt as the agent got it",
    )


def _turn_started(payload: Payload) -> Said:
    parts = ["by a trigger" if payload.get("triggered") else "by a person"]
    if payload.get("depth"):
        parts.append(f"wake {payload['depth']} in its chain")
    if redelivered := len(payload.get("redelivered") or []):
        parts.append(f"{redelivered} delivered again")
    return Said("mark", "Turn started", " · ".join(parts))


def _turn_ended(payload: Payload) -> Said:
    status = _text(payload, "status")
    usage = payload.get("usage") or {}
    spent = [f"{name.replace('_', ' ')} {_count(amount)}" for name, amount in usage.items() if amount]
    parts = [_text(payload, "reason"), *spent]
    tone = _TONES_OF_ENDINGS.get(status, "quiet")
    return Said("mark" if tone == "quiet" else tone, "Turn ended", " · ".join(filter(None, parts)), status=status)


def _assistant(payload: Payload) -> Said:
    return Said("agent", "Agent", blocks=[Block("", _text(payload, "text"))])


def _tool_call(payload: Payload) -> Said:
    args = payload.get("args")
    return Said("tool", f"Calls {_text(payload, 'tool')}", _compact(args), data=args, data_label="arguments")


def _tool_result(payload: Payload) -> Said:
    result = payload.get("result")
    label = f"{_text(payload, 'tool')} answers"
    error = result.get("error") if isinstance(result, dict) else None
    if isinstance(error, dict):
        blocks = [Block("", _text(error, "message"))]
        return Said("warn", label, _text(error, "code"), blocks, data=result, data_label="result")
    return Said("tool", label, _compact(result), data=result, data_label="result")


def _trigger_armed(payload: Payload) -> Said:
    return Said(
        tone="trigger",
        label="Trigger armed",
        summary=" · ".join(filter(None, [_text(payload, "kind"), _text(payload, "describe")])),
        blocks=[Block("Wake prompt", _text(payload, "wake_prompt"))],
        trigger_id=_text(payload, "trigger_id"),
        data=payload,
    )


def _trigger_fired(payload: Payload) -> Said:
    counted = f"fire {payload.get('fires')} of {payload.get('max_fires')}"
    parts = [_text(payload, "kind"), counted, _lateness(payload), _text(payload, "reason")]
    return Said(
        tone="trigger",
        label="Trigger fired",
        summary=" · ".join(filter(None, parts)),
        status="completed" if payload.get("status") == "completed" else "",
        trigger_id=_text(payload, "trigger_id"),
        data=payload,
    )


def _trigger_status(payload: Payload) -> Said:
    before, after = _text(payload, "from"), _text(payload, "to")
    moved = f"{before} → {after}" if before != after else ""
    return Said(
        tone="warn" if after == "failed" else "trigger",
        label="Trigger",
        summary=" · ".join(filter(None, [_text(payload, "kind"), moved, _text(payload, "reason")])),
        status=after if moved else "",
        trigger_id=_text(payload, "trigger_id"),
    )


def _wake_requeued(payload: Payload) -> Said:
    reason = _text(payload, "reason")
    held = payload.get("wakes")
    if held:
        reason = f"{len(held)} waiting · {reason} · next try at {_text(payload, 'next_attempt_at')}"
    return Said("warn", "Wake put back", reason, trigger_id=_text(payload, "trigger_id"), data=payload)


def _wake_quarantined(payload: Payload) -> Said:
    return Said(
        tone="bad",
        label="Wake quarantined",
        summary="it will not run again until somebody retries it",
        blocks=[Block("", _text(payload, "reason"))],
        trigger_id=_text(payload, "trigger_id"),
        data=payload,
    )


def _session_terminated(payload: Payload) -> Said:
    cancelled = payload.get("cancelled_triggers") or 0
    ended = f"{cancelled} triggers cancelled" if cancelled != 1 else "1 trigger cancelled"
    return Said("mark", "Session terminated", " · ".join(filter(None, [_text(payload, "reason"), ended])))


_SAYINGS: dict[str, Callable[[Payload], Said]] = {
    EventType.USER: _user,
    EventType.TURN_STARTED: _turn_started,
    EventType.ASSISTANT: _assistant,
    EventType.TOOL_CALL: _tool_call,
    EventType.TOOL_RESULT: _tool_result,
    EventType.TRIGGER_ARMED: _trigger_armed,
    EventType.TRIGGER_FIRED: _trigger_fired,
    EventType.TRIGGER_STATUS: _trigger_status,
    EventType.WAKE_REQUEUED: _wake_requeued,
    EventType.WAKE_QUARANTINED: _wake_quarantined,
    EventType.TURN_ENDED: _turn_ended,
    EventType.SESSION_TERMINATED: _session_terminated,
}


def _text(payload: Payload, name: str) -> str:
    value = payload.get(name)
    return "" if value is None else str(value)


def _compact(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False), SUMMARY_CHARS)


def _count(amount: Any) -> str:
    return f"{amount:,}" if isinstance(amount, int) else str(amount)


def _lateness(payload: Payload) -> str:
    due, fired = (parse_datetime(_text(payload, name)) for name in ("due_at", "fired_at"))
    late = (fired - due).total_seconds() if due and fired else 0
    return f"{late:.1f} s after it was due" if late >= 1 else ""
