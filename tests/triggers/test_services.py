from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet

from sessions import services as session_services
from sessions.models import AgentSession, Event, Turn
from sessions.states import EventType
from tests.factories import arm, armed_session, context_in, end_turn, open_session
from triggers import engine, moves, services
from triggers.exceptions import Conflict, Invalid, NotFound, PolicyRefused
from triggers.models import Fire, Trigger
from triggers.states import TRIGGERS, TriggerStatus

pytestmark = pytest.mark.django_db


def test_it_arms_for_the_turns_own_session_with_its_provenance(session: AgentSession, now: datetime) -> None:
    context = context_in(session, now)

    trigger = arm(session, now, context=context).trigger

    trigger.refresh_from_db()
    assert (trigger.session_id, trigger.turn_id, trigger.depth) == (session.pk, context.turn_id, 0)
    assert (trigger.max_fires, trigger.expires_at) == (100, now + timedelta(days=7))


def test_it_can_be_followed_through_the_log_by_ids(
    session: AgentSession, now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    context = context_in(session, now)
    trigger = arm(session, now, "time.cron", args={"cron": "0 10 * * *"}, context=context).trigger
    engine.tick(now=now + timedelta(hours=1))
    services.cancel(trigger.pk, by="operator", now=now)

    written = {record.__dict__["action"]: record.__dict__ for record in caplog.records if hasattr(record, "action")}
    assert list(written) == ["trigger_armed", "fired", "trigger_status"]
    assert {str(line["trigger_id"]) for line in written.values()} == {str(trigger.pk)}
    assert {str(line["session_id"]) for line in written.values()} == {str(session.pk)}
    assert str(written["trigger_armed"]["turn_id"]) == str(context.turn_id)
    assert str(written["fired"]["fire_id"]) == str(Fire.objects.get().pk)


def test_it_stores_secrets_so_that_only_the_keys_can_read_them(session: AgentSession, now: datetime) -> None:
    armed = arm(session, now, args={"hmac_header": "X-Sig"})

    stored = Trigger.objects.get().secrets
    assert armed.secrets["url"] not in stored
    assert services.secrets_of(Trigger.objects.get()) == armed.secrets
    assert not any(secret in str(event.payload) for event in Event.objects.all() for secret in armed.secrets.values())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"wake_prompt": " \n"}, "wake_prompt"),
        ({"wake_prompt": "x" * 8001}, "wake_prompt"),
        ({"max_fires": 0}, "max_fires"),
        ({"max_fires": -1}, "max_fires"),
        ({"max_fires": 101}, "max_fires"),
        ({"expires_at": timedelta(0)}, "expires_at"),
        ({"expires_at": timedelta(seconds=-1)}, "expires_at"),
    ],
)
def test_it_refuses_a_field_that_makes_no_sense_by_name(
    session: AgentSession, now: datetime, fields: dict[str, Any], named: str
) -> None:
    if "expires_at" in fields:
        fields = {"expires_at": now + fields["expires_at"]}

    with pytest.raises(Invalid) as caught:
        arm(session, now, **fields)

    assert list(caught.value.fields) == [named]
    assert not Trigger.objects.exists()


def test_it_accepts_a_wake_prompt_of_the_full_length(session: AgentSession, now: datetime) -> None:
    assert arm(session, now, wake_prompt=f"  {'x' * 8000}  ").trigger.wake_prompt == "x" * 8000


def test_a_one_shot_fires_once_whatever_is_asked(session: AgentSession, now: datetime) -> None:
    with pytest.raises(Invalid, match="from 1 to 1"):
        arm(session, now, "time.at", args={"at": "2026-12-01T10:00:00Z"}, max_fires=2)


def test_it_refuses_an_expiry_before_the_first_fire(session: AgentSession, now: datetime) -> None:
    with pytest.raises(Invalid, match="would never fire"):
        arm(session, now, "time.at", args={"at": "2026-12-01T10:00:00Z"}, expires_at=now + timedelta(minutes=1))


def test_row_21_it_arms_an_instant_that_has_just_passed_and_it_is_due(session: AgentSession, now: datetime) -> None:
    trigger = arm(session, now, "time.at", args={"at": "2026-12-01T08:59:57Z"}).trigger
    assert trigger.next_fire_at == now - timedelta(seconds=3)


def test_it_arms_only_within_a_live_turn(session: AgentSession, now: datetime) -> None:
    context = context_in(session, now)
    end_turn(Turn.objects.get(pk=context.turn_id), now)

    with pytest.raises(NotFound, match="turn is over"):
        arm(session, now, context=context)


def test_row_69_it_refuses_to_lengthen_a_chain_without_end(session: AgentSession, now: datetime, settings: Any) -> None:
    context = context_in(session, now)
    arm(session, now, context=replace(context, depth=settings.TRIGGERS_MAX_CHAIN_DEPTH - 1))

    with pytest.raises(PolicyRefused, match="chain"):
        arm(session, now, context=replace(context, depth=settings.TRIGGERS_MAX_CHAIN_DEPTH))


def test_row_69_a_triggered_turn_cannot_arm_itself_for_ten_seconds_on(session: AgentSession, now: datetime) -> None:
    triggered = replace(context_in(session, now), triggered=True)

    with pytest.raises(Invalid, match="60 s ahead"):
        arm(session, now, "time.at", context=triggered, args={"at": "2026-12-01T09:00:10Z"})


def test_it_holds_the_ceiling_of_armed_triggers_at_arming(session: AgentSession, now: datetime, settings: Any) -> None:
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 2
    arm(session, now)
    arm(session, now)

    with pytest.raises(PolicyRefused, match="limit is 2"):
        arm(session, now)


def test_it_holds_the_ceiling_at_pause_arm_resume(session: AgentSession, now: datetime, settings: Any) -> None:
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 1
    first = arm(session, now).trigger
    services.pause(first.pk, by="operator", now=now)
    arm(session, now)

    with pytest.raises(PolicyRefused, match="limit is 1"):
        services.resume(first.pk, by="operator", now=now)

    first.refresh_from_db()
    assert first.status == TriggerStatus.PAUSED


def test_it_counts_only_the_sessions_own_triggers(session: AgentSession, now: datetime, settings: Any) -> None:
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 1
    arm(session, now)
    arm(open_session(now), now)


def test_it_records_each_change_of_status_with_who_and_why(now: datetime) -> None:
    trigger = armed_session(now)

    services.pause(trigger.pk, by="operator", now=now)
    services.resume(trigger.pk, by="key ci", now=now)
    services.cancel(trigger.pk, by="agent", now=now)

    changes = [event.payload for event in Event.objects.filter(type=EventType.TRIGGER_STATUS).order_by("seq")]
    assert [(change["from"], change["to"], change["by"]) for change in changes] == [
        ("armed", "paused", "operator"),
        ("paused", "armed", "key ci"),
        ("armed", "cancelled", "agent"),
    ]
    assert all(change["reason"] for change in changes)


def test_it_writes_nothing_where_nothing_changes(now: datetime) -> None:
    trigger = armed_session(now)
    services.pause(trigger.pk, by="operator", now=now)
    events = Event.objects.count()

    services.pause(trigger.pk, by="operator", now=now)

    assert Event.objects.count() == events


@pytest.mark.parametrize("terminal", sorted(TRIGGERS.terminal))
@pytest.mark.parametrize("change", ["pause", "resume"])
def test_it_never_leaves_a_terminal_status(now: datetime, terminal: str, change: str) -> None:
    trigger = armed_session(now)
    Trigger.objects.filter(pk=trigger.pk).update(status=terminal)

    with pytest.raises(Conflict, match="final"):
        getattr(services, change)(trigger.pk, by="operator", now=now)

    trigger.refresh_from_db()
    assert trigger.status == terminal


def test_a_stale_copy_cannot_bring_a_cancelled_trigger_back(now: datetime) -> None:
    trigger = armed_session(now)
    stale = Trigger.objects.get(pk=trigger.pk)
    services.cancel(trigger.pk, by="operator", now=now)

    from triggers import moves

    assert not moves.change_status(stale, TriggerStatus.PAUSED, by="late", reason="stale", now=now)
    trigger.refresh_from_db()
    assert trigger.status == TriggerStatus.CANCELLED


def test_it_cancels_once(now: datetime) -> None:
    trigger = armed_session(now)

    assert [services.cancel(trigger.pk, by="operator", now=now)[1] for _ in range(2)] == [True, False]


def _ended(trigger: Trigger, how: str, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "terminated":
        session_services.terminate(trigger.session_id, now=now)
    elif how == "failed":
        monkeypatch.setattr("django.conf.settings.TRIGGERS_MAX_CONSECUTIVE_FAILURES", 1)
        moves.count_failure([trigger.pk], "broken", by="test", now=now, next_look=now)
    elif how == "expired":
        engine.tick(now=now + timedelta(minutes=30))
    else:
        services.cancel(trigger.pk, by="operator", now=now)


@pytest.mark.parametrize("how", ["cancelled", "terminated", "failed", "expired"])
def test_what_has_ended_has_no_next_fire(how: str, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = armed_session(now, "time.cron", args={"cron": "0 * * * *"})
    Trigger.objects.filter(pk=trigger.pk).update(expires_at=now + timedelta(minutes=30))

    _ended(trigger, how, now, monkeypatch)

    trigger.refresh_from_db()
    assert trigger.status in TRIGGERS.terminal
    assert trigger.next_fire_at is None


def test_another_sessions_trigger_is_not_there(session: AgentSession, now: datetime) -> None:
    trigger = armed_session(now)

    with pytest.raises(NotFound):
        services.cancel(trigger.pk, by="agent", now=now, session_id=session.pk)


def test_it_shows_a_hook_again_and_says_who_asked(now: datetime) -> None:
    trigger = armed_session(now, args={"hmac_header": "X-Sig"})

    url, signing = services.show_hook(trigger.pk, by="key ops", now=now)

    assert url.startswith("http://")
    assert f"/api/triggers/hook/{trigger.pk}/rwh_" in url
    assert signing
    assert Event.objects.latest("pk").payload["by"] == "key ops"


def test_it_says_that_a_hook_cannot_be_shown_without_the_key_it_was_written_with(now: datetime, settings: Any) -> None:
    trigger = armed_session(now)
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    with pytest.raises(Conflict, match="add the key it was written with"):
        services.show_hook(trigger.pk, by="key ops", now=now)


def test_only_a_webhook_has_a_url(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args={"cron": "0 * * * *"})

    with pytest.raises(Conflict):
        services.show_hook(trigger.pk, by="key ops", now=now)


@pytest.mark.parametrize("call", [services.pause, services.resume, services.cancel, services.show_hook])
def test_it_does_not_know_a_trigger_that_is_not_there(db: None, now: datetime, call: Any) -> None:
    with pytest.raises(NotFound):
        call(uuid4(), by="operator", now=now)
