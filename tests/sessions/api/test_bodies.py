"""The raw body of a request, under ASGI; WSGI's is tested where bodies come from, at the capability URL."""

from __future__ import annotations

import pytest
from django.http import HttpRequest
from django.test import AsyncRequestFactory

from sessions.api import bodies
from sessions.api.bodies import BodyError, read_body


def _request(body: bytes, *, length: str | None = None) -> HttpRequest:
    request: HttpRequest = AsyncRequestFactory().generic("POST", "/", body, "text/plain")
    if length is None:
        request.META.pop("CONTENT_LENGTH", None)  # as when the body came in chunks
    else:
        request.META["CONTENT_LENGTH"] = length
    return request


@pytest.mark.parametrize("length", [None, "9"])
def test_it_reads_a_body_with_or_without_a_length(length: str | None) -> None:
    assert list(read_body(_request(b"all of it", length=length), limit=9)) == [b"all of it"]


@pytest.mark.parametrize("length", [None, "9"])
def test_it_reads_a_body_in_chunks(length: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "CHUNK_BYTES", 4)

    assert list(read_body(_request(b"all of it", length=length), limit=9)) == [b"all ", b"of i", b"t"]


@pytest.mark.parametrize("length", [None, "0"])
def test_it_reads_an_empty_body(length: str | None) -> None:
    assert list(read_body(_request(b"", length=length), limit=9)) == []


def test_it_reads_no_more_than_the_length() -> None:
    assert list(read_body(_request(b"all of it, and more", length="9"), limit=100)) == [b"all of it"]


@pytest.mark.parametrize("length", [None, "9"])
def test_it_bounds_a_body_with_or_without_a_length(length: str | None) -> None:
    with pytest.raises(BodyError) as caught:
        list(read_body(_request(b"all of it", length=length), limit=8))

    assert caught.value.status == 413


def test_it_reads_no_further_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "CHUNK_BYTES", 4)
    request = _request(b"x" * 100)

    with pytest.raises(BodyError):
        list(read_body(request, limit=8))

    assert len(request.read()) == 100 - (8 + 1)


def test_it_refuses_at_once_what_the_headers_tell() -> None:
    with pytest.raises(BodyError) as caught:
        read_body(_request(b"all of it", length="9"), limit=8)

    assert caught.value.status == 413


def test_it_refuses_a_body_that_is_shorter_than_it_says() -> None:
    with pytest.raises(BodyError) as caught:
        list(read_body(_request(b"all of", length="9"), limit=100))

    assert caught.value.status == 400
