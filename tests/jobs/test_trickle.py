"""A round with few dirty records skips the files that cannot hold one of their keys, and finds the same losers."""

from __future__ import annotations

import pytest

from spark_jobs.engine import log_round
from spark_jobs.round import make as compact

FILES, EACH = 6, 40


def record(offset, key):
    return {"partition": 0, "offset": offset, "ts": 1_700_000_000_000 + offset, "key": key, "payload": "v"}


@pytest.mark.parametrize(
    ("updates", "skips"),
    [
        pytest.param(["k007", "k003"], True, id="keys of one file"),
        pytest.param(["k007", "k230"], False, id="keys from end to end"),
        pytest.param([f"k{i:03}" for i in range(20)], False, id="too many to be a trickle"),
    ],
)
def test_files_without_a_dirty_key_are_skipped_where_that_pays(workshop, monkeypatch, updates, skips):
    workshop.by_columns("never")
    seen = []
    real = compact.touched_keys

    def watched(*arguments):
        seen.append(real(*arguments))
        return seen[-1]

    monkeypatch.setattr(compact, "touched_keys", watched)
    topic = workshop.topic(f"trickle-{len(updates)}-{skips}")
    clean_log(workshop, topic)
    update(workshop, topic, updates)
    assert [touched is not None for touched in seen] == [False, skips]


def test_by_columns_no_file_is_opened_that_cannot_have_a_dirty_key(workshop, monkeypatch):
    opened = []
    real = log_round.record_batches

    def watched(io, file, *arguments):
        opened.append(file.lower_offset)
        return real(io, file, *arguments)

    monkeypatch.setattr(log_round, "record_batches", watched)
    topic = workshop.topic("trickle-columns")
    clean_log(workshop, topic)
    opened.clear()
    update(workshop, topic, ["k085", "k087"])
    dirty = FILES * EACH
    assert sorted(opened) == sorted(2 * [dirty, 2 * EACH, dirty])  # map and match, by the round and by its check


def clean_log(workshop, topic):
    """Files of keys that grow with the offsets, compacted."""
    for file in range(FILES):
        records = [record(file * EACH + i, f"k{file * EACH + i:03}") for i in range(EACH)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{file}.jsonl", records))
    workshop.ok("compact", topic, "--force")


def update(workshop, topic, keys):
    """A round over one more record of each key, which takes the earlier one."""
    end = FILES * EACH
    workshop.ok(
        "ingest", topic, "--file", workshop.file("more.jsonl", [record(end + i, k) for i, k in enumerate(keys)])
    )
    workshop.ok("compact", topic, "--force")
    gone = {int(key[1:]) for key in keys}
    assert [r["offset"] for r in workshop.read(topic)] == [o for o in range(end + len(keys)) if o not in gone]
