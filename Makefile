.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick test-deep test-browser pictures test-services test-compose test-versions test-first-day worker-environment differential soak bench mutation lint types docs lock audit up down clean

PYTHON ?= python3
CLEANTAIL_HOME ?= $(CURDIR)/.cleantail
CLEANTAIL_JARS ?= $(CLEANTAIL_HOME)/jars
PORT ?=
BIN := .venv/bin
export CLEANTAIL_HOME
export CLEANTAIL_JARS
# Python's images set this variable. Each application has its own process, and would then compile our modules again. An
# empty value counts as unset.
export PYTHONDONTWRITEBYTECODE :=
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Only packages with a SHA-256 in constraints.txt are installed, or in bootstrap.txt if they build other packages. They
# are compiled here, once. Otherwise each process, also Airflow's, would compile all its imports.
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes --constraints constraints.txt --build-constraints bootstrap.txt -r pyproject.toml --extra all
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links

help: ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

RUNTIME := .venv/.complete $(CLEANTAIL_JARS)/.complete-embedded $(CLEANTAIL_JARS)/classes.jsa

setup: $(RUNTIME) $(CLEANTAIL_HOME)/jars-kafka/.complete-kafka $(CLEANTAIL_HOME)/jars-rest/.complete-rest ## once: the Python environment, and the jars of Spark, a Kafka broker and a REST catalog

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

# private, as cleantail/home/home_folder.py makes it; a target, because jars are fetched side by side with `make -j`
$(CLEANTAIL_HOME):
	mkdir -p $(@D)
	mkdir -m 700 $@

$(CLEANTAIL_JARS)/.complete-embedded: .venv/.complete bin/fetch-jars bin/check-jars spark_jobs/conf/jars.txt | $(CLEANTAIL_HOME)
	bin/fetch-jars $(CLEANTAIL_JARS)
	touch $@

$(CLEANTAIL_JARS)/classes.jsa: $(CLEANTAIL_JARS)/.complete-embedded cleantail_cli/class_archive.py
	@# optional: without the archive a JVM only starts more slowly
	-$(BIN)/python -m cleantail_cli.class_archive --jars $(CLEANTAIL_JARS)

$(CLEANTAIL_HOME)/jars-kafka/.complete-kafka: .venv/.complete bin/fetch-jars bin/check-jars spark_jobs/conf/jars.txt | $(CLEANTAIL_HOME)
	bin/fetch-jars $(CLEANTAIL_HOME)/jars-kafka kafka
	touch $@

$(CLEANTAIL_HOME)/jars-rest/.complete-rest: .venv/.complete bin/fetch-jars bin/check-jars spark_jobs/conf/jars.txt deploy/rest-catalog.ivy.xml | $(CLEANTAIL_HOME)
	bin/fetch-jars $(CLEANTAIL_HOME)/jars-rest rest
	touch $@

demo: setup ## run three topics under a real Airflow, one of them from a real Kafka broker; prints a table
	$(BIN)/python -m demo

# One process more than cores, because a process sometimes only waits for its own Spark
PYTEST = $(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder --durations=40

test: setup ## all tests except the long ones below
	$(PYTEST)

test-quick: setup ## the tests that start no other system than Spark; takes a third of the time
	$(PYTEST) -m "not integration"

LONG = -o timeout=7200 -o faulthandler_timeout=7100 # seconds, because one test has many histories

test-deep: setup ## long tests: random histories against the rules, cases with a million records, tests marked deep
	CLEANTAIL_HISTORIES=$${CLEANTAIL_HISTORIES:-6} CLEANTAIL_CASE_RECORDS=1000000 \
	$(BIN)/python -m pytest $(LONG) --durations=0 tests/jobs/test_histories.py tests/jobs/test_cases.py \
	  tests/jobs/test_same_state.py tests/jobs/test_no_values.py tests/jobs/engine/test_engine.py \
	  tests/jobs/iceberg/test_format_2.py tests/jobs/round/undo/test_taken_back.py
	CLEANTAIL_HISTORIES=2 $(BIN)/python -m pytest $(LONG) --durations=0 -m deep

differential: setup ## compare the engine with the cleaner of a real Kafka broker, offset by offset
	$(BIN)/python -m differential

MINUTES ?= 60

soak: setup ## inject faults at every commit of real processes, and compare with an independent oracle; MINUTES=480
	$(BIN)/python -m soak --minutes $(MINUTES)

bench: setup ## measure a round and other programs that do its work; CLEANTAIL_BENCH_RECORDS sets the records
	$(BIN)/python -m benchmarks $(BENCHMARKS)

mutation: setup ## make small changes to the kernel's rules; a test must notice each
	$(BIN)/python -m tests.mutation

test-browser: setup ## use the UI as newcomer, approver and viewer, in the Chromium that CLEANTAIL_BROWSER names
	$(INSTALL) --extra browser
	CLEANTAIL_BROWSER=$${CLEANTAIL_BROWSER:-$$(command -v chromium || command -v chromium-browser || command -v google-chrome)} \
	$(BIN)/python -m pytest $(LONG) tests/browser

pictures: ## take the pictures of README and docs during test-browser
	CLEANTAIL_PICTURES=1 $(MAKE) test-browser

test-services: setup ## run the main job on Postgres, S3 and Spark standalone, and on each catalog, all as local processes
	$(BIN)/python deploy/check_services.py
	$(BIN)/python deploy/check_catalogs.py

test-compose: setup ## run docker-compose.yaml, and kill each container once (30 min); installs Docker's engine if none answers
	$(BIN)/python -m tests.compose

test-versions: setup ## install the wheel with the oldest and the newest supported Airflow and Spark, and test it
	$(BIN)/python -m tests.versions

test-first-day: setup ## follow docs/installing.md with a real Airflow, REST catalog and broker (up to ten minutes)
	$(BIN)/python -m tests.first_day

worker-environment: setup ## pack the Python environment of a Spark cluster's workers, for spark.archives
	bin/worker-environment $(CLEANTAIL_HOME)/worker-environment.tar.gz

lint: .venv/.complete ## check style and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.complete ## check types with mypy
	$(BIN)/mypy

docs: .venv/.complete ## build the documentation site in site/; a broken link is an error
	$(INSTALL) --extra docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'to open the site: python3 -m http.server --bind 127.0.0.1 --directory site'

lock: $(BIN)/uv ## write constraints.txt and bootstrap.txt from pyproject.toml; UPGRADE=1 takes the newest versions
	$(LOCK) $(if $(UPGRADE),--upgrade) --all-extras -o constraints.txt pyproject.toml deploy/requirements.txt > /dev/null
	printf 'hatchling\npip\nsetuptools\nuv\n' | $(LOCK) $(if $(UPGRADE),--upgrade) -o bootstrap.txt - > /dev/null

audit: setup ## query PyPI or OSV for known vulnerabilities of the pinned packages; NOT RUN if neither can be reached
	bin/audit $(BIN)/uv tool run --from 'pip-audit==2.10.1' pip-audit --strict --require-hashes --disable-pip -r constraints.txt -r bootstrap.txt

up: $(RUNTIME) ## start Airflow with its UI on 127.0.0.1:8080; PORT=8081 chooses another port
	bin/cleantail-airflow up $(if $(PORT),--port $(PORT))

down: ## stop Airflow
	bin/cleantail-airflow down

clean: ## remove the environment and the embedded state
	rm -rf .venv .cleantail site
