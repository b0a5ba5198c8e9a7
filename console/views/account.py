"""Logging in and out."""

from __future__ import annotations

import math
import time
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import HttpRequest, HttpResponse

from console.forms import LoginForm
from sessions import guesses


class LogIn(LoginView):
    """Logs in staff. From an address that goes on with wrong passwords, no password is looked at for a while."""

    template_name = "console/login.html"
    authentication_form = LoginForm
    next_page = "console:triggers"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if wait := guesses.PASSWORDS.wait(_address(request), at=time.monotonic()):
            return self._asked_to_wait(math.ceil(wait))
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        if form.has_error(NON_FIELD_ERRORS):  # both were given, and they are wrong
            guesses.PASSWORDS.note(_address(self.request), at=time.monotonic())
        return super().form_invalid(form)

    def _asked_to_wait(self, seconds: int) -> HttpResponse:
        form = LoginForm(self.request, initial={"username": self.request.POST.get("username", "")})
        context = self.get_context_data(form=form, wait=seconds)
        return self.render_to_response(context, status=429, headers={"Retry-After": str(seconds)})


log_in = LogIn.as_view()
log_out = LogoutView.as_view(next_page="console:login")


def _address(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))
