"""Streams: nothing lost, nothing doubled, no place held for ever."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import httpx
import pytest
from django.utils import timezone

from config.asgi import application
from sessions import keys, services
from sessions.api import feed, stream
from sessions.api.feed import FEED
from sessions.models import AgentSession
from sessions.states import EventType
from sessions.transcript import Entry, append
from tests import factories, live
from tests.doors import Caller, error_of, key_with


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    with live.serving() as url:
        yield url


@pytest.fixture
def server(running: str, transactional_db: None) -> Iterator[str]:
    FEED.start()
    yield running
    assert live.is_quiet()


@pytest.fixture
def secret(transactional_db: None) -> str:
    return _secret()


@pytest.fixture
def session(transactional_db: None, now: datetime) -> AgentSession:
    return factories.open_session(now)


def _secret(*scopes: str) -> str:
    return keys.create(name="tests", scopes=scopes or ["sessions.read"], now=timezone.now())[1]


def _say(session: AgentSession, *texts: str) -> None:
    entries = [Entry(session.pk, EventType.ASSISTANT, {"text": text}) for text in texts]
    append(entries, now=timezone.now())


def _path(session: AgentSession) -> str:
    return f"/api/sessions/{session.pk}/stream"


def test_it_sends_each_event_as_the_events_route_shows_it(server: str, secret: str, session: AgentSession) -> None:
    _say(session, "one", "two\nlines\r\nand \u2028 more", "rwk_0123456789abcdef")

    with live.stream(server + _path(session), secret) as frames:
        sent = frames.take(3)
        media_type = frames.response.headers["Content-Type"]
    shown = Caller(secret).get(f"/api/sessions/{session.pk}/events")

    assert media_type == "text/event-stream"
    assert [frame["data"] for frame in sent] == json.loads(shown.content)["events"]
    assert [(frame["id"], frame["event"]) for frame in sent] == [(str(n), "assistant") for n in (1, 2, 3)]
    assert sent[2]["data"]["payload"] == {"text": "rwk_***"}


def test_it_begins_with_the_pause_before_a_client_comes_again(server: str, secret: str, session: AgentSession) -> None:
    with live.stream(server + _path(session), secret) as frames:
        assert next(iter(frames)) == {"retry": "2000"}


def test_it_sends_what_is_appended_while_it_is_open(server: str, secret: str, session: AgentSession) -> None:
    with live.stream(server + _path(session), secret) as frames:
        for number in (1, 2, 3):
            _say(session, f"number {number}")
            [frame] = frames.take(1)
            assert frame["data"]["payload"] == {"text": f"number {number}"}


@pytest.mark.parametrize(("query", "header", "first"), [("?after=2", None, "3"), ("?after=1", 4, "5"), ("", 3, "4")])
def test_it_resumes_after_the_number_given(
    server: str, secret: str, session: AgentSession, query: str, header: int | None, first: str
) -> None:
    _say(session, *"abcdef")

    with live.stream(server + _path(session) + query, secret, header) as frames:
        assert frames.take(1)[0]["id"] == first


def test_it_loses_and_doubles_nothing_across_reconnects_while_a_writer_appends(
    server: str, secret: str, session: AgentSession
) -> None:
    total, seen = 300, [0]

    def write() -> None:
        for start in range(0, total, 3):
            _say(session, *(str(start + n) for n in range(3)))

    with live.in_thread(write):
        for connection in range(1, total):
            with live.stream(server + _path(session), secret, seen[-1]) as frames:
                seen += [int(frame["id"]) for frame in frames.take(min(connection * 7 % 41 + 1, total - seen[-1]))]
            if seen[-1] == total:
                break

    assert seen == list(range(total + 1))


def test_it_sends_a_long_transcript_page_by_page(server: str, secret: str, session: AgentSession) -> None:
    total = 2 * feed.PAGE + 10
    _say(session, *(str(n) for n in range(total)))

    with live.stream(server + _path(session), secret) as frames:
        assert [int(frame["id"]) for frame in frames.take(total)] == list(range(1, total + 1))


def test_it_serves_several_streams_of_several_sessions(
    server: str, secret: str, session: AgentSession, now: datetime
) -> None:
    other = factories.open_session(now)
    _say(session, "a", "b")

    with (
        live.stream(server + _path(session), secret) as first,
        live.stream(server + _path(session), secret, 1) as second,
        live.stream(server + _path(other), secret) as third,
    ):
        _say(other, "c")
        assert [frame["data"]["payload"]["text"] for frame in first.take(2)] == ["a", "b"]
        assert second.take(1)[0]["id"] == "2"
        assert third.take(1)[0]["data"]["payload"]["text"] == "c"


def test_it_shows_that_it_is_alive_while_nothing_happens(
    server: str, secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.02)

    with live.stream(server + _path(session), secret) as frames:
        taken = [frame for frame, _ in zip(frames, range(3), strict=False)]

    assert taken[1:] == [{"": "alive"}, {"": "alive"}]


def test_it_ends_once_the_session_is_terminated(server: str, secret: str, session: AgentSession, now: datetime) -> None:
    with live.stream(server + _path(session), secret) as frames:
        services.terminate(session.pk, now=now)
        events, reason = frames.until_end()

    assert [frame["event"] for frame in events] == ["session_terminated"]
    assert reason == "session_terminated"


def test_it_sends_the_whole_transcript_of_a_session_that_has_ended(
    server: str, secret: str, session: AgentSession, now: datetime
) -> None:
    _say(session, *(str(n) for n in range(feed.PAGE)))
    services.terminate(session.pk, now=now)

    with live.stream(server + _path(session), secret) as frames:
        events, reason = frames.until_end()

    assert len(events) == feed.PAGE + 1
    assert reason == "session_terminated"


def test_it_tells_a_client_that_has_seen_all_to_stop_asking(
    server: str, secret: str, session: AgentSession, now: datetime
) -> None:
    services.terminate(session.pk, now=now)

    with live.stream(server + _path(session), secret, 1) as frames:
        assert frames.response.status_code == 204


def test_it_ends_after_its_longest_time(
    server: str, secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_SECONDS", 0.1)
    _say(session, "a")

    with live.stream(server + _path(session), secret) as frames:
        events, reason = frames.until_end()

    assert (len(events), reason) == (1, "max_duration")


def test_it_ends_when_its_key_is_revoked(
    server: str, secret: str, session: AgentSession, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "KEYS_EVERY", 1)

    with live.stream(server + _path(session), secret) as frames:
        keys.revoke(keys.listed()[0].pk, now=now)
        assert frames.until_end() == ([], "key_revoked")


def test_it_ends_when_the_server_stops(secret: str, session: AgentSession) -> None:
    with live.serving() as url, live.stream(url + _path(session), secret) as frames:
        assert live.eventually(lambda: FEED.open_streams == 1)
        FEED.stop()
        assert frames.until_end() == ([], "server_stopping")
        with live.stream(url + _path(session), secret) as refused:
            assert refused.response.status_code == 503
    assert live.is_quiet()


def test_it_takes_no_more_streams_than_it_has_places_and_serves_all_else(
    server: str, secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FEED, "places", 2)
    _say(session, "a")

    with live.stream(server + _path(session), secret), live.stream(server + _path(session), _secret()):
        with live.stream(server + _path(session), secret) as third:
            third.response.read()
        rest = httpx.get(f"{server}/api/sessions/{session.pk}/events", headers={"X-API-KEY": secret})

    assert third.response.status_code == 503
    assert third.response.json()["error"]["code"] == "too_many_streams"
    assert third.response.json()["error"]["retryable"] is True
    assert third.response.headers["Retry-After"] == "5"
    assert (rest.status_code, len(rest.json()["events"])) == (200, 1)


def test_it_leaves_half_of_its_places_to_other_keys(
    server: str, secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FEED, "places", 4)

    with live.stream(server + _path(session), secret), live.stream(server + _path(session), secret):
        with live.stream(server + _path(session), secret) as third:
            third.response.read()
        with live.stream(server + _path(session), _secret()) as anothers:
            assert anothers.response.status_code == 200

    assert third.response.status_code == 429
    assert third.response.json()["error"]["code"] == "too_many_streams_of_key"
    assert third.response.json()["error"]["retryable"] is True
    assert "close one" in third.response.json()["error"]["reason"]
    assert third.response.headers["Retry-After"] == "5"


def test_it_frees_the_place_of_a_client_that_goes(
    server: str, secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FEED, "places", 1)

    for _ in range(3):
        with live.stream(server + _path(session), secret) as frames:
            assert frames.response.status_code == 200
        assert live.eventually(lambda: FEED.open_streams == 0)


@pytest.mark.parametrize("turns", range(6))
def test_it_ends_for_a_client_that_goes_just_as_an_event_arrives(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    reader = feed.Feed()

    async def arrive_and_go() -> bool:
        place, pages = reader.enter(uuid4(), key_id=uuid4(), after=0), asyncio.Queue[feed.Page]()
        monkeypatch.setattr(place, "next", pages.get)
        client = asyncio.create_task(_drain(stream._frames(place)))
        await asyncio.sleep(0)
        pages.put_nowait(feed.Page(b"an event", 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        client.cancel()
        await asyncio.wait([client], timeout=live.PATIENCE)
        return client.cancelled()

    assert asyncio.run(arrive_and_go())
    assert reader.open_streams == 0
    assert reader.join(live.PATIENCE)


async def _drain(frames: AsyncIterator[bytes]) -> None:
    async for _ in frames:
        pass


def test_it_frees_the_place_of_a_client_that_takes_nothing(
    server: str, secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STALLED_SECONDS", 0.2)
    _say(session, *(["x" * 100_000] * 200))  # more than the buffers of both ends hold

    with live.stream(server + _path(session), secret):
        assert live.eventually(lambda: FEED.open_streams == 1)
        assert live.eventually(lambda: FEED.open_streams == 0)


def test_it_frees_the_place_of_a_client_that_goes_before_its_stream_begins(
    secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    asked: list[bool] = []
    entered, gone, enter = threading.Event(), threading.Event(), FEED.enter

    def slowly(*args: UUID, **kwargs: Any) -> feed.Place:
        place = enter(*args, **kwargs)
        entered.set()
        gone.wait(live.PATIENCE)
        return place

    async def receive() -> dict[str, Any]:
        if not asked:
            asked.append(True)
            return {"type": "http.request"}
        await asyncio.to_thread(entered.wait, live.PATIENCE)
        asyncio.get_running_loop().call_later(0.1, gone.set)
        return {"type": "http.disconnect"}

    FEED.start()
    monkeypatch.setattr(FEED, "enter", slowly)
    asyncio.run(application(_scope(_path(session), secret), receive, AsyncMock()))

    assert entered.is_set()
    assert FEED.open_streams == 0
    assert live.is_quiet()


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _scope(path: str, secret: str) -> dict[str, Any]:
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secret}".encode())]
    return {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}


def test_it_frees_a_place_that_is_taken_after_its_request_has_ended() -> None:
    reader, visit = feed.Feed(), feed.Visit()

    visit.end()
    visit.hold(reader.enter(uuid4(), key_id=uuid4(), after=0))

    assert reader.open_streams == 0
    assert reader.join(live.PATIENCE)


def test_it_goes_on_after_its_reader_has_failed(
    server: str, secret: str, session: AgentSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()
    heads = feed._heads

    def fail_once(ids: set[object]) -> object:
        if failed.is_set():
            return heads(ids)  # type: ignore[arg-type]
        failed.set()
        raise ValueError("for once")

    monkeypatch.setattr(feed, "_heads", fail_once)
    _say(session, "a")

    with live.stream(server + _path(session), secret) as frames:
        assert frames.take(1)[0]["id"] == "1"

    assert "for once" in caplog.text


def test_it_has_no_reader_while_no_stream_is_open(server: str, secret: str, session: AgentSession) -> None:
    with live.stream(server + _path(session), secret):
        assert "rewake-streams" in _threads()

    assert live.eventually(lambda: "rewake-streams" not in _threads())


def test_it_holds_no_thread_for_an_open_stream(server: str, secret: str, session: AgentSession) -> None:
    before = len(threading.enumerate())

    with ExitStack() as streams:
        for _ in range(4):
            frames = streams.enter_context(live.stream(server + _path(session), secret))
            assert next(iter(frames)) == {"retry": "2000"}
        assert live.eventually(lambda: len(threading.enumerate()) <= before + 1)  # the reader


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.django_db
@pytest.mark.parametrize("bad", ["-1", "x", "1.5", "9" * 19, "²"])
def test_it_refuses_a_number_that_is_none(now: datetime, bad: str) -> None:
    session, caller = factories.open_session(now), key_with("sessions.read")

    by_query = caller.get(_path(session), {"after": bad})
    by_header = caller.get(_path(session), Last_Event_ID=bad)

    assert (by_query.status_code, by_header.status_code) == (400, 400)
    assert set(error_of(by_query)["fields"]) == {"after"}
    assert set(error_of(by_header)["fields"]) == {"Last-Event-ID"}


@pytest.mark.django_db
def test_it_lets_in_who_may_read_sessions(now: datetime, stranger: Caller) -> None:
    path = _path(factories.open_session(now))

    assert stranger.get(path).status_code == 401
    assert "sessions.read" in error_of(key_with("triggers.read").get(path))["reason"]
    assert key_with("sessions.read").get(path).status_code == 200


@pytest.mark.django_db
def test_it_knows_only_sessions_that_exist() -> None:
    assert key_with("admin").get(f"/api/sessions/{uuid4()}/stream").status_code == 404


@pytest.mark.django_db
def test_it_answers_no_other_method(now: datetime) -> None:
    caller, path = key_with("admin"), _path(factories.open_session(now))

    head = caller.send("HEAD", path, None)

    assert (head.status_code, head["Content-Type"], head.content) == (200, "text/event-stream", b"")
    assert [caller.send(method, path, None).status_code for method in ("POST", "DELETE")] == [405, 405]


@pytest.mark.django_db
def test_it_answers_what_there_is_where_it_cannot_stay_open(now: datetime) -> None:
    session, caller = factories.open_session(now), key_with("sessions.read")
    _say(session, "a", "b")

    answer = caller.get(_path(session), Last_Event_ID="1").content.decode()

    assert answer.startswith("retry: 2000\n\nid: 2\nevent: assistant\ndata: {")
    assert answer.endswith('event: end\ndata: {"reason":"no_streaming"}\n\n')


@pytest.mark.django_db
def test_it_says_at_the_end_that_it_is_the_end_where_it_cannot_stay_open(now: datetime) -> None:
    session, caller = factories.open_session(now), key_with("sessions.read")
    services.terminate(session.pk, now=now)

    assert caller.get(_path(session)).content.endswith(b'data: {"reason":"session_terminated"}\n\n')
    assert caller.get(_path(session), Last_Event_ID="1").status_code == 204
