"""Rounds of other processes, and sinks, while keys are erased: the erasure ends, or names what is in its way.

The other process is that of another machine: it has the catalog, and no lock in common.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cleantail.erasure.certificate import verified
from cleantail.errors import ConflictError
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.spark_settings import SMALL_RUN
from spark_jobs.round import erase as erasing
from spark_jobs.round.check import check_round
from spark_jobs.round.intake.denylist import Denylist
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_round
from tests.jobs.round.test_erasure import GONE, KEPT, VALUE, erase, holding, lines, public_key, secrets
from tests.jobs.round.test_rounds import NOW, record

__all__ = ["secrets"]  # a fixture
DEEP = pytest.mark.deep


@pytest.fixture
def elsewhere(workshop, home, tmp_path) -> Callable[..., dict[str, Any]]:
    """Runs a command as on another machine, and returns its answer."""
    catalog = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}
    platform = {"allow_clock": True, "catalog": catalog, "spark": {"conf": SMALL_RUN}}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    place = tmp_path / "elsewhere"
    place.mkdir(mode=0o700)

    def run(*argv: object, code: int = 0) -> dict[str, Any]:
        command = [sys.executable, "-m", "cleantail_cli", *map(str, argv), "--json", "--config", str(workshop.config)]
        env = {**os.environ, "CLEANTAIL_HOME": str(place)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


def filled(workshop, name: str) -> tuple[str, list[dict[str, Any]]]:
    """A topic that has something to compact, and the records that a compaction and an erasure leave."""
    topic = workshop.topic(name)
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    found = workshop.read(topic)
    last = {(r["partition"], r["key"]): r for r in found if not str(r["key"]).startswith(GONE)}
    return topic, [r for r in found if r in last.values()]


def made(table):
    """A round that is made and checked, and not published."""
    plan = evaluate_topic(table.topic, now_ms=NOW)
    return check_round(table, plan.round, [compact_unit(table, unit) for unit in plan.units])


def before(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[[], object]) -> list[object]:
    """Let an action come before the first call of a step of an erasure. Returns a list, which has then its result."""
    real, done = getattr(erasing, name), list[object]()

    def step(*arguments):
        if not done:
            done.append(None)
            done[0] = action()
        return real(*arguments)

    monkeypatch.setattr(erasing, name, step)
    return done


@pytest.mark.integration
@DEEP
@pytest.mark.parametrize("step", ["_hide", "_rewrite", "_remove"])
def test_a_compaction_between_two_steps_of_an_erasure_does_no_harm(workshop, monkeypatch, table_of, elsewhere, step):
    topic, expected = filled(workshop, f"erased-beside-{step}".replace("_", ""))
    done = before(monkeypatch, step, lambda: elsewhere("compact", topic, "--now", NOW))
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    assert done and done[0]
    assert code == 0, err + out
    assert holding(workshop, topic, GONE, VALUE) == {}
    assert workshop.read(topic) == expected
    assert set(table_of(topic).load().refs().keySet()) == {"main"}
    content = verified(json.loads(out)["requests"][0]["certificate"].encode(), public_key(workshop))
    assert [name for name in content["exclusions"] if "branch" in name] == []


# test_a_sink_that_writes_... has a scan that finds what came meanwhile; here it is a side table
@DEEP
@pytest.mark.parametrize("step", ["_hide", "_remove"])
def test_a_side_table_that_an_ingestion_with_the_old_denylist_makes_meanwhile_is_cleaned_too(
    workshop, monkeypatch, table_of, step
):
    topic = workshop.topic(f"erased-late{step}".replace("_", "-"), {"cleantail.unholdable.policy": "quarantine"})
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    old = Denylist.of(table_of(topic))
    file = workshop.file("b.jsonl", [record(6, f"{GONE}-0", VALUE, ts=1_700_000_000_000_000_000)])

    def late():
        with monkeypatch.context() as patch:
            patch.setattr(Denylist, "of", lambda _: old)
            code, _, err = workshop.run("ingest", topic, "--file", file)
        left = [file for file in holding(workshop, topic, VALUE) if "_unholdable" in file and file.endswith(".parquet")]
        return code, "were erased while records were read" in err, len(left)

    done = before(monkeypatch, step, late)
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    assert done == [(3, True, 1)]
    assert code == 0, err + out
    content = verified(json.loads(out)["requests"][0]["certificate"].encode(), public_key(workshop))
    [side] = [name for name in content["steps"]["proven"]["tables"] if name.endswith("_unholdable")]
    assert [name for name in content["steps"]["removed"]["files"][side] if name.endswith(".parquet")]
    assert holding(workshop, topic, GONE, VALUE) == {}


def test_a_round_that_begins_before_files_are_rewritten_is_named_and_publishes_nothing(workshop, monkeypatch, table_of):
    topic, _ = filled(workshop, "erased-begun-before")
    table = table_of(topic)
    done = before(monkeypatch, "_rewrite", lambda: made(table))
    code, out, _ = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    [request] = json.loads(out)["requests"]
    [branch] = set(table.load().refs().keySet()) - {"main"}
    assert (code, request["certificate"], branch in str(request["problems"])) == (1, None, True), request["problems"]
    assert "a round that runs or waits for approval" in request["problems"][0]
    with pytest.raises(ConflictError, match="expired|rewritten|void"):  # the files that it has read are not in `main`
        publish_round(table, done[0])


# test_a_round_that_begins_before_files_are_rewritten_... holds the rule; here there is no key left to read
@pytest.mark.deep
def test_a_round_that_begins_after_files_were_rewritten_has_no_key_and_is_published(workshop, monkeypatch, table_of):
    topic, expected = filled(workshop, "erased-begun-after")
    table = table_of(topic)
    done = before(monkeypatch, "_remove", lambda: made(table))
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    assert code == 0, err + out
    assert holding(workshop, topic, GONE, VALUE) == {}
    publish_round(table, done[0])
    assert holding(workshop, topic, GONE, VALUE) == {}
    assert workshop.read(topic) == expected


@pytest.mark.integration
@DEEP
def test_an_erasure_between_making_and_publishing_of_a_round_names_it(workshop, table_of, elsewhere):
    topic, expected = filled(workshop, "erased-unpublished")
    table = table_of(topic)
    found = made(table)
    keys = workshop.config / "keys"
    keys.write_text(f"{GONE}-0\n{GONE}-1")
    [request] = elsewhere("erase", topic, "--keys", keys, code=1)["requests"]
    assert request["certificate"] is None and "a round that runs or waits for approval" in request["problems"][0]
    publish_round(table, found)
    [request] = elsewhere("erase", topic)["requests"]
    assert request["certificate"]
    assert holding(workshop, topic, GONE, VALUE) == {}
    assert workshop.read(topic) == expected


def test_a_round_whose_branch_was_excluded_publishes_nothing_after_the_certificate(workshop, monkeypatch, table_of):
    topic, _ = filled(workshop, "erased-excluded-round")
    table = table_of(topic)
    found = made(table)
    [branch] = set(table.load().refs().keySet()) - {"main"}
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1", more=("--exclude", branch))
    assert code == 0, err + out
    content = verified(json.loads(out)["requests"][0]["certificate"].encode(), public_key(workshop))
    assert any(name.startswith(f"branch or tag {branch}: it keeps ") for name in content["exclusions"])
    with pytest.raises(ConflictError, match="expired"):
        publish_round(table, found)
    assert [r for r in workshop.read(topic) if r["key"].startswith(GONE)] == []


@pytest.fixture
def shared_sink(workshop, lake, spark):
    """An adopted table whose files have several logs, and what its sink does."""
    columns = "`partition` int, `offset` bigint, `timestamp` timestamp, key string, value string"
    select = ["p AS `partition`", "o AS `offset`", "timestamp_millis(ms) AS `timestamp`", "k AS key", "v AS value"]
    rows = [(r["partition"], r["offset"], r["ts"], r["key"], r["payload"]) for r in lines("")]
    name = f"erased_sink_{id(rows) % 100_000}"
    table = lake(name, columns, [rows], select, "", "'format-version'='3'")
    workshop.ok("adopt", table, "--topic", name)

    def append(offset, key):
        full = f"cleantail.{table}"
        row = spark.createDataFrame(
            [(0, offset, 1_700_000_000_000, key, VALUE)], "p int, o bigint, ms bigint, k string, v string"
        )
        row.selectExpr(*select).writeTo(full).append()
        return True

    return name, append


def test_a_sink_that_writes_the_key_before_each_scan_makes_another_pass_and_prevents_a_certificate(
    workshop, monkeypatch, shared_sink
):
    """Two passes show it as well as all five."""
    assert erasing.PASSES == 5
    monkeypatch.setattr(erasing, "PASSES", 2)
    topic, written = appending(monkeypatch, shared_sink, {1, 2, 3})
    code, out, _ = erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")
    [request] = json.loads(out)["requests"]
    assert (code, request["certificate"], written) == (1, None, [1, 2, 3])
    assert "have an erased key" in request["problems"][0]


# the test above holds the rule; here the sink stops
@DEEP
def test_a_sink_that_writes_the_key_before_a_scan_makes_another_pass_of_the_next_run(
    workshop, monkeypatch, shared_sink
):
    monkeypatch.setattr(erasing, "PASSES", 2)
    topic, written = appending(monkeypatch, shared_sink, {1, 2, 3, 5})
    assert erase(workshop, monkeypatch, topic, f"{GONE}-0", f"{GONE}-1")[0] == 1
    [request] = json.loads(workshop.ok("erase", topic, "--json"))["requests"]
    assert request["certificate"] and written == [1, 2, 3, 5]
    assert {r["key"] for r in workshop.read(topic)} == {f"{KEPT}-0", f"{KEPT}-1", f"{KEPT}-x0", f"{KEPT}-x1"}
    assert holding(workshop, topic, GONE, VALUE) == {}


def appending(monkeypatch: pytest.MonkeyPatch, sink, chosen: set[int]) -> tuple[str, list[int]]:
    """Let the sink append a record of the key before the scans of these numbers, counted from 1."""
    topic, append = sink
    real, number, written = erasing._Erasure.scanned, 0, list[int]()

    def scanned(erasure, step):
        nonlocal number
        number += 1
        if number in chosen:
            append(100 + number, f"{GONE}-0")
            written.append(number)
        return real(erasure, step)

    monkeypatch.setattr(erasing._Erasure, "scanned", scanned)
    return topic, written
