"""REST: transcripts and the long poll."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from sessions import services, turns
from sessions.api import waiting
from sessions.models import AgentSession
from sessions.states import EventType
from sessions.transcript import Entry, append
from tests import factories
from tests.doors import Caller, error_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(db: None, now: datetime) -> AgentSession:
    return factories.open_session(now)


def _append(session: AgentSession, count: int, now: datetime) -> None:
    entries = [Entry(session.pk, EventType.ASSISTANT, {"text": str(number)}) for number in range(count)]
    append(entries, now=now)


def _events(admin: Caller, session: AgentSession, **query: Any) -> Any:
    return admin.get(f"/api/sessions/{session.pk}/events", query).json()


def test_it_shows_a_transcript_from_its_beginning(admin: Caller, session: AgentSession, now: datetime) -> None:
    _append(session, 2, now)

    assert _events(admin, session) == {
        "events": [
            {
                "seq": seq,
                "type": "assistant",
                "at": now.isoformat().replace("+00:00", "Z"),
                "payload": {"text": str(seq - 1)},
            }
            for seq in (1, 2)
        ],
        "next": None,
        "status": "idle",
        "running": False,
        "done_reason": "",
    }


def test_it_goes_on_after_a_sequence_number(admin: Caller, session: AgentSession, now: datetime) -> None:
    _append(session, 5, now)
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = _events(admin, session, after=after, limit=2)
        seen += [event["seq"] for event in page["events"]]
        after = page["next"]

    assert seen == [1, 2, 3, 4, 5]


def test_it_has_nothing_after_the_last(admin: Caller, session: AgentSession, now: datetime) -> None:
    _append(session, 2, now)

    assert _events(admin, session, after=2)["events"] == []
    assert _events(admin, session, after=2**63 - 1)["events"] == []


def test_it_says_whether_a_turn_runs_and_how_the_last_one_ended(
    admin: Caller, session: AgentSession, now: datetime
) -> None:
    begun = factories.live_turn(session, now)
    running = _events(admin, session)
    factories.end_turn(begun.turn, now, status="failed", fate=turns.Fate.QUARANTINED, reason="broken")
    ended = _events(admin, session)
    services.terminate(session.pk, now=now)
    terminated = _events(admin, session)

    shown = [(page["status"], page["running"], page["done_reason"]) for page in (running, ended, terminated)]
    assert shown == [("running", True, ""), ("idle", False, "failed"), ("terminated", False, "terminated")]


@pytest.mark.parametrize(
    "query",
    [
        "after=-1",
        "after=x",
        f"after={2**63}",
        "limit=0",
        "limit=201",
        "wait=-1",
        "wait=55.1",
        "wait=nan",
        "wait=inf",
        "x=1",
    ],
)
def test_it_refuses_a_query_that_it_does_not_know(query: str, admin: Caller, session: AgentSession) -> None:
    response = admin.get(f"/api/sessions/{session.pk}/events?{query}")

    assert response.status_code == 400
    assert query.split("=", maxsplit=1)[0] in error_of(response)["fields"]


# --- the long poll ---------------------------------------------------------------------------------------------------


class Pauses:
    """Stands in for the event that is waited on: `during` is done in each pause, and only its own time passes."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.waited: list[float] = []
        self.during: Any = lambda: None

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock += seconds
        self.during()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pauses]:
    pauses = Pauses()
    monkeypatch.setattr(waiting, "Event", lambda: pauses)
    monkeypatch.setattr("time.monotonic", lambda: pauses.clock)
    yield pauses
    assert waiting._places._value == waiting.PLACES


def test_it_answers_at_once_what_is_there(admin: Caller, session: AgentSession, now: datetime, pauses: Pauses) -> None:
    _append(session, 1, now)

    assert len(_events(admin, session, wait=55)["events"]) == 1
    assert pauses.waited == []


def test_it_answers_as_soon_as_there_is_something(
    admin: Caller, session: AgentSession, now: datetime, pauses: Pauses
) -> None:
    def come() -> None:
        if len(pauses.waited) == 3:
            _append(session, 1, now)

    pauses.during = come

    assert len(_events(admin, session, wait=55)["events"]) == 1
    assert len(pauses.waited) == 3


def test_it_answers_with_nothing_when_the_time_is_over(admin: Caller, session: AgentSession, pauses: Pauses) -> None:
    page = _events(admin, session, wait=1.5)

    assert (page["events"], page["status"]) == ([], "idle")
    assert sum(pauses.waited) == pytest.approx(1.5)


def test_it_does_not_wait_for_what_has_ended(
    admin: Caller, session: AgentSession, now: datetime, pauses: Pauses
) -> None:
    services.terminate(session.pk, now=now)

    assert _events(admin, session, after=1, wait=55)["status"] == "terminated"
    assert pauses.waited == []


def test_it_waits_for_no_more_callers_than_it_has_places(
    admin: Caller, session: AgentSession, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting._places, "acquire", lambda blocking: False)

    assert _events(admin, session, wait=55)["events"] == []
    assert pauses.waited == []


def test_it_does_not_wait_for_a_session_that_is_not_there(admin: Caller, pauses: Pauses) -> None:
    path = "/api/sessions/019acf2e-7c40-7abc-8def-0123456789ab/events"

    assert admin.get(path, {"wait": 55}).status_code == 404
    assert pauses.waited == []
