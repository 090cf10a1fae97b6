"""A round with few dirty records opens no file that cannot hold one of their keys, and finds the same losers."""

from __future__ import annotations

from dataclasses import replace

from cleantail.lake.evaluate import evaluate_topic
from spark_jobs.engine import task_records as engine_records
from spark_jobs.engine.removals import find_removals
from spark_jobs.engine.tasks import log_tasks
from spark_jobs.engine.violations import count_violations
from spark_jobs.iceberg.log_files import with_branch
from spark_jobs.round.make import compact_unit

FILES, EACH = 4, 40


def record(offset, key):
    return {"partition": 0, "offset": offset, "ts": 1_700_000_000_000 + offset, "key": key, "payload": "v"}


def test_no_file_is_opened_that_cannot_have_a_dirty_key(workshop, table_of, monkeypatch):
    """The functions of a task are called here, in this process: what they open can be seen."""
    topic = workshop.topic("trickle-columns")
    clean_log(workshop, topic)
    end, keys = FILES * EACH, ["k085", "k087"]
    more = [record(end + i, key) for i, key in enumerate(keys)]
    workshop.ok("ingest", topic, "--file", workshop.file("more.jsonl", more))
    opened = watched_files(monkeypatch)
    table, _platform = table_of(topic), workshop.platform()
    [unit] = evaluate_topic(table.topic, force=True, now_ms=1_900_000_000_000).units
    base = table.files_at(unit.base_snapshot_id)
    [task] = log_tasks(table, unit, base)
    find_removals({}, task)
    # the dirty part, which is decided as it is read, then what can have its keys
    assert sorted(opened) == sorted([end, 2 * EACH])
    done = compact_unit(table, unit)
    branch = table.files_at(table.head_of(done.branch))
    opened.clear()
    files = tuple(with_branch(task.files, branch.deletes_by_path()))
    count_violations({}, replace(task, files=files), {})
    assert sorted(opened) == sorted([end, 2 * EACH])
    workshop.ok("compact", topic, "--force")
    gone = {int(key[1:]) for key in keys}
    assert [r["offset"] for r in workshop.read(topic)] == [o for o in range(end + len(keys)) if o not in gone]


def watched_files(monkeypatch):
    """The lowest offsets of the files that are opened from here on, in order."""
    opened, real = [], engine_records.column_batches

    def watched(io, file, *arguments):
        opened.append(file.lower_offset)
        return real(io, file, *arguments)

    monkeypatch.setattr(engine_records, "column_batches", watched)
    return opened


def clean_log(workshop, topic):
    """Files of keys that grow with the offsets, compacted."""
    for file in range(FILES):
        records = [record(file * EACH + i, f"k{file * EACH + i:03}") for i in range(EACH)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{file}.jsonl", records))
    workshop.ok("compact", topic, "--force")
