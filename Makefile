.DEFAULT_GOAL := help
.PHONY: help setup demo test test-deep test-browser test-services differential bench mutation lint types up down clean

PYTHON ?= python3
CLEANTAIL_HOME ?= $(CURDIR)/.cleantail
CLEANTAIL_JARS ?= $(CLEANTAIL_HOME)/jars
PORT ?=
BIN := .venv/bin
export CLEANTAIL_HOME
export CLEANTAIL_JARS
export PATH := $(CURDIR)/$(BIN):$(PATH)

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

RUNTIME := .venv/.complete $(CLEANTAIL_JARS)/.complete-embedded $(CLEANTAIL_JARS)/classes.jsa

setup: $(RUNTIME) $(CLEANTAIL_HOME)/jars-kafka/.complete-kafka ## Python environment, Spark jars and a broker's, once

.venv/.complete: pyproject.toml constraints.txt
	@command -v java > /dev/null || { echo "Java 17 or newer is needed: no java on PATH"; exit 1; }
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet 'uv>=0.5'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraints constraints.txt -e '.[dev]'
	touch $@

$(CLEANTAIL_JARS)/.complete-embedded: .venv/.complete bin/fetch-jars
	bin/fetch-jars $(CLEANTAIL_JARS)
	touch $@

$(CLEANTAIL_JARS)/classes.jsa: $(CLEANTAIL_JARS)/.complete-embedded spark_jobs/class_archive.py
	@# every JVM starts without it as well, only slower
	-$(BIN)/python -m spark_jobs.class_archive --jars $(CLEANTAIL_JARS)

$(CLEANTAIL_HOME)/jars-kafka/.complete-kafka: .venv/.complete bin/fetch-jars
	bin/fetch-jars $(CLEANTAIL_HOME)/jars-kafka kafka
	touch $@

demo: setup ## the main job under a real Airflow scheduler on embedded parts; ends with a table
	$(BIN)/python -m demo

test: setup ## all tests, in one process more than there are cores: each of them waits for its own Spark at times
	$(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder --durations=40

test-deep: setup ## many random histories against the rules, and the cases with a million records
	CLEANTAIL_HISTORIES=$${CLEANTAIL_HISTORIES:-6} CLEANTAIL_CASE_RECORDS=1000000 \
	$(BIN)/python -m pytest --durations=0 tests/jobs/test_histories.py tests/jobs/test_cases.py tests/jobs/test_format_2.py \
	  tests/jobs/test_same_state.py tests/jobs/test_taken_back.py tests/jobs/test_columnar.py

differential: setup ## the engine against the cleaner of a real Kafka broker, offset by offset
	$(BIN)/python -m differential

bench: setup ## what a round costs beside other ways to do its work; CLEANTAIL_BENCH_RECORDS is the size
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraints constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks $(BENCHMARKS)

mutation: setup ## the tests against small changes of the kernel's rules: all are to be noticed
	$(BIN)/python -m tests.mutation

test-browser: setup ## what a newcomer does in the UI, in the Chromium that CLEANTAIL_BROWSER names
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraints constraints.txt -e '.[browser]'
	CLEANTAIL_BROWSER=$${CLEANTAIL_BROWSER:-$$(command -v chromium || command -v chromium-browser || command -v google-chrome)} \
	$(BIN)/python -m pytest tests/browser

test-services: setup ## the same settings on real Postgres, S3 and Spark standalone, started as processes
	$(BIN)/python deploy/check_services.py

lint: setup ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict
	$(BIN)/mypy

up: $(RUNTIME) ## Airflow with its UI on 127.0.0.1, kept running; PORT=8081 where 8080 is taken
	bin/cleantail-airflow up $(if $(PORT),--port $(PORT))

down: ## stops it
	bin/cleantail-airflow down

clean: ## environment and embedded state
	rm -rf .venv .cleantail
