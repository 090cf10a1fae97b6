"""A source table that is replaced, loses the data being read, or cannot be parsed is reported; nothing is appended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.round.intake.source_frames import SessionTable
from tests.jobs.round.source_table.test_table_source import expire


@pytest.mark.parametrize(
    ("on_change", "expired"),
    [
        pytest.param("continue", True, id="continue-expired"),
        pytest.param("fail", False, id="fail-kept", marks=pytest.mark.deep),
        pytest.param("fail", True, id="fail-expired", marks=pytest.mark.deep),
        pytest.param("continue", False, id="continue-kept", marks=pytest.mark.deep),
    ],
)
def test_a_table_that_was_replaced_under_its_uuid_is_refused(sink, workshop, reading, records, on_change, expired):
    name = f"replaced-{on_change}-{expired}".lower()
    lake = sink(name)
    lake.append((0, 0, 5, "a", "x"))
    topic = reading(f"table-{name}", lake, on_change=on_change)
    workshop.ok("ingest", topic)
    lake.sql(
        "CREATE OR REPLACE TABLE {} USING iceberg AS SELECT 0 p, o, 5L ms, 'other' k, 'log' v FROM range(3) AS t(o)"
    )
    if expired:
        expire(lake)
    lake.append((0, 3, 5, "other", "log"))
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "was recreated, as CREATE OR REPLACE TABLE does: branch main begins with snapshot" in err
    assert "give the topic another table in its YAML" in err and len(records(topic)) == 1


@pytest.mark.parametrize(
    "kind", ["whole", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("appends", "overwrite"))]
)
def test_a_snapshot_that_expires_between_plan_and_read_is_reported(
    sink, workshop, reading, table_of, records, monkeypatch, kind
):
    lake = sink(f"expiring-{kind}")
    lake.append((0, 0, 5, "a", "x"), (0, 1, 5, "b", "x"))
    topic = reading(f"table-expiring-{kind}", lake, on_change="continue")
    if kind != "whole":
        workshop.ok("ingest", topic)
        lake.append((0, 2, 5, "c", "x"))
    if kind == "overwrite":
        lake.sql("DELETE FROM {} WHERE k = 'a'")
    real = SessionTable.of

    def expires(*args):
        lake.append((0, 3, 5, "d", "x"))
        expire(lake)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(SessionTable, "of", expires)
        code, _, err = workshop.run("ingest", topic)
    assert code == 2 and f"of cleantail.{lake.name} expired while it was read; nothing was appended" in err
    assert [r[1] for r in records(topic)] == ([] if kind == "whole" else [0, 1])
    workshop.ok("ingest", topic)
    offsets = [r[1] for r in records(topic)]
    assert offsets == {"whole": [0, 1, 3], "appends": [0, 1, 2, 3], "overwrite": [0, 1, 2, 3]}[kind]


BROKEN = {
    "another version": lambda data: json.dumps(data | {"format-version": 9}),
    "none of Iceberg's": lambda data: json.dumps({"secret": "of whoever wrote it"}),
    "no JSON": lambda data: "secret",
}


def test_metadata_that_cannot_be_read_is_an_error_with_the_table(sink, workshop, reading):
    lake = sink("metadata-broken")
    lake.append((0, 0, 5, "a", "x"))
    file, topic = Path(lake.metadata.removeprefix("file:")), reading("table-metadata-broken", lake)
    right = json.loads(file.read_text())
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    for what, broken in BROKEN.items():
        file.write_text(broken(right))
        code, _, err = workshop.run("ingest", topic)
        assert code == 2 and f"the metadata of cleantail.{lake.name} cannot be read: " in err, what
        assert "nothing was appended" in err and "secret" not in err, what
