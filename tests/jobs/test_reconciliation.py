"""What the broker has forgotten: its cleaner removes deletions before they are read, and a reconciliation mends it."""

from __future__ import annotations

import json
import time

import pytest

SOON = {"cleanup_policy": "compact", "segment_ms": 100, "delete_retention_ms": 100, "min_cleanable_dirty_ratio": 0.01}
"""A topic whose cleaner removes tombstones within a second or two."""
WITHIN_S = 90


def forget(kafka, topic, partitions=1):
    """Writes on until the broker's cleaner has removed every tombstone."""
    until = time.monotonic() + WITHIN_S
    while any(r.value is None for r in kafka.consumed(topic, partitions)):
        assert time.monotonic() < until, "the broker's cleaner has left a tombstone"
        for partition in range(partitions):
            kafka.send(topic, [(b"roll", b"x" * 100)], partition=partition)
        time.sleep(0.3)


def state_of(records):
    state = {}
    for r in sorted(records, key=lambda r: (r.partition, r.offset)):
        state[r.partition, r.key] = r.value
    return {name: value for name, value in state.items() if value is not None}


@pytest.fixture
def behind(kafka, workshop, request):
    """A topic of two partitions whose table has keys that were deleted, and forgotten, before it was read again."""

    def make(name, **more):
        topic = workshop.topic(name, source=kafka.source(), **more)
        kafka.create(topic, 2, **SOON)
        for partition in (0, 1):
            kafka.send(topic, [(b"k%d" % n, b"v%d" % n) for n in range(10)], partition=partition)
        workshop.ok("ingest", topic)
        kafka.send(topic, [(b"k%d" % n, None) for n in range(4)])
        kafka.send(topic, [(b"k7", None), (b"", None)], partition=1)
        forget(kafka, topic, 2)
        kafka.send(topic, [(b"k3", b"again")])
        return topic

    return make


def test_keys_that_are_gone_at_the_source_go_and_what_is_left_is_the_brokers_state(
    kafka, workshop, landed, behind, position
):
    topic = behind("forgotten")
    done = workshop.json("ingest", topic)
    assert len([w for w in done["warnings"] if "deletions may be among them" in w]) == 2
    assert [entry.partition for entry in position(topic).forgotten] == [0, 1]
    assert "reconcile" in workshop.ok("status", topic)
    assert state_of(landed(topic)).keys() - state_of(kafka.consumed(topic, 2)).keys() == {
        (0, b"k0"),
        (0, b"k1"),
        (0, b"k2"),
        (1, b"k7"),
    }
    before = landed(topic)
    told = workshop.json("reconcile", topic, "--dry-run")
    assert [(log["partition"], log["keys"], log["records"]) for log in told["partitions"]] == [(0, 3, 3), (1, 1, 1)]
    assert landed(topic) == before
    done = workshop.json("reconcile", topic)
    assert (done["ok"], done["kind"], done["published"]) == (True, "reconcile", [0, 1])
    assert [m["deleted"]["gone_at_source"] for m in done["measures"]] == [3, 1]
    assert state_of(landed(topic)) == state_of(kafka.consumed(topic, 2))
    assert "reconcile" not in workshop.ok("status", topic)
    rows = [row for row in workshop.evidence(topic) if row["kind"] == "reconcile" and row["outcome"] == "published"]
    assert [json.loads(row["deleted"]) for row in rows] == [{"gone_at_source": 3}, {"gone_at_source": 1}]
    assert workshop.json("reconcile", topic)["measures"][0]["deleted"] == {"gone_at_source": 0}
