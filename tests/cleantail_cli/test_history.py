"""`history`: what it lists of a topic and of a key, on real tables without Spark."""

import json

import pytest

from cleantail.rounds.past_ingestions import SourceFile, Sources
from cleantail_cli import main


@pytest.fixture
def run(project, capsys):
    def command(*arguments):
        code = main([*arguments, "--config", str(project / "config")])
        return (code, *capsys.readouterr())

    return command


def ingested(name):
    sources = Sources((SourceFile(f"sha of {name}", name),), {0: None}).packed()
    return {"cleantail.operation": "ingest", "cleantail.sources": sources}


@pytest.fixture
def lived(orders_table):
    """Two ingestions, then a writer that removes the first record of key k; the snapshots, oldest first."""
    orders_table.append((0, 0, 1_000, b"k", b"old"), (0, 1, 2_000, b"a", b"x"), summary=ingested("day-1.jsonl"))
    orders_table.append((0, 2, 3_000, b"k", None), (1, 7, 4_000, b"k", b"other log"), summary=ingested("day-2.jsonl"))
    orders_table.table.delete("partition = 0 and offset < 1")
    return [s.snapshot_id for s in orders_table.table.metadata.snapshots]


def test_a_topic_without_a_table_is_named(run):
    assert run("history", "orders")[0] == 2


def test_events_have_the_snapshots_that_as_of_takes(run, lived):
    document = json.loads(run("history", "orders", "--json")[1])
    events = document["events"]
    assert [(e["kind"], e["snapshot_id"]) for e in events] == [
        (events[0]["kind"], lived[2]), ("ingest", lived[1]), ("ingest", lived[0])
    ]  # fmt: skip
    assert [e["what"] for e in events[1:]] == ["2 records: day-2.jsonl", "2 records: day-1.jsonl"]
    assert [e["at_ms"] for e in events] == sorted((e["at_ms"] for e in events), reverse=True)
    for event, count in zip(events, (3, 4, 2), strict=True):
        lines = run("read", "orders", "--as-of", str(event["snapshot_id"]))[1].splitlines()
        assert len(lines) == count


def test_people_see_a_table_that_keeps_80_columns_and_what_to_do_with_it(run, lived, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("history", "orders")
    assert (code, err) == (0, "")
    assert all(str(snapshot) in out for snapshot in lived)
    table = out[: out.index("`cleantail read")]
    assert max(map(len, table.splitlines())) <= 80
    assert "--as-of SNAPSHOT" in out and "--to SNAPSHOT" in out and "--ingestion SNAPSHOT" in out


def test_the_newest_are_shown_and_the_others_counted(run, lived):
    document = json.loads(run("history", "orders", "--limit", "1", "--json")[1])
    assert ([e["snapshot_id"] for e in document["events"]], document["older"]) == ([lived[2]], 2)
    assert "2 older events: --limit shows more" in run("history", "orders", "--limit", "1")[1]


def test_branches_are_listed_with_their_snapshots(run, lived, orders_table):
    orders_table.table.manage_snapshots().create_branch(lived[0], "failed_r").commit()
    assert json.loads(run("history", "orders", "--json")[1])["branches"] == {"failed_r": lived[0]}
    assert f"branch or tag failed_r is at snapshot {lived[0]}" in run("history", "orders")[1]


def test_the_history_of_a_key_has_what_kept_snapshots_have_and_what_removed_it(run, lived):
    document = json.loads(run("history", "orders", "--key", "k", "--json")[1])
    seen = [(r["partition"], r["offset"], r["payload"], r["last_snapshot_id"]) for r in document["records"]]
    assert seen == [(0, 0, "old", lived[1]), (0, 2, None, None), (1, 7, "other log", None)]
    removed = [r["removed"] and r["removed"]["snapshot_id"] for r in document["records"]]
    assert removed == [lived[2], None, None]
    [line] = run("read", "orders", "--key", "k", "--as-of", str(lived[1]), "--to-offset", "1")[1].splitlines()
    assert json.loads(line)["payload"] == "old"


def test_the_history_of_a_key_is_a_table_for_people(run, lived):
    code, out, _ = run("history", "orders", "--key", "k")
    assert code == 0
    assert '"old"' in out and str(lived[1]) in out and "the oldest kept snapshot is of" in out
    assert "no kept snapshot has a record of this key" in run("history", "orders", "--key", "nobody")[1]
