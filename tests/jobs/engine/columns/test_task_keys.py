"""Keys that are held in memory are numbered, and found again, as the database does it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.work_units import PartitionWork
from spark_jobs.engine import task_records
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.task_records import KEY_AND_OFFSET, TaskKeys, held_batches, task_database
from spark_jobs.iceberg.log_files import LogFile

RECORDS = pa.schema([*KEY_AND_OFFSET, ("has", pa.bool_()), ("version", pa.int64()), ("flags", pa.uint8())])
KEYS = [None, b"", b"\x00", b"\xff\xfe", b"a", b"ab", *(b"key-%d" % n for n in range(20))]


def some_batches(draw, schema, most=6):
    """Batches of records, some of them without any."""
    batches, offset = [], 0
    for _ in range(draw.randrange(most)):
        count = draw.choice([0, 1, 30])
        columns = {
            "key": [draw.choice(KEYS[: draw.randrange(1, len(KEYS))]) for _ in range(count)],
            "offset": range(offset, offset + count),
            "has": [draw.random() < 0.5 for _ in range(count)],
            "version": [draw.choice([7, -5, 1 << 60]) for _ in range(count)],
            "flags": [draw.randrange(16) for _ in range(count)],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        offset += count
    draw.shuffle(batches)
    return batches


def key_by_offset(batches):
    return {row["offset"]: row["key"] for batch in batches for row in batch.to_pylist()}


def answers(keys, dirty, records, draw):
    """All answers of TaskKeys, with keys in place of their numbers, which may differ between memory and database."""
    touched = keys.number(dirty)
    told = [touched, [keys.offset_of_key(n) for n in range(1, touched.count + 3)]]
    if draw.random() < 0.5:
        touched = keys.leave_below(draw.randrange(60))
        told.append(touched)
    by_key = key_by_offset(dirty)
    last = [int(offset) for offset in keys.last_offsets()]
    found = [rows for rows in keys.numbered(RECORDS, iter(records)) if len(rows["number"])]
    columns = ["number", "offset", "has", "version", "flags"]
    assert all(list(rows) == ["number", *RECORDS.names[1:]] for rows in found)
    rows = [row for part in found for row in zip(*(part[name].tolist() for name in columns), strict=True)]
    # the last offset of a key says which it is
    named = sorted((offset, str(by_key[last[number]]), *map(str, more)) for number, offset, *more in rows)
    return [*told, sorted((str(by_key[offset]), offset) for offset in last), named]


@pytest.fixture(scope="module")
def database():
    with task_database(1, 1 << 28) as opened:
        yield opened


@pytest.mark.parametrize("seed", range(60))
def test_memory_and_database_return_the_same_keys(monkeypatch, database, seed):
    """Also where the keys of a task turn out to be too many for memory, and records come in several portions."""
    monkeypatch.setattr(task_records, "PORTION_BYTES", 500)
    draw = random.Random(seed)
    dirty, records = some_batches(draw, KEY_AND_OFFSET), some_batches(draw, RECORDS)
    told = []
    for held_bytes in (1 << 20, 200, 0):
        told.append(answers(TaskKeys(held_bytes, lambda: database), dirty, records, random.Random(seed)))
    assert told[0] == told[1] == told[2]
    by_key = key_by_offset(dirty)
    keys = {key for key in by_key.values() if key is not None}
    assert (told[0][0].count, told[0][0].low) == (len(keys), min(keys, default=None))


def of_keys(*keys):
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(range(len(keys)))], schema=KEY_AND_OFFSET)


def test_task_keys_read_every_batch_even_if_no_key_was_touched():
    read = []

    def batches():
        for number in range(50):
            read.append(number)
            yield of_keys(b"k")

    keys = TaskKeys(1 << 20, lambda: pytest.fail("no database is needed"))
    assert keys.number([]).count == 0
    assert sum(len(rows["number"]) for rows in keys.numbered(KEY_AND_OFFSET, batches())) == 0
    assert read == list(range(50))


def test_an_error_while_batches_are_read_is_raised_unchanged():
    def batches():
        yield of_keys(b"k")
        raise KeyError("the last one")

    keys = TaskKeys(1 << 20, lambda: pytest.fail("no database is needed"))
    with pytest.raises(KeyError, match="the last one"):
        keys.number(batches())
    with pytest.raises(KeyError, match="the last one"):
        list(keys.numbered(KEY_AND_OFFSET, batches()))


def test_held_batches_stop_at_the_limit_and_leave_the_rest_unread():
    large = of_keys(b"k" * 1000)
    held, more = held_batches(iter([large] * 9), 2500)
    assert (len(held), len(list(more))) == (3, 6)
    assert held_batches([large], 2500) == ([large], None)
    assert held_batches([], 0) == ([], None)


def task_of(folder, records):
    file = LogFile(
        hash=1, path=str(folder / "1.parquet"), records=records, log=0, lower_offset=0, upper_offset=9, low_key=None,
        high_key=None, null_keys=0, null_values=0, marked=False, before=(),
    )  # fmt: skip
    return LogTask((PartitionWork(0, 0, 10, 0, 10),), (file,), {}, KafkaConfigs(), 0, 1, 1 << 28, str(folder))


@pytest.mark.parametrize(("records", "keys", "opened"), [(100, 1, 0), (1_000_000, 1, 1), (100, 9, 1)])
def test_only_a_task_with_more_keys_than_memory_holds_opens_a_database(tmp_path, monkeypatch, records, keys, opened):
    """What the metadata say of the keys is how large they are in their files: compressed."""
    opening = []

    def counted(*arguments):
        opening.append(arguments)
        return task_database(*arguments)

    monkeypatch.setattr(task_records, "task_database", counted)
    monkeypatch.setattr(task_records, "HELD_BYTES", 5000)
    with task_records.task_keys(task_of(tmp_path, records)) as numbers:
        touched = numbers.number(of_keys(b"%d" % number + b"k" * 1000) for number in range(keys))
    assert (touched.count, opening) == (keys, [(1, 1 << 28)] * opened)
