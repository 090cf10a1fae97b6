"""ingest, compact, compact past the horizon, read: the records are those of the rules, offset by offset."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.model import changelog, compacted, in_order, without_tombstones

NOW = 1_800_000_000_000
REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "iceberg-python-files.jsonl.gz"


def test_a_real_changelog_ends_as_the_state_of_its_repository(workshop):
    """On the file history of a public repository where it is at hand, on a made stream elsewhere."""
    topic = workshop.topic("files")
    if REAL.exists():
        records = [json.loads(line) for line in gzip.decompress(REAL.read_bytes()).splitlines()]
        source = REAL
    else:
        records = changelog(8_000, 3, 600, 400, seed=7)
        source = workshop.file("made.jsonl", records)
    workshop.ok("ingest", topic, "--file", source, "--any-topic")
    workshop.ok("compact", topic, "--now", NOW)
    assert _plain(workshop.read(topic)) == _as_read(topic, compacted(records))
    workshop.ok("compact", topic, "--now", NOW + 1000)
    expected = without_tombstones(compacted(records))
    assert _plain(workshop.read(topic)) == _as_read(topic, expected)
    if REAL.exists():
        state = json.loads(gzip.decompress(REAL.with_name("iceberg-python-files.state.json.gz").read_bytes()))
        assert {r["key"]: r["payload"] for r in workshop.read(topic)} == state


FIELDS = ("partition", "offset", "tstype", "ts", "key", "payload")


def _as_read(topic, records):
    return [{"topic": topic} | {name: r[name] for name in FIELDS} for r in in_order(records)]


def _plain(records):
    return [{name: r[name] for name in ("topic", *FIELDS)} for r in records]
