"""The contract suite: runs over every adapter that is found in the folder."""

from __future__ import annotations

import json
import pkgutil
import threading
from importlib import import_module
from time import monotonic
from typing import Any

import pytest

from sessions.registry import Registry
from sessions.runtime import adapters
from sessions.runtime.adapters.base import Adapter, AdapterError, Fault
from tests.sessions.adapters.contract import Rig, Stage

ADAPTERS: Registry[Adapter] = Registry("sessions.runtime.adapters", "adapter")
MODULES = [module.name for module in pkgutil.iter_modules(adapters.__path__) if module.name != "base"]


@pytest.fixture(params=MODULES)
def rig(request: pytest.FixtureRequest) -> Rig:
    found = import_module(f"tests.sessions.adapters.test_{request.param}").RIG
    assert isinstance(found, Rig)
    return found


@pytest.fixture
def adapter(request: pytest.FixtureRequest, rig: Rig) -> Adapter:
    module = request.node.callspec.params["rig"]
    return next(item for item in ADAPTERS.by_name.values() if type(item).__module__.endswith(f".{module}"))


@pytest.fixture
def stage(rig: Rig) -> Stage:
    return Stage(rig.model)


def stored(history: list[Any]) -> list[Any]:
    """Pass a history through the database, as it were."""
    return list(json.loads(json.dumps(history, allow_nan=False)))


def test_it_returns_what_the_turn_added_and_takes_it_back(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    first = adapter.run(stage.request(rig.say("walnut")))
    second = adapter.run(stage.request(rig.call_tool, stored(first.history)))
    third = adapter.run(stage.request(rig.say("hazel"), stored([*first.history, *second.history])))
    assert "walnut" in json.dumps(first.history)
    assert "walnut" not in json.dumps([second.history, third.history])
    assert "hazel" in third.text


def test_it_counts_what_the_turn_used(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    usage = adapter.run(stage.request(rig.call_tool)).usage
    assert set(usage) == {"requests", "input_tokens", "output_tokens"}
    assert usage["requests"] == 2


def test_it_calls_everything_in_the_calling_thread(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    adapter.run(stage.request(rig.call_tool))
    assert {"tool", "emit", "take_steering"} <= set(stage.threads)
    assert set().union(*stage.threads.values()) == {threading.get_ident()}


def test_it_calls_everything_in_the_thread_of_a_worker_too(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    worker = threading.Thread(target=adapter.run, args=[stage.request(rig.call_tool)])
    worker.start()
    worker.join()
    assert set().union(*stage.threads.values()) == {worker.ident}


def test_it_runs_turns_side_by_side(adapter: Adapter, rig: Rig) -> None:
    meeting = threading.Barrier(2, timeout=10)  # each tool waits for the other turn's

    def meet(args: dict[str, Any]) -> dict[str, Any]:
        meeting.wait()
        return {"id": "t1", "status": "armed", "describe": "soon"}

    stages = [Stage(rig.model, answer=meet) for _ in range(2)]
    workers = [threading.Thread(target=adapter.run, args=[stage.request(rig.call_tool)]) for stage in stages]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(stage.said() for stage in stages)


def test_it_emits_in_the_order_of_events(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    result = adapter.run(stage.request(rig.call_tool))
    assert stage.types()[-3:] == ["tool_call", "tool_result", "assistant"]
    assert stage.said()[-1] == result.text


@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("prompt", ["say", "call_tool"])
def test_it_drops_nothing_that_was_steered_in(adapter: Adapter, rig: Rig, stage: Stage, call: int, prompt: str) -> None:
    stage.steering = [[], [], [], [], [], []]
    stage.steering[call] = [rig.say("pebble"), rig.say("quartz")]
    result = adapter.run(stage.request(rig.call_tool if prompt == "call_tool" else rig.say("first")))
    taken = len(stage.steering) < 6 - call
    assert ("pebble" in " ".join(stage.said())) is taken
    assert ("quartz" in " ".join(stage.said())) is taken
    assert all((word in json.dumps(result.history)) is taken for word in ("pebble", "quartz"))


def test_it_returns_soon_when_interrupted(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    stage.stop_after(0.05)
    start = monotonic()
    adapter.run(stage.request(rig.be_busy))
    assert monotonic() - start < 5


@pytest.mark.parametrize("when", ["at once", "while busy", "in the tool"])
def test_it_can_go_on_after_an_interrupt(adapter: Adapter, rig: Rig, stage: Stage, when: str) -> None:
    stage.steering = [[rig.say("pebble")]]
    if when == "at once":
        stage.stop.set()
    elif when == "while busy":
        stage.stop_after(0.05)
    else:
        stage.stop_in_tool(id="t1", status="armed", describe="soon")
    prompt = rig.call_tool if when == "in the tool" else rig.be_busy
    interrupted = adapter.run(stage.request(prompt))
    assert prompt in json.dumps(interrupted.history)
    assert ("pebble" in json.dumps(interrupted.history)) is (not stage.steering)
    after = Stage(rig.model)
    assert "hazel" in adapter.run(after.request(rig.say("hazel"), stored(interrupted.history))).text


@pytest.mark.parametrize("fault", Fault)
def test_it_says_whose_fault_a_failure_is(adapter: Adapter, rig: Rig, stage: Stage, fault: Fault) -> None:
    with pytest.raises(AdapterError) as raised:
        adapter.run(stage.request(rig.fail[fault]))
    assert raised.value.fault is fault
    assert raised.value.message


def test_it_does_not_swallow_what_a_tool_could_not_foresee(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    def broken(args: dict[str, Any]) -> dict[str, Any]:
        raise LookupError("the database is gone")

    stage.answer = broken
    with pytest.raises(LookupError, match="the database is gone"):
        adapter.run(stage.request(rig.call_tool))


def test_it_hands_a_tools_error_to_the_agent(adapter: Adapter, rig: Rig, stage: Stage) -> None:
    stage.answer = lambda args: {"error": {"code": "policy", "message": "twenty are armed already"}}
    assert "twenty are armed already" in json.dumps(adapter.run(stage.request(rig.call_tool)).history)
