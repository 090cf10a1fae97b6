"""A topic that is read from a table of a sink: what lands is what the sink's table has, each record once."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.errors import PySparkException

from cleantail.config.alert_channels import Event
from cleantail.config.topic_table import Columns
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.log.source_position import PROPERTY_SNAPSHOT_POSITION, snapshot_position_of
from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PackRequest
from cleantail.watch.alarms import log_alarms
from spark_jobs import run_station
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.round.intake.source_frames import guarded, raised
from spark_jobs.round.intake.source_table_reading import SourceTableRead
from tests.jobs.kafka_site import landed_record
from tests.jobs.source_tables import FLAT, PLAIN, allow
from tests.jobs.upsert_sink import UPSERT, UpsertSink

DAY_MS = 86_400_000
FAR_AWAY_MS = 32_503_680_000_000


@pytest.fixture
def position(table_of):
    return lambda topic: snapshot_position_of(texts(table_of(topic).load().properties()), topic)


def test_a_first_read_brings_the_table_and_each_later_one_what_was_appended(sink, workshop, reading, records, position):
    lake = sink("firsts")
    lake.append((0, 1, 5, "a", "x"), (1, 0, 6, None, "y"), (0, 0, 7, "b", None))
    topic, before = reading("from-table", lake), lake.metadata
    assert workshop.json("ingest", topic)["records"] == 3
    assert records(topic) == [(0, 0, 7, "b", None), (0, 1, 5, "a", "x"), (1, 0, 6, None, "y")]
    assert (position(topic).next_offsets, position(topic).snapshot_id) == ({0: 2, 1: 1}, lake.snapshots[-1])
    assert "nothing is new in cleantail.sinks.firsts" in workshop.ok("ingest", topic)
    assert lake.metadata == before
    lake.append((1, 2, 8, "c", "z"))
    lake.append((1, 1, -1, "c", "w"))
    done = workshop.json("ingest", topic)
    assert (done["records"], done["commits"], done["snapshot_id"]) == (2, 1, lake.snapshots[-1])
    assert done["partitions"] == [{"partition": 1, "from_offset": 1, "to_offset": 3}]
    assert records(topic)[2:] == [(1, 0, 6, None, "y"), (1, 1, None, "c", "w"), (1, 2, 8, "c", "z")]
    assert f"read from table cleantail.sinks.firsts up to snapshot {lake.snapshots[-1]}, last 20" in workshop.ok(
        "status", topic
    )
    [_, log] = workshop.json("status", topic)["topics"][topic]
    assert log["log_end_offset"] == 3


# the test above holds the rule; here in portions
@pytest.mark.deep
def test_portions_of_snapshots_are_read_in_a_commit_each(sink, workshop, reading, records, monkeypatch):
    lake = sink("portions")
    lake.append((0, 0, 5, "d", "x"))
    topic = reading("table-in-portions", lake)
    workshop.ok("ingest", topic)  # a first read is one portion
    for offset in (1, 2):
        lake.append((0, offset, 5, "d", "x"))
    monkeypatch.setattr("cleantail.lake.pending_input.PORTION_BYTES", 1)
    done = workshop.json("ingest", topic)
    assert (done["records"], done["commits"]) == (2, 2)
    assert [r[1] for r in records(topic)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 4), *(pytest.param(seed, 6, marks=pytest.mark.deep) for seed in range(1, 6))]
)  # the one in four steps has each of these things
def test_after_any_history_the_topic_has_what_the_table_has(sink, workshop, reading, records, seed, steps):
    """Appends of several partitions, out of order and some of them twice, rewrites, renamed columns, and a read now and
    then."""
    rng, lake, name = random.Random(seed), sink(f"history-{seed}-{steps}"), "v"
    topic, model, ends = reading(f"any-history-{seed}-{steps}", lake), {}, dict.fromkeys(range(3), 0)
    for step in range(steps):
        rows = []
        for p in rng.sample(range(3), rng.randrange(1, 4)):
            for _ in range(rng.randrange(1, 5)):
                ends[p] += rng.choice([1, 1, 3])
                row = (
                    p,
                    ends[p],
                    rng.choice([-1, 5, 1_700_000_000_000]),
                    rng.choice([None, "", "k1"]),
                    rng.choice([None, "x"]),
                )
                rows.append(row)
                model[p, ends[p]] = row
        again = rng.sample(sorted(model.values(), key=lambda r: r[:2]), min(len(model), rng.randrange(3)))
        rng.shuffle(rows)
        lake.append(*rows, *again)
        if rng.random() < 0.4:
            lake.rewrite()
        if rng.random() < 0.3:
            name, before = f"v{step}", name
            lake.sql(f"ALTER TABLE {{}} RENAME COLUMN {before} TO {name}")
            lake.columns = FLAT.replace("v string", f"{name} string")
            file = workshop.config / "topics" / f"{topic}.yaml"
            data = json.loads(file.read_text())
            data["source"]["table"]["columns"]["value"] = name
            file.write_text(json.dumps(data))
        if rng.random() < 0.4:
            workshop.ok("ingest", topic)
    workshop.ok("ingest", topic)
    expected = [(p, o, None if ms < 0 else ms, k, v) for p, o, ms, k, v in sorted(model.values(), key=lambda r: r[:2])]
    assert records(topic) == expected


def test_columns_are_mapped_as_those_of_adopted_tables(sink, workshop, table_of, spark):
    """Fields of structs, keys of several columns, marked deletes, values of several columns; and old names in a first
    read of a table whose columns were renamed since its newest snapshot."""
    lake = sink(
        "mapped", "at struct<p: bigint, pos: int>, ts timestamp, region string, id bigint, op string, a int, b string"
    )
    lake.sql("INSERT INTO {} VALUES (named_struct('p', 2L, 'pos', 1), timestamp_millis(7), 'eu', 5, 'c', 1, 'x')")
    lake.sql("INSERT INTO {} VALUES (named_struct('p', 2L, 'pos', 2), NULL, 'eu', 5, 'd', 1, NULL)")
    lake.sql("ALTER TABLE {} RENAME COLUMN at.pos TO off")
    lake.sql("ALTER TABLE {} RENAME COLUMN a TO amount")
    lake.sql("ALTER TABLE {} ADD COLUMN added string")
    columns = {
        "partition": "at.p", "offset": "at.off", "timestamp": "ts", "key": ["region", "id"], "value": ["amount", "b", "added"],
        "deleted": {"column": "op", "values": ["d"]},
    }  # fmt: skip
    topic = workshop.topic("mapped-source", source={"table": {"name": lake.name, "columns": columns}})
    workshop.ok("ingest", topic)
    lake.sql("INSERT INTO {} VALUES (named_struct('p', 2L, 'off', 3), NULL, 'eu', NULL, 'u', 2, 'y', 'z')")
    workshop.ok("ingest", topic)
    rows = table_of(topic).current().orderBy("offset").collect()
    assert [(r.partition, r.offset, bytes(r.key), r.value and bytes(r.value)) for r in rows] == [
        (2, 1, b"2:eu1:5", b'{"amount":1,"b":"x"}'),
        (2, 2, b"2:eu1:5", None),
        (2, 3, b"2:eu-", b'{"amount":2,"b":"y","added":"z"}'),
    ]
    assert [r.tombstone for r in rows] == [False, True, False]
    code, _, err = workshop.run("restore", topic, "--to", "x", "--bootstrap-server", "127.0.0.1:1")
    assert code == 2 and "keys or values of several columns" in err


def test_a_rewrite_is_skipped_and_a_change_is_an_error_or_with_continue_a_warning(
    sink, workshop, reading, records, position
):
    """Before the error nothing is appended. With continue what the change added is read."""
    lake = sink("changed", properties="'format-version'='2', 'write.merge.mode'='merge-on-read'")
    lake.append((0, 0, 5, "a", "x"), (0, 1, 5, "b", "x"))
    topic = reading("table-changed", lake)
    workshop.ok("ingest", topic)
    lake.rewrite()
    done = workshop.json("ingest", topic)
    assert (done["records"], done["commits"]) == (0, 1) and position(topic).snapshot_id == lake.snapshots[-1]
    lake.append((0, 2, 5, "c", "x"))
    lake.sql(
        "MERGE INTO {} t USING (SELECT 0 p, 3L o, 5L ms, 'd' k, 'x' v UNION ALL SELECT 0, 1L, 5L, 'b', 'x') s "
        "ON t.o = s.o WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    changed = lake.snapshots[-1]
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and f"snapshot {changed} of 20" in err
    assert "(overwrite) removed or changed records" in err and "nothing was appended" in err
    assert len(records(topic)) == 2 and position(topic).snapshot_id == lake.snapshots[-3]
    lake.append((0, 4, 5, "e", "x"))
    reading(topic, lake, on_change="continue")
    code, out, err = workshop.run("ingest", topic)
    assert code == 0 and f"snapshot {changed} of 20" in err and "which was skipped" in err, out
    assert [r[1] for r in records(topic)] == [0, 1, 2, 3, 4]
    [gap] = position(topic).gaps
    assert (gap.kind, gap.snapshot_id, gap.operation) == ("change", changed, "overwrite")
    [row] = [row for row in workshop.evidence(topic) if row["kind"] == "gap"]
    assert (row["partition"], row["base_snapshot_id"], row["note"]) == (None, changed, gap.text)
    found, configs = workshop.find(topic), workshop.find(topic).config
    facts = read_facts(found)
    told = [log_alarms(log_states(found, facts, t), (), configs, t) for t in (gap.at_ms, gap.at_ms + DAY_MS)]
    assert [[(c.event, c.subject, c.partition) for c in conditions] for conditions in told] == [
        [(Event.GAP, "source table", None)],
        [],
    ]
    workshop.ok("ingest", topic)
    assert len([row for row in workshop.evidence(topic) if row["kind"] == "gap"]) == 1


def test_a_lost_history_is_an_error_and_with_continue_the_newer_offsets_are_read(
    sink, workshop, reading, records, position
):
    lake = sink("expired")
    lake.append((0, 5, 5, "a", "x"), (1, 1, 5, "b", "x"))
    topic = reading("table-expired", lake)
    workshop.ok("ingest", topic)
    lake.append((1, 2, 5, "e", "x"))
    expire(lake)  # the next snapshot names the last one that was read
    assert workshop.json("ingest", topic)["records"] == 1
    lake.append((0, 6, 5, "c", "x"))
    lake.append((0, 7, 5, "d", "x"), (0, 4, 5, "late", "x"), (2, 0, 5, "new", "x"))
    kept = lake.snapshots[-1]
    expire(lake)
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "or one after it has expired" in err and "nothing was appended" in err
    assert len(records(topic)) == 3
    reading(topic, lake, on_change="continue")
    workshop.ok("ingest", topic)
    assert [r[:2] for r in records(topic)] == [(0, 5), (0, 6), (0, 7), (1, 1), (1, 2), (2, 0)]
    assert position(topic).snapshot_id == kept and [g.kind for g in position(topic).gaps] == ["history"]


def test_a_source_table_that_was_rolled_back_or_recreated_is_refused(sink, workshop, reading, records):
    lake = sink("anew")
    lake.append((0, 0, 5, "a", "x"))
    lake.append((0, 1, 5, "b", "x"))
    topic = reading("table-anew", lake)
    workshop.ok("ingest", topic)
    lake.sql(f"CALL cleantail.system.rollback_to_snapshot('sinks.anew', {lake.snapshots[0]})")
    lake.append((0, 1, 5, "other", "y"))
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "is not in the history of branch main any more (it was rolled back" in err
    lake.sql("DROP TABLE {} PURGE")
    lake.sql(f"CREATE TABLE {{}} ({FLAT}) USING iceberg")
    lake.append((0, 2, 5, "c", "x"))
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "table cleantail.sinks.anew was recreated: its uuid is" in err and len(records(topic)) == 2


def test_a_record_that_differs_is_a_contradiction_and_a_copy_lands_once(sink, workshop, reading, records, position):
    lake = sink("twice")
    lake.append((0, 0, 5, "a", "x"), (0, 0, 5, "a", "x"), (0, 1, 5, "b", "x"))
    topic = reading("table-twice", lake)
    assert workshop.json("ingest", topic)["records"] == 2
    assert [r[1] for r in records(topic)] == [0, 1]
    lake.append((0, 0, 5, "a", "x"))
    read = lake.snapshots[-1]
    assert workshop.json("ingest", topic)["records"] == 0 and position(topic).snapshot_id == read
    lake.append((0, 0, 6, "a", "z"), (0, 2, 5, "d", "x"))
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "offset 0: the table has another record there: value and timestamp differ" in err
    assert len(records(topic)) == 2 and position(topic).snapshot_id == read


# the test above holds the rule; here both records are new
@pytest.mark.deep
def test_two_new_records_that_differ_are_a_contradiction(sink, workshop, reading):
    lake = sink("two-new")
    lake.append((0, 2, 5, "d", "x"), (0, 2, 5, "d", "y"))
    code, _, err = workshop.run("ingest", reading("table-two-new", lake))
    assert code == 2
    assert "cleantail.sinks.two-new: partition 0, offset 2: two different records: value differs" in err


def test_a_record_that_no_log_can_hold_is_refused_with_table_column_and_offset(sink, workshop, reading, records):
    lake = sink("bad", FLAT.replace("p int", "p bigint"))
    lake.append((0, 1, 5, "a", "x"), (None, 7, 5, "secret-key", "secret-value"))
    topic = reading("table-bad", lake)
    code, _, err = workshop.run("ingest", topic)
    says = "cleantail.sinks.bad: column p is null, in the record at partition null, offset 7; nothing was appended"
    assert code == 2 and says in err and "secret" not in err
    assert records(topic) == []


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((None, 7, 5, 0), "column p is null, in the record at partition null, offset 7"),
        ((-1, 7, 5, 0), "column p is not a partition of Kafka, in the record at partition -1, offset 7"),
        ((3_000_000_000, 7, 5, 0), "column p is not a partition of Kafka"),
        ((0, None, 5, 0), "column o is null, in the record at partition 0, offset null"),
        ((0, -2, 5, 0), "column o is not an offset of Kafka, in the record at partition 0, offset -2"),
        ((0, 9_223_372_036_854_775_807, 5, 0), "column o is not an offset of Kafka"),
        ((0, 7, -9_223_372_036_854_776, 0), "column ms is a timestamp beyond what the table can hold, in the record at partition 0, offset 7"),
        ((0, 7, 9_223_372_036_854_775_807, 0), "column ms is a timestamp beyond"),
        ((0, 7, 5, 2), "column kind is not a timestamp type of Kafka, in the record at partition 0, offset 7"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guarded_read_fails_at_each_value_that_no_log_can_hold(spark, row, says):
    columns = Columns(**PLAIN, timestamp_type="kind")
    kinds = {"p": "bigint", "o": "bigint", "ms": "bigint", "kind": "int", "k": "string", "v": "string"}
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    stored = spark.createDataFrame([(*row, "secret-key", "secret-value")], schema)
    with pytest.raises(PySparkException) as caught:
        stored.selectExpr(*guarded(columns, kinds)).collect()
    told = str(raised(str(caught.value), "the table"))
    assert f"the table: {says}" in told and "secret" not in told


def test_a_missing_column_table_or_wrong_column_type_is_reported(sink, workshop):
    lake = sink("typed", FLAT.replace("o bigint", "o string"))
    lake.append((0, "1", 5, "a", "x"))
    columns = PLAIN | {"key": "nowhere"}
    topic = workshop.topic("table-typed", source={"table": {"name": lake.name, "columns": columns}})
    assert "cleantail.sinks.typed has no column nowhere" in workshop.run("ingest", topic)[2]
    topic = workshop.topic("table-typed", source={"table": lake.source})
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "column o is string: a whole number is needed; nothing was appended" in err
    topic = workshop.topic("table-typed", source={"table": lake.source | {"name": "sinks.nothing"}})
    assert "table cleantail.sinks.nothing of source.table does not exist" in workshop.run("ingest", topic)[2]


# test_a_read_is_taken_back_with_its_position_the_newest_first in test_kafka_trouble.py holds the rule; here of a table
@pytest.mark.deep
def test_a_read_is_taken_back_and_the_next_one_brings_its_records_again(sink, workshop, reading, records, position):
    lake = sink("undone")
    lake.append((0, 0, 5, "a", "x"))
    topic = reading("table-undone", lake)
    workshop.ok("ingest", topic)
    lake.append((0, 1, 5, "b", "x"))
    workshop.ok("ingest", topic)
    whole, where = records(topic), position(topic)
    told = workshop.ok("rollback", topic, "--ingestion", "last", "--dry-run")
    assert (
        f"offsets from table cleantail.sinks.undone up to snapshot {where.snapshot_id}, by partition 0: 1 to 1" in told
    )
    assert "not now: the topic was read further from its source table after it" in " ".join(told.split())
    workshop.ok("rollback", topic, "--ingestion", "last")
    assert records(topic) == whole[:1] and position(topic).next_offsets == {0: 1}
    workshop.ok("rollback", topic, "--ingestion", "last")
    assert records(topic) == [] and position(topic) is None
    workshop.ok("ingest", topic)
    assert records(topic) == whole


# test_two_reads_of_kafka_at_once_append_each_record_once in test_kafka_trouble.py holds the rule; here of a table
@pytest.mark.deep
def test_two_reads_at_once_bring_each_record_once(sink, workshop, reading, table_of, records):
    """As on two machines: the second one commits between the first one's look and its commit. Also a first read."""
    lake = sink("raced")
    topic = reading("table-raced", lake)
    table_of(topic).ensure()
    for offset in (0, 1):
        lake.append((0, offset, 5, "a", "x"))
        read, faster = SourceTableRead(table_of(topic), 5), []

        def overtaken(step, faster=faster):
            if step == "committing" and not faster:
                faster.append(SourceTableRead(table_of(topic), 6).run(lambda _: None))

        assert read.run(overtaken) == []
        assert [p.records for p in faster[0]] == [1] and [r[1] for r in records(topic)] == [*range(offset + 1)]


class Killed(BaseException):
    """Ends a read as kill -9 does: nothing catches it, and no branch is dropped."""


def test_a_read_that_is_killed_is_repeated_and_nothing_comes_twice(
    sink, workshop, reading, table_of, records, monkeypatch
):
    """One is killed when its records are written and not committed, and the one after it when they are committed. Only
    the first leaves its branch: the commit drops it."""
    lake = sink("killed")
    lake.append((0, 0, 5, "a", "x"))
    topic = reading("table-killed", lake)
    workshop.ok("ingest", topic)
    module = "spark_jobs.round.intake.source_table_reading"
    for offset, step in ((1, "written"), (2, "committed")):
        lake.append((0, offset, 5, "b", "x"))
        branches = staged_branches(table_of(topic))
        with monkeypatch.context() as patch:
            patch.setattr("spark_jobs.iceberg.tables.TopicTable.drop_branches", lambda *_: None)
            target = "late_warnings" if step == "written" else "record_changes"
            patch.setattr(f"{module}.{target}", killer(calls_before=0 if step == "written" else 1))
            with pytest.raises(Killed):
                SourceTableRead(table_of(topic), 5).run(lambda _: None)
        assert len(staged_branches(table_of(topic)) - branches) == (step == "written")
        assert len(records(topic)) == (offset if step == "written" else offset + 1)
        workshop.ok("ingest", topic)
        assert [r[1] for r in records(topic)] == [*range(offset + 1)]


def killer(calls_before):
    """Kills at the call after so many: the first look at changes of the source comes before the read."""
    calls = []

    def kill(*_, **__):
        if len(calls) >= calls_before:
            raise Killed
        calls.append(1)

    return kill


def staged_branches(table):
    return {name for name in texts(table.load().refs()) if name.startswith("in_")}


def test_a_commit_of_which_the_answer_is_lost_is_done_once(sink, workshop, reading, records, monkeypatch):
    lake = sink("unanswered")
    lake.append((0, 0, 5, "a", "x"))
    topic, lost = reading("table-unanswered", lake), []

    def taken(iceberg, metadata):
        if not lost and "cleantail.source.table" in texts(metadata.properties()):
            lost.append(metadata)
            iceberg.operations().commit(iceberg.operations().current(), metadata)

    # the commit after it finds other metadata than it began with, as one does whose first answer was lost
    monkeypatch.setattr(commits, "before_commit", taken)
    workshop.ok("ingest", topic)
    assert lost and [r[1] for r in records(topic)] == [0]


def test_a_topic_changes_its_source_only_where_positions_make_that_safe_and_can_be_read(
    sink, workshop, reading, table_of, records
):
    lake = sink("switched")
    lake.append((0, 0, 5, "a", "x"))
    file = workshop.file(
        "a.jsonl", [{"topic": "table-switched", "partition": 0, "offset": 0, "key": "a", "payload": "x"}]
    )
    topic = workshop.topic("table-switched")
    workshop.ok("ingest", topic, "--file", file)
    reading(topic, lake)
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "has records up to offset 0 of partition 0 that did not come from its source table" in err
    topic = reading("table-switched-on", lake)
    code, _, err = workshop.run("ingest", topic, "--file", file, "--any-topic")
    assert code == 2 and "has read nothing yet" in err
    workshop.ok("ingest", topic)
    beyond = workshop.file("b.jsonl", [{"partition": 0, "offset": 1, "key": "b", "payload": "x"}])
    code, _, err = workshop.run("ingest", topic, "--file", beyond)
    assert code == 2 and "is read from its source table, up to offset 1 of partition 0" in err
    own = texts(table_of(topic).load().properties())[PROPERTY_SNAPSHOT_POSITION]
    table_of(topic).set_properties({PROPERTY_SNAPSHOT_POSITION: '{"version": 2}'})
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "property cleantail.source.table cannot be read" in err
    table_of(topic).set_properties({PROPERTY_SNAPSHOT_POSITION: own})
    kafka = json.dumps({"cluster_id": "c", "topic": "t", "topic_id": "i", "next_offsets": {"0": 1}, "isolation": "x",
                        "read_id": "r", "read_at_ms": 1, "version": 1})  # fmt: skip
    table_of(topic).set_properties({"cleantail.source.kafka": kafka})
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "was read from t in Kafka" in err and len(records(topic)) == 1


def test_a_table_of_a_cleantail_topic_is_refused_as_a_source(sink, workshop, reading, spark):
    lake = sink("of-a-topic")
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('cleantail.topic'='other')")
    code, _, err = workshop.run("ingest", reading("table-of-a-topic", lake))
    assert code == 2 and "is a table of topic other, from which rounds remove records" in err


def test_a_branch_of_the_source_is_read_where_the_yaml_names_it(sink, workshop, reading, records):
    lake = sink("branched")
    lake.append((0, 0, 5, "a", "x"))
    lake.sql("ALTER TABLE {} CREATE BRANCH side")
    lake.append((0, 1, 5, "main", "x"))
    lake.sql("INSERT INTO {}.branch_side VALUES (0, 1, 5, 'side', 'x')")
    topic = reading("table-branched", lake, branch="side")
    workshop.ok("ingest", topic)
    assert [r[3] for r in records(topic)] == ["a", "side"]
    code, _, err = workshop.run("ingest", reading("table-branched-off", lake, branch="none"))
    assert code == 2 and "has no branch none, which source.table names; it has main, side" in err


# test_what_is_new_in_kafka_is_read_and_compacted in tests/jobs/run/test_kafka_pack.py holds the rule; here of a table
@pytest.mark.deep
def test_a_pack_reads_the_table_and_does_the_round(sink, workshop, reading, records):
    lake = sink("packed")
    lake.append((0, 0, 5, "a", "x"), (0, 1, 5, "a", "y"), (0, 2, 5, "b", "y"))
    unreclaimed = {"cleantail.reclaim.deleted.ratio": 1.0}
    topic = workshop.topic("table-packed", unreclaimed, source={"table": lake.source})
    broken = reading("table-packed-not", lake, branch="none")
    file = workshop.config / "result.json"
    request = PackRequest((topic, broken), 1_800_000_000_000, outcomes="packs/of-tables.jsonl")
    arguments = ["--config", str(workshop.config), "--request", PACK_REQUEST_JSON.text(request), "--result", str(file)]
    allow(workshop, allow_clock=True)
    assert run_station.main(["run_pack", *arguments]) == 1
    done, failed = json.loads(file.read_text())["topics"]
    assert (done["ok"], done["ingested"]["records"], failed["station"]) == (True, 3, "ingest")
    assert "has no branch none" in failed["error"] and [r[1] for r in records(topic)] == [1, 2]
    # a copy of a record that the round has hidden does not come again
    lake.append((0, 0, 5, "a", "x"), (0, 1, 5, "a", "y"), (0, 3, 5, "b", "z"))
    assert workshop.json("ingest", topic)["records"] == 1
    assert [r[1] for r in records(topic)] == [1, 2, 3]


# test_columns_are_mapped_as_... has a struct, and
# test_a_rewrite_is_skipped_and_a_change_is_an_error_or_with_continue_a_warning a change; here in Redpanda's layout
@pytest.mark.deep
def test_a_table_as_redpanda_writes_it_without_metrics(redpanda, workshop, table_of, lake):
    """Columns in a struct, files cut by hour, nothing in the metadata of what lies in them; and a change that is read
    without bounds."""
    allow(workshop)
    table = redpanda("of_redpanda", [(0, 0, 7_200_000, "a", "x"), (1, 0, 5, "b", None), (0, 1, 5, "a", "y")])
    inside = {
        name: f"redpanda.{name}" for name in ("partition", "offset", "timestamp", "timestamp_type", "key", "headers")
    }
    columns = inside | {"value": "value"}
    source = {"table": {"name": table, "columns": columns, "on_change": "continue"}}
    topic = workshop.topic("table-of-redpanda", source=source)
    workshop.ok("ingest", topic)
    spark = table_of(topic).spark
    spark.sql(f"INSERT INTO cleantail.{table} SELECT named_struct('partition', 0, 'offset', 2L, 'timestamp', "
              "timestamp_millis(9), 'headers', redpanda.headers, 'key', X'61', 'timestamp_type', 1), value "
              f"FROM cleantail.{table} WHERE redpanda.offset = 1")  # fmt: skip
    spark.sql(f"DELETE FROM cleantail.{table} WHERE redpanda.offset = 0")
    done = workshop.json("ingest", topic)
    assert done["records"] == 1 and "removed or changed records" in done["gaps"][0]
    rows = [landed_record(r) for r in table_of(topic).current().orderBy("partition", "offset").collect()]
    assert [(r.partition, r.offset, r.timestamp_ms, r.key, r.value, r.timestamp_type) for r in rows] == [
        (0, 0, 7_200_000, b"a", b"x", 0),
        (0, 1, 5, b"a", b"y", 0),
        (0, 2, 9, b"a", b"y", 1),
        (1, 0, 5, b"b", None, 0),
    ]
    assert all(r.headers == rows[0].headers and r.headers for r in rows)


@pytest.mark.parametrize("kind", ["avro", pytest.param("orc", marks=pytest.mark.deep)])
def test_files_of_any_format_and_columns_called_as_the_topics_own_are_read(sink, workshop, records, kind):
    columns = "`partition` int, `offset` bigint, `timestamp` bigint, key string, value string"
    lake = sink(f"of-{kind}", columns, f"'format-version'='3', 'write.format.default'='{kind}'")
    lake.append((0, 1, 5, "a", "x"), (0, 0, 5, "b", None))
    same = {name: name for name in ("partition", "offset", "timestamp", "key", "value")}
    topic = workshop.topic(f"table-of-{kind}", source={"table": {"name": lake.name, "columns": same}})
    workshop.ok("ingest", topic)
    lake.append((0, 2, 5, "c", "z"))
    workshop.ok("ingest", topic)
    assert records(topic) == [(0, 0, 5, "b", None), (0, 1, 5, "a", "x"), (0, 2, 5, "c", "z")]


def test_a_sink_in_upsert_mode_is_read_as_readers_see_it_and_then_by_its_changes(
    sink, workshop, reading, records, spark
):
    """Deletes by the values of columns, as Flink's sink writes them."""
    lake = sink("upserts")
    lake.append((0, 0, 5, "a", "x"), (0, 1, 5, "b", "x"))
    upserts = UpsertSink(spark, lake.table, ["k"])
    upserts.commit((UPSERT, {"p": 0, "o": 2, "ms": 5, "k": "a", "v": "y"}))
    topic = reading("table-upserts", lake)
    workshop.ok("ingest", topic)
    assert [r[1] for r in records(topic)] == [1, 2]
    upserts.commit((UPSERT, {"p": 0, "o": 3, "ms": 5, "k": "b", "v": "y"}))
    assert "removed or changed records" in workshop.run("ingest", topic)[2]
    reading(topic, lake, on_change="continue")
    assert workshop.json("ingest", topic)["records"] == 1
    assert [r[1] for r in records(topic)] == [1, 2, 3]


@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["before is kept", "is not"])
@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_records_that_a_sink_copies_or_changes_in_place_do_not_bring_a_deleted_key_back(
    sink, workshop, table_of, records, spark, version, kept
):
    """The key, its tombstone and all that was of it are gone from the topic's files when its records come again."""
    name = f"again-{version}-{kept}".lower()
    lake = sink(name, properties=f"'format-version'='{version}', 'write.update.mode'='merge-on-read'")
    lake.append((0, 0, 5, "gone", "x"), (0, 1, 5, "b", "x"), (0, 2, 5, "b", "y"), (1, 2, 5, "b", "other log"))
    lake.append((0, 3, 5, "gone", None), (0, 4, 5, "c", "y"))
    allow(workshop, allow_clock=True)
    config = {"cleantail.reclaim.deleted.ratio": 0.01, "delete.retention.ms": 0}
    topic = workshop.topic(f"table-{name}", config, source={"table": lake.source | {"on_change": "continue"}})
    workshop.ok("ingest", topic)
    for now in (1_900_000_000_000, 1_900_000_100_000):
        workshop.ok("compact", topic, "--force", "--now", now)
    workshop.ok("reclaim", topic, "--now", 1_900_000_200_000)
    left = records(topic)
    assert [r[:2] for r in left] == [(0, 2), (0, 4), (1, 2)]
    [(stored,)] = spark.sql(f"SELECT sum(record_count) FROM {table_of(topic).name}.files").collect()
    assert stored == 3

    # an engine that deletes a record by rewriting its file copies the others
    position = lake.snapshots[-1]
    lake.sql("MERGE INTO {} t USING (SELECT 1L o) s ON t.o = s.o WHEN MATCHED THEN DELETE")
    lake.append((0, 5, 5, "d", "x"))
    if not kept:
        expire(lake, position)
    assert workshop.json("ingest", topic)["records"] == 1
    assert records(topic) == [*left[:2], (0, 5, 5, "d", "x"), left[2]]

    # an update writes deletes beside a file of the records as they are now, one of them with another value
    position = lake.snapshots[-1]
    lake.sql("UPDATE {} SET v = IF(o = 4, 'changed', v) WHERE o < 2 OR o = 4")
    lake.append((0, 6, 5, "e", "x"))
    if not kept:
        expire(lake, position)
    done = workshop.json("ingest", topic)
    assert (done["records"], len(done["gaps"]) >= 1) == (1, True)
    assert records(topic) == [*left[:2], (0, 5, 5, "d", "x"), (0, 6, 5, "e", "x"), left[2]]


def expire(lake, *snapshot_ids):
    """Expires these snapshots, or all but the newest one, as a sink's maintenance does."""
    util = lake.spark._jvm.org.apache.iceberg.spark.Spark3Util
    expiry = util.loadIcebergTable(lake.spark._jsparkSession, lake.table).expireSnapshots()
    for snapshot_id in snapshot_ids:
        expiry = expiry.expireSnapshotId(snapshot_id)
    if not snapshot_ids:
        expiry = expiry.expireOlderThan(FAR_AWAY_MS).retainLast(1)
    expiry.commit()
