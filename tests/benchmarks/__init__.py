"""Benchmarks: each a command that prints JSON. Django is set up here, before any of them imports its models."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()
