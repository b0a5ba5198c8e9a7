"""How it is doing, as Prometheus asks: what the database knows is read from it, the rest is counted in memory."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, DurationField, ExpressionWrapper, F, Q, QuerySet, Sum, Value, When
from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sessions import inbox
from sessions.ids import lowest_at
from sessions.models import Turn
from sessions.states import TurnStatus, WakeStatus
from triggers import selectors
from triggers.counted import COUNTED
from triggers.models import Fire, Trigger, Watch
from triggers.registry import KINDS
from triggers.states import OUTCOMES, Outcome, TriggerStatus

RECENT = timedelta(hours=1)
SETTLED = timedelta(minutes=2)  # no transaction is open for longer, so no older row can still appear
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)  # seconds of lag
_FIRST = UUID(int=0)

HOOK_ANSWERS = Counter("rewake_hook_answers", "Answers of the capability URL.", ["code"], registry=COUNTED)


@dataclass
class Totals:
    """What a stretch of the ledger adds up to, by kind. `lags` counts the fires of each bucket, not yet summed up."""

    fires: Tally[str] = field(default_factory=Tally)
    skipped: Tally[str] = field(default_factory=Tally)
    seconds: Tally[str] = field(default_factory=Tally)
    within: Tally[tuple[str, float]] = field(default_factory=Tally)

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.fires + other.fires,
            self.skipped + other.skipped,
            _sum(self.seconds, other.seconds),
            self.within + other.within,
        )


class Ledger:
    """Adds up the ledger, each of its rows once: rows are never changed, so what is settled is remembered.

    Every process comes to the same totals, whichever of them is asked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self._totals, self._until = Totals(), _FIRST

    def totals(self, *, now: datetime) -> Totals:
        """Return the totals up to now."""
        with self._lock:
            until = lowest_at(now - SETTLED)
            if until > self._until:
                self._totals += _add_up(Fire.objects.filter(pk__gte=self._until, pk__lt=until))
                self._until = until
            return self._totals + _add_up(Fire.objects.filter(pk__gte=self._until))


LEDGER = Ledger()


class Database(Collector):
    """The metrics that are read from the database at each scrape: its cost does not grow with what is over."""

    def __init__(self, *, now: datetime) -> None:
        self._now = now

    def collect(self) -> Iterable[Metric]:
        yield from _ledger(LEDGER.totals(now=self._now))
        yield _recent_fires(self._now)
        yield _triggers()
        yield _wakes()
        yield _gauge("rewake_oldest_pending_wake_seconds", "Age of the wake that has waited longest.", self._oldest())
        yield _turns(self._now)
        yield _watches(self._now)
        yield _gauge("rewake_beat_age_seconds", "Seconds since the beat was last seen.", self._beat())

    def _oldest(self) -> float:
        oldest = inbox.oldest_pending()
        return (self._now - oldest).total_seconds() if oldest else 0.0

    def _beat(self) -> float:
        seen = selectors.last_beat()
        return (self._now - seen).total_seconds() if seen else float("inf")


def _add_up(rows: QuerySet[Fire]) -> Totals:
    lag = ExpressionWrapper(F("fired_at") - F("due_at"), output_field=DurationField())
    counts: dict[str, Any] = {
        f"within_{index}": Count("pk", filter=Q(lag__lte=timedelta(seconds=bound)))
        for index, bound in enumerate(BUCKETS)
    }
    grouped = rows.annotate(lag=lag).values("trigger__kind", "skipped")
    summed: Any = grouped.annotate(count=Count("pk"), total=Sum("lag"), **counts)
    totals = Totals()
    for row in summed:
        kind = row["trigger__kind"]
        if row["skipped"]:
            totals.skipped[kind] += row["count"]
            continue
        totals.fires[kind] += row["count"]
        totals.seconds[kind] += row["total"].total_seconds()
        for index, bound in enumerate(BUCKETS):
            totals.within[kind, bound] += row[f"within_{index}"]
    return totals


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> Tally[str]:
    return Tally({kind: one.get(kind, 0) + other.get(kind, 0) for kind in one.keys() | other.keys()})


def _ledger(totals: Totals) -> Iterable[Metric]:
    fires = CounterMetricFamily("rewake_fires", "Fires recorded.", labels=["kind"])
    lags = HistogramMetricFamily("rewake_fire_lag_seconds", "From due to recorded.", labels=["kind"])
    for kind, count in sorted(totals.fires.items()):
        fires.add_metric([kind], count)
        buckets = [(str(bound), float(totals.within[kind, bound])) for bound in BUCKETS]
        lags.add_metric([kind], [*buckets, ("+Inf", float(count))], totals.seconds[kind])
    skipped = CounterMetricFamily("rewake_fires_skipped", "Occurrences recorded as skipped.", labels=["kind"])
    for kind, count in sorted(totals.skipped.items()):
        skipped.add_metric([kind], count)
    return [fires, skipped, lags]


def _recent_fires(now: datetime) -> Metric:
    family = GaugeMetricFamily(
        "rewake_recent_fires", "Fires of the last hour, by what has become of them.", labels=["kind", "outcome"]
    )
    rows = Fire.objects.filter(pk__gte=lowest_at(now - RECENT)).values("trigger__kind", "skipped", "wake__status")
    for row in rows.annotate(count=Count("pk")).order_by("trigger__kind", "wake__status"):
        outcome = Outcome.SKIPPED if row["skipped"] else OUTCOMES[WakeStatus(row["wake__status"])]
        family.add_metric([row["trigger__kind"], outcome], row["count"])
    return family


def _triggers() -> Metric:
    family = GaugeMetricFamily("rewake_triggers", "Triggers that have not ended.", labels=["kind", "status"])
    shown = [TriggerStatus.ARMED, TriggerStatus.PAUSED]
    live = Trigger.objects.filter(status__in=shown).values_list("kind", "status")
    counts = {(kind, str(status)): 0 for kind in sorted(KINDS.by_name) for status in shown}
    counts |= {(kind, status): count for kind, status, count in live.annotate(count=Count("pk"))}
    for labels, count in counts.items():
        family.add_metric(labels, count)
    return family


def _wakes() -> Metric:
    family = GaugeMetricFamily("rewake_wakes", "Wakes that wait, or were set aside.", labels=["status"])
    for status in (WakeStatus.PENDING, WakeStatus.QUARANTINED):
        family.add_metric([status], inbox.outstanding().filter(status=status).count())
    return family


def _watches(now: datetime) -> Metric:
    family = GaugeMetricFamily(
        "rewake_watches", "Resources that are polled, by what came of the last question.", labels=["host", "result"]
    )
    result = Case(
        When(host__blocked_until__gt=now, then=Value("limited")),
        When(failures__gt=0, then=Value("failed")),
        When(polled_at=None, then=Value("unasked")),
        default=Value("answered"),
    )
    rows = Watch.objects.filter(next_poll_at__isnull=False).values_list("host__name", result)
    for host, outcome, count in rows.annotate(count=Count("pk")).order_by("host__name"):
        family.add_metric([host, outcome], count)
    return family


def _turns(now: datetime) -> Metric:
    family = GaugeMetricFamily(
        "rewake_recent_turns", "Live turns, and the last hour's by how they ended.", labels=["status"]
    )
    recent = Turn.objects.filter(pk__gte=lowest_at(now - RECENT)).exclude(status=TurnStatus.RUNNING)
    counts = dict.fromkeys(TurnStatus, 0) | dict(recent.values_list("status").annotate(Count("pk")))
    counts[TurnStatus.RUNNING] = Turn.objects.filter(status=TurnStatus.RUNNING).count()
    for status, count in counts.items():
        family.add_metric([status], count)
    return family


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value=value)
