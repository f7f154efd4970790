# `make help` lists the targets. Everything runs in .venv, which `make setup` fills and the other targets keep up to date.

PYTHON ?= python3
PROCESSES ?= 2
MINUTES ?= 30
BIN := .venv/bin
STAMP := .venv/.installed
BENCH_STAMP := .venv/.installed-bench
PYTEST := $(BIN)/pytest -n $(PROCESSES) --dist worksteal
POSTGRES_15 := /usr/lib/postgresql/15/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-15 test-plans check docs audit bench bench-check chaos

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the pinned versions of everything

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --constraint constraints.txt
	touch $(STAMP)

# Not there means tried again the next time; the figures of the peers are left out meanwhile.
$(BENCH_STAMP): $(STAMP)
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]' --constraint constraints.txt; \
	then touch $(BENCH_STAMP); else echo 'The peers cannot be installed (the extra "bench"): skipped'; fi

demo: $(STAMP) ## send 1,000 messages through the simulator, on a Postgres of its own, and check every one
	$(BIN)/carteiro demo

up: $(STAMP) ## keep API, worker and simulator running, and say how to post a batch
	$(BIN)/carteiro up

test: $(STAMP) ## all tests on the embedded Postgres; what touches SQL again on Debian's 15, where it is installed
	$(PYTEST) -m 'not plans'
	@if test -x $(POSTGRES_15)/postgres; then $(MAKE) --no-print-directory test-15 ON_15='$(SHORT_ON_15)'; \
	else echo 'Postgres 15 is not installed: skipped'; fi

# The statements of every hot path; `make test-15` by itself runs all that touches SQL.
SHORT_ON_15 := tests/storage $(addprefix tests/services/test_,create.py dispatch_claim.py dispatch_record.py receive.py finalise.py)
ON_15 := tests/storage tests/services

test-15: $(STAMP) ## what touches SQL, on Debian's Postgres 15
	CARTEIRO_TEST_POSTGRES_BIN=$(POSTGRES_15) $(PYTEST) -m 'not process and not plans' $(ON_15)

test-plans: $(STAMP) ## look at the plans of the hot statements beside five million old messages (two minutes, 4 GB of disk)
	$(BIN)/pytest -q tests/plans

check: $(STAMP) ## style, types, import rules, the Containerfile, and that the generated pages are fresh
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Containerfile
	$(BIN)/pytest -q tests/docs

docs: $(STAMP) ## write the generated pages again
	@set -e; for page in settings states; do $(BIN)/carteiro docs $$page > docs/$$page.md.new && mv docs/$$page.md.new docs/$$page.md; done

audit: $(STAMP) ## check every promise on the database of CARTEIRO_DATABASE_URL
	$(BIN)/carteiro audit

bench: $(BENCH_STAMP) ## measure on this machine, and write docs/benchmarks.md
	$(BIN)/python -m tests.benchmarks

bench-check: $(STAMP) ## fail, in less than a minute, when dispatch has become slow beside the bare HTTP client
	$(BIN)/python -m tests.benchmarks.check

chaos: $(STAMP) ## run the matrix of faults under load for MINUTES (30) at least, and write down what came of it
	$(BIN)/python -m tests.chaos --minutes $(MINUTES)
