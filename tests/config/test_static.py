"""Static files without DEBUG, without collecting them, under WSGI and ASGI."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client

_FILE = "/static/rest_framework/css/default.css"


def test_it_serves_a_file() -> None:
    response = Client().get(_FILE)

    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/css")
    assert int(response["Content-Length"]) == len(response.content) > 0


def test_it_serves_a_file_under_asgi() -> None:
    response = async_to_sync(AsyncClient().get)(_FILE)

    assert response.status_code == 200
    assert not response.streaming
    assert response.content


def test_it_knows_what_the_browser_has() -> None:
    etag = Client().get(_FILE)["ETag"]

    response = Client().get(_FILE, headers={"If-None-Match": etag})

    assert response.status_code == 304
    assert response.content == b""


def test_it_serves_a_part() -> None:
    response = Client().get(_FILE, headers={"Range": "bytes=0-9"})

    assert response.status_code == 206
    assert len(response.content) == 10


@pytest.mark.parametrize("path", ["/static/../config/settings.py", "/static/%2e%2e/config/settings.py", "/static/"])
def test_it_serves_nothing_else(path: str) -> None:
    assert Client().get(path).status_code == 404
