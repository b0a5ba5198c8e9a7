"""The strict readers: what they take, and how they say what they do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from config.env import Environment, Form

Read = Callable[[Environment], object]

_KEY = "dGVzdHMgb25seSwgbm90IGEgcmVhbCBrZXksIDMyYnk="


def _text(env: Environment) -> object:
    return env.text("X", "a", choices=["a", "b"], help="")


def _boolean(env: Environment) -> object:
    return env.boolean("X", False, help="")


def _integer(env: Environment) -> object:
    return env.integer("X", 5, low=1, high=100, help="")


def _number(env: Environment) -> object:
    return env.number("X", 0.25, low=0.01, high=60, help="")


def _listing(env: Environment) -> object:
    return env.listing("X", ["a"], help="")


def _url(env: Environment) -> object:
    return env.url("X", "http://127.0.0.1:8000", help="")


def _secret(env: Environment) -> object:
    return env.secret("X", least=8, help="")


def _keys(env: Environment) -> object:
    return env.fernet_keys("X", help="")


def _database(env: Environment) -> object:
    return env.database("X", "sqlite:///var/x.sqlite3", help="")


def _broker(env: Environment) -> object:
    return env.broker("X", "memory://", help="")


def _hosts(env: Environment) -> object:
    return env.hosts("X", "github.com=github:https://api.github.com", forges=["gitea", "github"], help="")


def _tokens(env: Environment) -> object:
    return env.tokens("X", help="")


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (_text, "b", "b"),
        (_boolean, "true", True),
        (_boolean, "Off", False),
        (_integer, " 100 ", 100),
        (_number, "60", 60.0),
        (_number, "0.5", 0.5),
        (_listing, " a, b ,,c", ["a", "b", "c"]),
        (_url, "https://rewake.example.org/", "https://rewake.example.org"),
        (_url, "http://[::1]:8000", "http://[::1]:8000"),
        (_secret, "longenough", "longenough"),
        (_broker, "redis://localhost:6380/2", "redis://localhost:6380/2"),
        (_broker, "amqp://user:word@localhost:5673//", "amqp://user:word@localhost:5673//"),
    ],
)
def test_it_reads(read: Read, raw: str, value: object) -> None:
    assert read(Environment({"X": raw})) == value


@pytest.mark.parametrize("values", [{}, {"X": ""}, {"X": "  "}])
@pytest.mark.parametrize(
    ("read", "default"),
    [
        (_text, "a"),
        (_boolean, False),
        (_integer, 5),
        (_number, 0.25),
        (_listing, ["a"]),
        (_url, "http://127.0.0.1:8000"),
        (_secret, ""),
        (_keys, []),
        (_broker, "memory://"),
    ],
)
def test_it_takes_the_default_for_nothing(read: Read, default: object, values: dict[str, str]) -> None:
    assert read(Environment(values)) == default


@pytest.mark.parametrize(
    ("read", "raw", "wish"),
    [
        (_text, "c", "one of a, b"),
        (_text, "a\x07", "one of a, b"),
        (_boolean, "maybe", "true or false"),
        (_integer, "0", "a whole number from 1 to 100"),
        (_integer, "101", "a whole number from 1 to 100"),
        (_integer, "1.5", "a whole number from 1 to 100"),
        (_integer, "1_0", "a whole number from 1 to 100"),
        (_integer, "٣", "a whole number from 1 to 100"),
        (_number, "nan", "a number from 0.01 to 60"),
        (_number, "inf", "a number from 0.01 to 60"),
        (_number, "1e1", "a number from 0.01 to 60"),
        (_number, "60.5", "a number from 0.01 to 60"),
        (_url, "rewake.example.org", "an absolute URL"),
        (_url, "ftp://rewake.example.org", "an absolute URL"),
        (_url, "https://", "an absolute URL"),
        (_url, "https://host:99999", "an absolute URL"),
        (_url, "https://host/?a=b", "without a query"),
    ],
)
def test_it_names_the_variable_the_value_and_what_would_be_right(read: Read, raw: str, wish: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        read(Environment({"X": raw}))

    assert str(caught.value).startswith(f"X: {raw!r}")
    assert wish in str(caught.value)


@pytest.mark.parametrize(
    ("read", "raw", "wish"),
    [
        (_secret, "hunter2", "at least 8 characters"),
        (_secret, "hunter2 hunter2", "without blanks"),
        (_keys, "hunter2", "number 1 is none"),
        (_keys, f"{_KEY},hunter2", "number 2 is none"),
        (_url, "https://me:hunter2@host", "or a user"),
        (_database, "mysql://me:hunter2@host/name", "postgres://"),
        (_database, "postgres://me:hunter2@host:port/name", "postgres://"),
        (_database, "postgres://me:hunter2@host/", "with a name"),
        (_database, "sqlite://:memory:?hunter2", "sqlite:///"),
        (_broker, "sqs://me:hunter2@host", "redis://"),
        (_broker, "redis://me:hunter2@host:port", "redis://"),
        (_broker, "hunter2", "redis://"),
        (_hosts, "git.example.org=gitea:https://me:hunter2@git.example.org", "or a user"),
        (_hosts, "a=github:https://a.example,@hunter2", "number 2 is not"),
        (_tokens, "hunter2", "number 1 is not"),
        (_tokens, "github.com=x, =hunter2", "number 2 is not"),
        (_tokens, "github.com=hunter2 x", "number 1 is not"),
    ],
)
def test_it_never_shows_a_secret(read: Read, raw: str, wish: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        read(Environment({"X": raw}))

    assert str(caught.value).startswith("X: ")
    assert wish in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_it_reads_keys_in_their_order() -> None:
    first, second = (Fernet.generate_key().decode() for _ in range(2))

    assert _keys(Environment({"X": f"{first}, {second}"})) == [first, second]


def test_it_reads_hosts_and_tokens_by_name() -> None:
    hosts = _hosts(Environment({"X": "GitHub.com=github:https://api.github.com/, git.example.org:3000=gitea:http://x"}))
    tokens = _tokens(Environment({"X": "GitHub.com=gho_x=, git.example.org:3000=y"}))

    assert hosts == {
        "github.com": ("github", "https://api.github.com"),
        "git.example.org:3000": ("gitea", "http://x"),
    }
    assert tokens == {"github.com": "gho_x=", "git.example.org:3000": "y"}
    assert _tokens(Environment({})) == {}


@pytest.mark.parametrize(
    "raw", ["github.com", "a=forgejo:https://a.example", "a b=gitea:https://a.example", "a=gitea:x"]
)
def test_it_refuses_a_host_that_is_none(raw: str) -> None:
    with pytest.raises(ImproperlyConfigured):
        _hosts(Environment({"X": raw}))


def test_it_reads_a_postgres_url_with_a_socket() -> None:
    entry = Environment({"X": "postgres://me@%2Frun%2Fpostgresql/rewake"}).database("X", "", help="")

    assert entry["ENGINE"] == "django.db.backends.postgresql"
    assert (entry["HOST"], entry["USER"], entry["NAME"]) == ("/run/postgresql", "me", "rewake")


def test_it_declares_what_it_reads() -> None:
    env = Environment({"X": "7"})

    env.integer("X", 5, low=1, high=100, help="How many.")

    declared = env.declared["X"]
    assert (declared.form, declared.default, declared.help) == (Form.INTEGER, "5", "How many.")


def test_it_refuses_to_declare_a_setting_twice() -> None:
    env = Environment({})
    _integer(env)

    with pytest.raises(ImproperlyConfigured, match="X is declared twice"):
        _boolean(env)
