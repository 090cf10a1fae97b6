"""`history` on a real table: its ids are those that --as-of and `rollback` take, and a key's records name their rounds."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.jobs.round.test_rounds import NOW
from tests.jobs.round.undo.test_undo import ingest


def kinds(events):
    return [(e["kind"], e["snapshot_id"] is not None, bool(e["undo"])) for e in events]


def test_history_lists_every_event_and_other_commands_accept_its_ids(workshop):
    topic = workshop.topic("history-of-rounds")
    ingest(workshop, topic, "day-1.jsonl", (0, "a", "old"), (1, "b", "x"))
    workshop.ok("compact", topic, "--now", NOW)
    ingest(workshop, topic, "day-2.jsonl", (2, "a", "new"))
    workshop.ok("compact", topic, "--now", NOW + 1000, "--force")
    events = workshop.json("history", topic)["events"]
    assert [e for e in kinds(events) if e[0] in ("compact", "ingest")] == [
        ("compact", True, True), ("ingest", True, False), ("compact", True, True), ("ingest", True, False)
    ]  # fmt: skip
    last, day_2 = events[0], next(e for e in events if "day-2.jsonl" in e["what"])
    assert "removed 1 superseded" in last["what"]
    # a key: what the table has, and what the round removed, readable where the list says
    removed, kept = workshop.json("history", topic, "--key", "a")["records"]
    assert (removed["payload"], removed["removed"]["snapshot_id"]) == ("old", last["snapshot_id"])
    assert (kept["payload"], kept["removed"]) == ("new", None)
    before = removed["last_snapshot_id"]
    assert [r["payload"] for r in workshop.read(topic, "--key", "a", "--as-of", before)] == ["old", "new"]
    # a time is the snapshot that was current then
    at = datetime.fromtimestamp(day_2["at_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
    assert workshop.read(topic, "--as-of", at) == workshop.read(topic, "--as-of", day_2["snapshot_id"])
    # what it names undoes the round: then the round has no snapshot, and its record is back
    workshop.ok("rollback", topic, *last["undo"])
    events = workshop.json("history", topic)["events"]
    assert events[0]["kind"] == "rollback" and events[0]["what"].startswith("undid ")
    undone = [e for e in events if e["outcome"] == "undone"]
    assert [(e["snapshot_id"], "it had removed 1 superseded" in e["what"]) for e in undone] == [(None, True)]
    assert [r["removed"] for r in workshop.json("history", topic, "--key", "a")["records"]] == [None, None]
    ingestion = next(e for e in events if "day-2.jsonl" in e["what"])
    assert ingestion["undo"] == ["--ingestion", str(ingestion["snapshot_id"])]
    workshop.ok("rollback", topic, *ingestion["undo"])
    assert [r["payload"] for r in workshop.read(topic)] == ["old", "x"]
