"""The console's sessions: the list, the live transcript, and what can be said and done to them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.views import sessions as views
from sessions import services, transcript, turns
from sessions.models import AgentSession, Event, Turn, Wake
from sessions.states import EventType, TurnStatus, WakeStatus
from sessions.transcript import Entry
from sessions.turns import Fate
from tests.console.pages import at, fragment, press, text
from tests.factories import arm, armed_session, end_turn, live_turn, open_session


def _say(session: AgentSession, count: int, now: datetime) -> None:
    entries = [Entry(session.pk, EventType.ASSISTANT, {"text": f"line <{number}>"}) for number in range(1, count + 1)]
    transcript.append(entries, now=now)


def _quarantine(session: AgentSession, now: datetime) -> Wake:
    begun = live_turn(session, now, "do it")
    end_turn(begun.turn, now, status="failed", fate=Fate.QUARANTINED, reason="the key is wrong")
    return Wake.objects.filter(session=session, status=WakeStatus.QUARANTINED).latest("pk")


def test_it_tells_a_newcomer_what_to_do(operator: Client) -> None:
    page = text(operator.get(at("sessions")))

    assert "No sessions yet" in page
    assert "New session" in page
    assert "http://testserver/api/sessions" in page


def test_it_lists_sessions_with_what_waits_in_them(operator: Client, session: AgentSession, now: datetime) -> None:
    arm(session, now)
    open_session(now, title="the quiet one")

    page = text(operator.get(at("sessions")))

    assert "Release 2.4" in page
    assert "the quiet one" in page
    assert ">running<" in page
    assert ">idle<" in page


def test_it_lists_by_status(operator: Client, session: AgentSession, now: datetime) -> None:
    live_turn(open_session(now, title="the busy one"), now)

    page = text(operator.get(at("sessions"), {"status": "running"}))

    assert "the busy one" in page
    assert "Release 2.4" not in page


@pytest.mark.parametrize("query", ["status=nonsense", "before=nonsense"])
def test_it_refuses_a_filter_that_makes_no_sense(operator: Client, query: str) -> None:
    assert operator.get(f"{at('sessions')}?{query}").status_code == 400


def test_it_opens_a_session(operator: Client) -> None:
    assert operator.get(at("new_session")).status_code == 200

    answer = operator.post(at("new_session"), {"title": "Nightly", "model": "rehearsal"})

    session = AgentSession.objects.get()
    assert (session.title, session.model) == ("Nightly", "rehearsal")
    assert answer["Location"] == at("session", session.pk)


def test_it_does_not_open_a_session_whose_title_is_too_long(operator: Client) -> None:
    answer = operator.post(at("new_session"), {"title": "x" * 201})

    assert answer.status_code == 200
    assert "at most 200 characters" in text(answer)
    assert not AgentSession.objects.exists()


def test_it_says_what_to_try_in_a_session_without_events(operator: Client, session: AgentSession) -> None:
    assert "on webhook: tell me what came" in text(operator.get(at("session", session.pk)))


def test_it_shows_the_end_of_a_long_transcript_and_the_way_to_its_beginning(
    operator: Client, session: AgentSession, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "EVENTS", 4)
    _say(session, 10, now)

    page = text(operator.get(at("session", session.pk)))
    earlier = text(fragment(operator, f"{at('events', session.pk)}?before=7"))
    earliest = text(fragment(operator, f"{at('events', session.pk)}?before=3"))

    assert [number for number in range(1, 11) if f"line <{number}>" in page] == [7, 8, 9, 10]
    assert "?before=7" in page
    assert [number for number in range(1, 11) if f"line <{number}>" in earlier] == [3, 4, 5, 6]
    assert "?before=3" in earlier
    assert [number for number in range(1, 11) if f"line <{number}>" in earliest] == [1, 2]
    assert "?before=" not in earliest


def test_it_shows_a_transcript_from_an_event_on(
    operator: Client, session: AgentSession, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "EVENTS", 4)
    _say(session, 10, now)

    page = text(operator.get(at("session", session.pk), {"from": "3"}))
    later = text(fragment(operator, f"{at('events', session.pk)}?after=6"))

    assert [number for number in range(1, 11) if f"line <{number}>" in page] == [3, 4, 5, 6]
    assert "Later events" in page
    assert 'data-live hx-get="/console/sessions/' not in page.partition('id="log"')[2]
    assert [number for number in range(1, 11) if f"line <{number}>" in later] == [7, 8, 9, 10]
    assert "Later events" not in later


def test_it_appends_only_what_has_happened_since(operator: Client, session: AgentSession, now: datetime) -> None:
    _say(session, 3, now)

    answer = fragment(operator, f"{at('events', session.pk)}?after=2&status=idle&live=1")

    assert "line <3>" in text(answer)
    assert "line <2>" not in text(answer)
    assert "?after=3&status=idle&live=1" in text(answer)
    assert "news" in answer["HX-Trigger"]


def test_it_answers_nothing_while_nothing_happens(operator: Client, session: AgentSession, now: datetime) -> None:
    _say(session, 3, now)

    answer = fragment(operator, f"{at('events', session.pk)}?after=3&status=idle&live=1")

    assert (answer.status_code, answer.content) == (204, b"")


def test_it_looks_quickly_while_a_turn_runs_slower_when_idle_and_not_once_terminated(
    operator: Client, session: AgentSession, now: datetime
) -> None:
    path = f"{at('events', session.pk)}?live=1"

    idle = text(fragment(operator, path))
    turn = live_turn(session, now).turn
    running = text(fragment(operator, path))
    services.terminate(session.pk, now=now)
    over = text(fragment(operator, path))

    assert 'hx-trigger="every 2s' in idle
    assert 'hx-trigger="every 1s' in running
    assert 'hx-trigger="refresh' in over
    assert Turn.objects.get(pk=turn.pk).status == TurnStatus.INTERRUPTED


def test_it_goes_on_at_once_where_more_has_happened_than_one_answer_holds(
    operator: Client, session: AgentSession, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "EVENTS", 4)
    _say(session, 9, now)

    answer = text(fragment(operator, f"{at('events', session.pk)}?after=0&live=1"))

    assert '?after=4&status=idle&live=1" hx-trigger="load' in answer


@pytest.mark.parametrize(
    "query", ["after=x", "after=-1", "after=99999999999999999999", "before=x", "after=9223372036854775808"]
)
def test_it_refuses_what_is_no_sequence_number(operator: Client, session: AgentSession, query: str) -> None:
    assert fragment(operator, f"{at('events', session.pk)}?{query}").status_code == 400


def test_it_shows_the_session_to_whoever_opens_a_fragment_by_hand(operator: Client, session: AgentSession) -> None:
    assert operator.get(at("events", session.pk))["Location"] == at("session", session.pk)


def test_it_leads_from_a_turn_to_where_it_begins(operator: Client, session: AgentSession, now: datetime) -> None:
    first = live_turn(session, now)
    end_turn(first.turn, now)
    second = live_turn(session, now)

    answer = operator.get(at("session", session.pk), {"turn": str(second.turn.pk)})
    unknown = operator.get(at("session", session.pk), {"turn": str(uuid4())})

    seq = Event.objects.filter(session=session, type=EventType.TURN_STARTED).latest("seq").seq
    assert answer["Location"] == f"{at('session', session.pk)}?from={seq}#e-{seq}"
    assert unknown["Location"].endswith("?from=1#e-1")
    assert operator.get(at("session", session.pk), {"turn": "nonsense"}).status_code == 400


def test_it_posts_a_message(operator: Client, session: AgentSession) -> None:
    answer = press(operator, at("say", session.pk), text="  in 5s: look", key="one")

    assert Wake.objects.get().text == "  in 5s: look"
    assert "refresh" in answer["HX-Trigger-After-Settle"]
    assert "in 5s" not in text(answer)


def test_it_posts_a_message_once_however_often_it_is_sent(operator: Client, session: AgentSession) -> None:
    for _ in range(2):
        press(operator, at("say", session.pk), text="hello", key="one")

    assert Wake.objects.count() == 1


def test_it_posts_a_message_without_javascript_and_goes_back(operator: Client, session: AgentSession) -> None:
    answer = operator.post(at("say", session.pk), {"text": "hello", "key": "one"})

    assert answer["Location"] == at("session", session.pk)
    assert Wake.objects.get().text == "hello"


@pytest.mark.parametrize(
    ("said", "why"), [("", "Write something first."), ("   ", "empty"), ("x" * 100_001, "too long")]
)
def test_it_keeps_a_message_that_is_refused_and_says_why(
    operator: Client, session: AgentSession, said: str, why: str
) -> None:
    answer = press(operator, at("say", session.pk), text=said, key="one")

    assert answer.status_code == 200
    assert why in text(answer)
    assert said.strip() in text(answer)
    assert not Wake.objects.exists()


def test_it_says_that_a_terminated_session_hears_nothing(
    operator: Client, session: AgentSession, now: datetime
) -> None:
    services.terminate(session.pk, now=now)

    answer = press(operator, at("say", session.pk), text="hello", key="one")

    assert answer.status_code == 200
    assert "has been terminated" in text(answer)


def test_it_interrupts_a_turn(operator: Client, session: AgentSession, now: datetime) -> None:
    turn = live_turn(session, now).turn
    assert "Interrupt" in text(operator.get(at("session", session.pk)))

    press(operator, at("interrupt", session.pk))

    assert turns.stop_requests([turn.pk], now=now)[turn.pk]


def test_it_says_that_there_was_no_turn_to_interrupt(operator: Client, session: AgentSession) -> None:
    assert "No turn was running any more." in text(press(operator, at("interrupt", session.pk)))


def test_it_asks_before_it_terminates(operator: Client, session: AgentSession) -> None:
    asked = operator.get(at("terminate", session.pk))

    assert "Terminate this session?" in text(asked)
    assert AgentSession.objects.get().terminated_at is None


def test_it_terminates_a_session_in_the_operators_name(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)

    answer = text(press(operator, at("terminate", trigger.session_id)))

    assert ">terminated<" in answer
    assert ">cancelled<" in answer
    assert "Terminate<" not in answer
    last = Event.objects.filter(session_id=trigger.session_id).latest("seq")
    assert last.payload["reason"] == "terminated by admin"


def test_it_shows_why_a_session_is_held(operator: Client, session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    end_turn(begun.turn, now, status="failed", fate=Fate.BACK, reason="the provider is overloaded", retry_after=90)

    page = text(operator.get(at("session", session.pk)))

    assert "tries again" in page
    assert ">in 1 min<" in page
    assert "the provider is overloaded" in page
    assert "1 pending" in page


def test_it_retries_a_quarantined_wake(operator: Client, session: AgentSession, now: datetime) -> None:
    wake = _quarantine(session, now)
    page = text(operator.get(at("session", session.pk)))
    assert "Quarantined wake" in page
    assert "the key is wrong" in page

    answer = text(press(operator, at("retry_wake", session.pk, wake.pk)))

    assert "Quarantined wake" not in answer
    assert Wake.objects.get(pk=wake.pk).status == WakeStatus.PENDING


def test_it_alarms_nobody_about_a_wake_that_nobody_can_retry(
    operator: Client, session: AgentSession, now: datetime
) -> None:
    _quarantine(session, now)
    counted = re.compile(r'data-label="Quarantined wakes">(.*?)</td>')
    before = counted.findall(text(operator.get(at("sessions"))))
    services.terminate(session.pk, now=now)

    assert before == ['<strong class="bad">1</strong>']
    assert counted.findall(text(operator.get(at("sessions")))) == ["0"]
    assert "Quarantined wake" not in text(operator.get(at("session", session.pk)))


def test_it_shows_its_triggers_beside_the_transcript(operator: Client, session: AgentSession, now: datetime) -> None:
    arm(session, now, wake_prompt="mine")
    arm(open_session(now), now, wake_prompt="another's")

    beside = text(fragment(operator, at("session", session.pk)))

    assert beside.startswith('<div id="beside" data-live')
    assert "mine" in beside
    assert "another's" not in beside


def test_it_asks_the_database_as_often_for_forty_sessions_as_for_two(
    operator: Client, now: datetime, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for count in (2, 38):
        for _ in range(count):
            armed_session(now)
        for ask in (operator.get, lambda path: fragment(operator, path)):
            with django_assert_num_queries(6):
                ask(at("sessions"))


def test_it_asks_the_database_as_often_for_a_full_session_as_for_an_emptier_one(
    operator: Client, session: AgentSession, now: datetime, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for count in (2, 18):
        for _ in range(count):
            arm(session, now)
        end_turn(Turn.objects.get(status=TurnStatus.RUNNING), now)
        _quarantine(session, now + timedelta(seconds=count))
        with django_assert_num_queries(11):
            operator.get(at("session", session.pk))
        with django_assert_num_queries(8):
            fragment(operator, at("session", session.pk))
        with django_assert_num_queries(5):
            fragment(operator, f"{at('events', session.pk)}?after=1&live=1")
