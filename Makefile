# `make help` says what there is. Everything is built into .venv, the tools of the documentation into .venv-docs; nothing
# else on the machine is touched.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-all test-matrix test-client lint docs bench bench-full bench-page bench-control bench-profile mutants torture soak model-check

# Tests and demos start hundreds of processes of the same sources: these are compiled once, whatever the machine prefers.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
LOAD_READY := .venv/.load-ready
CLIENT_READY := .venv/.client-ready
DOCS_READY := .venv-docs/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest

help: ## show this
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(READY) ## build .venv from the lock file; quick when there is nothing to do

$(READY): requirements.lock requirements-java.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Viaduck needs Python 3.11 or newer: make setup PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Viaduck needs Python 3.11 or newer: make setup PYTHON=…")'
	@echo "Building .venv with $(PYTHON); the first time takes a few minutes."
	$(PYTHON) -m venv .venv
	$(PIP) install --require-hashes --no-deps -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	$(BIN)/python -m shared.runtime.java 2>/dev/null || $(PIP) install --require-hashes --no-deps -r requirements-java.lock
	$(BIN)/python -m shared.runtime.java
	@touch $@

demo: $(READY) ## one shared table of real flights becomes sixteen exact lakes
	@$(BIN)/viaduck demo

check: lint ## lint, and the tests that stay within their process: a minute or two; ARGS="-k name" for some
	$(PYTEST) -n 2 --tier check $(ARGS)

test: lint ## check, lakes on SQLite, one end to end, one fault, the smallest model: what to run before a commit
	$(PYTEST) -n 3 --tier test $(ARGS)

test-all: $(READY) ## every kind of test, each in one of its settings; what a build server runs, after lint
	$(PYTEST) -n 3 --tier all --durations 25 $(ARGS)

test-matrix: $(READY) ## every test on every catalog and by both ways to commit, and the longest: once a night, an hour
	$(PYTEST) -n 3 --durations 25 $(ARGS)

$(CLIENT_READY): $(READY) requirements-client.lock
	$(PIP) install --require-hashes --no-deps -r requirements-client.lock
	@touch $@

test-client: $(CLIENT_READY) ## a client generated of /openapi.json, at work
	$(PYTEST) tests/fast/control/api/test_openapi.py $(ARGS)

lint: $(READY) ## ruff (bandit's rules among its own) and mypy over source and tests
	$(BIN)/ruff check services shared viaduck_demo client tests bench deploy
	$(BIN)/ruff format --check services shared viaduck_demo client tests bench deploy
	$(BIN)/mypy --strict services shared viaduck_demo client tests bench

$(DOCS_READY): requirements-docs.lock
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r requirements-docs.lock
	@touch $@

docs: $(DOCS_READY) ## the documentation as a site in site/, every link checked; needs no network once .venv-docs is built
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

bench: $(READY) ## every case quickly, beside its target; ARGS="--case dense --catalog sqlite"
	$(BIN)/python -m bench.run --quick $(ARGS)

bench-full: $(READY) ## the same in the sizes that the targets name, medians of five; takes long
	$(BIN)/python -m bench.run --full $(ARGS)

bench-page: $(READY) ## tables and plots of docs/explanation/performance.md, from the newest results
	$(BIN)/python -m bench.performance

$(LOAD_READY): $(READY) requirements-bench.lock
	$(PIP) install --require-hashes --no-deps -r requirements-bench.lock
	@touch $@

bench-control: $(LOAD_READY) ## control with 5,000 destinations, under load
	$(BIN)/python -m bench.control $(ARGS)

bench-profile: $(LOAD_READY) ## where the time of a cycle goes: by phase, in Spark, in Postgres; ARGS="--case small"
	$(BIN)/python -m bench.profile $(ARGS)

mutants: $(READY) ## plant one mistake at a time, and show the test that catches it
	$(BIN)/python -m tests.mutants $(ARGS)

torture: $(READY) ## the fault matrix in full, hours; FAULT=kill COUNT=5 SEED=7 or FAULT=scale MINUTES=5, and ARGS="--share 0.1"
	$(BIN)/python -m tests.torture $(FAULT:%=--fault %) $(COUNT:%=--count %) $(SEED:%=--seed %) $(MINUTES:%=--minutes %) $(ARGS)

model-check: $(READY) ## the specification in larger models, an hour at most for each; ARGS="--minutes 10"
	$(BIN)/python -m tests.model $(ARGS)

soak: $(READY) ## the random histories, a thousand of them, and services killed more often; VIADUCK_SEED=n replays one
	VIADUCK_PROFILE=soak $(PYTEST) tests/lake tests/e2e/test_processes_die.py tests/e2e/test_topics_up.py --timeout 7200 $(ARGS)
