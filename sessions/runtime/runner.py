"""One turn from begin to settle."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from django.db import InterfaceError, OperationalError, close_old_connections, connection

from sessions import selectors, services, turns
from sessions.models import Turn
from sessions.registry import UnknownName
from sessions.runtime.adapters.base import AdapterError, Fault, TurnRequest, TurnResult
from sessions.runtime.keeper import SHUTDOWN, Watch
from sessions.secrecy import Unreadable
from sessions.states import EventType, TurnStatus
from sessions.together import Together
from sessions.turns import Begun, Ending, Fate

log = logging.getLogger("rewake.runner")

FATES = {Fault.TRANSPORT: Fate.BACK, Fault.PERMANENT: Fate.QUARANTINED, Fault.AGENT: Fate.DONE}

DATABASE_GONE = (OperationalError, InterfaceError)
GIVE_WAY = 0.2  # seconds that a turn waits with its end while others begin
SETTLE_AT_ONCE = 50  # turns in one transaction
SETTLE_PAUSES = (0.1, 0.5, 2.0, 5.0)  # seconds between the tries to settle a turn: less than a lease in all

TURNS_AT_ONCE = 64  # in a process

_threads = ThreadPoolExecutor(max_workers=TURNS_AT_ONCE, thread_name_prefix="rewake-turn")


class Watcher(Protocol):
    """What the runner needs of a keeper."""

    @property
    def stopping(self) -> bool: ...

    def watch(self, turn: Turn) -> AbstractContextManager[Watch]: ...


class _RightOfWay:
    """Who begins turns goes before who ends them, so that no turn waits for another's bookkeeping.

    Python runs one thread at a time. Who gives way does so for `GIVE_WAY` seconds at most.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._taken = 0

    def __enter__(self) -> None:
        with self._free:
            self._taken += 1

    def __exit__(self, *_: object) -> None:
        with self._free:
            self._taken -= 1
            self._free.notify_all()

    def give_way(self) -> None:
        with self._free:
            self._free.wait_for(lambda: not self._taken, GIVE_WAY)


_beginning = _RightOfWay()


class _Places:
    """The turns that this process can run at once: each has a thread, so that none begins and then waits for one."""

    def __init__(self, most: int) -> None:
        self._changed = threading.Condition()
        self._free = most

    def take(self, most: int) -> int:
        """Wait until one place is free; take as many as are, up to `most`, and return how many."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0)
            taken = min(self._free, most)
            self._free -= taken
            return taken

    @contextmanager
    def one(self) -> Iterator[None]:
        """Give one place back when the context is left."""
        try:
            yield
        finally:
            self.give_back(1)

    def give_back(self, count: int) -> None:
        with self._changed:
            self._free += count
            self._changed.notify_all()


_places = _Places(TURNS_AT_ONCE)


def run(session_ids: Iterable[UUID], *, worker: str, clock: Callable[[], datetime], keeper: Watcher) -> int:
    """Begin a turn in each session that has something to run, run them side by side, settle them.

    Returns how many ran. Several begin in one transaction because beginning is short and dear;
    each then has a thread of its own, since an agent mostly waits for its model. Those for which no
    place is free begin when one is. A process that is being stopped begins none: the beat will ring
    for them elsewhere.
    """
    waiting = list(session_ids)
    running: list[Future[None]] = []
    ran = 0
    while waiting and not keeper.stopping:
        places = _places.take(len(waiting))
        share, waiting = waiting[:places], waiting[places:]
        begun: list[Begun] = []
        try:
            with _beginning:
                begun = turns.begin(share, worker=worker, now=clock())
        finally:
            _places.give_back(places - len(begun))
        ran += len(begun)
        here = begun[:1] if not waiting else []  # the last thread to be had is this one
        running += [_threads.submit(_run_in_thread, item, clock, keeper) for item in begun[len(here) :]]
        for item in here:
            with _places.one():
                run_turn(item, clock=clock, keeper=keeper)
    wait(running)
    for turn in running:
        turn.result()
    return ran


def run_turn(begun: Begun, *, clock: Callable[[], datetime], keeper: Watcher) -> None:
    """Run a turn that has begun, and settle it."""
    turn = begun.turn
    about = {"turn_id": str(turn.pk), "session_id": str(turn.session_id)}
    wakes = [str(wake.pk) for wake in begun.wakes]
    log.info("turn_started", extra={"action": "turn_started", "wakes": wakes, **about})
    with keeper.watch(turn) as watch:
        ending = _attempt(begun, clock, watch)
        settled = _settle(turn, ending, clock)
    action = "turn_ended" if settled else "turn_outlived"
    log.info(action, extra={"action": action, "status": ending.status, "reason": ending.reason, **about})


def _run_in_thread(begun: Begun, clock: Callable[[], datetime], keeper: Watcher) -> None:
    with _places.one():
        close_old_connections()
        run_turn(begun, clock=clock, keeper=keeper)


@dataclass(frozen=True)
class _Ended:
    turn: Turn
    ending: Ending
    at: datetime


def _end_all(items: Sequence[_Ended]) -> list[bool]:
    return turns.end_all([(item.turn, item.ending) for item in items], now=max(item.at for item in items))


# Turns that end at the same moment end in one transaction. Python runs one thread at a time: ending side by side they
# would be no faster, but hold as many transactions open, and the locks that the clock waits for.
_end = Together(_end_all, most=SETTLE_AT_ONCE, hopeless=DATABASE_GONE)


def _settle(turn: Turn, ending: Ending, clock: Callable[[], datetime]) -> bool:
    """End the turn, trying again over a cut connection: what the agent did would else be done twice."""
    for pause in SETTLE_PAUSES:
        _beginning.give_way()
        try:
            return _end(_Ended(turn, ending, clock()))
        except DATABASE_GONE as error:
            log.warning("cannot settle", extra={"action": "settle_failed", "turn_id": turn.pk, "error": str(error)})
            connection.close()
            threading.Event().wait(pause)
    return _end(_Ended(turn, ending, clock()))


def _attempt(begun: Begun, clock: Callable[[], datetime], watch: Watch) -> Ending:
    """Run the adapter; whatever happens becomes an ending, for a turn without one would only be lost later."""
    try:
        result = services.ADAPTERS.get(begun.session.adapter).run(_request(begun, clock, watch))
    except AdapterError as error:
        return _failed(error, watch)
    except (UnknownName, Unreadable) as error:
        return Ending(TurnStatus.FAILED, Fate.QUARANTINED, str(error))
    except DATABASE_GONE as error:  # not the agent's doing, nor that of its wakes
        connection.close()
        return Ending(TurnStatus.LOST, Fate.LOST, f"the database was out of reach: {error}")
    except Exception as error:
        log.exception("adapter failed", extra={"action": "adapter_failed", "turn_id": str(begun.turn.pk)})
        return Ending(TurnStatus.FAILED, Fate.QUARANTINED, f"the adapter broke: {type(error).__name__}: {error}")
    return _ended(result, watch)


def _ended(result: TurnResult, watch: Watch) -> Ending:
    if watch.reason == SHUTDOWN:
        return Ending(TurnStatus.LOST, Fate.RETURNED, SHUTDOWN, usage=result.usage)
    status = TurnStatus.INTERRUPTED if watch.interrupted() else TurnStatus.COMPLETED
    return Ending(
        status,
        Fate.DONE,
        watch.reason,
        history=result.history,
        state=result.state,
        usage=result.usage,
    )


def _failed(error: AdapterError, watch: Watch) -> Ending:
    if watch.reason == SHUTDOWN:
        return Ending(TurnStatus.LOST, Fate.RETURNED, SHUTDOWN)
    reached = error.reached or TurnResult("")
    return Ending(
        TurnStatus.FAILED,
        FATES[error.fault],
        error.message,
        history=reached.history,
        usage=reached.usage,
        retry_after=error.retry_after,
    )


def _request(begun: Begun, clock: Callable[[], datetime], watch: Watch) -> TurnRequest:
    turn = begun.turn

    def emit(type_: str, payload: dict[str, Any]) -> None:
        if not turns.record(turn, EventType(type_), payload, now=clock()):
            watch.stop("the turn is over")

    def take_steering() -> list[str]:
        prompt = turns.steer(turn, now=clock())
        return [prompt] if prompt else []

    return TurnRequest(
        session_id=turn.session_id,
        turn_id=turn.pk,
        prompt=begun.prompt,
        history=begun.messages,
        state=selectors.state(begun.session),
        model=begun.session.model,
        tools=services.bind_tools(turn, clock=clock),
        turn_token=begun.token,
        deadline=turn.deadline,
        clock=clock,
        emit=emit,
        take_steering=take_steering,
        interrupted=watch.interrupted,
    )
