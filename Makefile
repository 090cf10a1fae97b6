.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick test-deep test-browser pictures test-services test-compose test-versions test-first-day worker-environment differential soak bench mutation lint types docs lock audit up down clean

PYTHON ?= python3
CLEANTAIL_HOME ?= $(CURDIR)/.cleantail
CLEANTAIL_JARS ?= $(CLEANTAIL_HOME)/jars
PORT ?=
BIN := .venv/bin
export CLEANTAIL_HOME
export CLEANTAIL_JARS
# Each application is a process of its own. If this variable is set, as in images of Python, each process would compile
# our modules again. Empty counts as unset.
export PYTHONDONTWRITEBYTECODE :=
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Only packages whose SHA-256 is in constraints.txt are installed, or in bootstrap.txt for those that build packages.
# They are compiled once, here: with PYTHONDONTWRITEBYTECODE every process would compile all its imports, Airflow too.
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes --constraints constraints.txt --build-constraints bootstrap.txt -r pyproject.toml --extra all
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

RUNTIME := .venv/.complete $(CLEANTAIL_JARS)/.complete-embedded $(CLEANTAIL_JARS)/classes.jsa

setup: $(RUNTIME) $(CLEANTAIL_HOME)/jars-kafka/.complete-kafka $(CLEANTAIL_HOME)/jars-rest/.complete-rest ## Python environment, Spark's jars, a broker's and a REST catalog's, once

$(BIN)/uv: bootstrap.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bootstrap.txt
	touch $@

.venv/.complete: pyproject.toml constraints.txt $(BIN)/uv
	@command -v java > /dev/null || { echo "Java 17 or newer is needed: no java on PATH"; exit 1; }
	$(INSTALL) --extra dev
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

$(CLEANTAIL_JARS)/.complete-embedded: .venv/.complete bin/fetch-jars bin/check-jars spark_jobs/conf/jars.txt
	bin/fetch-jars $(CLEANTAIL_JARS)
	touch $@

$(CLEANTAIL_JARS)/classes.jsa: $(CLEANTAIL_JARS)/.complete-embedded cleantail_cli/class_archive.py
	@# every JVM starts without it as well, only slower
	-$(BIN)/python -m cleantail_cli.class_archive --jars $(CLEANTAIL_JARS)

$(CLEANTAIL_HOME)/jars-kafka/.complete-kafka: .venv/.complete bin/fetch-jars bin/check-jars spark_jobs/conf/jars.txt
	bin/fetch-jars $(CLEANTAIL_HOME)/jars-kafka kafka
	touch $@

$(CLEANTAIL_HOME)/jars-rest/.complete-rest: .venv/.complete bin/fetch-jars bin/check-jars spark_jobs/conf/jars.txt deploy/rest-catalog.ivy.xml
	bin/fetch-jars $(CLEANTAIL_HOME)/jars-rest rest
	touch $@

demo: setup ## the main job under a real Airflow scheduler on embedded parts; ends with a table
	$(BIN)/python -m demo

# One process more than cores: each waits for its own Spark at times
PYTEST = $(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder --durations=40

test: setup ## all tests
	$(PYTEST)

test-quick: setup ## tests that start no other system than Spark, in a third of the time
	$(PYTEST) -m "not integration"

LONG = -o timeout=7200 -o faulthandler_timeout=7100 # seconds: many histories are one test

test-deep: setup ## many random histories against the rules, the cases with a million records, more cases of some rules
	CLEANTAIL_HISTORIES=$${CLEANTAIL_HISTORIES:-6} CLEANTAIL_CASE_RECORDS=1000000 \
	$(BIN)/python -m pytest $(LONG) --durations=0 tests/jobs/test_histories.py tests/jobs/test_cases.py \
	  tests/jobs/test_same_state.py tests/jobs/test_no_values.py tests/jobs/engine/test_engine.py \
	  tests/jobs/iceberg/test_format_2.py tests/jobs/round/undo/test_taken_back.py
	CLEANTAIL_HISTORIES=2 $(BIN)/python -m pytest $(LONG) --durations=0 -m deep

differential: setup ## the engine against the cleaner of a real Kafka broker, offset by offset
	$(BIN)/python -m differential

MINUTES ?= 60

soak: setup ## faults at every commit of real processes, catalogs and a broker, against an independent oracle; MINUTES=480
	$(BIN)/python -m soak --minutes $(MINUTES)

bench: setup ## the cost of a round, and of other ways to do its work; CLEANTAIL_BENCH_RECORDS is the size
	$(BIN)/python -m benchmarks $(BENCHMARKS)

mutation: setup ## the tests against small changes of the kernel's rules; a test must notice each
	$(BIN)/python -m tests.mutation

test-browser: setup ## the steps of a newcomer, an approver and a viewer in the UI, in the Chromium of CLEANTAIL_BROWSER
	$(INSTALL) --extra browser
	CLEANTAIL_BROWSER=$${CLEANTAIL_BROWSER:-$$(command -v chromium || command -v chromium-browser || command -v google-chrome)} \
	$(BIN)/python -m pytest $(LONG) tests/browser

pictures: ## the pictures of README and docs, taken on the way of test-browser
	CLEANTAIL_PICTURES=1 $(MAKE) test-browser

test-services: setup ## real Postgres, S3 and Spark standalone, and the main job on each catalog, started as processes
	$(BIN)/python deploy/check_services.py
	$(BIN)/python deploy/check_catalogs.py

test-compose: setup ## docker-compose.yaml in containers, each killed once (about 30 min); installs Docker's engine if none answers
	$(BIN)/python -m tests.compose

test-versions: setup ## the wheel in clean environments with the oldest and the newest Airflow and Spark of its ranges
	$(BIN)/python -m tests.versions

test-first-day: setup ## what docs/installing.md says, with a real Airflow, REST catalog and broker: at most ten minutes
	$(BIN)/python -m tests.first_day

worker-environment: setup ## archive of the Python environment for the workers of a Spark cluster, for spark.archives
	bin/worker-environment $(CLEANTAIL_HOME)/worker-environment.tar.gz

lint: setup ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict
	$(BIN)/mypy

docs: .venv/.complete ## the documentation as a site, in site/; a broken link is an error
	$(INSTALL) --extra docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'look at it with: python3 -m http.server --bind 127.0.0.1 --directory site'

lock: $(BIN)/uv ## write constraints.txt and bootstrap.txt from pyproject.toml; UPGRADE=1 takes the newest versions
	$(LOCK) $(if $(UPGRADE),--upgrade) --all-extras -o constraints.txt pyproject.toml deploy/requirements.txt > /dev/null
	printf 'hatchling\npip\nsetuptools\nuv\n' | $(LOCK) $(if $(UPGRADE),--upgrade) -o bootstrap.txt - > /dev/null

audit: setup ## known vulnerabilities of the pinned packages, from PyPI or OSV; fails with NOT RUN if neither can be reached
	bin/audit $(BIN)/uv tool run --from 'pip-audit==2.10.1' pip-audit --strict --require-hashes --disable-pip -r constraints.txt -r bootstrap.txt

up: $(RUNTIME) ## Airflow with its UI on 127.0.0.1, kept running; PORT=8081 if 8080 is taken
	bin/cleantail-airflow up $(if $(PORT),--port $(PORT))

down: ## stop Airflow
	bin/cleantail-airflow down

clean: ## remove the environment and the embedded state
	rm -rf .venv .cleantail site
