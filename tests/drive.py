"""Drives a running product from outside, as a client would: nothing but HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

Event = dict[str, Any]


def open_session(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/api/sessions", json=fields)
    assert answer.status_code in (200, 201), answer.text
    session_id: str = answer.json()["id"]
    return session_id


def say(client: httpx.Client, session_id: str, text: str) -> None:
    answer = client.post(f"/api/sessions/{session_id}/message", json={"text": text})
    assert answer.status_code in (200, 202), answer.text


def events_until(
    client: httpx.Client, session_id: str, wanted: Callable[[list[Event]], bool], *, patience: int = 30
) -> list[Event]:
    """Follow a transcript by long polls until it satisfies `wanted`; return it from its start."""
    events: list[Event] = []
    for _ in range(patience):
        after = events[-1]["seq"] if events else 0
        answer = client.get(f"/api/sessions/{session_id}/events", params={"after": after, "wait": 1, "limit": 200})
        assert answer.status_code == 200, answer.text
        events += answer.json()["events"]
        if wanted(events):
            return events
    raise AssertionError(f"not within {patience} s: {[(event['type'], event['payload']) for event in events]}")


def ended(turns: int) -> Callable[[list[Event]], bool]:
    """Return the condition that so many turns have ended."""
    return lambda events: sum(event["type"] == "turn_ended" for event in events) >= turns


def triggers(client: httpx.Client, session_id: str, **filters: str) -> list[dict[str, Any]]:
    answer = client.get("/api/triggers", params={"session_id": session_id} | filters)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["triggers"]
    return found


def fires(client: httpx.Client, trigger_id: str) -> list[dict[str, Any]]:
    answer = client.get(f"/api/triggers/{trigger_id}/fires", params={"limit": 200})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["fires"]
    return found


def hook_path(client: httpx.Client, trigger_id: str) -> str:
    answer = client.post(f"/api/triggers/{trigger_id}/hook-url")
    assert answer.status_code == 200, answer.text
    url: str = answer.json()["hook_url"]
    return url[url.index("/api/") :]


def armed_webhook(client: httpx.Client, session_id: str, prompt: str = "look at this") -> tuple[str, str]:
    """Have a new session arm a webhook trigger and end its turn; return the trigger's id and its URL's path."""
    say(client, session_id, f"on webhook: {prompt}")
    events_until(client, session_id, ended(1))  # else what is posted next may be steered into this turn
    trigger_id = triggers(client, session_id, kind="webhook")[0]["id"]
    return trigger_id, hook_path(client, trigger_id)
