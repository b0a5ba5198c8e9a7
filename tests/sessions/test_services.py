from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from sessions import selectors, services, turns
from sessions.exceptions import Conflict, Invalid, NotFound, SessionTerminated, TurnActive
from sessions.models import AgentSession, Event, Wake
from sessions.states import EventType, SessionStatus, TurnStatus, WakeStatus
from sessions.turns import Fate
from tests.factories import arm, end_turn, live_turn, open_session
from triggers.models import Trigger

pytestmark = pytest.mark.django_db


def test_it_returns_the_session_that_has_the_tag(now: datetime) -> None:
    first, made = services.open_session(tag="nightly", now=now)
    again, made_again = services.open_session(tag="nightly", title="other", now=now)

    assert (made, made_again) == (True, False)
    assert again.pk == first.pk


def test_it_opens_a_new_session_each_time_without_a_tag(now: datetime) -> None:
    assert open_session(now).pk != open_session(now).pk


def test_it_refuses_an_unknown_adapter_and_names_those_there_are(now: datetime) -> None:
    with pytest.raises(Invalid, match="builtin"):
        services.open_session(adapter="nope", now=now)


def test_it_takes_a_query_only_while_no_turn_is_live(session: AgentSession, now: datetime) -> None:
    live_turn(session, now)

    with pytest.raises(TurnActive):
        services.query(session.pk, "and?", now=now)

    assert Wake.objects.count() == 1


@pytest.mark.parametrize("text", ["", " \n", "x" * (services.MAX_MESSAGE_CHARS + 1)])
def test_it_refuses_a_message_that_is_empty_or_too_long(session: AgentSession, now: datetime, text: str) -> None:
    with pytest.raises(Invalid):
        services.say(session.pk, text, now=now)


def test_it_posts_a_message_once_for_one_idempotency_key(session: AgentSession, now: datetime) -> None:
    first = services.say(session.pk, "hi", idempotency_key="k", now=now)
    again = services.say(session.pk, "hi", idempotency_key="k", now=now)

    assert again.wake == first.wake
    assert Wake.objects.count() == 1


def test_it_says_whether_a_turn_was_live_when_a_message_came(session: AgentSession, now: datetime) -> None:
    assert not services.say(session.pk, "first", now=now).live
    turns.begin([session.pk], worker="w", now=now)
    assert services.say(session.pk, "second", now=now).live


def test_it_does_not_know_a_session_that_is_not_there(now: datetime) -> None:
    with pytest.raises(NotFound):
        services.say(uuid4(), "hi", now=now)


def test_it_ends_everything_of_a_session_that_is_terminated(session: AgentSession, now: datetime) -> None:
    trigger = arm(session, now).trigger
    services.say(session.pk, "waiting", now=now)

    receipt = services.terminate(session.pk, now=now)

    assert (receipt.cancelled_triggers, receipt.terminated_at) == (1, now)
    assert {wake.status for wake in Wake.objects.all()} == {WakeStatus.WITHDRAWN}
    assert Trigger.objects.get(pk=trigger.pk).status == "cancelled"
    assert selectors.transcript(session.pk).status == SessionStatus.TERMINATED
    assert Event.objects.filter(session=session).latest("seq").type == EventType.SESSION_TERMINATED


def test_it_terminates_once_and_gives_the_same_receipt_again(session: AgentSession, now: datetime) -> None:
    arm(session, now)
    first = services.terminate(session.pk, now=now)
    events = Event.objects.count()

    again = services.terminate(session.pk, now=now + timedelta(days=1))

    assert (again.terminated_at, again.cancelled_triggers) == (first.terminated_at, first.cancelled_triggers)
    assert Event.objects.count() == events


@pytest.mark.parametrize("mutate", ["say", "query", "interrupt"])
def test_it_allows_no_change_to_a_terminated_session(session: AgentSession, now: datetime, mutate: str) -> None:
    services.terminate(session.pk, now=now)
    arguments: list[Any] = [] if mutate == "interrupt" else ["hi"]

    with pytest.raises(SessionTerminated):
        getattr(services, mutate)(session.pk, *arguments, now=now)


def test_a_turn_that_outlives_its_session_changes_nothing(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    services.terminate(session.pk, now=now)
    events = Event.objects.count()

    assert not end_turn(begun.turn, now)
    assert Event.objects.count() == events


def test_an_operator_can_retry_a_quarantined_wake(session: AgentSession, now: datetime) -> None:
    wake = _quarantined(session, now)

    services.retry_wake(wake.pk, now=now)

    wake.refresh_from_db()
    assert (wake.status, wake.losses, wake.settled_at) == (WakeStatus.PENDING, 0, None)
    assert len(turns.begin([session.pk], worker="w", now=now)) == 1


def test_only_a_quarantined_wake_can_be_retried(session: AgentSession, now: datetime) -> None:
    said = services.say(session.pk, "hi", now=now)

    with pytest.raises(Conflict):
        services.retry_wake(said.wake.pk, now=now)


def test_a_wake_of_a_terminated_session_cannot_be_retried(session: AgentSession, now: datetime) -> None:
    wake = _quarantined(session, now)
    services.terminate(session.pk, now=now)

    with pytest.raises(SessionTerminated):
        services.retry_wake(wake.pk, now=now)


def test_it_rings_again_for_wakes_that_nobody_takes_ever_more_seldom(session: AgentSession, now: datetime) -> None:
    services.say(session.pk, "hello?", now=now)
    rung = []
    for second in range(200):
        at = now + timedelta(seconds=second)
        if services.needs_rescue(now=at):
            services.rescue(now=at)
            rung.append(second)

    assert rung == [1, 3, 7, 15, 31, 63, 123, 183]


def test_it_rings_for_no_session_that_is_held_or_live(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    services.say(session.pk, "more", now=now)
    later = now + timedelta(seconds=3)
    assert not services.needs_rescue(now=later)

    end_turn(begun.turn, now, status=TurnStatus.FAILED, fate=Fate.BACK, reason="down", retry_after=60.0)

    assert not services.needs_rescue(now=later)
    assert services.needs_rescue(now=now + timedelta(seconds=61))


def test_it_takes_up_every_live_turn_after_a_restart(session: AgentSession, now: datetime) -> None:
    live_turn(session, now)

    assert services.recover(now=now) == 1
    assert len(turns.begin([session.pk], worker="w", now=now)) == 1


def test_it_shows_sessions_in_a_fixed_number_of_queries(now: datetime, django_assert_max_num_queries: Any) -> None:
    for _ in range(12):
        live_turn(open_session(now), now)

    with django_assert_max_num_queries(6):
        views = selectors.views(list(selectors.sessions()))

    assert {view.status for view in views} == {SessionStatus.RUNNING}
    assert all(view.last_event and view.facts["armed_triggers"] == 0 for view in views)


def _quarantined(session: AgentSession, now: datetime) -> Wake:
    begun = live_turn(session, now)
    end_turn(begun.turn, now, status=TurnStatus.FAILED, fate=Fate.QUARANTINED, reason="no key")
    return Wake.objects.get()
