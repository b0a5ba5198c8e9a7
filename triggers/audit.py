"""The audit: proves from the database alone that nothing was lost or doubled."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, F, Max, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from sessions.models import AgentSession, Event, Turn, Wake
from sessions.states import EventType, TurnStatus, WakeStatus
from triggers.models import Fire, Trigger
from triggers.states import TriggerStatus

LATE = timedelta(seconds=60)  # a due row that nobody has looked at for so long is a fault


@dataclass(frozen=True)
class Audit:
    """Counts. All in `faults` must be 0; the others tell how much there was."""

    triggers: int
    fires: int
    skipped: int
    wakes: int
    turns: int
    events: int
    pending_wakes: int
    quarantined_wakes: int
    lost_turns: int
    faults: dict[str, int]

    @property
    def clean(self) -> bool:
        return not any(self.faults.values())

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def audit(*, now: datetime) -> Audit:
    """Count everything, and everything that must not be."""
    fires = Fire.objects.aggregate(all=Count("pk"), skipped=Count("pk", filter=Q(skipped=True)))
    wakes = Wake.objects.aggregate(
        all=Count("pk"),
        pending=Count("pk", filter=Q(status__in=[WakeStatus.PENDING, WakeStatus.TAKEN])),
        quarantined=Count("pk", filter=Q(status=WakeStatus.QUARANTINED)),
    )
    return Audit(
        triggers=Trigger.objects.count(),
        fires=fires["all"] - fires["skipped"],
        skipped=fires["skipped"],
        wakes=wakes["all"],
        turns=Turn.objects.count(),
        events=Event.objects.count(),
        pending_wakes=wakes["pending"],
        quarantined_wakes=wakes["quarantined"],
        lost_turns=Turn.objects.filter(status=TurnStatus.LOST).count(),
        faults=_faults(now),
    )


def _faults(now: datetime) -> dict[str, int]:
    return {
        "occurrences_fired_twice": _fired_twice(),
        "fires_without_a_wake": Fire.objects.filter(skipped=False, wake=None).count(),
        "triggers_whose_count_is_not_their_ledgers": _miscounted(),
        "triggers_overdue": _overdue(now),
        "wakes_taken_by_no_live_turn": Wake.objects.filter(status=WakeStatus.TAKEN)
        .exclude(turn__status=TurnStatus.RUNNING)
        .count(),
        "turns_that_ran_side_by_side": _side_by_side(),
        "transcripts_with_a_gap": _gaps(),
    }


def _fired_twice() -> int:
    again = Fire.objects.values("trigger", "occurrence").annotate(times=Count("pk")).filter(times__gt=1)
    return again.count()


def _miscounted() -> int:
    ledger = Fire.objects.filter(trigger=OuterRef("pk"), skipped=False).order_by().values("trigger")
    counted = Coalesce(Subquery(ledger.annotate(n=Count("pk")).values("n")), 0)
    return Trigger.objects.annotate(counted=counted).exclude(fires=F("counted")).count()


def _overdue(now: datetime) -> int:
    return Trigger.objects.filter(status=TriggerStatus.ARMED, next_fire_at__lt=now - LATE).count()


def _side_by_side() -> int:
    """Count turns that began before an earlier one of their session had ended.

    By their place in the transcript, which the session's lock orders: two processes' clocks do not.
    """
    bounds = Event.objects.filter(type__in=[EventType.TURN_STARTED, EventType.TURN_ENDED])
    live: dict[UUID, int] = defaultdict(int)
    found = 0
    for session_id, type_ in bounds.order_by("session", "seq").values_list("session_id", "type").iterator():
        live[session_id] += 1 if type_ == EventType.TURN_STARTED else -1
        found += live[session_id] not in (0, 1)
    return found


def _gaps() -> int:
    events = Event.objects.filter(session=OuterRef("pk")).order_by().values("session")
    counted = Coalesce(Subquery(events.annotate(n=Count("pk")).values("n")), 0)
    last = Coalesce(Subquery(events.annotate(last=Max("seq")).values("last")), 0)
    sessions = AgentSession.objects.annotate(counted=counted, last=last)
    return sessions.exclude(last_seq=F("counted"), last=F("last_seq")).count()
