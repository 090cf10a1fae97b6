"""A round with few dirty records skips the files that cannot hold one of their keys, and finds the same losers."""

from __future__ import annotations

import pytest

from spark_jobs import compact

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
    seen = []
    real = compact.touched_keys

    def watched(*arguments):
        seen.append(real(*arguments))
        return seen[-1]

    monkeypatch.setattr(compact, "touched_keys", watched)
    topic = workshop.topic(f"trickle-{len(updates)}-{skips}")
    for file in range(FILES):
        records = [record(file * EACH + i, f"k{file * EACH + i:03}") for i in range(EACH)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{file}.jsonl", records))
    workshop.ok("compact", topic, "--force")
    end = FILES * EACH
    more = [record(end + i, key) for i, key in enumerate(updates)]
    workshop.ok("ingest", topic, "--file", workshop.file("more.jsonl", more))
    workshop.ok("compact", topic, "--force")
    assert [touched is not None for touched in seen] == [False, skips]
    gone = {int(key[1:]) for key in updates}
    assert [r["offset"] for r in workshop.read(topic)] == [o for o in range(end + len(updates)) if o not in gone]
