"""The console's triggers: the list, one with its ledger, and what can be done to them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from console.views import triggers as views
from sessions import turns
from sessions.models import AgentSession, Event
from sessions.states import EventType, WakeStatus
from sessions.turns import Fate
from tests.console.pages import at, fragment, is_page, press, text
from tests.factories import arm, armed_session, end_turn, open_session
from triggers import engine, services
from triggers.ledger import Occurrence
from triggers.models import Fire, Trigger
from triggers.states import TriggerStatus


def _fire(trigger: Trigger, now: datetime, key: str = "1", **fields: Any) -> Fire:
    engine.fire(trigger.pk, Occurrence(key=key, due_at=now, **fields), now=now)
    return Fire.objects.get(trigger=trigger, occurrence=key)


def _quarantined(now: datetime) -> tuple[Trigger, Fire]:
    trigger = armed_session(now)
    fire = _fire(trigger, now)
    [begun] = turns.begin([trigger.session_id], worker="test", now=now)
    end_turn(begun.turn, now, status="failed", fate=Fate.QUARANTINED, reason="the key is wrong")
    return trigger, fire


def test_it_tells_a_newcomer_what_to_do(operator: Client) -> None:
    page = text(operator.get(at("triggers")))

    assert "Nothing is armed yet" in page
    assert "in 10s: say hello" in page


def test_it_shows_what_a_trigger_waits_for(operator: Client, session: AgentSession, now: datetime) -> None:
    at_ten = (now + timedelta(hours=1)).isoformat()
    arm(session, now, "time.at", args={"at": at_ten}, wake_prompt="look whether it is green")

    page = text(operator.get(at("triggers")))

    assert "once, Tue 2026-12-01 10:00:00 UTC" in page
    assert "look whether it is green" in page
    assert 'title="Tue 2026-12-01 10:00:00 UTC">in 1 h<' in page
    assert "0 / 1" in page
    assert "Release 2.4" in page


def test_it_labels_an_instant_by_what_it_is_where_a_row_has_no_head(operator: Client, now: datetime) -> None:
    def label() -> str:
        labels = re.findall(r'<td data-label="((?:Next|Last)[^"]*)">', text(operator.get(at("triggers"))))
        return str(labels[0])

    fired = armed_session(now)
    before = label()
    _fire(fired, now)
    after = label()
    armed_session(now, "time.at", args={"at": (now + timedelta(hours=1)).isoformat()})

    assert (before, after, label()) == ("Next fire", "Last fire", "Next fire")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({"status": "paused"}, ["the paused one"]),
        ({"kind": "time.cron"}, ["the scheduled one"]),
        ({"session": "night"}, ["the scheduled one"]),
        ({"session": "REL"}, ["the paused one", "the signed one"]),
        ({"session": "release", "status": "armed"}, ["the signed one"]),
        ({"session": "nobody's"}, []),
    ],
)
def test_it_lists_by_status_kind_and_session(
    operator: Client, session: AgentSession, now: datetime, query: dict[str, str], shown: list[str]
) -> None:
    paused = arm(session, now, wake_prompt="the paused one").trigger
    services.pause(paused.pk, by="test", now=now)
    arm(session, now, wake_prompt="the signed one")
    nightly = open_session(now, title="Nightly triage")
    arm(nightly, now, "time.cron", args={"cron": "0 9 * * *"}, wake_prompt="the scheduled one")

    page = text(operator.get(at("triggers"), query))

    assert [one for one in ("the paused one", "the scheduled one", "the signed one") if one in page] == sorted(shown)


def test_it_lists_by_the_id_of_a_session(operator: Client, session: AgentSession, now: datetime) -> None:
    arm(session, now, wake_prompt="the one looked for")
    arm(open_session(now), now, wake_prompt="another")

    page = text(operator.get(at("triggers"), {"session": str(session.pk)}))

    assert "the one looked for" in page
    assert "another" not in page


@pytest.mark.parametrize("query", ["status=nonsense", "kind=nonsense", "before=nonsense", "session=%00"])
def test_it_refuses_a_filter_that_makes_no_sense(operator: Client, query: str) -> None:
    answer = operator.get(f"{at('triggers')}?{query}")

    assert answer.status_code == 400
    assert query.partition("=")[0] in text(answer)


def test_it_leads_through_older_pages_with_the_filter_kept(
    operator: Client, session: AgentSession, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "ROWS", 2)
    triggers = [arm(session, now, wake_prompt=f"prompt <{number}>").trigger for number in range(3)]

    newest = text(operator.get(at("triggers"), {"status": "armed"}))
    older = text(operator.get(at("triggers"), {"status": "armed", "before": str(triggers[1].pk)}))

    assert ("prompt <2>" in newest, "prompt <1>" in newest, "prompt <0>" in newest) == (True, True, False)
    assert f"?status=armed&before={triggers[1].pk}" in newest
    assert ("prompt <1>" in older, "prompt <0>" in older) == (False, True)
    assert 'href="?status=armed">Newest' in older
    assert ">Older<" not in older


def test_it_pauses_resumes_and_cancels_in_the_row(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)

    paused = press(operator, f"{at('pause', trigger.pk)}?shape=row")
    resumed = press(operator, f"{at('resume', trigger.pk)}?shape=row")
    cancelled = press(operator, f"{at('cancel', trigger.pk)}?shape=row")

    assert [">paused<" in text(paused), ">armed<" in text(resumed), ">cancelled<" in text(cancelled)] == [True] * 3
    assert text(paused).startswith(f'<tr class="item" id="t-{trigger.pk}"')
    assert "Resume" in text(paused)
    assert "Pause" not in text(cancelled)
    events = Event.objects.filter(session_id=trigger.session_id, type=EventType.TRIGGER_STATUS).order_by("seq")
    assert [event.payload["by"] for event in events] == ["admin"] * 3


@pytest.mark.parametrize(
    ("shape", "start"), [("row", "<tr"), ("beside", "<li"), ("whole", '<div id="trigger"'), ("", '<div id="trigger"')]
)
def test_it_answers_a_button_in_the_shape_of_its_place(operator: Client, now: datetime, shape: str, start: str) -> None:
    trigger = armed_session(now)

    answer = press(operator, f"{at('pause', trigger.pk)}?shape={shape}")

    assert text(answer).startswith(start)
    assert "refresh" in answer["HX-Trigger-After-Settle"]


def test_it_pauses_without_javascript_and_goes_back(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)

    answer = operator.post(at("pause", trigger.pk), {"next": "/console/?status=armed"})

    assert (answer.status_code, answer["Location"]) == (302, "/console/?status=armed")
    assert Trigger.objects.get(pk=trigger.pk).status == TriggerStatus.PAUSED


@pytest.mark.parametrize("target", ["https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)", ""])
def test_it_goes_back_to_its_own_pages_only(operator: Client, now: datetime, target: str) -> None:
    trigger = armed_session(now)

    assert operator.post(at("pause", trigger.pk), {"next": target})["Location"] == at("trigger", trigger.pk)


@pytest.mark.parametrize("name", ["pause", "resume", "hook"])
def test_it_changes_nothing_on_a_get(operator: Client, now: datetime, name: str) -> None:
    trigger = armed_session(now)

    assert operator.get(at(name, trigger.pk)).status_code == 405
    assert Trigger.objects.get(pk=trigger.pk).status == TriggerStatus.ARMED


def test_it_asks_before_it_cancels(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)

    asked = operator.get(at("cancel", trigger.pk))

    assert "Cancel this trigger?" in text(asked)
    assert Trigger.objects.get(pk=trigger.pk).status == TriggerStatus.ARMED
    assert "hx-confirm" in text(operator.get(at("triggers")))


def test_it_says_beside_the_row_why_a_finished_trigger_cannot_be_paused(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)
    services.cancel(trigger.pk, by="agent", now=now)

    answer = press(operator, f"{at('pause', trigger.pk)}?shape=row")

    assert answer.status_code == 200
    assert "the trigger is cancelled, which is final" in text(answer)
    assert 'role="alert"' in text(answer)


def test_it_says_beside_the_row_why_a_full_session_cannot_resume_one(
    operator: Client, session: AgentSession, now: datetime, settings: Any
) -> None:
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 1
    paused = arm(session, now).trigger
    services.pause(paused.pk, by="test", now=now)
    arm(session, now)

    answer = press(operator, f"{at('resume', paused.pk)}?shape=row")

    assert answer.status_code == 200
    assert "its limit is 1" in text(answer)
    assert ">paused<" in text(answer)


def test_it_shows_a_refusal_on_the_next_page_without_javascript(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)
    services.cancel(trigger.pk, by="agent", now=now)

    answer = operator.post(at("pause", trigger.pk), follow=True)

    assert "the trigger is cancelled, which is final" in text(answer)


def test_it_renews_itself_while_it_is_seen(operator: Client, now: datetime) -> None:
    armed_session(now)

    page = text(fragment(operator, f"{at('triggers')}?status=armed"))

    assert page.startswith('<div id="list" data-live hx-get="/console/?status=armed" hx-trigger="every 3s')


def test_it_shows_all_there_is_to_a_trigger(operator: Client, session: AgentSession, now: datetime) -> None:
    trigger = arm(
        session,
        now,
        "time.cron",
        args={"cron": "*/10 * * * *", "timezone": "Europe/Berlin"},
        wake_prompt="look around",
        max_fires=7,
        action="start",
    ).trigger

    page = text(operator.get(at("trigger", trigger.pk)))

    for shown in (
        "look around",
        '"cron": "*/10 * * * *"',
        '"timezone": "Europe/Berlin"',
        "0 of 7",
        "in a turn of its own",
        "Tue 2026-12-08 09:00:00 UTC",
        f"?turn={trigger.turn_id}",
        "by agent",
        "It has not fired yet.",
    ):
        assert shown in page


def test_it_shows_the_ledger_with_what_became_of_each_fire(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)
    engine.fire(
        trigger.pk,
        Occurrence(key="delivery-1", due_at=now, payload='{"ref": "main"}', payload_bytes=500_000, truncated=True),
        now=now + timedelta(seconds=4),
    )
    [begun] = turns.begin([trigger.session_id], worker="test", now=now)
    end_turn(begun.turn, now)

    page = text(operator.get(at("trigger", trigger.pk)))

    for shown in ("delivered", "delivery-1", "4.0 s", '{"ref": "main"}', "cut when it came", f"?turn={begun.turn.pk}"):
        assert shown in page
    assert "Rewake was not running, or was busy" in page


def test_it_shows_no_more_of_a_payload_than_a_page_can_bear(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)
    _fire(trigger, now, payload="x" * 200_000, payload_bytes=200_000)

    assert len(operator.get(at("trigger", trigger.pk)).content) < 60_000


def test_it_retries_a_quarantined_wake(operator: Client, now: datetime) -> None:
    trigger, fire = _quarantined(now)
    assert "the key is wrong" in text(operator.get(at("trigger", trigger.pk)))

    answer = press(operator, at("retry_fire", trigger.pk, fire.wake_id))

    assert ">pending<" in text(answer)
    assert "Retry" not in text(answer)


def test_it_says_why_a_wake_cannot_be_retried_twice(operator: Client, now: datetime) -> None:
    trigger, fire = _quarantined(now)
    press(operator, at("retry_fire", trigger.pk, fire.wake_id))

    answer = press(operator, at("retry_fire", trigger.pk, fire.wake_id))

    assert answer.status_code == 200
    assert "only a quarantined wake can be retried" in text(answer)
    fire.refresh_from_db()
    assert fire.wake
    assert fire.wake.status == WakeStatus.PENDING


def test_it_knows_no_wake_that_there_is_not(operator: Client, now: datetime) -> None:
    assert press(operator, at("retry_fire", armed_session(now).pk, uuid4())).status_code == 404


def test_it_shows_a_hook_url_on_request_only_and_records_it(
    operator: Client, session: AgentSession, now: datetime
) -> None:
    armed = arm(session, now, "webhook", args={"hmac_header": "X-Signature"})
    page = text(operator.get(at("trigger", armed.trigger.pk)))
    assert "Show hook URL" in page
    assert armed.secrets["url"] not in page

    answer = press(operator, at("hook", armed.trigger.pk))

    assert services.hook_url(armed.trigger, armed.secrets) in text(answer)
    assert armed.secrets["signing"] in text(answer)
    assert "no-store" in answer["Cache-Control"]
    event = Event.objects.filter(session=session).latest("seq")
    assert (event.type, event.payload["by"]) == (EventType.TRIGGER_STATUS, "admin")
    assert armed.secrets["url"] not in text(operator.get(at("session", session.pk)))


def test_it_shows_a_hook_url_without_javascript_in_the_answer_itself(
    operator: Client, session: AgentSession, now: datetime
) -> None:
    armed = arm(session, now, "webhook")

    answer = operator.post(at("hook", armed.trigger.pk))

    assert is_page(answer)
    assert armed.secrets["url"] in text(answer)
    assert armed.secrets["url"] not in text(operator.get(at("trigger", armed.trigger.pk)))


def test_it_says_that_another_kind_has_no_hook_url(operator: Client, session: AgentSession, now: datetime) -> None:
    trigger = arm(session, now, "time.cron", args={"cron": "0 9 * * *"}).trigger

    answer = press(operator, at("hook", trigger.pk))

    assert "has no URL" in text(answer)
    assert "Show hook URL" not in text(operator.get(at("trigger", trigger.pk)))


def test_it_says_so_when_a_hook_url_cannot_be_decrypted(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)
    Trigger.objects.filter(pk=trigger.pk).update(secrets="written with a key that is gone")

    assert "ENCRYPTION_KEYS" in text(press(operator, at("hook", trigger.pk)))


def test_it_shows_a_row_that_no_kind_can_read(operator: Client, now: datetime) -> None:
    trigger = armed_session(now)
    Trigger.objects.filter(pk=trigger.pk).update(kind="gone.kind", last_error="it cannot be fired")

    for path in (at("triggers"), at("trigger", trigger.pk), at("session", trigger.session_id)):
        answer = operator.get(path)
        assert answer.status_code == 200
        assert "cannot be read" in text(answer)


def _rows(count: int, now: datetime) -> None:
    for _ in range(count):
        armed_session(now)


def test_it_asks_the_database_as_often_for_forty_triggers_as_for_two(
    operator: Client, now: datetime, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for count in (2, 38):
        _rows(count, now)
        for ask in (operator.get, lambda path: fragment(operator, path)):
            with django_assert_num_queries(3):
                ask(at("triggers"))


def test_it_asks_the_database_as_often_for_forty_fires_as_for_two(
    operator: Client, now: datetime, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    trigger = armed_session(now)
    for keys in (range(2), range(2, 40)):
        for key in keys:
            _fire(trigger, now, key=str(key))
        for ask in (operator.get, lambda path: fragment(operator, path)):
            with django_assert_num_queries(5):
                ask(at("trigger", trigger.pk))
