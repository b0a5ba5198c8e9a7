"""REST: triggers and their ledgers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from sessions import services as session_services
from sessions import turns
from sessions.models import Event
from tests import factories
from tests.doors import Caller, error_of, key_with
from tests.triggers.api.posting import hooked
from triggers import engine, services
from triggers.models import Fire, Trigger

pytestmark = pytest.mark.django_db
TRIGGERS = "/api/triggers"
HOURLY = {"cron": "0 * * * *", "timezone": "Europe/Berlin"}


def _at(trigger: Trigger, rest: str = "") -> str:
    return f"{TRIGGERS}/{trigger.pk}{rest}"


def _ids(answer: Any) -> list[str]:
    return [item["id"] for item in answer.json()["triggers"]]


def _status_events(trigger: Trigger) -> list[Any]:
    events = Event.objects.filter(session=trigger.session_id, type="trigger_status").order_by("seq")
    return [[event.payload[name] for name in ("from", "to", "by")] for event in events]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_it_shows_a_trigger_as_it_was_promised(admin: Caller, now: datetime) -> None:
    trigger = factories.armed_session(now, "time.cron", args=HOURLY, wake_prompt="look")

    shown = admin.get(_at(trigger)).json()

    assert {name: shown[name] for name in ("kind", "status", "wake_prompt", "action", "fires", "max_fires")} == {
        "kind": "time.cron",
        "status": "armed",
        "wake_prompt": "look",
        "action": "message",
        "fires": 0,
        "max_fires": 100,
    }
    assert set(shown) == {
        *("id", "session_id", "kind", "status", "wake_prompt", "action", "args", "fires", "max_fires", "expires_at"),
        *("next_fire_at", "created_at", "created_by", "provenance", "last_fired_at", "last_error"),
        "consecutive_failures",
    }
    assert shown["args"] == HOURLY | {"misfire": "once"}
    assert shown["provenance"] == {"turn_id": str(trigger.turn_id), "depth": 0}
    assert (shown["created_by"], shown["last_fired_at"], shown["last_error"]) == ("agent", None, None)
    assert shown["next_fire_at"].endswith(":00:00Z")
    assert shown["expires_at"].endswith("Z")


def test_it_shows_a_ledger_with_the_receipt_of_each_fire(admin: Caller, now: datetime) -> None:
    hook = hooked(now)
    hook.post(b"one", X_GitHub_Delivery="d1")
    [begun] = turns.begin([hook.trigger.session_id], worker="test", now=now)
    factories.end_turn(begun.turn, now)
    hook.post(b"two", X_GitHub_Delivery="d2")

    later, earlier = admin.get(_at(hook.trigger, "/fires")).json()["fires"]

    assert set(earlier) == {
        *("id", "trigger_id", "occurrence", "due_at", "fired_at", "outcome", "reason", "payload", "payload_bytes"),
        *("truncated", "wake_id", "turn_id", "turn_started_at", "turn_ended_at", "attempts"),
    }
    told = ("occurrence", "outcome", "payload", "payload_bytes", "truncated", "attempts", "turn_id")
    assert [earlier[name] for name in told] == ["d1", "delivered", "one", 3, False, 1, str(begun.turn.pk)]
    assert [later[name] for name in told] == ["d2", "pending", "two", 3, False, 0, None]


@pytest.mark.parametrize("outcome", ["running", "quarantined", "withdrawn", "skipped"])
def test_it_says_what_became_of_a_fire(outcome: str, admin: Caller, now: datetime) -> None:
    trigger = factories.armed_session(now, "time.cron", args=HOURLY | {"misfire": "skip"})
    due = now.replace(minute=0, second=0, microsecond=0) + timedelta(days=1) if outcome == "skipped" else now
    Trigger.objects.filter(pk=trigger.pk).update(next_fire_at=due - timedelta(hours=outcome == "skipped"))
    engine.tick(now=due + timedelta(minutes=20 if outcome == "skipped" else 0))
    begun = turns.begin([trigger.session_id], worker="test", now=now) if outcome != "withdrawn" else []
    if outcome == "quarantined":
        factories.end_turn(begun[0].turn, now, status="failed", fate=turns.Fate.QUARANTINED, reason="broken")
    if outcome == "withdrawn":
        services.cancel(trigger.pk, by="operator", now=now)

    [fire] = admin.get(_at(trigger, "/fires")).json()["fires"]

    assert fire["outcome"] == outcome
    assert (fire["wake_id"] is None) == (outcome == "skipped")


def test_it_lists_triggers_newest_first_by_what_is_asked_for(admin: Caller, now: datetime) -> None:
    hook = factories.armed_session(now)
    cron = factories.armed_session(now, "time.cron", args=HOURLY)
    services.pause(cron.pk, by="operator", now=now)

    def ids(query: str) -> list[str]:
        return _ids(admin.get(f"{TRIGGERS}?{query}"))

    assert ids("") == [str(cron.pk), str(hook.pk)]
    assert ids("kind=webhook") == ids("status=armed") == ids(f"session_id={hook.session_id}") == [str(hook.pk)]
    assert ids("kind=time.cron&status=paused") == [str(cron.pk)]
    assert ids("kind=webhook&status=paused") == ids(f"session_id={uuid4()}") == []
    assert _ids(admin.get(f"/api/sessions/{cron.session_id}/triggers?status=paused")) == [str(cron.pk)]
    assert _ids(admin.get(f"/api/sessions/{cron.session_id}/triggers?kind=webhook")) == []
    assert admin.get(f"/api/sessions/{uuid4()}/triggers").status_code == 404


def test_it_pages_through_triggers_and_fires_that_grow_meanwhile(admin: Caller, now: datetime) -> None:
    hook = hooked(now)
    for number in range(3):
        hook.post(X_GitHub_Delivery=str(number))
    first = admin.get(_at(hook.trigger, "/fires?limit=2")).json()
    hook.post(X_GitHub_Delivery="3")
    second = admin.get(_at(hook.trigger, f"/fires?limit=2&cursor={first['next']}")).json()

    assert [fire["occurrence"] for fire in [*first["fires"], *second["fires"]]] == ["2", "1", "0"]
    assert second["next"] is None


@pytest.mark.parametrize(
    ("query", "field", "wish"),
    [
        ("status=bogus", "status", "is none of armed, paused, completed, failed, expired, cancelled"),
        ("status=", "status", "is none of armed"),
        ("kind=moon", "kind", "is none of ci.workflow, forge.pr, time.at, time.cron, webhook"),
        ("session_id=x", "session_id", "UUID"),
        ("cursor=x", "cursor", "UUID"),
        ("limit=0", "limit", "1"),
        ("limit=201", "limit", "200"),
        ("state=armed", "state", "is not known here"),
        ("status=armed&status=paused", "status", "twice"),
    ],
)
def test_it_refuses_a_filter_that_it_does_not_know(query: str, field: str, wish: str, admin: Caller) -> None:
    response = admin.get(f"{TRIGGERS}?{query}")

    assert response.status_code == 400
    assert wish in error_of(response)["fields"][field]


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("GET", "/fires"), ("DELETE", ""), ("POST", "/hook-url")])
def test_it_does_not_find_a_trigger_that_is_not_there(method: str, rest: str, admin: Caller) -> None:
    response = admin.send(method, f"{TRIGGERS}/{uuid4()}{rest}", None)

    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


# --- changing --------------------------------------------------------------------------------------------------------


def test_it_pauses_and_arms_again_and_says_who_did(admin: Caller, now: datetime) -> None:
    trigger = factories.armed_session(now)

    answers = [admin.patch(_at(trigger), {"status": status}) for status in ("paused", "paused", "armed")]

    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [
        (200, "paused"),
        (200, "paused"),
        (200, "armed"),
    ]
    assert _status_events(trigger) == [["armed", "paused", "key:ops"], ["paused", "armed", "key:ops"]]


@pytest.mark.parametrize(
    "body",
    [{}, {"status": "cancelled"}, {"status": None}, {"status": 1}, {"status": "paused", "action": "start"}, [], b"x"],
)
def test_it_changes_nothing_else(body: Any, admin: Caller, now: datetime) -> None:
    trigger = factories.armed_session(now)

    assert admin.patch(_at(trigger), body).status_code == 400
    assert admin.get(_at(trigger)).json()["status"] == "armed"


def test_it_changes_no_trigger_that_has_ended(admin: Caller, now: datetime) -> None:
    trigger = factories.armed_session(now)
    services.cancel(trigger.pk, by="operator", now=now)

    for status in ("paused", "armed"):
        response = admin.patch(_at(trigger), {"status": status})
        assert (response.status_code, error_of(response)["code"]) == (409, "conflict")


def test_it_arms_none_again_in_a_session_that_is_full(admin: Caller, now: datetime, settings: Any) -> None:
    trigger = factories.armed_session(now)
    admin.patch(_at(trigger), {"status": "paused"})
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 0

    response = admin.patch(_at(trigger), {"status": "armed"})

    assert (response.status_code, error_of(response)["code"]) == (409, "policy")


def test_it_cancels_once_and_answers_the_same_again(admin: Caller, now: datetime) -> None:
    trigger = factories.armed_session(now)

    answers = [admin.delete(_at(trigger)) for _ in range(2)]

    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json() for answer in answers] == [{"id": str(trigger.pk), "status": "cancelled"}] * 2
    assert _status_events(trigger) == [["armed", "cancelled", "key:ops"]]


def test_it_leaves_what_has_ended_otherwise_as_it_is(admin: Caller, now: datetime) -> None:
    hook = hooked(now, max_fires=1)
    hook.post()

    assert admin.delete(_at(hook.trigger)).json()["status"] == "completed"


def test_it_shows_a_capability_url_again_and_records_who_asked(admin: Caller, now: datetime) -> None:
    plain, signed = hooked(now), hooked(now, args={"hmac_header": "X-Sig"})

    one, other = (admin.post(_at(hook.trigger, "/hook-url")).json() for hook in (plain, signed))

    assert (one["hook_url"].endswith(plain.path), one["signing_secret"]) == (True, None)
    assert (other["hook_url"].endswith(signed.path), other["signing_secret"]) == (True, signed.signing)
    assert _status_events(plain.trigger) == [["armed", "armed", "key:ops"]]


def test_it_shows_no_url_where_there_is_none(admin: Caller, now: datetime) -> None:
    other = factories.armed_session(now, "time.cron", args=HOURLY)
    ended = factories.armed_session(now)
    session_services.terminate(ended.session_id, now=now)

    answers = [admin.post(_at(trigger, "/hook-url")) for trigger in (other, ended)]

    assert [(answer.status_code, error_of(answer)["code"]) for answer in answers] == [
        (409, "conflict"),
        (410, "session_terminated"),
    ]


# --- who may ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "", "triggers.read"),
        ("GET", "/{id}", "triggers.read"),
        ("GET", "/{id}/fires", "triggers.read"),
        ("PATCH", "/{id}", "triggers.manage"),
        ("DELETE", "/{id}", "triggers.manage"),
        ("POST", "/{id}/hook-url", "triggers.manage"),
    ],
)
def test_it_lets_in_who_has_the_scope_and_names_it_to_who_has_not(
    method: str, path: str, scope: str, now: datetime
) -> None:
    path = TRIGGERS + path.format(id=factories.armed_session(now).pk)
    body = {"status": "paused"} if method == "PATCH" else None
    others = {"sessions.read", "sessions.write", "triggers.read", "triggers.manage"} - {scope}

    refused = key_with(*others).send(method, path, body)
    allowed = key_with(scope).send(method, path, body)

    assert (refused.status_code, error_of(refused)["reason"]) == (403, f"this API key lacks the scope {scope}")
    assert allowed.status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_it_has_no_way_to_make_a_trigger(method: str, admin: Caller) -> None:
    assert admin.send(method, TRIGGERS, {"kind": "webhook", "wake_prompt": "x"}).status_code == 405
    assert not Trigger.objects.exists()
    assert not Fire.objects.exists()
