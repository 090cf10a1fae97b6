"""Keys matched by columns: the same verdicts as by Spark's plans, and nothing believed of a file that is not so."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyroaring import BitMap64

from cleantail.errors import TableError
from cleantail.lake.runs.evaluate import evaluate_topic
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.checked.staged_units import StagedUnit, UnitCounts
from cleantail.rounds.last_compaction import COUNTS
from demo.sabotage import delete_where
from spark_jobs.engine.log_round import find_removals, judge
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.measures import measure_unit
from spark_jobs.iceberg.deletion_vectors import vector_blob
from spark_jobs.iceberg.log_files import (
    DeletionVector,
    KeyColumns,
    LogFile,
    UnknownLayoutError,
    alive,
    read_deletes,
    record_batches,
    with_branch,
)
from spark_jobs.round.make import compact_unit

NOW = 1_800_000_000_000
LOGS = 3


def record(log, offset, key, payload="v"):
    return {"partition": log, "offset": offset, "ts": 1_700_000_000_000 + offset, "key": key, "payload": payload}


def some_records(draw, offsets):
    keys = [None, *(f"k{i}" for i in range(12))]
    return [
        record(log, offset, draw.choice(keys), draw.choice(["v", None])) for log in range(LOGS) for offset in offsets
    ]


@pytest.mark.parametrize("seed", range(int(os.environ.get("CLEANTAIL_HISTORIES", "1"))))
def test_both_plans_remove_the_same_and_judge_any_damage_alike(workshop, table_of, seed):
    draw = random.Random(seed)
    start = draw.choice([0, 7])
    config = {"cleanup.policy": "compact,delete", "cleantail.keyless.policy": "drop", "retention.ms": -1}
    topic = workshop.topic(f"alike-{seed}", config)
    table = table_of(topic)
    for number, span in enumerate((range(40), range(40, 60), range(60, 90))):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{number}.jsonl", some_records(draw, span)))
        if not number:
            workshop.ok("compact", topic, "--now", NOW)
    plan = evaluate_topic(table.topic, workshop.platform(), now_ms=NOW)
    [unit] = [
        WorkUnit(w.round, w.unit, w.now_ms, w.base_snapshot_id, w.branch, tuple(moved(p, start) for p in w.partitions))
        for w in plan.units
    ]
    left, measured = [], []
    for choice in ("never", "auto"):
        workshop.by_columns(choice)
        platform = workshop.platform()
        done = compact_unit(table, platform, unit)
        left.append(table.at_branch(done.branch).select("partition", "offset").sort("partition", "offset").collect())
        assert ("by columns" in done.counts.plan) == (choice == "auto")
        measured.append([measure_unit(table, platform, done, expiring=False)])
        for damage in range(3):
            delete_where(table, done.branch, f"hash(t.`offset`, {seed}, {damage}) % 4 = 0")
            measured[-1].append(measure_unit(table, platform, done, expiring=False))
    assert left[0] == left[1]
    assert measured[0] == measured[1]
    assert any(m.missing_winners for m in measured[1][-1])
    assert not any(m.missing_winners or m.duplicate_keys for m in measured[1][0])
    on_main = workshop.read(topic)
    found = [m.violations(COUNTS) for m in measured[1][0]]
    assert found == [expected_counts(on_main, work) for work in unit.partitions]


def expected_counts(records, work):
    """The counts by their definition: nothing is removed of a key but records below its last dirty one."""
    log = [r for r in records if r["partition"] == work.partition]
    read = [r for r in log if work.log_start_offset <= r["offset"] < work.end_offset]
    dirty = [r for r in log if work.first_dirty_offset <= r["offset"] < work.end_offset]
    last = {r["key"]: r["offset"] for r in dirty if r["key"] is not None}
    kept = [r for r in read if r["key"] is not None and r["offset"] >= last.get(r["key"], 0)]
    return dict(zip(COUNTS, (len(read), len(kept), len(dirty), len(last)), strict=True))


def moved(work: PartitionWork, log_start_offset: int) -> PartitionWork:
    return PartitionWork(
        **{n: getattr(work, n) for n in work.__dataclass_fields__} | {"log_start_offset": log_start_offset}
    )


def test_superseded_records_that_stay_are_seen_by_both(workshop, table_of):
    topic = workshop.topic("stayed")
    table = table_of(topic)
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, i, "k") for i in range(5)]))
    [unit] = evaluate_topic(table.topic, workshop.platform(), now_ms=NOW).units
    table.create_branch("ct_untouched", unit.base_snapshot_id)
    unit = WorkUnit(unit.round, 0, NOW, unit.base_snapshot_id, "ct_untouched", unit.partitions)
    staged = StagedUnit.of(unit, UnitCounts({}))
    for choice in ("never", "auto"):
        workshop.by_columns(choice)
        [measure] = measure_unit(table, workshop.platform(), staged, expiring=False)
        assert measure.duplicate_keys == 4


def test_copies_of_an_offset_are_left_to_spark(workshop, table_of):
    topic = workshop.topic("copied")
    table = table_of(topic)
    lines = [record(0, i, "k") for i in range(3)]
    for number, again in enumerate([lines, lines[::-1]]):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{number}.jsonl", again))
    [unit] = evaluate_topic(table.topic, workshop.platform(), now_ms=NOW).units
    done = compact_unit(table, workshop.platform(), unit)
    assert "not so, for an offset occurs more than once" in done.counts.plan
    assert done.counts.deleted["copies"] == {0: 3}


def file_of(place, **more):
    facts = {
        "hash": 1, "path": str(place), "records": 4, "lower_offset": 10, "upper_offset": 13, "low_key": b"b",
        "high_key": b"d", "null_keys": 0, "before": None,
    }  # fmt: skip
    return LogFile(**facts | more)


@pytest.mark.parametrize(
    ("low", "end", "may", "lies"),
    [(0, 10, False, False), (0, 11, True, False), (13, 20, True, False), (14, 20, False, False), (10, 14, True, True)],
)
def test_a_file_is_skipped_by_its_offsets(low, end, may, lies):
    file = file_of("f")
    assert (file.may_hold(low, end), file.lies_in(low, end)) == (may, lies)
    silent = file_of("f", lower_offset=None, upper_offset=None)
    assert (silent.may_hold(low, end), silent.lies_in(low, end)) == (True, False)


@pytest.mark.parametrize(
    ("low", "high", "may"),
    [(b"a", b"az", False), (b"a", b"b", True), (b"d", b"z", True), (b"da", b"z", False), (None, None, False)],
)
def test_a_file_is_skipped_by_its_keys(low, high, may):
    assert file_of("f").may_hold_keys(low, high) == may
    assert file_of("f", low_key=None, high_key=None).may_hold_keys(low, high) == (low is not None)


def parquet(place, ids=(2, 5)):
    fields = [
        pa.field(name, kind, metadata=None if i is None else {b"PARQUET:field_id": str(i).encode()})
        for name, kind, i in zip(("offset", "key"), (pa.int64(), pa.binary()), ids, strict=True)
    ]
    columns = [pa.array([10, 11, 12, 13], pa.int64()), pa.array([b"a", None, b"b", b"a"], pa.binary())]
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), place)
    return place


def test_positions_are_counted_over_deleted_records_too(tmp_path):
    file = file_of(parquet(tmp_path / "f.parquet"))
    io = load_file_io({}, str(tmp_path))
    keep = alive(4, BitMap64([1]))
    [batch] = record_batches(io, file, KeyColumns(2, 5), keep, {"n": pa.array([0, 1, 2, 3])})
    assert batch.to_pydict() == {"offset": [10, 12, 13], "key": [b"a", b"b", b"a"], "pos": [0, 2, 3], "n": [0, 2, 3]}


def test_columns_are_known_by_their_ids_alone(tmp_path):
    io = load_file_io({}, str(tmp_path))
    swapped = file_of(parquet(tmp_path / "other.parquet", ids=(5, 2)))
    with pytest.raises(UnknownLayoutError):
        list(
            record_batches(
                io,
                file_of(parquet(tmp_path / "none.parquet", (None, None))),
                KeyColumns(2, 5),
                alive(4, BitMap64()),
                {},
            )
        )
    [batch] = record_batches(io, swapped, KeyColumns(5, 2), alive(4, BitMap64()), {})
    assert batch.column("offset").to_pylist() == [10, 11, 12, 13]


def test_a_file_that_is_not_what_its_metadata_say_is_no_ground_for_deletes(tmp_path):
    file = file_of(parquet(tmp_path / "f.parquet"), records=5)
    task = LogTask(PartitionWork(0, 10, 14, 0, 14), (file,), KeyColumns(2, 5), False, 1, str(tmp_path))
    with pytest.raises(TableError, match="has 4 records, its metadata say 5"):
        find_removals({}, task)


@pytest.mark.parametrize(
    ("positions", "count"), [([0, 9], 2), ([0], 2), ([0, 1, 2], 2)], ids=["behind the end", "too few", "too many"]
)
def test_a_vector_that_is_not_what_its_metadata_say_is_named(tmp_path, positions, count):
    blob = vector_blob(BitMap64(positions))
    (tmp_path / "v.puffin").write_bytes(b"PFA1" + blob)
    deletes = DeletionVector(str(tmp_path / "v.puffin"), 4, len(blob), count)
    with pytest.raises(TableError, match=f"v.puffin at 4 has {len(positions)} positions, its metadata say {count}"):
        read_deletes(load_file_io({}, str(tmp_path)), deletes, 4)


def test_the_records_of_a_file_that_the_branch_is_without_are_missing(tmp_path):
    file = file_of(parquet(tmp_path / "f.parquet"))
    files = with_branch({0: [file]}, {})[0]
    task = LogTask(PartitionWork(0, 10, 14, 0, 14), tuple(files), KeyColumns(2, 5), False, 1, str(tmp_path))
    counts = judge({}, task).counts
    assert (counts["records_in"], counts["records_out"], counts["missing_winners"]) == (4, 0, 2)
