"""What people can fill in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User

from sessions.exceptions import Invalid
from sessions.states import SessionStatus
from triggers.registry import KINDS
from triggers.states import TriggerStatus


class LoginForm(AuthenticationForm):
    """Logs in staff; anybody else is told no more than whoever has the wrong password."""

    def confirm_login_allowed(self, user: User) -> None:
        super().confirm_login_allowed(user)
        if not user.is_staff:
            raise self.get_invalid_login_error()


class Filter(forms.Form):
    """Which rows to list."""

    def chosen(self) -> dict[str, str]:
        """Return what was chosen, by name. Raises `Invalid` for what cannot be."""
        if self.is_valid():
            return self.cleaned_data
        problems = [f"{name}: {' '.join(map(str, errors))}" for name, errors in self.errors.items()]
        raise Invalid("; ".join(problems))


class TriggerFilter(Filter):
    """Which triggers to list."""

    status = forms.ChoiceField(required=False, choices=lambda: _any_of("status", TriggerStatus))
    kind = forms.ChoiceField(required=False, choices=lambda: _any_of("kind", sorted(KINDS.by_name)))
    session = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"type": "search", "placeholder": "title, tag or id", "autocomplete": "off"}),
    )


class SessionFilter(Filter):
    """Which sessions to list."""

    status = forms.ChoiceField(required=False, choices=lambda: _any_of("status", SessionStatus))


class NewSession(forms.Form):
    """A session to open."""

    title = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
        help_text="What you will know it by, e.g. “Release 2.4”.",
    )
    model = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="“rehearsal”, or provider:model, such as openai:gpt-4o. Empty for this installation’s own.",
    )


class Message(forms.Form):
    """A person's message. The key makes posting it twice the same as posting it once."""

    text = forms.CharField(strip=False, error_messages={"required": "Write something first."})
    key = forms.CharField(max_length=64)


def _any_of(what: str, values: Any) -> list[tuple[str, str]]:
    return [("", f"any {what}"), *((str(value), str(value)) for value in values)]
