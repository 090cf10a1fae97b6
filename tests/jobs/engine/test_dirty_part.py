"""Files that are dirty as a whole are decided without a second read of their keys, and with the same result."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyroaring import BitMap64

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.lake.records.projection import ColumnPath, Field
from cleantail.log.work_units import PartitionWork
from spark_jobs.engine import removals
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.removals import find_removals
from spark_jobs.engine.tally import TombstoneLedger
from spark_jobs.engine.task_records import task_keys
from spark_jobs.engine.violations import count_violations
from spark_jobs.iceberg.file_facts import DeletedPositions
from spark_jobs.iceberg.log_files import LogFile, alive, read_deletes_in_task, vector_blob

LAYOUT = {name: ColumnPath((Field(0, name, (name,), ""),)) for name in ("offset", "key", "value")}
FIRST, END = 30, 80
SPANS = [(0, 30), (30, 55), (55, 80), (70, 95)]
"""Of files: clean, dirty, dirty, and one with dirty records and some beyond the end."""
LEDGERS = {0: TombstoneLedger(((0, 200),))}


def vector(place, positions):
    blob = vector_blob(positions)
    place.write_bytes(blob)
    return (DeletedPositions(str(place), 0, len(blob), len(positions)),)


def some_file(folder, draw, number, span, keys):
    """A file of the log 0, of which some records were deleted before."""
    offsets = sorted(draw.sample(range(*span), draw.randrange(5, span[1] - span[0])))
    values = [draw.choice([b"v", None]) for _ in offsets]
    rows = {
        "offset": pa.array(offsets, pa.int64()),
        "key": pa.array([draw.choice(keys) for _ in offsets], pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    pq.write_table(pa.table(rows), folder / f"{number}.parquet")
    gone = BitMap64(draw.sample(range(len(offsets)), draw.randrange(3)))
    return LogFile(
        hash=number, path=str(folder / f"{number}.parquet"), records=len(offsets), log=0, lower_offset=span[0],
        upper_offset=span[1] - 1, low_key=None, high_key=None, null_keys=rows["key"].null_count,
        null_values=draw.choice([values.count(None), None]), marked=False,
        before=vector(folder / f"{number}.before", gone) if gone else (),
    )  # fmt: skip


def some_task(folder, seed, keyless=False):
    draw = random.Random(seed)
    keys = [b"", *(b"k%d" % i for i in range(12)), *([None] if keyless else [])]
    spans = SPANS if draw.random() < 0.3 else SPANS[:3]  # those that overlap bring copies of an offset
    files = tuple(some_file(folder, draw, number, span, keys) for number, span in enumerate(spans))
    return LogTask((PartitionWork(0, FIRST, END, 0, 95),), files, LAYOUT, KafkaConfigs(), 0, 1, 1 << 28, str(folder))


def removed_by(task):
    removals = find_removals({}, task)
    by_reason = {
        reason: {name: set(BitMap64.deserialize(bits)) for name, bits in places.items()}
        for reason, places in removals.positions.items()
    }
    return {reason: places for reason, places in by_reason.items() if places}, removals.keyless


def on_branch(task, folder, removed, draw):
    """The task with the files of its branch, on which some records were deleted or restored without a request."""
    files = []
    for file in task.files:
        gone = read_deletes_in_task(load_file_io({}, str(folder)), file.before, file)
        gone |= BitMap64(pos for places in removed.values() for pos in places.get((0, file.hash), ()))
        gone ^= BitMap64(draw.sample(range(file.records), draw.randrange(4)))
        after = vector(folder / f"{file.hash}.after", gone) if gone else ()
        files.append(replace(file, after=after, lost=draw.random() < 0.05))
    return replace(task, files=tuple(files))


def counted(task):
    return [
        (log.partition, {n: c for n, c in log.counts.items() if c}, log.tombstones)
        for log in count_violations({}, task, LEDGERS)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_deciding_dirty_files_without_their_keys_gives_the_result_of_a_full_comparison(tmp_path, monkeypatch, seed):
    """For a round, and for the check of what is on the branch, whatever is damaged there."""
    task = some_task(tmp_path, seed, keyless=seed % 4 == 0)
    removed, keyless = removed_by(task)
    damaged = on_branch(task, tmp_path, removed, random.Random(-seed))
    counts = counted(damaged)
    with monkeypatch.context() as patched:
        patched.setattr(removals, "_by_offset", lambda _: False)
        assert removed_by(task) == (removed, keyless)
        assert counted(damaged) == counts


def dirty_part_of(task):
    io = load_file_io({}, task.location)
    with task_keys(task) as keys:
        dirty = removals.read_dirty_part(task, io, keys)
    return [
        dirty.decides(file, alive(file.records, read_deletes_in_task(io, file.before, file))) for file in task.files
    ]


def test_only_files_that_are_dirty_as_a_whole_are_decided_without_their_keys(tmp_path):
    draw = random.Random(1)
    files = tuple(some_file(tmp_path, draw, n, span, [b"a", b"b"]) for n, span in enumerate([*SPANS[:3], (80, 95)]))
    work = PartitionWork(0, FIRST, END, 0, 95)
    task = LogTask((work,), files, LAYOUT, KafkaConfigs(), 0, 1, 1 << 28, str(tmp_path))
    assert dirty_part_of(task) == [False, True, True, False]
    assert not any(dirty_part_of(replace(task, works=(work, replace(work, partition=1)))))
    assert not any(dirty_part_of(replace(task, max_keys=1)))
    by_timestamp = KafkaConfigs.model_validate({"compaction.strategy": "timestamp"})
    assert not removals._by_offset(replace(task, configs=by_timestamp))


def test_a_file_with_other_offsets_than_its_bounds_say_is_compared(tmp_path):
    task = some_task(tmp_path, 1)
    lying = replace(task.files[0], lower_offset=FIRST, upper_offset=END - 1)
    assert dirty_part_of(replace(task, files=(lying,))) == [False]


def test_a_record_without_a_key_is_not_taken_for_superseded(tmp_path):
    task = some_task(tmp_path, 3)
    rows = {"offset": [40, 41, 42], "key": pa.array([b"a", None, b"a"], pa.binary()), "value": [b"v"] * 3}
    pq.write_table(pa.table(rows), tmp_path / "1.parquet")
    file = replace(task.files[1], records=3, before=(), null_keys=0)  # as a sink says that counts wrongly
    removed, _ = removed_by(replace(task, files=(file,)))
    assert removed == {"invalid": {(0, 1): {1}}, "superseded": {(0, 1): {0}}}
