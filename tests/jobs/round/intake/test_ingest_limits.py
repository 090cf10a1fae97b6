"""What a source's file may cost: limits hold in the tasks that parse as well, and a task holds one batch."""

from __future__ import annotations

import json

import duckdb
import pytest

from cleantail.sources.digest_cache import FILE_NAME
from cleantail.sources.kcat import Record
from spark_jobs.engine.task_records import task_database
from spark_jobs.round.intake.record_batches import BATCH_BYTES, BATCH_RECORDS, chunks
from tests.jobs.round.test_rounds import record


def limited(workshop, **limits):
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"limits": limits}}))


@pytest.mark.parametrize(
    ("setting", "limit", "bad"),
    [
        ("line.max.bytes", 500, record(1, "k", "x" * 600)),
        ("record.max.headers", 2, record(1, "k", "v", headers=["a", "1"] * 3)),
    ],
)
def test_the_tasks_that_parse_go_by_the_platforms_limits(workshop, setting, limit, bad):
    topic = workshop.topic(f"limited-{limit}")
    file = workshop.file("a.jsonl", [record(0, "k", "v"), bad])
    limited(workshop, **{setting: limit})
    code, _, err = workshop.run("ingest", topic, "--file", file)
    assert code == 2 and f"{file}:2: " in err
    assert f"the limit is {setting} under `platform: limits:` in defaults.yaml; nothing was appended" in err
    limited(workshop, **{setting: limit * 10})
    workshop.ok("ingest", topic, "--file", file)
    assert len(workshop.read(topic)) == 2


def test_a_file_that_is_too_large_is_refused_before_its_table_is_made(workshop):
    topic = workshop.topic("too-large")
    file = workshop.file("a.jsonl", [record(n, "k", "v") for n in range(10)])
    limited(workshop, **{"file.max.bytes": file.stat().st_size - 1})
    code, _, err = workshop.run("ingest", topic, "--file", file)
    assert code == 2 and "the limit is file.max.bytes" in err and "nothing was appended" in err
    workshop.ok("status", topic)


def test_an_ingestion_that_comes_again_does_not_read_its_file_again(workshop, home):
    """The digest that is remembered is that of the first time."""
    import os
    import sqlite3

    topic = workshop.topic("read-once")
    file = workshop.file("a.jsonl", [record(0, "k", "v")])
    os.utime(file, (1, 1))
    settled_ms = file.stat().st_ctime_ns // 1_000_000 + 20_000
    from cleantail.sources.digest_cache import DigestCache

    with DigestCache(home) as cache:
        digest = cache.digest(file, settled_ms)
    assert workshop.json("ingest", topic, "--file", file)["files"][0]["sha256"] == digest
    with sqlite3.connect(home / FILE_NAME) as database:
        database.execute("UPDATE digests SET sha256 = ? WHERE path = ?", ("f" * 64, os.fsencode(file)))
    assert workshop.json("ingest", topic, "--file", file)["files"][0]["sha256"] == "f" * 64


def test_a_batch_ends_by_records_or_by_bytes():
    small = [Record(0, n, None, 0, b"k", b"v", ()) for n in range(BATCH_RECORDS + 1)]
    assert [len(chunk) for chunk in chunks(small)] == [BATCH_RECORDS, 1]
    value = b"x" * (BATCH_BYTES // 2)
    large = [Record(0, n, None, 0, b"k", value, ()) for n in range(5)]
    assert [len(chunk) for chunk in chunks(large)] == [2, 2, 1]
    in_headers = [Record(0, n, None, 0, b"k", b"", (("h", value),)) for n in range(3)]
    assert [len(chunk) for chunk in chunks(in_headers)] == [2, 1]
    assert list(chunks([])) == []


def test_the_database_of_a_task_opens_no_file_and_loads_no_extension(tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with task_database(1, 1 << 27) as database:
        with pytest.raises(duckdb.Error, match="disabled by configuration"):
            database.execute(f"SELECT * FROM read_csv('{secret}')")
        with pytest.raises(duckdb.Error, match="disabled|configuration"):
            database.execute("INSTALL httpfs")
        with pytest.raises(duckdb.Error, match="Cannot enable external access"):
            database.execute("SET enable_external_access = true")
