"""The only writer of Watch: asks each forge once for all that watch a resource, matches, fires.

1. Claim what is due, with a lease, in a short transaction.
2. Ask, with no transaction open (`wire`).
3. For each resource, in one transaction: fire all that matches, then store what was kept.

Every round looks at all that was kept against all triggers, and the ledger knows what has fired. So a crash
between asking and firing costs another look, one between firing and storing nothing, and two pollers do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models import F, Min, Q

from sessions.instants import iso
from sessions.secrecy import Unreadable
from sessions.text import cut
from sessions.transcript import lock
from triggers import engine, hosts, ledger, matching, moves, nudge, wire
from triggers.counted import POLLS
from triggers.exceptions import NotFound
from triggers.forges.base import Budget, Fault, ForgeError, Reading
from triggers.kinds.base import EventKind
from triggers.ledger import Occurrence
from triggers.models import Host, Trigger, Watch
from triggers.observations import Observation, Resource, Scope
from triggers.registry import KINDS, UnknownName
from triggers.states import TriggerStatus
from triggers.wire import Clock, Job, Result, Visit

BATCH = 200  # resources of one round
LEASE = timedelta(minutes=5)  # after which what a poller had claimed is asked for by another
ROUND = timedelta(minutes=2)  # after which a round begins nothing new
SLOWEST = 10  # times the interval: the longest pause
QUIET_SHARE = 20  # a pause is at most this part of the time for which nothing has changed
BY = "poll"
_NOTHING = Resource(Scope.RUNS, "")

log = logging.getLogger("rewake.polling")


@dataclass(frozen=True)
class Enlisted:
    """The watch that a trigger shares, its host, and what whoever arms it should know."""

    watch: Watch
    host: str
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Waiting:
    """An armed trigger that has been read."""

    trigger: Trigger
    kind: EventKind[Any]
    args: Any


@dataclass
class _Round:
    """What one call of `poll` works with."""

    token: UUID
    watches: dict[int, Watch]
    visits: dict[int, Visit] = field(default_factory=dict)
    shares: dict[int, int] = field(default_factory=dict)  # watches of each host, which share its limit


def enlist(resource: Resource, host: str | None, *, now: datetime) -> Enlisted:
    """Have a resource watched, from now on, at its interval. Called under the session's lock, where a trigger is armed.

    Raises `ArgsError` if it cannot be told which host is meant.
    """
    found = hosts.find(resource.repo, host)
    Watch.objects.get_or_create(host=found, key=resource.key)
    watch = Watch.objects.select_for_update().get(host=found, key=resource.key)
    _look_soon(watch, found, now)
    notes = []
    if not hosts.has_token(found):
        forge = hosts.place(found).forge
        notes.append(f"{found.name} is asked without a token: {forge.anonymous}")
    return Enlisted(watch, found.name, notes)


def look_again(watch_id: int, *, now: datetime) -> None:
    """Have a resource watched again: a trigger that was paused waits for it."""
    watch = Watch.objects.select_for_update().select_related("host").filter(pk=watch_id).first()
    if watch:
        _look_soon(watch, watch.host, now)


def next_poll_at() -> datetime | None:
    """Return when there is next something to ask."""
    found: datetime | None = Watch.objects.filter(next_poll_at__isnull=False).aggregate(at=Min("next_poll_at"))["at"]
    return found


def poll(*, clock: Clock, limit: int = BATCH) -> int:
    """Ask for what is due, fire what matches, and return how many resources were claimed."""
    work = _claim(clock(), limit)
    if not work.watches:
        return 0
    jobs = _prepare(work, clock)
    try:
        for result in wire.ask_all(jobs, work.visits, clock=clock, deadline=clock() + ROUND):
            _count(work, result)
            _settle(work, result, clock())
    finally:
        for host_id, visit in work.visits.items():
            visit.close()
            if visit.budget:
                hosts.note_budget(host_id, visit.budget)
    return len(work.watches)


def _count(work: _Round, result: Result) -> None:
    if result.error or result.reading:
        outcome = result.error.fault if result.error else "answered"
        POLLS.labels(host=work.watches[result.job.watch_id].host.name, result=outcome).inc()


def _look_soon(watch: Watch, host: Host, now: datetime) -> None:
    """Void any claim: whoever holds it cannot have seen the trigger that is armed here."""
    interval = timedelta(seconds=settings.TRIGGERS_POLL_INTERVAL_SECONDS)
    at = max(now, watch.polled_at + interval) if watch.polled_at else now
    if host.blocked_until:
        at = max(at, host.blocked_until)
    Watch.objects.filter(pk=watch.pk).update(next_poll_at=at, claim=None, changed_at=now)
    nudge.clock()


@transaction.atomic
def _claim(now: datetime, limit: int) -> _Round:
    """Claim what is due: it is due again, for anyone, when the lease ends."""
    skip = connection.features.has_select_for_update_skip_locked
    due = Watch.objects.select_for_update(skip_locked=skip, of=("self",) if skip else ()).filter(next_poll_at__lte=now)
    found = {watch.pk: watch for watch in due.select_related("host").order_by("next_poll_at")[:limit]}
    token = uuid4()
    Watch.objects.filter(pk__in=found).update(claim=token, next_poll_at=now + LEASE, polled_at=now)
    shares = {watch.host_id: 0 for watch in found.values()}
    for host_id in shares:
        shares[host_id] = Watch.objects.filter(host_id=host_id, next_poll_at__isnull=False).count()
    return _Round(token, found, shares=shares)


def _prepare(work: _Round, clock: Clock) -> dict[int, list[Job]]:
    """Return what to ask, by host. What nobody waits for any more, or cannot be asked, is settled here."""
    jobs: dict[int, list[Job]] = {}
    now = clock()
    waiting = _waiting(list(work.watches), now)
    for watch in work.watches.values():
        readable, _ = _read(waiting.get(watch.pk, []))
        if not readable:
            _settle(work, Result(Job(watch.pk, _NOTHING, now, watch.memory), Reading()), now)
            continue
        wanted = [item.kind.resource(item.args) for item in readable]
        resource = replace(wanted[0] or _NOTHING, checks=any(item.checks for item in wanted if item))
        job = Job(watch.pk, resource, min(item.trigger.created_at for item in readable), watch.memory)
        error = _visit(work, watch.host, clock)
        if error:
            _settle(work, Result(job, error=error), now)
            continue
        jobs.setdefault(watch.host_id, []).append(job)
    return jobs


def _visit(work: _Round, host: Host, clock: Clock) -> ForgeError | None:
    """Prepare to ask a host, once a round; return why it cannot be asked."""
    if host.pk in work.visits:
        return None
    if host.blocked_until and host.blocked_until > clock():
        return ForgeError(Fault.LIMITED, f"{host.name} limits how often it may be asked", until=host.blocked_until)
    try:
        place = hosts.place(host)
    except (NotFound, UnknownName, Unreadable) as error:
        return ForgeError(Fault.LASTING, f"{host.name} cannot be asked: {error}")
    budget = None
    if host.budget_limit is not None and host.budget_remaining is not None and host.budget_reset_at:
        budget = Budget(host.budget_limit, host.budget_remaining, host.budget_reset_at)
    work.visits[host.pk] = Visit(place, budget, strikes=host.strikes, clock=clock)
    return None


def _waiting(watch_ids: Sequence[int], now: datetime) -> dict[int, list[Trigger]]:
    """Return the armed triggers of watches, by watch."""
    armed = Trigger.objects.filter(watch__in=watch_ids, status=TriggerStatus.ARMED, expires_at__gt=now)
    found: dict[int, list[Trigger]] = {}
    for trigger in armed.order_by("pk"):
        assert trigger.watch_id
        found.setdefault(trigger.watch_id, []).append(trigger)
    return found


def _read(triggers: Sequence[Trigger]) -> tuple[list[_Waiting], list[tuple[Trigger, Exception]]]:
    """Read triggers; one that cannot be read stops none of the others."""
    readable, broken = [], []
    for trigger in triggers:
        try:
            kind = KINDS.get(trigger.kind)
            if not isinstance(kind, EventKind):
                raise TypeError(f"{trigger.kind} is not fired by polling, but has a watch")
            readable.append(_Waiting(trigger, kind, kind.read(trigger.args)))
        except Exception as error:
            broken.append((trigger, error))
    return readable, broken


def _settle(work: _Round, result: Result, now: datetime) -> None:
    """Record what came of one resource; one that cannot be recorded is asked for again when its lease ends."""
    watch = work.watches[result.job.watch_id]
    claimed = Q(pk=watch.pk, claim=work.token)
    try:
        if result.error is None and result.reading is None:
            Watch.objects.filter(claimed).update(claim=None, next_poll_at=now)
        elif result.error is None:
            _settle_reading(work, watch, result, now)
        elif result.error.fault == Fault.LIMITED:
            _settle_limit(work, watch, result.error, now)
        else:
            _settle_fault(work, watch, result.error, now)
    except Exception:  # one bad row stops nothing else
        log.exception("poll not recorded", extra={"action": "poll_unrecorded", "watch": watch.key})


def _settle_reading(work: _Round, watch: Watch, result: Result, now: datetime) -> None:
    """Fire all that matches, then store what was kept, in one transaction.

    What has to be done is found out first, so that the usual round, in which nothing has happened, locks no
    session. A trigger armed since the look has voided the claim: it gets a look of its own.
    """
    assert result.reading
    memory = matching.memory_of(watch.memory, result, now=now)
    triggers = _waiting([watch.pk], now).get(watch.pk, [])
    readable, broken = _read(triggers)
    matches = _matches(watch, readable, matching.observations(result.reading, memory, now=now), result=result, now=now)
    _log_unknown(watch, result.reading, memory)
    with transaction.atomic():
        if matches or broken or watch.last_error:
            paused = _paused(watch) if watch.last_error else []
            lock({trigger.session_id for trigger in [*triggers, *paused]})
            moves.clear_failures([trigger.pk for trigger in [*triggers, *paused] if watch.last_error])
        for trigger, error in broken:
            _count_broken(trigger, error, now)
        _fire(matches, now)
        asleep = not _waiting([watch.pk], now) if matches or broken else not triggers
        _store(work, watch, memory, asleep=asleep, result=result, now=now)


def _paused(watch: Watch) -> list[Trigger]:
    return list(Trigger.objects.filter(watch=watch, status=TriggerStatus.PAUSED).order_by("pk"))


def _matches(
    watch: Watch, readable: Sequence[_Waiting], observations: Sequence[Observation], *, result: Result, now: datetime
) -> list[tuple[Trigger, Occurrence]]:
    """Return what is to be fired: what a trigger waits for, came about since it was armed, and is not recorded."""
    found = []
    for observation in observations:
        for item in readable:
            counts = matching.counts(observation, item.trigger.created_at + result.skew)
            if counts and item.kind.matches(item.args, observation):
                found.append((item, observation, ledger.key_of(item.kind.occurrence(item.args, observation))))
    known = ledger.recorded({(item.trigger.pk, key) for item, _, key in found})
    make = partial(matching.occurrence, host=watch.host.name, repo=result.job.resource.repo, now=now)
    return [
        (item.trigger, make(observation, key=key, last=item.kind.is_last(item.args, observation)))
        for item, observation, key in found
        if (item.trigger.pk, key) not in known
    ]


def _fire(matches: Sequence[tuple[Trigger, Occurrence]], now: datetime) -> None:
    """Fire all at once; if that fails, one by one, so that one bad row stops nothing else."""
    try:
        with transaction.atomic():
            engine.fire_all([(trigger.pk, occurrence) for trigger, occurrence in matches], now=now)
    except OperationalError:
        raise
    except Exception as error:
        if len(matches) == 1:
            _count_broken(matches[0][0], error, now)
            return
        for match in matches:
            _fire([match], now)


def _store(work: _Round, watch: Watch, memory: dict[str, Any], *, asleep: bool, result: Result, now: datetime) -> None:
    """Store what was kept and when to look again, unless the claim has been lost meanwhile."""
    if watch.host.strikes and watch.host_id in work.visits:
        hosts.unblock(watch.host_id)
    changed_at = watch.changed_at if memory["print"] == watch.memory.get("print") and watch.changed_at else now
    fields: dict[str, Any] = {"claim": None, "failures": 0, "last_error": "", "changed_at": changed_at}
    if asleep:
        fields |= {"next_poll_at": None, "memory": {}}
    else:
        pause = _pause(work, watch, result, unchanged=now - changed_at)
        fields |= {"next_poll_at": now + pause, "memory": memory}
    Watch.objects.filter(pk=watch.pk, claim=work.token).update(**fields)


def _count_broken(trigger: Trigger, error: Exception, now: datetime) -> None:
    text = f"it cannot be fired: {type(error).__name__}: {error}"
    log.error("bad_trigger", extra={"action": "bad_trigger", "trigger_id": trigger.pk, "error": text})
    moves.count_failure([trigger.pk], text, by=BY, now=now)


def _log_unknown(watch: Watch, reading: Reading, memory: dict[str, Any]) -> None:
    """Log each word that is in no table, once for each resource."""
    memory["unknown"] = sorted(reading.unknown)
    for word in sorted(reading.unknown.difference(watch.memory.get("unknown", []))):
        about = {"action": "unknown_word", "host": watch.host.name, "watch": watch.key, "word": word}
        log.warning("a forge says a word that is in no table; it counts as pending", extra=about)


def _pause(work: _Round, watch: Watch, result: Result, *, unchanged: timedelta) -> timedelta:
    """Return how long to wait: the interval; longer where nothing has changed for long, or the limit is shared by many.

    The limit that is left, but for its reserve, is spread evenly over the time until it is renewed.
    """
    interval = timedelta(seconds=settings.TRIGGERS_POLL_INTERVAL_SECONDS)
    pause = max(interval, min(unchanged / QUIET_SHARE, interval * SLOWEST))
    visit = work.visits.get(watch.host_id)
    if not visit or not visit.budget or not result.charged:
        return pause
    left = visit.budget.remaining - visit.budget.limit * wire.RESERVE // 100
    until = max(timedelta(0), visit.budget.reset_at - visit.clock() - visit.skew)
    fair = until * work.shares[watch.host_id] * result.charged / max(1, left)
    return max(pause, min(fair, until))


def _settle_limit(work: _Round, watch: Watch, error: ForgeError, now: datetime) -> None:
    """Wait for a limit, with all of its host's resources: that is no failure."""
    until = error.until or now + timedelta(minutes=1)
    visit = work.visits.get(watch.host_id)
    if visit:
        hosts.block(watch.host_id, until, strikes=visit.strikes)
    Watch.objects.filter(pk=watch.pk, claim=work.token).update(claim=None, next_poll_at=until)
    Watch.objects.filter(host_id=watch.host_id, next_poll_at__lt=until, claim=None).update(next_poll_at=until)
    about = {"action": "poll_limited", "host": watch.host.name, "until": iso(until)}
    log.info("waiting for a limit", extra=about)


@transaction.atomic
def _settle_fault(work: _Round, watch: Watch, error: ForgeError, now: datetime) -> None:
    """Show the fault and when the next try is; count it only if it takes a person to mend it."""
    waiting = _waiting([watch.pk], now).get(watch.pk, [])
    lock({trigger.session_id for trigger in waiting})
    triggers = [trigger.pk for trigger in waiting]
    interval = timedelta(seconds=settings.TRIGGERS_POLL_INTERVAL_SECONDS)
    next_try = now + interval * min(2**watch.failures, SLOWEST)
    if error.until:
        next_try = max(next_try, error.until)
    text = cut(f"{error.message}; next try {iso(next_try.replace(microsecond=0))}", 2000)
    if error.fault == Fault.LASTING:
        moves.count_failure(triggers, text, by=BY, now=now)
    else:
        moves.note_fault(triggers, text)
    sleeps = not _waiting([watch.pk], now)
    Watch.objects.filter(pk=watch.pk, claim=work.token).update(
        claim=None, next_poll_at=None if sleeps else next_try, failures=F("failures") + 1, last_error=text
    )
    about = {"action": "poll_failed", "host": watch.host.name, "watch": watch.key, "error": text}
    log.warning("poll failed", extra=about)
