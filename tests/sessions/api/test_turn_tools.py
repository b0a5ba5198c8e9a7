"""REST: a live turn's own tools, for an agent that runs elsewhere."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from sessions import services
from sessions.models import Event
from sessions.turns import Begun
from tests import factories
from tests.doors import Caller, error_of
from triggers.models import Trigger

pytestmark = pytest.mark.django_db
ARM = {"operation": "arm", "kind": "webhook", "wake_prompt": "Go on."}


@pytest.fixture
def begun(db: None, now: datetime) -> Begun:
    return factories.live_turn(factories.open_session(now), now)


def _call(token: str | None, turn_id: Any, body: Any = None, tool: str = "schedule_trigger") -> Any:
    return Caller(token).post(f"/api/turns/{turn_id}/tools/{tool}", ARM if body is None else body)


def test_it_calls_the_tool_for_the_turns_own_session(begun: Begun) -> None:
    response = _call(begun.token, begun.turn.pk)

    body = response.json()
    trigger = Trigger.objects.get()
    assert (response.status_code, body["id"], body["status"]) == (200, str(trigger.pk), "armed")
    assert (trigger.session_id, trigger.turn_id) == (begun.session.pk, begun.turn.pk)
    assert "/api/triggers/hook/" in body["hook_url"]


def test_it_writes_the_call_and_its_answer_into_the_transcript(begun: Begun) -> None:
    secret = _call(begun.token, begun.turn.pk).json()["hook_url"].rsplit("/", 1)[1]

    types = list(Event.objects.order_by("seq").values_list("type", flat=True))
    assert types[-3:] == ["tool_call", "trigger_armed", "tool_result"]
    assert secret not in str(list(Event.objects.values("payload")))


def test_it_answers_what_the_tool_answers_to_a_mistake(begun: Begun) -> None:
    response = _call(
        begun.token, begun.turn.pk, {"operation": "arm", "kind": "time.cron", "cron": "x", "wake_prompt": "x"}
    )

    assert response.status_code == 200
    assert response.json()["error"]["code"] == "validation"


def _of_another_session(begun: Begun, now: datetime) -> tuple[str | None, Any]:
    other = factories.live_turn(factories.open_session(now), now)
    return other.token, begun.turn.pk


def _of_an_ended_turn(begun: Begun, now: datetime) -> tuple[str | None, Any]:
    factories.end_turn(begun.turn, now)
    return begun.token, begun.turn.pk


def _of_a_terminated_session(begun: Begun, now: datetime) -> tuple[str | None, Any]:
    services.terminate(begun.session.pk, now=now)
    return begun.token, begun.turn.pk


def _of_no_turn(begun: Begun, now: datetime) -> tuple[str | None, Any]:
    return begun.token, uuid4()


def _a_wrong_one(begun: Begun, now: datetime) -> tuple[str | None, Any]:
    return "rwt_\xe9", begun.turn.pk


def _none(begun: Begun, now: datetime) -> tuple[str | None, Any]:
    return None, begun.turn.pk


WRONG = [_of_another_session, _of_an_ended_turn, _of_a_terminated_session, _of_no_turn, _a_wrong_one, _none]


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_it_refuses_every_other_token_alike(make: Any, begun: Begun, now: datetime) -> None:
    token, turn_id = make(begun, now)
    before = Event.objects.count()

    response = _call(token, turn_id)

    assert response.status_code == 401
    assert response["WWW-Authenticate"] == 'Bearer realm="rewake turn"'
    assert error_of(response) == {
        "code": "unauthorized",
        "reason": "this needs the turn token of a turn that is live: `Authorization: Bearer rwt_…`",
        "retryable": False,
    }
    assert (Trigger.objects.count(), Event.objects.count()) == (0, before)


def test_it_does_not_take_an_api_key_for_a_turn_token(admin: Caller, begun: Begun) -> None:
    assert _call(admin.secret, begun.turn.pk).status_code == 401


def test_it_does_not_take_a_turn_token_for_an_api_key(begun: Begun) -> None:
    for path in ("/api/sessions", f"/api/sessions/{begun.session.pk}", "/api/keys", "/api/triggers"):
        assert Caller(begun.token).get(path).status_code == 401


def test_it_has_no_other_tool(begun: Begun) -> None:
    response = _call(begun.token, begun.turn.pk, tool="bash")

    assert response.status_code == 404
    assert error_of(response)["reason"] == "there is no tool of this name; on offer: schedule_trigger"


def test_it_has_no_tool_while_triggers_are_disabled(begun: Begun, settings: Any) -> None:
    settings.TRIGGERS_ENABLED = False

    assert _call(begun.token, begun.turn.pk).status_code == 404


@pytest.mark.parametrize("body", [[], "x", 1, [1]])
def test_it_takes_the_arguments_as_an_object_only(body: Any, begun: Begun) -> None:
    assert _call(begun.token, begun.turn.pk, body).status_code == 400


@pytest.mark.parametrize("value", ["a\0b", "\ud800", 10**400, 1.5, {"a": {"b": []}}])
def test_it_takes_hostile_arguments_without_a_failure(value: Any, begun: Begun) -> None:
    response = _call(begun.token, begun.turn.pk, ARM | {"wake_prompt": value})

    assert response.status_code == 200
