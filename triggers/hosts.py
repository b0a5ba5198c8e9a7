"""The only writer of Host: which forges may be asked, with whose token, and what they have said of their limits.

Hosts come from FORGE_HOSTS and from `manage.py forge_host`. Only there is a base URL ever taken from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Q

from sessions.secrecy import decrypt, encrypt
from triggers.exceptions import Conflict, Invalid, NotFound
from triggers.forges.base import Budget, Forge
from triggers.kinds.base import ArgsError
from triggers.models import Host
from triggers.registry import FORGES
from triggers.states import TriggerStatus

_NAME = re.compile(r"[a-z0-9][a-z0-9.:-]{0,199}")


@dataclass(frozen=True)
class Place:
    """Where and how a host is asked."""

    name: str
    forge: Forge
    base_url: str
    verify_tls: bool
    token: str


def names() -> dict[str, str]:
    """Return the configured hosts: the forge of each, by name."""
    stored = dict(Host.objects.filter(added=True).values_list("name", "forge"))
    return dict(sorted((stored | {name: forge for name, (forge, _) in settings.FORGE_HOSTS.items()}).items()))


def known() -> list[Host]:
    """Return the configured hosts as they are stored, by name."""
    return [row(name) for name in names()]


def find(repo: str, host: str | None) -> Host:
    """Return the host that a repository is on. Raises `ArgsError` if that cannot be told, with the choices."""
    forges = names()
    choices = ", ".join(forges) or "none"
    if host and host not in forges:
        raise ArgsError("host", f"there is no host {host!r}; there is: {choices}")
    possible = [name for name in ([host] if host else forges) if _could_have(forges[name], repo)]
    if not possible:
        raise ArgsError("repo", f"{repo!r} is not owner/name, as it must be on {host or choices}")
    if len(possible) > 1:
        raise ArgsError("host", f"{repo} could be on any of {', '.join(possible)}: say which")
    return row(possible[0])


def row(name: str) -> Host:
    """Return a configured host's row, made or brought up to date with FORGE_HOSTS first. Raises `NotFound`."""
    if name not in settings.FORGE_HOSTS:
        found = Host.objects.filter(name=name, added=True).first()
        if found is None:
            raise NotFound(f"there is no host {name!r}; there is: {', '.join(names()) or 'none'}")
        return found
    forge, base_url = settings.FORGE_HOSTS[name]
    given = {"forge": forge, "base_url": base_url, "verify_tls": name not in settings.FORGE_HOSTS_UNVERIFIED}
    found, _ = Host.objects.get_or_create(name=name, defaults=given)
    if any(getattr(found, field) != value for field, value in given.items()):
        Host.objects.filter(pk=found.pk).update(**given)
        found.refresh_from_db()
    return found


def place(host: Host) -> Place:
    """Return where and how to ask. Raises `NotFound` if it is no longer configured, `Unreadable`, `UnknownName`."""
    current = row(host.name)
    return Place(current.name, FORGES.get(current.forge), current.base_url, current.verify_tls, token_of(current))


def token_of(host: Host) -> str:
    """Return a host's token, "" if it has none: FORGE_TOKENS goes before what is stored. Raises `Unreadable`."""
    given = settings.FORGE_TOKENS.get(host.name)
    if given:
        return str(given)
    return str(decrypt(host.token)) if host.token else ""


def has_token(host: Host) -> bool:
    """Return whether a host is asked with a token."""
    return bool(settings.FORGE_TOKENS.get(host.name) or host.token)


def add(name: str, *, forge: str, base_url: str, verify_tls: bool) -> Host:
    """Configure a host, or change one that was added before.

    Raises `Conflict` for one that FORGE_HOSTS sets, `Invalid`, `UnknownName`.
    """
    if name in settings.FORGE_HOSTS:
        raise Conflict(f"{name} is set by FORGE_HOSTS: change it there")
    if not _NAME.fullmatch(name):
        raise Invalid(f"name: {name!r} is not the name of a host, such as git.example.org")
    given: dict[str, Any] = {"forge": FORGES.get(forge).name, "base_url": _url(base_url), "verify_tls": verify_tls}
    host, _ = Host.objects.update_or_create(name=name, defaults=given | {"added": True})
    return host


def remove(name: str) -> None:
    """Remove a host that was added. Raises `Conflict` while triggers wait for it, `NotFound`."""
    host = row(name)
    if name in settings.FORGE_HOSTS:
        raise Conflict(f"{name} is set by FORGE_HOSTS: remove it there")
    waiting = host.watches.filter(triggers__status__in=[TriggerStatus.ARMED, TriggerStatus.PAUSED]).distinct().count()
    if waiting:
        raise Conflict(f"triggers look at {waiting} resources of {name}: cancel them first")
    host.delete()


def set_token(name: str, token: str) -> None:
    """Store a host's token, encrypted; "" removes it. Raises `NotFound`, `Invalid` without showing it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid("token: must be printable ASCII characters without blanks")
    Host.objects.filter(pk=row(name).pk).update(
        token=encrypt(token) if token else "", blocked_until=None, budget_limit=None, budget_reset_at=None
    )


def note_budget(host_id: int, budget: Budget) -> None:
    """Store what a host grants, unless something later, or less, is known already."""
    fields = {"budget_limit": budget.limit, "budget_remaining": budget.remaining, "budget_reset_at": budget.reset_at}
    news = Q(budget_reset_at=None) | Q(budget_reset_at__lt=budget.reset_at) | Q(budget_limit=None)
    less = Q(budget_reset_at=budget.reset_at, budget_remaining__gt=budget.remaining)
    Host.objects.filter(news | less, pk=host_id).update(**fields)


def block(host_id: int, until: datetime, *, strikes: int) -> None:
    """Have nothing asked of a host before `until`."""
    open_ = Q(blocked_until=None) | Q(blocked_until__lt=until)
    Host.objects.filter(open_, pk=host_id).update(blocked_until=until, strikes=strikes)


def unblock(host_id: int) -> None:
    """Forget that a host's limits were met: it has answered."""
    Host.objects.filter(pk=host_id).exclude(strikes=0).update(strikes=0)


def _url(text: str) -> str:
    wish = f"url: {text!r} is not an absolute URL without user, query and fragment, such as https://git.example.org"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise Invalid(wish) from error
    strange = parts.query or parts.fragment or parts.username is not None or port == 0 or not text.isascii()
    if parts.scheme not in ("http", "https") or not parts.hostname or strange or " " in text:
        raise Invalid(wish)
    return text.rstrip("/")


def _could_have(forge: str, repo: str) -> bool:
    return repo.count("/") == 1 or FORGES.get(forge).nested
