"""ingest, compact, compact past the horizon, read: the records are those of the rules, offset by offset."""

from __future__ import annotations

import base64
import gzip
import json
import random
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
    workshop.ok("ingest", topic, "--file", source)
    workshop.ok("compact", topic, "--now", NOW)
    assert _plain(workshop.read(topic)) == _as_read(topic, compacted(records))
    workshop.ok("compact", topic, "--now", NOW + 1000)
    expected = without_tombstones(compacted(records))
    assert _plain(workshop.read(topic)) == _as_read(topic, expected)
    if REAL.exists():
        state = json.loads(gzip.decompress(REAL.with_name("iceberg-python-files.state.json.gz").read_bytes()))
        assert {r["key"]: r["payload"] for r in workshop.read(topic)} == state


def test_the_highest_version_survives_over_several_rounds(workshop):
    """Every strategy is in the histories; this is the one with the most kinds of records, on more of them."""
    topic = workshop.topic("versions", {"compaction.strategy": "header", "compaction.strategy.header": "version"})
    records = changelog(2_000, 3, 150, 100, seed=11, headers=_versions)
    step = len(records) // 2
    for n in range(2):
        part = workshop.file(f"part{n}.jsonl", records[n * step : (n + 1) * step])
        workshop.ok("ingest", topic, "--file", part)
        # far below the horizon of the first round: tombstones must all be there
        workshop.ok("compact", topic, "--now", NOW + n, "--force")
        done = records[: (n + 1) * step]
        assert _plain(workshop.read(topic)) == _as_read(topic, compacted(done, "header", "version"))
    workshop.ok("compact", topic, "--now", NOW + 1 + 1000)
    expected = without_tombstones(compacted(records, "header", "version"))
    assert _plain(workshop.read(topic)) == _as_read(topic, expected)


def _versions(rng: random.Random) -> list[str]:
    """Mostly a good version, else none, a short one, or two of which the last counts."""
    good = lambda: ["version", base64.b64encode(rng.randrange(-50, 1 << 40).to_bytes(8, "big", signed=True)).decode()]  # noqa: E731
    kind = rng.randrange(10)
    if kind == 0:
        return []
    if kind == 1:
        return ["version", base64.b64encode(b"abc").decode()]
    return good() + good() if kind == 2 else good()


FIELDS = ("partition", "offset", "tstype", "ts", "key", "payload")


def _as_read(topic, records):
    return [{"topic": topic} | {name: r[name] for name in FIELDS} for r in in_order(records)]


def _plain(records):
    return [{name: r[name] for name in ("topic", *FIELDS)} for r in records]
