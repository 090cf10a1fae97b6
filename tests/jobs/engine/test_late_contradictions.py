"""Two different records at one offset never count as copies: an ingestion refuses them, a check blocks their log."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pytest

from cleantail.log.rules import CANDIDATE, Contradiction
from cleantail.log.task_shares import TaskSizes
from spark_jobs.engine import contradictions, tasks
from spark_jobs.engine.contradictions import all_candidates, contradictions_in
from spark_jobs.iceberg import snapshot_files
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.ingest import parsed_records
from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.round.test_rounds import HOUR, NOW, offsets, record

OLD = [record(0, "a", "old-a"), record(1, "b", "old-b"), record(2, "a", "old-a2")]
ANEW = [record(0, "x", "new-x"), record(1, "y", "new-y"), record(2, "a", "new-a")]
"""The same topic recreated: its offsets begin again."""
REWRITTEN = {"cleantail.reclaim.deleted.ratio": 0, "cleantail.snapshot.retention.ms": 0}
"""The next reclaim leaves no hidden record in a data file."""


@pytest.fixture
def ingest(workshop):
    """Gives (exit code, message) of an ingestion of files."""
    numbers = iter(range(100))

    def run(topic, *files):
        paths = [workshop.file(f"{topic}-{next(numbers)}.jsonl", lines) for lines in files]
        code, _, err = workshop.run("ingest", topic, *(part for path in paths for part in ("--file", path)))
        return code, err

    return run


def test_records_of_a_recreated_topic_are_refused_and_nothing_is_appended(workshop, ingest, table_of, by_one_plan):
    topic = workshop.topic("made-anew")
    assert ingest(topic, OLD)[0] == 0
    workshop.ok("compact", topic, "--now", NOW)
    before, head = workshop.ok("latest", topic), table_of(topic).load().currentSnapshot().snapshotId()
    code, message = ingest(topic, ANEW)
    assert code == 2
    assert "made-anew-1.jsonl: partition 0, offset 0: the table had another record there" in message
    assert "key and value differ (3 such offsets in all); nothing was appended" in message
    assert "as the topic recreated" in message
    assert not any(text in message for text in ("new-x", "old-a", "new-y", "old-b"))
    assert workshop.ok("latest", topic) == before
    assert table_of(topic).load().currentSnapshot().snapshotId() == head
    assert list(table_of(topic).load().refs().keySet()) == ["main"]


DIFFERENCES = [
    ({"key": "z"}, "key differs"),
    ({"key": None}, "key differs"),
    ({"payload": ""}, "value differs"),
    ({"payload": None}, "value differs"),
    ({"ts": 7}, "timestamp differs"),
    ({"ts": -1}, "timestamp differs"),
    ({"headers": ["h", "w"]}, "headers differ"),
    ({"headers": ["h", "v", "h", "v"]}, "headers differ"),
    ({"headers": ["h", None]}, "headers differ"),
    ({"headers": []}, "headers differ"),
    ({"payload": "w", "headers": None}, "value and headers differ"),
    ({"tstype": "unknown"}, None),
    ({}, None),
]


FEW_OR_MANY = pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["few", "many"])
"""Few records are compared by one plan, many by two."""


@pytest.fixture
def by_one_plan(monkeypatch):
    """Nobody looks for repeated offsets by a plan of its own."""
    monkeypatch.delattr(contradictions, "spans_twice")


@FEW_OR_MANY
def test_a_contradiction_names_the_columns_that_differ_and_equal_records_are_copies(workshop, spark, few):
    lines = []
    for partition, (change, _) in enumerate(DIFFERENCES):
        first = record(4, "a", "v", partition, headers=["h", "v"])
        lines += [first, record(5, "b", "v", partition), first | change]
    records = parsed_records(spark, [workshop.file("differences.jsonl", lines)])
    found = {c.partition: c.difference for c in contradictions_in(all_candidates(records), few)}
    assert found == {p: text for p, (_, text) in enumerate(DIFFERENCES) if text}


@pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
def test_contradictions_among_random_records_are_those_that_python_finds(spark, few):
    """Two logs of records whose values, offsets and parts are drawn; Python compares each offset too."""
    draw = random.Random(7)
    rows = [(draw.randrange(2), draw.randrange(30), draw.choice("vw"), draw.choice([0, 1, 2])) for _ in range(90)]
    drawn = spark.createDataFrame(rows, "partition int, offset long, value string, part int").repartition(3)
    equal = (
        "X'61' AS key",
        "timestamp_millis(7) AS timestamp",
        "CAST(NULL AS array<struct<key: string, value: binary>>) AS headers",
    )
    records = drawn.selectExpr("partition", "offset", "CAST(value AS BINARY) AS value", *equal, "part")
    assert contradictions_in(records, few) == _by_hand(rows)


def _by_hand(rows):
    places = defaultdict(list)
    for partition, offset, value, part in rows:
        places[partition, offset].append((value, part))
    wrong = defaultdict(list)
    for (partition, offset), there in sorted(places.items()):
        if len({value for value, _ in there}) > 1 and CANDIDATE in {part for _, part in there}:
            wrong[partition].append((offset, max(part for _, part in there)))
    return [Contradiction(p, len(of), of[0][0], ("value",), of[0][1]) for p, of in sorted(wrong.items())]


def test_copies_are_ingested_and_one_of_them_survives_the_round(workshop, ingest, by_one_plan):
    topic = workshop.topic("taken")
    assert ingest(topic, OLD, [OLD[1] | {"headers": []}, OLD[1] | {"tstype": "unknown"}])[0] == 0
    workshop.ok("compact", topic, "--now", NOW)
    assert ingest(topic, [*OLD, record(3, "c", "v")])[0] == 0
    result = workshop.json("compact", topic, "--now", NOW + 1, "--force")
    measures = result["compacted"]["measures"][0]
    assert (measures["deleted"]["copies"], measures["contradicting_offsets"]) == (2, 0)
    assert offsets(workshop.read(topic)) == [1, 2, 3]


def test_files_of_one_command_and_lines_of_one_file_may_not_contradict_each_other(workshop, ingest):
    topic = workshop.topic("among")
    code, message = ingest(topic, OLD, [record(9, "q", "v")], [record(5, "c", "v"), OLD[2] | {"payload": "other"}])
    assert code == 2
    assert "among-0.jsonl, " in message and "among-2.jsonl: partition 0, offset 2: two different records" in message
    assert "among-1.jsonl" not in message
    code, message = ingest(topic, [record(0, "a", "v"), record(0, "a", "w", 1), record(0, "a", "x", 1)])
    assert code == 2 and "partition 1, offset 0: two different records: value differs; nothing" in message
    assert workshop.read(topic) == []


def test_an_ingestion_ignores_contradictions_at_other_offsets_and_check_reports_them(
    workshop, ingest, spark, monkeypatch
):
    """Where records only follow, no record of the table is read. `check` finds what others have written."""
    topic = workshop.topic("elsewhere")
    assert ingest(topic, OLD)[0] == 0
    with monkeypatch.context() as patch:
        patch.delattr(TopicTable, "with_hidden_at")
        assert ingest(topic, [record(3, "a", "v"), record(0, "a", "v", 1)])[0] == 0
    appended(workshop, spark, topic, [OLD[0], ANEW[0]])
    assert ingest(topic, [record(4, "a", "v"), OLD[2]])[0] == 0
    code, out, _ = workshop.run("check", topic, "--json")
    assert code == 1
    assert [(c["partition"], c["offsets"]) for c in json.loads(out)["contradictions"]] == [(0, 1)]


def test_a_record_at_an_offset_that_reclaim_removed_is_reported_as_late(workshop, ingest):
    topic = workshop.topic("anew-rewritten", REWRITTEN)
    assert ingest(topic, OLD)[0] == 0
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("reclaim", topic)
    anew = workshop.file("rewritten-anew.jsonl", ANEW[:1])
    [warning] = workshop.json("ingest", topic, "--file", anew)["warnings"]
    assert "partition 0: records from offset 0 on are below the first dirty offset 3" in warning


@pytest.mark.deep
def test_records_of_a_recreated_topic_below_the_log_start_are_refused_or_after_a_reclaim_reported(workshop, ingest):
    """test_records_below_the_first_dirty_offset_are_reported_as_late in test_late_arrivals.py holds the rule.
    test_a_record_at_an_offset_that_reclaim_removed_is_reported_as_late shows it for an ingestion."""
    topic = workshop.topic("anew-retained", REWRITTEN | {"cleanup.policy": "compact,delete", "retention.ms": HOUR})
    old = [record(i, f"k{i}", "v", ts=NOW - (5 * HOUR if i < 4 else 1) + i) for i in range(6)]
    assert [ingest(topic, part)[0] for part in (old[:4], old[4:])] == [0, 0]
    workshop.ok("compact", topic, "--now", NOW)
    before = workshop.ok("latest", topic, "--now", NOW)
    anew = [record(i, f"n{i}", "v", ts=NOW - 1 + i) for i in range(2)]
    code, message = ingest(topic, anew)
    assert code == 2 and "which a delete file hides" in message
    workshop.ok("reclaim", topic, "--now", NOW)
    code, _, err = workshop.run("ingest", topic, "--file", workshop.file("anew.jsonl", anew))
    assert code == 0 and "warning: partition 0: records from offset 0 on are below the log start 4" in err
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert workshop.ok("latest", topic, "--now", NOW) == before


def appended(workshop, spark, topic, records):
    """Past ingestion, as two processes at once or another program would."""
    file = workshop.file(f"past-{records[0]['offset']}-{len(records)}.jsonl", records)
    parsed_records(spark, [file]).writeTo(f"cleantail.{workshop.find(topic).table}").append()


def test_two_different_records_at_one_offset_block_their_partition_and_no_other(workshop, ingest, spark):
    topic = workshop.topic("held-twice")
    others = [record(i, "k", f"v{i}", 1) for i in range(3)]
    assert ingest(topic, [*OLD, *others])[0] == 0
    appended(workshop, spark, topic, ANEW)
    before = workshop.ok("latest", topic)
    code, out, _ = workshop.run("compact", topic, "--now", NOW, "--json")
    compacted = json.loads(out)["compacted"]
    assert code == 1 and (compacted["published"], compacted["held_back"]) == ([1], [0])
    (failure,) = compacted["verdicts"][0]["failures"]
    assert failure["expectation"] == "contradicting_offsets"
    assert (
        failure["observed"]
        == "3 violations; 3 offsets have two different records, the lowest is 0: key and value differ"
    )
    assert compacted["measures"][0]["deleted"]["copies"] == 3
    assert sorted(workshop.ok("latest", topic).splitlines()) == sorted(before.splitlines())
    assert [r["offset"] for r in workshop.read(topic) if r["partition"] == 1] == [2]


@pytest.mark.deep
@pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
def test_a_late_record_is_compared_with_what_earlier_rounds_have_hidden(
    workshop, ingest, spark, monkeypatch, request, few
):
    """Of few records test_contradicting_rows_block_a_sinks_table_until_they_are_deleted holds the rule, of many
    test_contradictions_among_random_records_are_those_that_python_finds."""
    if few:
        request.getfixturevalue("by_one_plan")
    else:
        monkeypatch.setattr(snapshot_files, "FEW_RECORDS", 0)
    topic = workshop.topic(f"hidden-late-{few}")
    assert ingest(topic, OLD)[0] == 0
    workshop.ok("compact", topic, "--now", NOW)
    appended(workshop, spark, topic, ANEW[:1])
    before = workshop.ok("latest", topic)
    code, _, err = workshop.run("compact", topic, "--now", NOW, "--force")
    assert code == 1 and "contradicting_offsets" in err
    assert workshop.ok("latest", topic) == before


@pytest.mark.parametrize("share", [pytest.param(1 << 30, marks=pytest.mark.deep), 1], ids=["one task", "two tasks"])
def test_an_expiry_keeps_a_tombstone_at_whose_offset_another_record_is(
    workshop, ingest, spark, table_of, monkeypatch, share
):
    topic = workshop.topic(f"above-{share}", {"delete.retention.ms": HOUR})
    assert ingest(topic, [record(0, "a", None), record(1, "b", "v")])[0] == 0
    workshop.ok("compact", topic, "--now", NOW)
    appended(workshop, spark, topic, [record(0, "a", "back")])
    passed_over(table_of(topic))
    before = workshop.ok("latest", topic)
    assert workshop.json("plan", topic, "--now", NOW + HOUR)["sweep"]
    monkeypatch.setattr(tasks, "task_sizes", lambda *_: TaskSizes(share, share, 1 << 40, 1, 1))
    code, _, err = workshop.run("compact", topic, "--now", NOW + HOUR)
    assert code == 1 and "contradicting_offsets" in err
    assert workshop.ok("latest", topic) == before


def test_an_expiry_compares_records_only_where_an_offset_occurs_twice(workshop, ingest, monkeypatch):
    topic = workshop.topic("met-once", {"delete.retention.ms": HOUR})
    assert ingest(topic, [record(0, "a", None), record(1, "b", "v")], [record(2, "c", "v")])[0] == 0
    workshop.ok("compact", topic, "--now", NOW)
    with monkeypatch.context() as patch:
        patch.delattr(TopicTable, "at_snapshot")
        workshop.ok("compact", topic, "--now", NOW + HOUR)
    assert offsets(workshop.read(topic)) == [1, 2]


def passed_over(table):
    """The log's state as if its last round had read what came since."""
    number = int(table.load().currentSnapshot().sequenceNumber())
    state = json.loads(dict(table.load().properties())["cleantail.partition.0"])
    table.set_properties({"cleantail.partition.0": json.dumps(state | {"known_sequence_number": number})})


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_contradicting_rows_block_a_sinks_table_until_they_are_deleted(workshop, redpanda, spark, version):
    topic = f"sunk-{version}"
    ms = 1_700_000_000_000
    old = [(p, o, ms + o, k, f"{k}{o}") for p in (0, 1) for o, k in enumerate("aba")]
    table = redpanda(topic, old, version)
    workshop.ok("adopt", table)
    settings(workshop, topic)
    workshop.ok("compact", topic, "--now", NOW)
    struct = "named_struct('partition', 0, 'offset', {}L, 'timestamp', timestamp_millis({}L), 'headers', {}, "
    struct += "'key', CAST('{}' AS BINARY), 'timestamp_type', 0), CAST('{}' AS BINARY)"
    same = "array(named_struct('key', 'h', 'value', X'01'))"
    spark.sql(f"INSERT INTO {full(table)} SELECT {struct.format(0, ms, same, 'x', 'new')}")
    code, out, _ = workshop.run("compact", topic, "--now", NOW, "--force", "--json")
    assert code == 1 and (compacted := json.loads(out)["compacted"])["published"] == []
    assert [f["expectation"] for f in compacted["verdicts"][0]["failures"]] == ["contradicting_offsets"]
    spark.sql(f"DELETE FROM {full(table)} WHERE redpanda.key = CAST('x' AS BINARY)")
    assert workshop.run("compact", topic, "--now", NOW, "--force")[0] == 0


ONE, TWO = (f"named_struct('key', 'h', 'value', {value})" for value in ("X''", "CAST(null AS BINARY)"))
HEADERS = [
    ("null", "array()", False),
    (f"array({ONE})", "null", True),
    (f"array({ONE})", f"array({TWO})", True),
    (f"array({ONE}, {TWO})", f"array({TWO}, {ONE})", True),
]
"""What sinks write of a record's headers, twice, and whether that is not the same: Kafka has them in their order, and no
list of them where there are none."""


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["few", "many"])
def test_headers_are_compared_as_kafka_has_them(spark, few):
    """Many are compared in the same columns:
    test_a_contradiction_names_the_columns_that_differ_and_equal_records_are_copies holds that."""
    row = "SELECT {} AS partition, 5L AS offset, X'61' AS key, X'' AS value, timestamp_millis(7) AS timestamp, "
    row += "CAST({} AS array<struct<key: string, value: binary>>) AS headers"
    rows = [row.format(p, headers) for p, (*both, _) in enumerate(HEADERS) for headers in both]
    found = contradictions_in(all_candidates(spark.sql(" UNION ALL ".join(rows))), few)
    expected = {p: ("headers",) for p, (*_, differ) in enumerate(HEADERS) if differ}
    assert {c.partition: c.differing for c in found} == expected
