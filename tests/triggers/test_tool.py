from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import jsonschema
import pytest

from sessions.models import AgentSession
from tests.factories import arm, armed_session, context_in
from triggers.models import Trigger
from triggers.registry import KINDS
from triggers.tool import ScheduleTrigger

pytestmark = pytest.mark.django_db

TOOL = ScheduleTrigger()


@pytest.fixture
def call(session: AgentSession, now: datetime) -> Any:
    def call(**args: Any) -> dict[str, Any]:
        return TOOL.call(context_in(session, now), args, now=now)

    return call


def _error(answer: dict[str, Any], code: str = "validation") -> str:
    assert answer["error"]["code"] == code, answer
    message: str = answer["error"]["message"]
    assert "2026-12-01T09:00:00Z" in message  # the current time, so that a model can correct itself
    return message


def test_it_arms_and_answers_with_the_shape_that_is_promised(call: Any) -> None:
    answer = call(
        operation="arm", kind="time.cron", cron="0 9 * * mon-fri", timezone="Europe/Berlin", wake_prompt="standup"
    )

    assert answer == {
        "id": str(Trigger.objects.get().pk),
        "kind": "time.cron",
        "status": "armed",
        "next_fire_at": "2026-12-02T08:00:00Z",
        "expires_at": "2026-12-08T09:00:00Z",
        "max_fires": 100,
        "describe": "weekdays at 09:00, Europe/Berlin; next Wed 2026-12-02 09:00 CET",
    }


def test_it_shows_a_webhooks_url_and_signing_secret_to_the_agent(call: Any) -> None:
    answer = call(operation="arm", kind="webhook", hmac_header="X-Sig", wake_prompt="x")

    assert answer["hook_url"].startswith("http")
    assert answer["signing_secret"]
    assert "signing_secret" not in call(operation="arm", kind="webhook", wake_prompt="x")


@pytest.mark.parametrize(
    "args",
    [
        {
            "kind": "webhook",
            "wake_prompt": "x",
            "cron": None,
            "at": "",
            "timezone": "null",
            "events": [],
            "number": None,
        },
        {"kind": "webhook", "wake_prompt": "x", "args": "{}"},
        {"kind": "webhook", "wake_prompt": "x", "args": {"hmac_header": None}},
        {"kind": "webhook", "wake_prompt": "x", "max_fires": "3"},
        {"kind": "webhook", "wake_prompt": "x", "expires_at": "9999-12-31T23:59:59Z"},
        {"kind": "webhook", "wake_prompt": "a\0b\ud800"},
        {"kind": "time.at", "wake_prompt": "x", "at": "9899-12-31T23:59:59", "timezone": "Asia/Tokyo"},
        {"kind": " webhook ", "wake_prompt": "x", "action": "START"},
        {"operation": "ARM", "kind": "webhook", "args": {"wake_prompt": "x"}},
        {"kind": "time.cron", "wake_prompt": "x", "args": '{"cron": "0 9 * * *", "timezone": "UTC"}'},
    ],
)
def test_row_64_it_accepts_the_odd_shapes_that_models_send(call: Any, args: dict[str, Any]) -> None:
    assert call(**args)["status"] == "armed"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, ["operation", "arm", "list", "cancel"]),
        ({"operation": "delete"}, ["operation", "delete"]),
        ({"operation": "arm", "wake_prompt": "x"}, ["kind", "time.at", "webhook"]),
        ({"kind": "cron", "wake_prompt": "x"}, ["kind", "'cron'", "time.cron"]),
        ({"kind": "webhook"}, ["wake_prompt", "required"]),
        ({"kind": "webhook", "wake_prompt": "  "}, ["wake_prompt"]),
        ({"kind": "webhook", "wake_prompt": "x", "tz": "UTC"}, ["tz", "not a field"]),
        ({"kind": "time.cron", "wake_prompt": "x", "expr": "0 9 * * *"}, ["expr", "did you mean cron?"]),
        ({"kind": "webhook", "wake_prompt": "x", "cron": "0 9 * * *"}, ["cron", "(time.cron has it)", "hmac_header"]),
        ({"kind": "time.cron", "wake_prompt": "x"}, ["cron", "required"]),
        ({"kind": "time.cron", "wake_prompt": "x", "cron": "0 9 * * *", "timezone": "IST"}, ["timezone", "IANA"]),
        ({"kind": "time.cron", "wake_prompt": "x", "cron": ["0", "9"]}, ["cron", "string"]),
        ({"kind": "webhook", "wake_prompt": "x", "max_fires": "many"}, ["max_fires", "integer", "many"]),
        ({"kind": "webhook", "wake_prompt": "x", "max_fires": True}, ["max_fires", "integer", "True"]),
        ({"kind": "webhook", "wake_prompt": "x", "max_fires": False}, ["max_fires", "integer", "False"]),
        ({"kind": "webhook", "wake_prompt": True}, ["wake_prompt", "string", "True"]),
        (
            {"kind": "forge.pr", "wake_prompt": "x", "repo": "octo/repo", "number": True, "events": ["merged"]},
            ["number", "integer", "True"],
        ),
        ({"kind": "ci.workflow", "wake_prompt": "x", "repo": "octo/repo", "run_id": True}, ["run_id", "integer"]),
        ({"kind": "webhook", "wake_prompt": "x", "action": "stop"}, ["action", "message", "start"]),
        ({"kind": "webhook", "wake_prompt": "x", "expires_at": "2027-01-01T00:00:00"}, ["expires_at", "offset"]),
        ({"kind": "webhook", "wake_prompt": "x", "expires_at": "tomorrow"}, ["expires_at", "offset", "tomorrow"]),
        ({"kind": "webhook", "wake_prompt": "x", "expires_at": 1900000000}, ["expires_at", "offset", "1900000000"]),
        ({"kind": "webhook", "wake_prompt": "x", "expires_at": "1900000000"}, ["expires_at", "offset"]),
        ({"kind": "webhook", "wake_prompt": "x", "expires_at": "9999-12-31T23:59:59-05:00"}, ["expires_at", "9999"]),
        ({"kind": "webhook", "wake_prompt": "x", "expires_at": "0001-01-01T00:00:00+05:00"}, ["expires_at", "0001"]),
        ({"kind": "webhook", "wake_prompt": "x", "args": "{nope"}, ["args", "JSON"]),
        ({"kind": "webhook", "wake_prompt": "x", "args": "[" * 20000}, ["args", "JSON"]),
        ({"kind": "webhook", "wake_prompt": "x", "args": '"text"'}, ["args", "object"]),
        ({"kind": "webhook", "wake_prompt": "x", "args": {"wake_prompt": "y"}}, ["wake_prompt", "twice"]),
        ({"operation": "list", "kind": "webhook"}, ["kind", "list"]),
        ({"operation": "cancel"}, ["trigger_id", "required"]),
        ({"kind": "time.at", "wake_prompt": "x", "at": "2026-12-01T08:00:00Z"}, ["at", "past"]),
        ({"kind": "time.at", "wake_prompt": "x", "at": "9999-12-31T23:59:59Z"}, ["at", "out of range"]),
    ],
)
def test_it_refuses_with_a_message_that_a_model_can_correct_itself_by(
    call: Any, args: dict[str, Any], words: list[str]
) -> None:
    message = _error(call(**args))
    assert all(word in message for word in words), message
    assert not Trigger.objects.exists()


def test_row_63_it_says_that_no_zone_means_utc(call: Any) -> None:
    answer = call(kind="time.cron", cron="30 18 * * 1-5", timezone=None, wake_prompt="x")

    assert "UTC" in answer["describe"]
    assert "UTC" in answer["notes"][0]


def test_it_says_which_limit_forbids_it(call: Any, settings: Any) -> None:
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 1
    call(kind="webhook", wake_prompt="x")

    assert "limit is 1" in _error(call(kind="webhook", wake_prompt="y"), "policy")


def test_it_lists_the_sessions_own_triggers_newest_first_with_prompts_cut(call: Any, now: datetime) -> None:
    armed_session(now)
    call(kind="webhook", wake_prompt="first")
    call(kind="webhook", wake_prompt="x" * 500)

    listed = call(operation="list")["triggers"]

    assert [len(item["wake_prompt"]) for item in listed] == [160, 5]
    assert "rwh_" not in json.dumps(listed)


def test_it_lists_a_row_that_cannot_be_read(call: Any, session: AgentSession, now: datetime) -> None:
    trigger = arm(session, now).trigger
    Trigger.objects.filter(pk=trigger.pk).update(kind="moon.phase")

    [item] = call(operation="list")["triggers"]

    assert "moon.phase" in item["describe"]


def test_it_cancels_and_says_when_that_was_done_before(call: Any) -> None:
    trigger_id = call(kind="webhook", wake_prompt="x")["id"]

    assert call(operation="cancel", trigger_id=trigger_id) == {"id": trigger_id, "status": "cancelled"}
    assert call(operation="cancel", trigger_id=trigger_id)["already_terminal"] is True


@pytest.mark.parametrize("foreign", [True, False])
def test_it_knows_no_trigger_of_another_session(call: Any, now: datetime, foreign: bool) -> None:
    trigger_id = str(armed_session(now).pk) if foreign else "no-such-id"

    _error(call(operation="cancel", trigger_id=trigger_id), "not_found")


def test_its_schema_is_flat_valid_and_made_from_the_kinds(call: Any) -> None:
    schema = TOOL.schema()

    jsonschema.Draft202012Validator.check_schema(schema)
    assert "$ref" not in json.dumps(schema)
    assert set(schema["properties"]["kind"]["enum"]) == set(KINDS.by_name)
    for kind in KINDS.by_name.values():
        assert set(kind.Args.model_fields) <= set(schema["properties"])
    assert len(json.dumps(schema)) < 8000


def test_what_is_off_is_not_offered(settings: Any) -> None:
    settings.TRIGGERS_ENABLED = False
    assert not TOOL.enabled()
