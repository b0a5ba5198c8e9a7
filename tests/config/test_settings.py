"""The settings as a whole: each in a process of its own, as a start is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from config.settings import BASE_DIR, env
from tests import settings as tests_settings

_SECRETS = {"SECRET_KEY": "0123456789" * 5, "ENCRYPTION_KEYS": Fernet.generate_key().decode()}
_POSTGRES = {"DATABASE_URL": "postgres://rewake@127.0.0.1/rewake"}


def _start(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.defpath, "PYTHONPATH": str(BASE_DIR), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _read(*names: str, **environment: str) -> list[Any]:
    code = f"import json; from config import settings; print(json.dumps([getattr(settings, n) for n in {names}]))"
    done = _start(code, **(_SECRETS | environment))
    assert done.returncode == 0, done.stderr
    values: list[Any] = json.loads(done.stdout)
    return values


@pytest.mark.parametrize("missing", ["SECRET_KEY", "ENCRYPTION_KEYS"])
def test_it_requires_secrets_beside_a_database_url(missing: str) -> None:
    secrets = {name: value for name, value in _SECRETS.items() if name != missing}

    done = _start("import config.settings", **_POSTGRES, **secrets)

    assert done.returncode == 1
    assert f"{missing} is not set" in done.stderr


def test_it_stops_at_a_bad_value() -> None:
    done = _start("import config.settings", TRIGGERS_MAX_FIRES_CAP="many", **_SECRETS)

    assert done.returncode == 1
    assert "TRIGGERS_MAX_FIRES_CAP: 'many' is not right, it must be a whole number from 1 to 1000000" in done.stderr


def test_it_derives_the_public_url_and_the_hosts() -> None:
    url, hosts, origins = _read(
        "PUBLIC_URL", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", HOST="0.0.0.0", PORT="8123", ALLOWED_HOSTS="a.example"
    )

    assert url == "http://127.0.0.1:8123"
    assert hosts == ["0.0.0.0", "127.0.0.1", "localhost", "[::1]", "a.example"]
    assert origins == ["http://127.0.0.1:8123"]


def test_it_writes_an_ipv6_host_in_brackets() -> None:
    url, hosts = _read("PUBLIC_URL", "ALLOWED_HOSTS", HOST="::1")

    assert url == "http://[::1]:8000"
    assert hosts == ["[::1]", "localhost", "127.0.0.1"]


def test_it_syncs_every_commit_to_the_embedded_file(tmp_path: Path) -> None:
    code = (
        "import django; django.setup(); from django.db import connection\n"
        "with connection.cursor() as c:\n"
        "    print([c.execute(f'PRAGMA {p}').fetchone()[0] for p in ('journal_mode', 'synchronous')])"
    )
    environment = _SECRETS | {"DATABASE_URL": f"sqlite:///{tmp_path}/new/x.sqlite3"}

    done = _start(code, DJANGO_SETTINGS_MODULE="config.settings", **environment)

    assert done.stdout == "['wal', 2]\n", done.stderr


def _documented(page: str) -> dict[str, str]:
    """Return the production settings that a page shows, with secrets in place of its dots."""
    block = next(
        block for block in (BASE_DIR / "docs" / page).read_text("utf-8").split("```") if "PUBLIC_URL=" in block
    )
    return dict(re.findall(r"^(?:export )?([A-Z_]+)=(\S+)", block, re.MULTILINE)) | _SECRETS


@pytest.mark.parametrize("page", ["settings.md", "operations.md"])
def test_a_start_as_documented_passes_every_deployment_check(page: str) -> None:
    code = "from django.core.management import execute_from_command_line as e\n"
    code += "e(['manage.py', 'check', '--deploy', '--fail-level', 'WARNING'])"
    production = _documented(page)

    done = _start(code, DJANGO_SETTINGS_MODULE="config.settings", **production)

    assert production["PUBLIC_URL"].startswith("https://")
    assert production["DATABASE_URL"].startswith("postgres://")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "System check identified no issues (2 silenced).\n"


def test_the_tests_environment_covers_every_setting() -> None:
    theirs = {name for name in env.declared if name in tests_settings.OURS or name.startswith(tests_settings.PREFIXES)}

    assert theirs == set(env.declared)


def test_it_refuses_an_api_key_that_could_be_guessed() -> None:
    done = _start("import config.settings", REWAKE_API_KEY="short-and-guessable", **_SECRETS)

    assert done.returncode == 1
    assert "REWAKE_API_KEY: its value (not shown) is not right, it must be at least 20 characters" in done.stderr
    assert "short-and-guessable" not in done.stderr
