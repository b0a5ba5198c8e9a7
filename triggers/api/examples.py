"""The examples of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from sessions.api.examples import SESSION_ID, TRIGGER_ID, TURN_ID, WAKE_ID

FIRE_ID = "019acf40-0a20-7abc-8def-0123456789ab"

TRIGGER: dict[str, Any] = {
    "id": TRIGGER_ID,
    "session_id": SESSION_ID,
    "kind": "webhook",
    "status": "armed",
    "wake_prompt": "The deployment has reported back: read its result and go on.",
    "action": "message",
    "args": {"hmac_header": "X-Hub-Signature-256"},
    "fires": 1,
    "max_fires": 100,
    "expires_at": "2026-12-08T09:00:01.250113Z",
    "next_fire_at": None,
    "created_at": "2026-12-01T09:00:01.250113Z",
    "created_by": "agent",
    "provenance": {"turn_id": TURN_ID, "depth": 0},
    "last_fired_at": "2026-12-01T09:20:00.415102Z",
    "last_error": None,
    "consecutive_failures": 0,
}
FIRE: dict[str, Any] = {
    "id": FIRE_ID,
    "trigger_id": TRIGGER_ID,
    "occurrence": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "due_at": "2026-12-01T09:20:00.415102Z",
    "fired_at": "2026-12-01T09:20:00.415102Z",
    "outcome": "delivered",
    "reason": None,
    "payload": '{"state": "success"}',
    "payload_bytes": 20,
    "truncated": False,
    "wake_id": WAKE_ID,
    "turn_id": TURN_ID,
    "turn_started_at": "2026-12-01T09:20:00.440310Z",
    "turn_ended_at": "2026-12-01T09:20:03.128840Z",
    "attempts": 1,
}
