from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.models import AgentSession, Wake
from sessions.states import TURNS, WAKES, WakeStatus
from triggers.states import TRIGGERS, TriggerStatus


@pytest.mark.parametrize("machine", [WAKES, TURNS, TRIGGERS])
def test_it_knows_every_status_it_can_reach(machine: object) -> None:
    moves = machine.moves  # type: ignore[attr-defined]
    assert {target for targets in moves.values() for target in targets} <= set(moves)


def test_it_has_no_way_out_of_a_terminal_status() -> None:
    assert TRIGGERS.terminal == {
        TriggerStatus.COMPLETED,
        TriggerStatus.FAILED,
        TriggerStatus.EXPIRED,
        TriggerStatus.CANCELLED,
    }


@given(st.lists(st.sampled_from(list(TriggerStatus)), max_size=30))
def test_it_never_leaves_a_terminal_status_whatever_is_asked(wanted: list[TriggerStatus]) -> None:
    status = TriggerStatus.ARMED
    for target in wanted:
        before = status
        if status in TRIGGERS.sources(target):
            status = target
        assert before not in TRIGGERS.terminal or status == before


@pytest.mark.django_db
def test_it_moves_only_rows_that_may_go_there(session: AgentSession, now: datetime) -> None:
    pending, done = (_wake(session, now, status) for status in (WakeStatus.PENDING, WakeStatus.DONE))

    moved = WAKES.move(Wake.objects.filter(pk__in=[pending.pk, done.pk]), WakeStatus.TAKEN)

    assert moved == 1
    done.refresh_from_db()
    assert done.status == WakeStatus.DONE


@pytest.mark.django_db
def test_it_lets_the_second_of_two_racers_write_nothing(session: AgentSession, now: datetime) -> None:
    wake = _wake(session, now, WakeStatus.TAKEN)
    rows = Wake.objects.filter(pk=wake.pk)

    assert WAKES.move(rows, WakeStatus.DONE, settled_at=now) == 1
    assert WAKES.move(rows, WakeStatus.WITHDRAWN, settled_at=now + timedelta(hours=1)) == 0

    wake.refresh_from_db()
    assert (wake.status, wake.settled_at) == (WakeStatus.DONE, now)


def _wake(session: AgentSession, now: datetime, status: WakeStatus) -> Wake:
    return Wake.objects.create(session=session, source="person", text="x", status=status, created_at=now)
