"""`manage.py create_key --name ci --scopes sessions.read triggers.read`"""

from __future__ import annotations

from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from sessions import keys
from sessions.exceptions import Invalid


class Command(BaseCommand):
    help = "Make an API key and print it. It is shown this once: what is stored is its hash."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--name", required=True, help="what the key is for; the transcript names who did what by it"
        )
        parser.add_argument(
            "--scopes",
            nargs="+",
            default=[keys.Scope.ADMIN.value],
            metavar="SCOPE",
            help=f"any of {', '.join(keys.Scope)}; admin, which is all of them, if left out",
        )

    def handle(self, *, name: str, scopes: list[str], **_: Any) -> None:
        try:
            _row, secret = keys.create(name=name, scopes=scopes, now=timezone.now())
        except Invalid as error:
            raise CommandError(error.reason) from error
        self.stdout.write(secret)
