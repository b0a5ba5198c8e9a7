# Rewake. Each target does all of its own set-up, in .venv.
#
#   make run     start Rewake in its embedded form: one process, an SQLite file, no services
#   make test    run the suite on SQLite and on PostgreSQL, with servers of its own; ARGS="-k name" narrows it
#   make check   lint, format, types, import contracts, system checks, missing migrations
#   make chaos   kill processes at random and look for lost or doubled wakes
#   make bench   measure, for an hour or so; BENCHMARKS="lag burst" picks some
#
# PYTHON=/path/to/python picks another Python than python3.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
ARGS ?=
BENCHMARKS ?= $(patsubst tests/benchmarks/bench_%.py,%,$(wildcard tests/benchmarks/bench_*.py))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What the caller's shell has set up for another project.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV DJANGO_SETTINGS_MODULE PYTEST_ADDOPTS

.DELETE_ON_ERROR:
.PHONY: run test check chaos bench

run: $(VENV)/run.stamp
	@TRIGGERS_ENABLED="$${TRIGGERS_ENABLED:-true}" exec $(PY) manage.py serve

test: $(VENV)/dev.stamp
	@exec $(PY) -m tests.servers $(PY) -m tests.passes $(ARGS)

check: $(VENV)/dev.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	$(PY) manage.py check
	$(PY) manage.py makemigrations --check --dry-run

chaos: $(VENV)/dev.stamp
	@CHAOS_SECONDS="$${CHAOS_SECONDS:-180}" exec $(PY) -m tests.servers $(PY) -m pytest -s tests/chaos $(ARGS)

bench: $(VENV)/dev.stamp
	@exec $(PY) -m tests.servers sh -ec 'for name; do echo "bench_$$name"; $(PY) -m tests.benchmarks.bench_$$name; done' \
	  bench $(BENCHMARKS)

$(VENV)/run.stamp: requirements.txt | $(PY)
	$(PY) -m pip install --quiet --requirement requirements.txt
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt requirements.txt | $(PY)
	$(PY) -m pip install --quiet --requirement requirements-dev.txt
	@touch $@ $(VENV)/run.stamp

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Rewake needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	  echo "Name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
