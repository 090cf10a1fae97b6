"""Which tombstones a sweep may take, and which have to wait, where records come late or are not cleaned yet.

test_every_tombstone_goes_at_its_own_horizon_whatever_the_rounds in test_ledger_of_horizons.py holds the rule for late
records in the kernel; here are histories on real tables.
"""

from __future__ import annotations

import json

import pytest

NOW = 1_800_000_000_000
HOUR = 3_600_000


def record(offset, key, payload="v", version=None, ts=None):
    headers = [] if version is None else ["v", version.to_bytes(8, "big").decode("latin-1")]
    stamp = 1_700_000_000_000 + offset if ts is None else ts
    return {"partition": 0, "offset": offset, "ts": stamp, "headers": headers, "key": key, "payload": payload}


@pytest.fixture
def ingest(workshop):
    def add(topic, *records):
        name = f"{topic}-{'-'.join(str(r['offset']) for r in records[:3])}.jsonl"
        workshop.ok("ingest", topic, "--file", workshop.file(name, records))

    return add


def offsets(workshop, topic):
    return [r["offset"] for r in workshop.read(topic)]


def latest(workshop, topic):
    return sorted(json.loads(line)["key"] for line in workshop.ok("latest", topic).splitlines())


def test_a_tombstone_stays_while_a_lower_version_of_its_key_is_not_cleaned(workshop, ingest):
    """Offset 3 is in the log before the tombstone goes: it is not late, and must not bring the key back (2)."""
    by_header = {"compaction.strategy": "header", "compaction.strategy.header": "v"}
    topic = workshop.topic("guards", {**by_header, "min.cleanable.dirty.ratio": 1.0})
    ingest(topic, record(0, "k", version=5), record(1, "k", None, version=9), record(2, "x", None, version=1))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    ingest(topic, record(3, "k", version=7), record(4, "y"))
    swept = workshop.json("compact", topic, "--now", NOW + 1_000)
    assert (swept["expired"]["expired"], offsets(workshop, topic)) == (1, [1, 3, 4])
    assert latest(workshop, topic) == ["y"]
    waiting = workshop.json("plan", topic, "--now", NOW + 1_001)
    assert (waiting["sweep"], waiting["sweep_reason"].split(":")[0]) == (None, "1 tombstone past its horizon stays")
    workshop.ok("compact", topic, "--now", NOW + 1_002, "--force")
    assert (offsets(workshop, topic), latest(workshop, topic)) == ([4], ["y"])


@pytest.mark.deep
def test_due_tombstones_go_up_to_a_late_record_and_not_beyond(workshop, ingest):
    """The first dirty offset is the late record's offset (3.5), in the middle of a round's entry in the ledger."""
    topic = workshop.topic("up-to-late", {"min.cleanable.dirty.ratio": 0.99})
    ingest(topic, record(0, "a"), record(1, "a", None), record(4, "b"))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    ingest(topic, record(5, "c"), record(6, "c", None), record(7, "f", None), record(9, "d"))
    workshop.ok("compact", topic, "--now", NOW + 10, "--force")
    ingest(topic, record(8, "e"))
    workshop.ok("compact", topic, "--now", NOW + 2_000)
    assert offsets(workshop, topic) == [4, 8, 9]


@pytest.mark.deep
def test_the_clock_of_a_late_tombstone_starts_with_the_round_that_reaches_it(workshop, ingest):
    """Its clock starts with the cleaning that kept it first (1.5), not with a round that ended below it."""
    lag = {"min.compaction.lag.ms": HOUR, "segment.bytes": 14}
    topic = workshop.topic("ended-below", lag)
    for offset in (0, 4, 6):
        ingest(topic, record(offset, f"k{offset}"))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    ingest(topic, record(1, "x"))
    ingest(topic, record(5, "k4", None, ts=NOW - 1_000))
    ended = workshop.json("compact", topic, "--now", NOW + 1, "--force")
    assert ended["compacted"]["ends"] == {"0": 5}
    workshop.ok("compact", topic, "--now", NOW + 2 * HOUR, "--force")
    assert 5 in offsets(workshop, topic)
    workshop.ok("compact", topic, "--now", NOW + 2 * HOUR + 1_000)
    assert 5 not in offsets(workshop, topic)


def test_a_keyless_record_beyond_the_first_budget_round_blocks_its_log_before_any_change(workshop, ingest):
    cleaner = {"log.cleaner.dedupe.buffer.size": 24, "log.cleaner.io.buffer.load.factor": 1.0}
    platform = {"platform": {"cleaner": {**cleaner, "cleantail.over.budget": "rounds"}}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(platform))
    topic = workshop.topic("keyless-later")
    ingest(topic, record(0, "a"), record(1, "a"), record(2, "b"), record(3, "b"), record(4, None), record(5, "c"))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 1
    assert "the first at offset 4" in err
    assert offsets(workshop, topic) == [0, 1, 2, 3, 4, 5]


def test_a_later_budget_round_reads_no_late_file_if_none_has_its_offsets(workshop, ingest):
    cleaner = {"log.cleaner.dedupe.buffer.size": 24, "log.cleaner.io.buffer.load.factor": 1.0}
    platform = {"platform": {"cleaner": {**cleaner, "cleantail.over.budget": "rounds"}}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(platform))
    topic = workshop.topic("late-below")
    ingest(topic, record(0, "a"), record(2, "b"), record(4, "c"), record(6, "a"))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    ingest(topic, record(1, "x"))
    workshop.ok("compact", topic, "--now", NOW + 1, "--force")
    assert offsets(workshop, topic) == [1, 2, 4, 6]


@pytest.mark.deep
def test_hundreds_of_scattered_late_tombstones_have_horizons_of_their_own(workshop, ingest):
    topic = workshop.topic("scattered")
    ingest(topic, *(record(o, f"k{o}") for o in range(0, 1_000, 2)))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    ingest(topic, *(record(o, f"k{o - 1}", None) for o in range(1, 1_000, 4)))
    workshop.ok("compact", topic, "--now", NOW + 10, "--force")
    workshop.ok("compact", topic, "--now", NOW + 1_009)
    assert len(offsets(workshop, topic)) == 500
    workshop.ok("compact", topic, "--now", NOW + 1_010)
    assert len(offsets(workshop, topic)) == 250
