"""`manage.py forge_host`: the forges that triggers may look at, and the tokens they are asked with."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions.exceptions import RewakeError
from sessions.instants import iso
from triggers import hosts
from triggers.models import Host
from triggers.registry import FORGES, UnknownName


class Command(BaseCommand):
    help = "List, add and remove forges, and give them tokens."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="show every forge, and how its limit stands")
        add = actions.add_parser("add", help="add a forge, or change one that was added")
        add.add_argument("name", help="what `host` will name, e.g. git.example.org")
        add.add_argument("--forge", required=True, choices=sorted(FORGES.by_name))
        add.add_argument("--url", required=True, help="its base URL; for GitHub that of the API")
        add.add_argument("--no-verify-tls", action="store_true", help="accept any TLS certificate from it")
        remove = actions.add_parser("remove", help="remove a forge that was added")
        remove.add_argument("name")
        token = actions.add_parser("token", help="store a token, read from standard input; an empty one removes it")
        token.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['action']}")(options)
        except (RewakeError, UnknownName) as error:
            raise CommandError(str(error)) from error

    def _list(self, options: dict[str, Any]) -> None:
        for host in hosts.known():
            self.stdout.write("  ".join(_columns(host)))

    def _add(self, options: dict[str, Any]) -> None:
        name = options["name"].lower()
        hosts.add(name, forge=options["forge"], base_url=options["url"], verify_tls=not options["no_verify_tls"])
        self.stdout.write(f"{name} is there. To give it a token: manage.py forge_host token {name}")

    def _remove(self, options: dict[str, Any]) -> None:
        hosts.remove(options["name"].lower())
        self.stdout.write(f"{options['name']} is removed.")

    def _token(self, options: dict[str, Any]) -> None:
        name = options["name"].lower()
        host = hosts.row(name)
        asked = sys.stdin.isatty()
        token = getpass.getpass(f"Token for {name}: ") if asked else sys.stdin.readline()
        hosts.set_token(host.name, token.strip())
        self.stdout.write(f"The token of {name} is {'stored' if token.strip() else 'removed'}.")


def _columns(host: Host) -> list[str]:
    budget = f"{host.budget_remaining}/{host.budget_limit} left" if host.budget_limit else ""
    blocked = f"waits until {iso(host.blocked_until)}" if host.blocked_until else ""
    return [
        text
        for text in (
            host.name,
            host.forge,
            host.base_url,
            "with a token" if hosts.has_token(host) else "without a token",
            "" if host.verify_tls else "TLS NOT VERIFIED",
            budget,
            blocked,
        )
        if text
    ]
