"""Logging in and out."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView

from console.forms import LoginForm

log_in = LoginView.as_view(
    template_name="console/login.html", authentication_form=LoginForm, next_page="console:triggers"
)
log_out = LogoutView.as_view(next_page="console:login")
