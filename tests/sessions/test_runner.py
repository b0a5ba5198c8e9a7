from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError

from sessions import services, turns
from sessions.models import AgentSession, Event, Turn, Wake
from sessions.runtime import runner
from sessions.runtime.adapters.base import AdapterError, Fault, TurnRequest, TurnResult
from sessions.runtime.keeper import SHUTDOWN
from sessions.states import EventType, TurnStatus, WakeStatus
from tests.factories import StillKeeper, clock_at, history_of

pytestmark = pytest.mark.django_db

PATIENCE = 10.0

Script = Callable[[Callable[[TurnRequest], Any]], None]


@pytest.fixture
def run(session: AgentSession, keeper: StillKeeper, now: datetime) -> Callable[[str], int]:
    def say_and_run(text: str = "hello") -> int:
        services.say(session.pk, text, now=now)
        return runner.run([session.pk], worker="w", clock=clock_at(now), keeper=keeper)

    return say_and_run


def test_it_hands_each_turn_the_whole_history(run: Callable[..., int], script: Script) -> None:
    seen = []

    def act(request: TurnRequest) -> TurnResult:
        seen.append((request.history, request.state))
        return TurnResult("ok", history=[request.prompt, {"n": len(seen)}], state={"turns": len(seen)})

    script(act)
    run("one")
    run("two")
    run("three")

    assert seen[2] == (["one", {"n": 1}, "two", {"n": 2}], {"turns": 2})


def test_it_keeps_usage_and_closes_the_transcript(
    run: Callable[..., int], script: Script, session: AgentSession
) -> None:
    script(lambda request: TurnResult("ok", usage={"requests": 1, "input_tokens": 7, "output_tokens": 2}))

    run()

    last = Event.objects.filter(session=session).latest("seq")
    assert (last.type, last.payload["status"]) == (EventType.TURN_ENDED, "completed")
    assert Turn.objects.get().usage == last.payload["usage"] == {"requests": 1, "input_tokens": 7, "output_tokens": 2}
    assert Wake.objects.get().status == WakeStatus.DONE


def test_it_stores_history_so_that_only_the_keys_can_read_it(run: Callable[..., int], script: Script) -> None:
    script(lambda request: TurnResult("ok", history=["rwh_secretsecret"], state={"token": "rwh_secretsecret"}))

    run()

    assert "secretsecret" not in Turn.objects.get().history + AgentSession.objects.get().state


@pytest.mark.parametrize(
    ("fault", "wake"),
    [
        (Fault.TRANSPORT, WakeStatus.PENDING),
        (Fault.PERMANENT, WakeStatus.QUARANTINED),
        (Fault.AGENT, WakeStatus.DONE),
    ],
)
def test_it_settles_the_wakes_by_whose_fault_it_was(
    run: Callable[..., int], script: Script, fault: Fault, wake: WakeStatus
) -> None:
    def act(request: TurnRequest) -> TurnResult:
        raise AdapterError(fault, "went wrong")

    script(act)
    run()

    turn = Turn.objects.get()
    assert (turn.status, turn.reason, Wake.objects.get().status) == (TurnStatus.FAILED, "went wrong", wake)


def test_the_next_try_knows_what_a_failed_turn_has_done(
    run: Callable[..., int], script: Script, session: AgentSession
) -> None:
    def act(request: TurnRequest) -> TurnResult:
        raise AdapterError(Fault.TRANSPORT, "limited", reached=TurnResult("half", history=["armed t77"]))

    script(act)
    run()

    assert history_of(session) == ["armed t77"]


def test_it_quarantines_what_an_adapter_breaks_on(run: Callable[..., int], script: Script) -> None:
    def act(request: TurnRequest) -> TurnResult:
        raise ZeroDivisionError("oops")

    script(act)
    run()

    assert Wake.objects.get().status == WakeStatus.QUARANTINED
    assert "ZeroDivisionError: oops" in Turn.objects.get().reason


def test_it_gives_wakes_back_when_the_database_was_out_of_reach(
    run: Callable[..., int], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "connection", Mock())  # the test's own transaction lives on it

    def act(request: TurnRequest) -> TurnResult:
        raise OperationalError("server closed the connection")

    script(act)
    run()

    wake = Wake.objects.get()
    assert (Turn.objects.get().status, wake.status, wake.losses) == (TurnStatus.LOST, WakeStatus.PENDING, 1)


def test_it_settles_once_more_over_a_connection_that_was_cut(
    run: Callable[..., int], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, tries = turns.end, []

    def cut_once(*args: Any, **kwargs: Any) -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise OperationalError("server closed the connection")
        return end(*args, **kwargs)

    monkeypatch.setattr(turns, "end", cut_once)
    monkeypatch.setattr(runner, "SETTLE_PAUSES", (0.0,))
    monkeypatch.setattr(runner, "connection", Mock())  # the test's own transaction lives on it
    script(lambda request: TurnResult("ok"))
    run()

    assert Wake.objects.get().status == WakeStatus.DONE


def test_it_quarantines_the_wakes_of_an_adapter_that_is_gone(run: Callable[..., int], session: AgentSession) -> None:
    AgentSession.objects.filter(pk=session.pk).update(adapter="gone")

    run()

    assert "no adapter called 'gone'" in Wake.objects.get().reason


def test_it_gives_wakes_back_when_the_process_is_stopped(
    run: Callable[..., int], script: Script, keeper: StillKeeper
) -> None:
    def act(request: TurnRequest) -> TurnResult:
        keeper.watches[request.turn_id].stop(SHUTDOWN)
        assert request.interrupted()
        return TurnResult("half")

    script(act)
    run()

    wake = Wake.objects.get()
    assert (Turn.objects.get().status, wake.status, wake.losses) == (TurnStatus.LOST, WakeStatus.PENDING, 0)


def test_it_begins_nothing_in_a_process_that_is_being_stopped(run: Callable[..., int], keeper: StillKeeper) -> None:
    keeper.stopping = True

    assert run() == 0
    assert Wake.objects.get().status == WakeStatus.PENDING


def test_it_ends_an_interrupted_turn_with_its_reason_and_what_it_reached(
    run: Callable[..., int], script: Script, keeper: StillKeeper, session: AgentSession
) -> None:
    def act(request: TurnRequest) -> TurnResult:
        keeper.watches[request.turn_id].stop("interrupted by a person")
        return TurnResult("half", history=["half"])

    script(act)
    run()

    turn = Turn.objects.get()
    assert (turn.status, turn.reason) == (TurnStatus.INTERRUPTED, "interrupted by a person")
    assert history_of(session) == ["half"]
    assert Wake.objects.get().status == WakeStatus.DONE


def test_it_lets_an_adapter_steer_what_comes_meanwhile_into_the_turn(
    run: Callable[..., int], script: Script, session: AgentSession, now: datetime
) -> None:
    steered = []

    def act(request: TurnRequest) -> TurnResult:
        services.say(session.pk, "wait, also this", now=now)
        steered.extend(request.take_steering() + request.take_steering())
        return TurnResult("ok")

    script(act)
    run()

    assert steered == ["wait, also this"]
    assert Turn.objects.count() == 1
    assert {wake.status for wake in Wake.objects.all()} == {WakeStatus.DONE}


def test_it_runs_next_what_came_meanwhile_and_was_not_steered(
    run: Callable[..., int], script: Script, session: AgentSession, now: datetime, keeper: StillKeeper
) -> None:
    prompts = []

    def act(request: TurnRequest) -> TurnResult:
        prompts.append(request.prompt)
        if len(prompts) == 1:
            services.say(session.pk, "later", now=now)
        return TurnResult("ok")

    script(act)
    run()
    runner.run([session.pk], worker="w", clock=clock_at(now), keeper=keeper)

    assert prompts == ["hello", "later"]


def test_it_writes_nothing_after_the_session_was_terminated(
    run: Callable[..., int], script: Script, session: AgentSession, now: datetime
) -> None:
    def act(request: TurnRequest) -> TurnResult:
        services.terminate(session.pk, now=now)
        request.emit("assistant", {"text": "ghost"})
        answer = request.tools[0].call({"operation": "arm", "kind": "webhook", "wake_prompt": "x"})
        assert answer["error"]["code"] == "not_found"
        assert request.interrupted()
        return TurnResult("ghost")

    script(act)
    run()

    assert Event.objects.filter(session=session).latest("seq").type == EventType.SESSION_TERMINATED


def test_it_records_tool_calls_and_results_as_they_happen(
    run: Callable[..., int], script: Script, session: AgentSession
) -> None:
    def act(request: TurnRequest) -> TurnResult:
        [tool] = request.tools
        tool.call({"operation": "arm", "kind": "webhook", "wake_prompt": "x"})
        return TurnResult("ok")

    script(act)
    run()

    types = list(Event.objects.filter(session=session).order_by("seq").values_list("type", flat=True))
    assert types == ["turn_started", "user", "tool_call", "trigger_armed", "tool_result", "turn_ended"]


def test_it_offers_no_tool_while_triggers_are_off(run: Callable[..., int], script: Script, settings: Any) -> None:
    settings.TRIGGERS_ENABLED = False
    offered: list[Any] = []

    def act(request: TurnRequest) -> TurnResult:
        offered.append(list(request.tools))
        return TurnResult("ok")

    script(act)
    run()

    assert offered == [[]]


def test_it_logs_which_wakes_a_turn_took_and_how_it_ended(
    run: Callable[..., int], script: Script, session: AgentSession, caplog: pytest.LogCaptureFixture
) -> None:
    script(lambda request: TurnResult("ok"))
    with caplog.at_level("INFO", "rewake.runner"):
        run()

    about = (str(Turn.objects.get().pk), str(session.pk))
    started, ended = caplog.records
    assert (started.action, started.turn_id, started.session_id) == ("turn_started", *about)  # type: ignore[attr-defined]
    assert started.wakes == [str(Wake.objects.get().pk)]  # type: ignore[attr-defined]
    assert (ended.action, ended.turn_id, ended.status) == ("turn_ended", about[0], "completed")  # type: ignore[attr-defined]


# --- places ---


class Crowd:
    """Turns that are begun and run without a database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, places: int) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self._places = places
        monkeypatch.setattr(runner, "_places", runner._Places(places))
        monkeypatch.setattr(turns, "begin", self._begin)
        monkeypatch.setattr(runner, "run_turn", self._run)

    def _begin(self, ids: list[int], **_: Any) -> list[int]:
        self.begun += ids
        assert len(ids) <= self._places
        return [number for number in ids if number % 5]  # each fifth has been rung for in vain

    def _run(self, number: int, **_: Any) -> None:
        self.ended.append(number)
        if number == 3:
            raise RuntimeError("broke")


def test_no_more_turns_begin_than_have_a_place_and_the_others_follow(
    monkeypatch: pytest.MonkeyPatch, keeper: StillKeeper, now: datetime
) -> None:
    crowd = Crowd(monkeypatch, places=2)

    with pytest.raises(RuntimeError, match="broke"):
        runner.run(range(9), worker="w", clock=clock_at(now), keeper=keeper)  # type: ignore[arg-type]

    assert crowd.begun == list(range(9))
    assert sorted(crowd.ended) == [1, 2, 3, 4, 6, 7, 8]
    assert runner._places.take(9) == 2


def test_a_place_is_free_again_where_nothing_could_begin(
    monkeypatch: pytest.MonkeyPatch, keeper: StillKeeper, now: datetime
) -> None:
    monkeypatch.setattr(runner, "_places", runner._Places(2))
    monkeypatch.setattr(turns, "begin", Mock(side_effect=OperationalError("gone")))

    with pytest.raises(OperationalError):
        runner.run([Mock()], worker="w", clock=clock_at(now), keeper=keeper)

    assert runner._places.take(9) == 2


# --- the right of way ---


def test_who_ends_a_turn_waits_while_others_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GIVE_WAY", PATIENCE)
    right, ready, order = runner._RightOfWay(), threading.Event(), list[str]()

    def end() -> None:
        ready.set()
        right.give_way()
        order.append("ended")

    thread = threading.Thread(target=end)
    with right:
        with right:
            thread.start()
            assert ready.wait(PATIENCE)
        thread.join(0.01)
        order.append("begun")
    thread.join(PATIENCE)

    assert order == ["begun", "ended"]


def test_who_ends_a_turn_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GIVE_WAY", 0.01)
    right = runner._RightOfWay()

    with right:
        right.give_way()
