from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from celery import current_app

from sessions import doorbell
from sessions.doorbell import Ringer

PATIENCE = 10.0
Rung = list[list[str]]


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> Rung:
    """The sessions of each message that was sent."""
    sent: Rung = []
    monkeypatch.setattr(current_app, "send_task", lambda _, *, args, **__: sent.append(args[0]))
    return sent


def test_it_rings_in_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(doorbell, "_send", lambda ids: rung.append((threading.current_thread().name, ids)))
    ringer = Ringer()

    ringer.add(["a", "b"])

    assert ringer.join(PATIENCE)
    assert rung == [("rewake-ringer", ["a", "b"])]


def test_it_rings_together_and_once_for_what_came_while_it_rang(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[list[str]] = []
    begun, go_on = threading.Event(), threading.Event()

    def send(ids: list[str]) -> None:
        rung.append(ids)
        begun.set()
        assert go_on.wait(PATIENCE)

    monkeypatch.setattr(doorbell, "_send", send)
    ringer = Ringer()
    ringer.add(["a"])
    assert begun.wait(PATIENCE)

    for session_id in ("b", "c", "b"):
        ringer.add([session_id])
    go_on.set()

    assert ringer.join(PATIENCE)
    assert rung == [["a"], ["b", "c"]]


def test_it_ends_its_thread_when_nothing_comes_and_begins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[list[str]] = []
    monkeypatch.setattr(doorbell, "_send", rung.append)
    monkeypatch.setattr(doorbell, "LINGER", 0.01)
    ringer = Ringer()
    for session_id in ("a", "b"):
        ringer.add([session_id])
        assert ringer.join(PATIENCE)
        thread = ringer._thread
        if thread:
            thread.join(PATIENCE)
        assert ringer._thread is None

    assert rung == [["a"], ["b"]]


@pytest.mark.django_db(transaction=True)
def test_it_holds_rings_back_until_they_are_let_go(rung: Rung) -> None:
    early, late = uuid4(), uuid4()

    with doorbell.held() as let_go:
        doorbell.ring([early])
        assert rung == []
        let_go()
        assert rung == [[str(early)]]
        doorbell.ring([late])
    doorbell.ring([early])

    assert rung == [[str(early)], [str(late)], [str(early)]]


@pytest.mark.django_db(transaction=True)
def test_it_rings_though_what_held_it_back_failed(rung: Rung) -> None:
    session = uuid4()

    def ring_and_fail() -> None:
        with doorbell.held():
            doorbell.ring([session])
            raise LookupError

    with pytest.raises(LookupError):
        ring_and_fail()

    assert rung == [[str(session)]]
