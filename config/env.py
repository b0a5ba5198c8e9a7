"""Strict readers of the environment: a bad value stops the start and names itself."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlsplit

import dj_database_url
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured


class Form(StrEnum):
    """How a setting's value is written."""

    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    LIST = "comma-separated list"
    URL = "URL"
    SECRET = "secret"  # noqa: S105


@dataclass(frozen=True)
class Setting:
    """One declared setting, as `docs/settings.md` states it. `default` is what one would write in the environment."""

    name: str
    form: Form
    default: str
    help: str


T = TypeVar("T")

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_DATABASES = {"sqlite", "postgres", "postgresql"}
_BROKERS = {"memory", "redis", "rediss", "amqp", "amqps"}
_HTTP = {"http", "https"}
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,199}")


class Environment:
    """The settings read from one mapping of names to texts.

    A variable that is set to nothing but blanks counts as unset, since that is how compose files and unit
    files pass "no value". Every reader declares its setting in `declared` and raises `ImproperlyConfigured`
    for a value it cannot take.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.declared: dict[str, Setting] = {}

    def text(self, name: str, default: str, *, help: str, choices: Sequence[str] = ()) -> str:
        """Read one line of text, of `choices` if there are any."""

        def parse(raw: str) -> str:
            if choices and raw not in choices:
                raise ValueError(f"one of {', '.join(choices)}")
            if not raw.isprintable():
                raise ValueError("one line of printable text")
            return raw

        return self._read(Setting(name, Form.TEXT, default, help), parse)

    def boolean(self, name: str, default: bool, *, help: str) -> bool:
        """Read true or false, in any of the usual spellings."""
        return self._read(Setting(name, Form.BOOLEAN, str(default).lower(), help), _boolean)

    def integer(self, name: str, default: int, *, low: int, high: int, help: str) -> int:
        """Read a whole number from `low` to `high`."""

        def parse(raw: str) -> int:
            wish = f"a whole number from {low} to {high}"
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", raw):
                raise ValueError(wish)
            return _within(int(raw), low, high, wish)

        return self._read(Setting(name, Form.INTEGER, str(default), help), parse)

    def number(self, name: str, default: float, *, low: float, high: float, help: str) -> float:
        """Read a number from `low` to `high`; neither infinity nor NaN."""

        def parse(raw: str) -> float:
            wish = f"a number from {low:g} to {high:g}"
            if not re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", raw):
                raise ValueError(wish)
            return _within(float(raw), low, high, wish)

        return self._read(Setting(name, Form.NUMBER, f"{default:g}", help), parse)

    def listing(self, name: str, default: Sequence[str] = (), *, help: str) -> list[str]:
        """Read texts between commas, without the blanks around them."""
        return self._read(Setting(name, Form.LIST, ",".join(default), help), _items)

    def url(self, name: str, default: str, *, help: str, shown: str | None = None) -> str:
        """Read an absolute http or https URL; a slash at its end is dropped.

        `shown` is the default in words, where it is made from other settings.
        """
        self._declare(Setting(name, Form.URL, shown or default, help))
        raw = self._raw(name) or default
        return self._parse(name, raw, _http_url, secret="@" in raw)

    def secret(self, name: str, *, help: str, least: int = 1, shown: str = "") -> str:
        """Read a secret of at least `least` characters, "" when unset. It is in no error."""

        def parse(raw: str) -> str:
            if len(raw) < least:
                raise ValueError(f"at least {least} characters")
            if not raw.isascii() or not raw.isprintable() or " " in raw:
                raise ValueError("printable ASCII characters without blanks")
            return raw

        self._declare(Setting(name, Form.SECRET, shown, help))
        return self._parse(name, self._raw(name), parse, secret=True) if self._raw(name) else ""

    def fernet_keys(self, name: str, *, help: str, shown: str = "") -> list[str]:
        """Read Fernet keys between commas, none when unset. No key is in an error."""
        self._declare(Setting(name, Form.SECRET, shown, help))
        return self._parse(name, self._raw(name), fernet_keys, secret=True) if self._raw(name) else []

    def database(self, name: str, default: str, *, help: str, shown: str | None = None) -> dict[str, Any]:
        """Read a database's URL into an entry of Django's DATABASES. A password is in no error."""
        self._declare(Setting(name, Form.URL, shown or default, help))
        return self._parse(name, self._raw(name) or default, _database, secret=True)

    def broker(self, name: str, default: str, *, help: str) -> str:
        """Read a message broker's URL. A password is in no error."""
        self._declare(Setting(name, Form.URL, default, help))
        return self._parse(name, self._raw(name) or default, _broker, secret=True)

    def hosts(self, name: str, default: str, *, forges: Sequence[str], help: str) -> dict[str, tuple[str, str]]:
        """Read `name=forge:base URL` between commas, as a forge and a URL by name."""

        def parse(raw: str) -> dict[str, tuple[str, str]]:
            return dict(_host(item, place, forges) for place, item in enumerate(_items(raw), 1))

        self._declare(Setting(name, Form.LIST, default, help))
        raw = self._raw(name) or default
        return self._parse(name, raw, parse, secret="@" in raw)

    def tokens(self, name: str, *, help: str) -> dict[str, str]:
        """Read `name=token` between commas. No token is in an error."""
        self._declare(Setting(name, Form.SECRET, "", help))
        return self._parse(name, self._raw(name), _tokens, secret=True)

    def given(self, name: str) -> bool:
        """Tell whether the variable is set to something."""
        return bool(self._raw(name))

    def _raw(self, name: str) -> str:
        return self._values.get(name, "").strip()

    def _read(self, setting: Setting, parse: Callable[[str], T]) -> T:
        self._declare(setting)
        return self._parse(setting.name, self._raw(setting.name) or setting.default, parse)

    def _declare(self, setting: Setting) -> None:
        if setting.name in self.declared:
            raise ImproperlyConfigured(f"the setting {setting.name} is declared twice")
        self.declared[setting.name] = setting

    def _parse(self, name: str, raw: str, parse: Callable[[str], T], *, secret: bool = False) -> T:
        try:
            return parse(raw)
        except ValueError as error:
            shown = "its value (not shown)" if secret else repr(raw)
            # `from None`: the cause of a secret's error may carry the secret.
            raise ImproperlyConfigured(f"{name}: {shown} is not right, it must be {error}") from None


def fernet_keys(raw: str) -> list[str]:
    """Split and check Fernet keys. Raises ValueError with a wish that holds no key."""
    keys = _items(raw)
    for place, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError:
            raise ValueError(
                f"Fernet keys (32 bytes as URL-safe base64) between commas; number {place} is none"
            ) from None
    if not keys:
        raise ValueError("at least one Fernet key")
    return keys


def _boolean(raw: str) -> bool:
    if raw.lower() in _TRUE | _FALSE:
        return raw.lower() in _TRUE
    raise ValueError("true or false")


def _within(value: T, low: float, high: float, wish: str) -> T:
    if not (math.isfinite(value) and low <= value <= high):  # type: ignore[arg-type, operator]
        raise ValueError(wish)
    return value


def _items(raw: str) -> list[str]:
    return [item.strip() for item in raw.split(",") if item.strip()]


def _host(item: str, place: int, forges: Sequence[str]) -> tuple[str, tuple[str, str]]:
    name, _, rest = item.partition("=")
    forge, _, url = rest.partition(":")
    if not _HOST_NAME.fullmatch(name.strip()) or forge.strip() not in forges:
        raise ValueError(f"name=forge:URL between commas, the forge one of {', '.join(forges)}; number {place} is not")
    return name.strip().lower(), (forge.strip(), _http_url(url.strip()))


def _tokens(raw: str) -> dict[str, str]:
    found = {}
    for place, item in enumerate(_items(raw), 1):
        name, _, token = item.partition("=")
        if not name.strip() or not token.strip() or not token.isascii() or " " in token.strip():
            raise ValueError(f"name=token between commas; number {place} is not")
        found[name.strip().lower()] = token.strip()
    return found


def _http_url(raw: str) -> str:
    wish = "an absolute URL such as https://rewake.example.org"
    try:
        parts = urlsplit(raw)
        port = parts.port
    except ValueError:
        raise ValueError(wish) from None
    if parts.scheme not in _HTTP or not parts.hostname or port == 0 or not raw.isascii() or " " in raw:
        raise ValueError(wish)
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{wish}, without a query, a fragment or a user")
    return raw.rstrip("/")


def _database(raw: str) -> dict[str, Any]:
    wish = "sqlite:///path/to/file or postgres://user:password@host:port/name"
    try:
        if raw.partition(":")[0] not in _DATABASES:
            raise ValueError(wish)
        entry: dict[str, Any] = dict(dj_database_url.parse(raw))
    except (ValueError, KeyError):
        raise ValueError(wish) from None
    if not entry.get("NAME") or entry["NAME"] == ":memory:":
        raise ValueError(f"{wish}, with a name: several connections must see the same data")
    return entry


def _broker(raw: str) -> str:
    wish = "memory://, redis://host:port/number or amqp://user:password@host:port/vhost"
    scheme, separator, _rest = raw.partition("://")
    if scheme not in _BROKERS or not separator:
        raise ValueError(wish)
    try:
        _port = urlsplit(raw).port
    except ValueError:
        raise ValueError(wish) from None
    return raw
