"""The examples of the OpenAPI document."""

from __future__ import annotations

from typing import Any

SESSION_ID = "019acf2e-7c40-7abc-8def-0123456789ab"
WAKE_ID = "019acf2e-9b10-7abc-8def-0123456789ab"
TURN_ID = "019acf2e-9f00-7abc-8def-0123456789ab"
TRIGGER_ID = "019acf2f-1a20-7abc-8def-0123456789ab"
KEY_ID = "019acf2d-0010-7abc-8def-0123456789ab"

SESSION: dict[str, Any] = {
    "id": SESSION_ID,
    "tag": "nightly-build",
    "title": "Nightly build",
    "adapter": "builtin",
    "model": "rehearsal",
    "status": "idle",
    "pending_wakes": 0,
    "quarantined_wakes": 0,
    "armed_triggers": 1,
    "last_event": {"seq": 9, "type": "turn_ended", "at": "2026-12-01T09:00:02.104211Z"},
    "held_until": None,
    "hold_reason": "",
    "created_at": "2026-12-01T09:00:00.250113Z",
    "terminated_at": None,
}
NEW_SESSION: dict[str, Any] = SESSION | {"armed_triggers": 0, "last_event": None}
TERMINATED: dict[str, Any] = {
    "session_id": SESSION_ID,
    "status": "terminated",
    "terminated_at": "2026-12-01T10:00:00.000321Z",
    "cancelled_triggers": 1,
}
EVENTS: dict[str, Any] = {
    "events": [
        {
            "seq": 9,
            "type": "turn_ended",
            "at": "2026-12-01T09:00:02.104211Z",
            "payload": {"turn_id": TURN_ID, "status": "completed", "usage": {}},
        }
    ],
    "next": None,
    "status": "idle",
    "running": False,
    "done_reason": "completed",
}
WAKE: dict[str, Any] = {
    "id": WAKE_ID,
    "session_id": SESSION_ID,
    "status": "pending",
    "reason": "retried by an operator",
    "attempts": 1,
    "created_at": "2026-12-01T09:00:00.310222Z",
}
KEY: dict[str, Any] = {
    "id": KEY_ID,
    "name": "ci",
    "hint": "rwk_3kQz",
    "scopes": ["sessions.read", "triggers.read"],
    "created_at": "2026-12-01T08:00:00Z",
    "last_used_at": None,
    "revoked_at": None,
}
