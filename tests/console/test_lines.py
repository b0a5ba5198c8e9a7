"""A transcript's events as lines for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.template.loader import render_to_string

from console import lines
from console.lines import Said, line
from sessions.states import EventType


def _said(type_: str, now: datetime, **payload: Any) -> Said:
    return line(1, type_, now, payload).said


@pytest.mark.parametrize("type_", EventType)
def test_it_has_words_for_every_type_of_event(type_: EventType) -> None:
    assert type_ in lines._SAYINGS


@pytest.mark.parametrize("type_", [*EventType, "from_the_future"])
def test_it_shows_an_event_whose_payload_is_not_as_expected(type_: str, now: datetime) -> None:
    for payload in (
        {},
        {"wakes": ["x"], "result": [1], "usage": None, "due_at": "x", "trigger_id": "not an id", "args": 7},
    ):
        shown = line(1, type_, now, payload)
        assert render_to_string("console/_line.html", {"line": shown, "now": now})


def test_it_shows_the_json_of_an_event_of_an_unknown_type(now: datetime) -> None:
    said = _said("from_the_future", now, hello="world")

    assert (said.label, said.data, said.folded) == ("from_the_future", {"hello": "world"}, True)


def test_it_shows_a_persons_message_as_it_stands(now: datetime) -> None:
    said = _said("user", now, text="hello", wakes=[{"wake_id": "1", "source": "person", "text": "hello"}], steered=True)

    assert (said.label, said.blocks[0].text, said.summary) == ("Message", "hello", "steered into the running turn")
    assert said.data is None


def test_it_shows_a_wakes_own_prompt_and_what_the_agent_got_behind_it(now: datetime) -> None:
    said = _said("user", now, text="composed", wakes=[{"wake_id": "1", "source": "trigger", "text": "look"}])

    assert (said.label, said.blocks[0].text, said.data) == ("Wake prompt", "look", "composed")


def test_it_shows_each_of_several_wakes(now: datetime) -> None:
    wakes = [{"source": "trigger", "text": "look"}, {"source": "person", "text": "hello"}]

    said = _said("user", now, text="composed", wakes=wakes)

    assert said.label == "2 wakes"
    assert [(block.heading, block.text) for block in said.blocks] == [("Wake prompt", "look"), ("Message", "hello")]


def test_it_says_why_a_turn_started(now: datetime) -> None:
    said = _said("turn_started", now, triggered=True, depth=3, redelivered=["1"])

    assert said.summary == "by a trigger · wake 3 in its chain · 1 delivered again"


@pytest.mark.parametrize(
    ("status", "tone"), [("completed", "mark"), ("interrupted", "warn"), ("failed", "bad"), ("lost", "bad")]
)
def test_it_says_how_a_turn_ended_and_what_it_spent(now: datetime, status: str, tone: str) -> None:
    said = _said("turn_ended", now, status=status, reason="why", usage={"input_tokens": 12345, "output_tokens": 0})

    assert (said.status, said.tone, said.summary) == (status, tone, "why · input tokens 12,345")


def test_it_puts_the_error_of_a_tool_forward(now: datetime) -> None:
    said = _said(
        "tool_result", now, tool="schedule_trigger", result={"error": {"code": "policy", "message": "no more"}}
    )

    assert (said.tone, said.summary, said.blocks[0].text) == ("warn", "policy", "no more")


def test_it_cuts_the_json_of_a_tool_to_a_line(now: datetime) -> None:
    said = _said("tool_call", now, tool="schedule_trigger", args={"wake_prompt": "x" * 8000})

    assert len(said.summary) == lines.SUMMARY_CHARS
    assert said.folded


def test_it_says_how_late_a_trigger_fired(now: datetime) -> None:
    on_time = {"due_at": "2026-12-01T09:00:00Z", "fired_at": "2026-12-01T09:00:00.2Z"}
    late = on_time | {"fired_at": "2026-12-01T09:00:42Z"}

    assert _said("trigger_fired", now, fires=1, max_fires=3, **on_time).summary == "fire 1 of 3"
    assert "42.0 s after it was due" in _said("trigger_fired", now, fires=1, max_fires=3, **late).summary


def test_it_says_how_a_triggers_status_moved(now: datetime) -> None:
    moved = _said("trigger_status", now, kind="webhook", reason="paused by admin", **{"from": "armed", "to": "paused"})
    shown = _said("trigger_status", now, kind="webhook", reason="its URL was shown", **{"from": "armed", "to": "armed"})

    assert (moved.status, moved.summary) == ("paused", "webhook · armed → paused · paused by admin")
    assert (shown.status, shown.summary) == ("", "webhook · its URL was shown")


def test_it_says_what_is_held_and_until_when(now: datetime) -> None:
    said = _said("wake_requeued", now, wakes=["1", "2"], reason="too many", next_attempt_at="2026-12-01T10:00:00Z")

    assert said.summary == "2 waiting · too many · next try at 2026-12-01T10:00:00Z"
