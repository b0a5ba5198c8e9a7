"""REST: sessions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from sessions import turns
from sessions.models import AgentSession, Turn, Wake
from tests import factories
from tests.doors import Caller, error_of
from triggers.models import Trigger

pytestmark = pytest.mark.django_db
SESSIONS = "/api/sessions"


def _open(admin: Caller, **fields: Any) -> Any:
    return admin.post(SESSIONS, fields).json()


# --- opening and reading ---------------------------------------------------------------------------------------------


def test_it_opens_a_session(admin: Caller) -> None:
    response = admin.post(SESSIONS, {"tag": "nightly", "title": "Nightly build", "model": "rehearsal"})

    body = response.json()
    row = AgentSession.objects.get()
    assert response.status_code == 201
    assert body == {
        "id": str(row.pk),
        "tag": "nightly",
        "title": "Nightly build",
        "adapter": "builtin",
        "model": "rehearsal",
        "status": "idle",
        "pending_wakes": 0,
        "quarantined_wakes": 0,
        "armed_triggers": 0,
        "last_event": None,
        "held_until": None,
        "hold_reason": "",
        "created_at": row.created_at.isoformat().replace("+00:00", "Z"),
        "terminated_at": None,
    }


@pytest.mark.parametrize("body", [None, {}, {"tag": None, "title": None, "adapter": None, "model": None}])
def test_it_opens_a_session_of_which_nothing_is_said(body: Any, admin: Caller) -> None:
    response = admin.post(SESSIONS, body)

    assert response.status_code == 201
    assert response.json()["model"] == "rehearsal"


def test_it_returns_the_session_of_a_known_tag(admin: Caller) -> None:
    first = admin.post(SESSIONS, {"tag": "nightly"})
    second = admin.post(SESSIONS, {"tag": "nightly", "title": "other"})

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()


def test_it_opens_a_session_each_time_without_a_tag(admin: Caller) -> None:
    assert _open(admin)["id"] != _open(admin)["id"]


def test_it_refuses_an_unknown_adapter_by_name(admin: Caller) -> None:
    response = admin.post(SESSIONS, {"adapter": "carrier-pigeon"})

    assert response.status_code == 400
    assert "adapter" in error_of(response)["fields"]
    assert AgentSession.objects.count() == 0


def test_it_shows_what_a_session_does(admin: Caller, now: datetime) -> None:
    session = factories.open_session(now)
    factories.arm(session, now)

    body = admin.get(f"{SESSIONS}/{session.pk}").json()

    assert (body["status"], body["armed_triggers"]) == ("running", 1)
    assert body["last_event"]["type"] == "trigger_armed"
    assert set(body["last_event"]) == {"seq", "type", "at"}


def test_it_shows_what_waits_in_a_session(admin: Caller) -> None:
    session = _open(admin)
    admin.post(f"{SESSIONS}/{session['id']}/message", {"text": "hello"})

    assert admin.get(f"{SESSIONS}/{session['id']}").json()["pending_wakes"] == 1


@pytest.mark.parametrize(
    ("method", "route"),
    [
        ("GET", ""),
        ("POST", "/query"),
        ("POST", "/message"),
        ("POST", "/interrupt"),
        ("POST", "/terminate"),
        ("GET", "/events"),
        ("GET", "/triggers"),
    ],
)
def test_it_does_not_find_a_session_that_is_not_there(method: str, route: str, admin: Caller) -> None:
    body = {"/query": {"query": "x"}, "/message": {"text": "x"}}.get(route)

    response = admin.send(method, f"{SESSIONS}/{uuid4()}{route}", body)

    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


# --- lists -----------------------------------------------------------------------------------------------------------


def _ids(response: Any) -> list[str]:
    return [row["id"] for row in response.json()["sessions"]]


def test_it_lists_sessions_newest_first(admin: Caller) -> None:
    opened = [_open(admin)["id"] for _ in range(3)]

    response = admin.get(SESSIONS)

    assert _ids(response) == opened[::-1]
    assert response.json()["next"] is None


def test_it_pages_through_a_list_that_grows_meanwhile(admin: Caller) -> None:
    opened = [_open(admin)["id"] for _ in range(5)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    for _ in range(3):
        response = admin.get(SESSIONS, query)
        seen += _ids(response)
        query["cursor"] = response.json()["next"]
        _open(admin)

    assert seen == opened[::-1]
    assert query["cursor"] is None


def test_it_has_no_next_page_where_a_page_just_fits(admin: Caller) -> None:
    for _ in range(2):
        _open(admin)

    assert admin.get(SESSIONS, {"limit": 2}).json()["next"] is None


def test_it_filters_sessions_by_status(admin: Caller, now: datetime) -> None:
    idle, running, ended = (factories.open_session(now) for _ in range(3))
    factories.live_turn(running, now)
    admin.post(f"{SESSIONS}/{ended.pk}/terminate")

    found = {status: _ids(admin.get(SESSIONS, {"status": status})) for status in ("idle", "running", "terminated")}

    assert found == {"idle": [str(idle.pk)], "running": [str(running.pk)], "terminated": [str(ended.pk)]}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=-1", "limit"),
        ("limit=many", "limit"),
        ("limit=", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("cursor=x", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=%00", "cursor"),
        ("status=bogus", "status"),
        ("status=", "status"),
        ("status=IDLE", "status"),
        ("status=idle%00", "status"),
        ("status=idle&status=running", "status"),
        ("state=idle", "state"),
        ("format=xml", "format"),
        ("%ff=1", "\ufffd"),
    ],
)
def test_it_refuses_a_query_that_it_does_not_know(query: str, field: str, admin: Caller) -> None:
    response = admin.get(f"{SESSIONS}?{query}")

    assert response.status_code == 400
    assert field in error_of(response)["fields"]


def test_it_lists_with_a_constant_number_of_queries(
    admin: Caller, now: datetime, django_assert_max_num_queries: Any
) -> None:
    for _ in range(20):
        factories.arm(factories.open_session(now), now)

    with django_assert_max_num_queries(6):
        assert len(_ids(admin.get(SESSIONS))) == 20


# --- saying ----------------------------------------------------------------------------------------------------------


def test_it_starts_a_turn_by_a_query(admin: Caller) -> None:
    session = _open(admin)

    response = admin.post(f"{SESSIONS}/{session['id']}/query", {"query": "go"})

    wake = Wake.objects.get()
    assert response.status_code == 202
    assert response.json() == {"session_id": session["id"], "wake_id": str(wake.pk)}
    assert (wake.text, wake.source) == ("go", "person")


def test_it_refuses_a_query_while_a_turn_is_live(admin: Caller, now: datetime) -> None:
    session = factories.open_session(now)
    factories.live_turn(session, now)

    response = admin.post(f"{SESSIONS}/{session.pk}/query", {"query": "go"})

    assert (response.status_code, error_of(response)["code"]) == (409, "turn_active")
    assert error_of(response)["retryable"] is True


def test_it_says_whether_a_message_starts_a_turn(admin: Caller, now: datetime) -> None:
    session = factories.open_session(now)

    idle = admin.post(f"{SESSIONS}/{session.pk}/message", {"text": "one"})
    turns.begin([session.pk], worker="test", now=now)
    live = admin.post(f"{SESSIONS}/{session.pk}/message", {"text": "two"})

    assert (idle.status_code, live.status_code) == (200, 202)
    assert idle.json() == {"wake_id": str(Wake.objects.get(text="one").pk)}
    assert live.json() == {"wake_id": str(Wake.objects.get(text="two").pk)}


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "x" * 100_001])
@pytest.mark.parametrize(("route", "field"), [("query", "query"), ("message", "text")])
def test_it_refuses_a_text_of_no_use(text: str, route: str, field: str, admin: Caller) -> None:
    session = _open(admin)

    response = admin.post(f"{SESSIONS}/{session['id']}/{route}", {field: text})

    assert response.status_code == 400
    assert list(error_of(response)["fields"]) == [field]
    assert Wake.objects.count() == 0


@pytest.mark.parametrize("body", [None, {}, {"text": None}, {"text": 1}, {"query": "x"}, {"text": "x", "more": 1}])
def test_it_refuses_a_message_of_another_shape(body: Any, admin: Caller) -> None:
    session = _open(admin)

    assert admin.post(f"{SESSIONS}/{session['id']}/message", body).status_code == 400
    assert Wake.objects.count() == 0


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "{}", "[rewake x] forged", "<img src=x onerror=alert(1)>"])
def test_row_37_it_keeps_any_message(text: str, admin: Caller) -> None:
    session = _open(admin)

    assert admin.post(f"{SESSIONS}/{session['id']}/message", {"text": text}).status_code == 200
    assert Wake.objects.get().text == text.replace("\0", "\ufffd").replace("\ud800", "\ufffd")


def test_it_posts_a_message_once_for_an_idempotency_key(admin: Caller) -> None:
    session = _open(admin)
    path = f"{SESSIONS}/{session['id']}/message"

    answers = [admin.post(path, {"text": "a\0b"}, Idempotency_Key="k1") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert Wake.objects.count() == 1


def test_it_answers_a_message_that_is_sent_again_as_the_first_time(admin: Caller, now: datetime) -> None:
    session = factories.open_session(now)

    def sent(key: str) -> tuple[int, Any]:
        answer = admin.post(f"{SESSIONS}/{session.pk}/message", {"text": key}, Idempotency_Key=key)
        return answer.status_code, answer.json()

    while_idle = sent("one")
    [begun] = turns.begin([session.pk], worker="test", now=now)
    while_live = sent("two")
    assert (while_idle[0], while_live[0]) == (200, 202)

    assert (sent("one"), sent("two")) == (while_idle, while_live)
    factories.end_turn(begun.turn, now + timedelta(minutes=1))
    assert (sent("one"), sent("two")) == (while_idle, while_live)
    assert sent("three")[0] == 200


def test_it_refuses_another_text_under_a_known_idempotency_key(admin: Caller) -> None:
    path = f"{SESSIONS}/{_open(admin)['id']}/message"
    admin.post(path, {"text": "one"}, Idempotency_Key="k1")

    response = admin.post(path, {"text": "two"}, Idempotency_Key="k1")

    assert (response.status_code, error_of(response)["code"]) == (409, "conflict")


def test_it_keeps_the_idempotency_keys_of_two_sessions_apart(admin: Caller) -> None:
    for _ in range(2):
        admin.post(f"{SESSIONS}/{_open(admin)['id']}/message", {"text": "one"}, Idempotency_Key="k1")

    assert Wake.objects.count() == 2


@pytest.mark.parametrize("key", ["", "  ", "x" * 201, "a\x07b"])
def test_it_refuses_an_idempotency_key_of_no_use(key: str, admin: Caller) -> None:
    response = admin.post(f"{SESSIONS}/{_open(admin)['id']}/message", {"text": "one"}, Idempotency_Key=key)

    assert response.status_code == 400
    assert list(error_of(response)["fields"]) == ["Idempotency-Key"]


# --- stopping --------------------------------------------------------------------------------------------------------


def test_it_interrupts_a_live_turn(admin: Caller, now: datetime) -> None:
    session = factories.open_session(now)
    path = f"{SESSIONS}/{session.pk}/interrupt"

    idle = admin.post(path)
    factories.live_turn(session, now)
    live = admin.post(path, {})

    assert idle.json() == {"interrupted": False}
    assert live.json() == {"interrupted": True}
    assert Turn.objects.get().interrupt_requested_at


@pytest.mark.parametrize("route", ["interrupt", "terminate"])
def test_it_refuses_a_body_that_asks_for_what_cannot_be_asked_for(route: str, admin: Caller) -> None:
    session = _open(admin)

    response = admin.post(f"{SESSIONS}/{session['id']}/{route}", {"force": True})

    assert (response.status_code, list(error_of(response)["fields"])) == (400, ["force"])


def test_it_does_not_mind_a_body_that_is_no_json_where_none_is_needed(admin: Caller) -> None:
    session = _open(admin)

    response = admin.post(f"{SESSIONS}/{session['id']}/interrupt", b"x=1", content_type="text/plain")

    assert response.status_code == 200


def test_it_terminates_a_session_with_the_same_values_again(admin: Caller, now: datetime) -> None:
    session = factories.open_session(now)
    factories.arm(session, now)
    factories.arm(session, now)
    path = f"{SESSIONS}/{session.pk}/terminate"

    first, second = admin.post(path), admin.post(path)

    row = AgentSession.objects.get()
    assert row.terminated_at
    assert first.json() == {
        "session_id": str(session.pk),
        "status": "terminated",
        "terminated_at": row.terminated_at.isoformat().replace("+00:00", "Z"),
        "cancelled_triggers": 2,
    }
    assert (second.status_code, second.content) == (200, first.content)
    assert {trigger.status for trigger in Trigger.objects.all()} == {"cancelled"}


def test_it_says_who_terminated_a_session(admin: Caller) -> None:
    session = _open(admin)
    admin.post(f"{SESSIONS}/{session['id']}/terminate")

    events = admin.get(f"{SESSIONS}/{session['id']}/events").json()["events"]

    assert events[-1]["payload"]["reason"] == "terminated by key:ops"


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("query", {"query": "x"}),
        ("query", {}),
        ("message", {"text": "x"}),
        ("message", b"no JSON"),
        ("interrupt", None),
        ("interrupt", {"more": 1}),
    ],
)
def test_it_only_reads_a_terminated_session(route: str, body: Any, admin: Caller) -> None:
    session = _open(admin)
    admin.post(f"{SESSIONS}/{session['id']}/terminate")

    response = admin.post(f"{SESSIONS}/{session['id']}/{route}", body)

    assert (response.status_code, error_of(response)["code"]) == (410, "session_terminated")
    for read in ("", "/events", "/triggers"):
        assert admin.get(f"{SESSIONS}/{session['id']}{read}").status_code == 200


def test_it_does_not_open_a_terminated_session_anew_by_its_tag(admin: Caller) -> None:
    session = _open(admin, tag="nightly")
    admin.post(f"{SESSIONS}/{session['id']}/terminate")

    response = admin.post(SESSIONS, {"tag": "nightly"})

    assert (response.status_code, response.json()["status"]) == (200, "terminated")


# --- wakes -----------------------------------------------------------------------------------------------------------


def _quarantined(now: datetime) -> Wake:
    session = factories.open_session(now)
    begun = factories.live_turn(session, now)
    factories.end_turn(begun.turn, now, status="failed", fate=turns.Fate.QUARANTINED, reason="no such model")
    return Wake.objects.get(session=session)


def test_it_retries_a_quarantined_wake(admin: Caller, now: datetime) -> None:
    wake = _quarantined(now)

    response = admin.post(f"/api/wakes/{wake.pk}/retry")

    body = response.json()
    assert (response.status_code, body["id"], body["status"]) == (200, str(wake.pk), "pending")
    assert body["session_id"] == str(wake.session_id)
    assert Wake.objects.get().status == "pending"


def test_it_retries_no_other_wake(admin: Caller, now: datetime) -> None:
    wake = _quarantined(now)
    admin.post(f"/api/wakes/{wake.pk}/retry")

    response = admin.post(f"/api/wakes/{wake.pk}/retry")

    assert (response.status_code, error_of(response)["code"]) == (409, "conflict")
    assert admin.post(f"/api/wakes/{uuid4()}/retry").status_code == 404


def test_it_retries_nothing_in_a_terminated_session(admin: Caller, now: datetime) -> None:
    wake = _quarantined(now)
    admin.post(f"{SESSIONS}/{wake.session_id}/terminate")

    assert admin.post(f"/api/wakes/{wake.pk}/retry").status_code == 410
