"""Fixtures of the Airflow tests: a separate configuration, and jobs that end as a test sets."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cleantail.codec import Codec
from cleantail.rounds.checked_round import Verdict
from cleantail.rounds.run_plan import RUN_PLAN_JSON
from tests.airflow_environment import ROOT

NOW_MS = 1_700_000_000_000
NO_EXPECTATION: dict[str, Any] = {"passed": True, "failures": [], "warnings": []}


@dataclass(frozen=True)
class StubbedJobs:
    """A script in place of spark-submit that ends as `answer` sets. `calls`: the arguments of each call."""

    place: Path

    def answer(self, job: str, result: dict[str, Any] | None = None, code: int = 0, output: str = "") -> None:
        answer = {"exit": code, "output": output} | ({"result": result} if result is not None else {})
        (self.place / f"{job}.json").write_text(json.dumps(answer))

    @property
    def calls(self) -> list[dict[str, Any]]:
        file = self.place / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def names(self) -> list[str]:
        return [call["job"] for call in self.calls]

    def argument(self, job: str, name: str) -> str:
        """Return the value after `name` in the last call of `job`."""
        arguments: list[str] = next(call["arguments"] for call in reversed(self.calls) if call["job"] == job)
        return arguments[arguments.index(name) + 1]


@dataclass(frozen=True)
class Site:
    """A configuration directory and a CLEANTAIL_HOME."""

    config: Path
    home: Path

    def topic(self, name: str, **yaml: Any) -> Path:
        """Writes config/topics/<name>.yaml (JSON is YAML)."""
        file = self.config / "topics" / f"{name}.yaml"
        file.write_text(json.dumps({"topic": name, "config": {"segment.ms": 1}, **yaml}))
        return file

    def without_pauses(self) -> None:
        """Let tasks be tried again at once."""
        (self.config / "defaults.yaml").write_text("platform: {cleaner: {log.cleaner.backoff.ms: 0}}\n")

    def broken_topic(self, name: str = "broken") -> Path:
        return self.topic(name, config={"segment.sm": 1})

    def bag(self) -> Any:
        """Parse all DAG files as the dag-processor does."""
        from airflow.dag_processing.dagbag import BundleDagBag

        dags = ROOT / "dags"
        return BundleDagBag(dag_folder=dags, bundle_path=dags, bundle_name="dags-folder")

    def dag(self, name: str) -> Any:
        bag = self.bag()
        assert bag.import_errors == {}
        return bag.dags[name]


@dataclass(frozen=True)
class FixedPlan:
    """A RunPlan whose JSON a test sets."""

    data: dict[str, Any]
    logs: tuple[Any, ...] = ()
    readers: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(RUN_PLAN_JSON.of_plain(self.data, "the test's plan"), name)

    def as_json(self) -> dict[str, Any]:
        return self.data

    def table(self) -> str:
        return f"the plan: {self.data['reason']}"


def unit(number: int = 0, partitions: tuple[int, ...] = (0,)) -> dict[str, Any]:
    works = [
        {"partition": p, "first_dirty_offset": 0, "end_offset": 9, "log_start_offset": 0, "log_end_offset": 9}
        for p in partitions
    ]
    names = {"round": "r1", "unit": number, "branch": f"ct_r1_u{number}"}
    return {**names, "now_ms": NOW_MS, "base_snapshot_id": 7, "partitions": works}


def staged(unit: dict[str, Any], head: int = 41) -> dict[str, Any]:
    """The unit as compact hands it on, with the head of its branch as check_quality adds it."""
    return {**unit, "counts": {"deleted": {"superseded": {"0": 8}}}, "head_snapshot_id": head}


def plan(units: int = 0, sweep: bool = False, reclaim: bool = False) -> dict[str, Any]:
    """Return the JSON of a RunPlan with this due work. Each unit has one partition."""
    return {
        "topic": "orders",
        "round": "r1",
        "now_ms": NOW_MS,
        "reason": f"{units} partitions are due" if units else "no compaction is due: the log is clean",
        "partitions": [],
        "units": [unit(number, (number,)) for number in range(units)],
        "sweep": {"now_ms": NOW_MS, "partitions": [0]} if sweep else None,
        "sweep_reason": "3 tombstones are past their horizon" if sweep else "there is no tombstone to expire",
        "reclaim": {"due": reclaim, "reason": "2 files to rewrite" if reclaim else "nothing to merge"},
    }


def verdict(partition: int, *failures: dict[str, Any]) -> dict[str, Any]:
    named = [{"partition": partition, **row} for row in failures]
    return {"partition": partition, "passed": not failures, "failures": named, "warnings": []}


def parsed(*verdicts: dict[str, Any]) -> tuple[Verdict, ...]:
    """Verdicts as a job's result is parsed."""
    return Codec[tuple[Verdict, ...]](tuple[Verdict, ...]).of_plain(verdicts, "verdicts")


def failure(**more: Any) -> dict[str, Any]:
    row = {"expectation": "expect_column_values_to_not_be_null", "severity": "critical", "observed": "3 of 9 records"}
    return {**row, "rule": "column=value", "passed": False, "error": False, **more}


class Recorder:
    """Stands in for a logger. Stores the formatted lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _keep(self, text: object, *values: object) -> None:
        self.lines.append(str(text) % values if values else str(text))

    debug = info = warning = error = exception = _keep


def forget_incidents(topic: str) -> None:
    """Of an earlier test with the same database."""
    from airflow.models.variable import Variable

    from cleantail_airflow.alerts.channels import variable_name

    Variable.delete(variable_name(topic))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty configuration, which the environment names."""
    made = Site(tmp_path / "config", tmp_path / "home")
    (made.config / "topics").mkdir(parents=True)
    made.home.mkdir()
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(made.config))
    monkeypatch.setenv("CLEANTAIL_HOME", str(made.home))
    return made


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubbedJobs:
    """Replace spark-submit by the stub."""
    from cleantail_airflow.tasks import spark_job as operators

    place, bin_folder = tmp_path / "stub", tmp_path / "stub-bin"
    place.mkdir()
    bin_folder.mkdir()
    script = bin_folder / "spark-submit"
    script.write_text(
        (ROOT / "tests" / "spark_submit_stub.py").read_text().replace("/usr/bin/env python3", sys.executable)
    )
    script.chmod(0o755)
    real = operators.spark_environment
    stub = {"STUB": str(place)}
    monkeypatch.setattr(
        operators,
        "spark_environment",
        lambda env: {**(own := real(env)), **stub, "PATH": f"{bin_folder}:{own['PATH']}"},
    )
    return StubbedJobs(place)
