"""The inbox and turns under random interleavings of everything that can be done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sessions import inbox, services, turns
from sessions.exceptions import RewakeError
from sessions.models import AgentSession, Event, Turn, Wake
from sessions.states import Action, EventType, TurnStatus, WakeSource, WakeStatus
from sessions.turns import Ending, Fate
from tests.factories import open_session

ENDINGS = [
    (TurnStatus.COMPLETED, Fate.DONE),
    (TurnStatus.FAILED, Fate.DONE),
    (TurnStatus.FAILED, Fate.BACK),
    (TurnStatus.FAILED, Fate.QUARANTINED),
    (TurnStatus.INTERRUPTED, Fate.DONE),
    (TurnStatus.LOST, Fate.LOST),
    (TurnStatus.LOST, Fate.RETURNED),
]


@dataclass
class World:
    """One session, a clock that goes on, and copies of turns that their workers still hold."""

    session: AgentSession
    now: datetime
    posted: int = 0
    held: list[Turn] = field(default_factory=list)
    settled: dict[str, str] = field(default_factory=dict)

    def say(self, dice: int) -> None:
        services.say(self.session.pk, f"message {dice}", now=self.now)
        self.posted += 1

    def fire(self, dice: int) -> None:
        action = Action.START if dice % 3 == 0 else Action.MESSAGE
        wake = inbox.NewWake(self.session.pk, WakeSource.TRIGGER, f"fire {dice}", action, depth=dice % 5)
        if AgentSession.objects.get(pk=self.session.pk).terminated_at is None:
            inbox.post([wake], now=self.now)
            self.posted += 1

    def begin(self, dice: int) -> None:
        self.held += [begun.turn for begun in turns.begin([self.session.pk], worker="w", now=self.now)]

    def steer(self, dice: int) -> None:
        if self.held:
            turns.steer(self.held[dice % len(self.held)], now=self.now)

    def end(self, dice: int) -> None:
        """End any turn that was ever begun, in any way: a stale worker knows no better."""
        if self.held:
            status, fate = ENDINGS[dice % len(ENDINGS)]
            turns.end(self.held[dice % len(self.held)], Ending(status, fate, "because"), now=self.now)

    def rescue(self, dice: int) -> None:
        self.now += timedelta(seconds=dice * 10)
        services.rescue(now=self.now)

    def retry(self, dice: int) -> None:
        for wake in Wake.objects.filter(session=self.session, status=WakeStatus.QUARANTINED)[:1]:
            services.retry_wake(wake.pk, now=self.now)
            self.settled.pop(str(wake.pk), None)

    def interrupt(self, dice: int) -> None:
        services.interrupt(self.session.pk, now=self.now)

    def terminate(self, dice: int) -> None:
        if dice > 90:
            services.terminate(self.session.pk, now=self.now)

    def check(self) -> None:
        wakes = list(Wake.objects.filter(session=self.session))
        live = list(Turn.objects.filter(session=self.session, status=TurnStatus.RUNNING))
        assert len(live) <= 1
        assert len(wakes) == self.posted  # none lost, none doubled
        for wake in wakes:
            assert (wake.status == WakeStatus.TAKEN) == (wake.turn in live) or wake.status in _ENDED
            assert (wake.settled_at is not None) == (wake.status in _ENDED)
            known = self.settled.setdefault(str(wake.pk), wake.status) if wake.status in _ENDED else None
            assert known in (None, wake.status)  # it ends once, whatever comes after
        seqs = list(Event.objects.filter(session=self.session).order_by("seq").values_list("seq", flat=True))
        assert seqs == list(range(1, len(seqs) + 1))
        self._check_turns_follow_one_another()

    def _check_turns_follow_one_another(self) -> None:
        bounds = Event.objects.filter(session=self.session, type__in=[EventType.TURN_STARTED, EventType.TURN_ENDED])
        types = list(bounds.order_by("seq").values_list("type", flat=True))
        assert all(type_ == (EventType.TURN_STARTED, EventType.TURN_ENDED)[n % 2] for n, type_ in enumerate(types))


_ENDED = (WakeStatus.DONE, WakeStatus.QUARANTINED, WakeStatus.WITHDRAWN)
_ACTS: list[Callable[[World, int], None]] = [
    World.say,
    World.fire,
    World.fire,
    World.begin,
    World.begin,
    World.begin,
    World.steer,
    World.end,
    World.end,
    World.end,
    World.rescue,
    World.retry,
    World.interrupt,
    World.terminate,
]


@pytest.mark.django_db
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # to shrink a failure takes minutes, and its acts can be read as they are
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(st.sampled_from(_ACTS), st.integers(0, 99)), min_size=20, max_size=60))
def test_whatever_happens_in_whatever_order_no_wake_is_lost_or_doubled(
    now: datetime, acts: list[tuple[Callable[[World, int], None], int]]
) -> None:
    world = World(open_session(now), now)
    for act, dice in acts:
        try:
            act(world, dice)
        except RewakeError:
            pass  # refused, as to a client
        world.now += timedelta(seconds=1)
        world.check()
