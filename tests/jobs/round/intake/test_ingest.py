"""Files arrive exactly once, and a bad one changes nothing."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from cleantail.errors import OutsideError
from cleantail.home.home_folder import make_folder
from cleantail.log.partition_state import PROPERTY_INGESTED
from cleantail_cli import ingest_command
from spark_jobs import run_station
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.round.intake import ingest
from spark_jobs.round.intake.ingest import ingest_files
from tests.jobs.round.test_rounds import NOW, offsets, record


def test_the_same_content_again_adds_nothing_whatever_the_file_is_called(workshop):
    topic = workshop.topic("once")
    lines = [record(0, "a", "x"), record(1, "é", None)]
    plain = workshop.file("a.jsonl", lines)
    packed = plain.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert workshop.json("ingest", topic, "--file", plain)["records"] == 2
    again = workshop.json("ingest", topic, "--file", packed, "--file", plain)
    assert (again["records"], [f["skipped"] for f in again["files"]]) == (0, [True, True])
    assert [(r["offset"], r["key"], r["payload"]) for r in workshop.read(topic)] == [(0, "a", "x"), (1, "é", None)]


def test_a_file_ingested_again_after_its_mark_expired_is_reported_and_a_round_removes_the_copies(workshop, table_of):
    topic = workshop.topic("comes-back", {"cleantail.ingested.retention.ms": 0})
    first, second = (workshop.file(f"{n}.jsonl", [record(n, "a", f"v{n}")]) for n in range(2))
    for file in (first, second):
        assert workshop.json("ingest", topic, "--file", file)["warnings"] == []
    marks = [name for name in texts(table_of(topic).load().properties()) if name.startswith(PROPERTY_INGESTED)]
    assert len(marks) == 1  # of the second file
    (warning,) = workshop.json("ingest", topic, "--file", first)["warnings"]
    assert "already has records between offsets 0 and 0" in warning and "cleantail.ingested.retention.ms" in warning
    assert offsets(workshop.read(topic)) == [0, 0, 1]
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert offsets(workshop.read(topic)) == [1]


def test_a_file_that_stays_in_its_folder_keeps_its_mark(workshop, table_of):
    landing = make_folder(workshop.platform().home, "landing")
    topic = workshop.topic(
        "stays", {"cleantail.ingested.retention.ms": 0}, source={"path": str(landing / "stays-*.jsonl")}
    )
    for n in range(2):
        file = landing / f"stays-{n}.jsonl"
        file.write_text(json.dumps(record(n, "a", "v")) + "\n")
        assert workshop.json("ingest", topic, "--file", file)["records"] == 1
    marks = [name for name in texts(table_of(topic).load().properties()) if name.startswith(PROPERTY_INGESTED)]
    assert len(marks) == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{not json", "not JSON"),
        (json.dumps(record(1, "a", "x", partition="p")), '"partition" is a string'),
    ],
    ids=["not JSON", "partition not a number"],
)
def test_a_bad_line_stops_the_run_with_file_and_line_and_nothing_is_appended(workshop, line, says):
    """What else makes a line a bad one is tested of the lines alone (tests/cleantail/sources/test_kcat.py)."""
    topic = workshop.topic("bad-lines")
    good = workshop.file("good.jsonl", [record(0, "a", "x")])
    bad = workshop.config / "bad.jsonl"
    bad.write_text(json.dumps(record(1, "b", "y")) + "\n" + line + "\n")
    code, out, err = workshop.run("ingest", topic, "--file", good, "--file", bad)
    assert code == 2
    assert "bad.jsonl:2: " in err and says in err
    assert workshop.read(topic) == []


def test_a_record_that_kcat_could_not_decode_deletes_no_key(workshop):
    topic = workshop.topic("undecoded")
    workshop.ok("ingest", topic, "--file", workshop.file("good.jsonl", [record(0, "alpha", "x")]))
    fields = {"payload": None, "payload_error": "MARKER: Schema not found"}
    bad = workshop.file("bad.jsonl", [record(1, "b", "y"), record(2, "alpha", "x") | fields])
    code, _, err = workshop.run("ingest", topic, "--file", bad)
    assert code == 2
    assert 'bad.jsonl:2: "payload_error"' in err and "nothing was appended" in err and "MARKER" not in err
    assert offsets(workshop.read(topic)) == [0]


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_fields_that_kcat_does_not_write_are_named_once_a_file(workshop, monkeypatch, by_spark):
    if by_spark:
        monkeypatch.setattr(ingest, "LOGS_MAX", 0)  # tasks may write no log
    topic = workshop.topic(f"further-fields-{by_spark}")
    odd = workshop.file("odd.jsonl", [record(n, "a", "x", Key="MARKER", **{"lag\x07": n}) for n in range(3)])
    plain = workshop.file("plain.jsonl", [record(3, "a", "x", broker=1)])
    result = workshop.json("ingest", topic, "--file", odd, "--file", plain)
    assert result["records"] == 4
    assert result["warnings"] == [f'{odd}: fields that kcat does not write, ignored: "Key", "lag\\u0007"']


def test_ingestions_and_side_tables_are_parquet_whatever_format_a_property_names(workshop, spark, monkeypatch):
    """As a property that a person has set, or a default of the catalog. If the format of a side table is unknown, a run
    changes nothing."""
    monkeypatch.setattr(ingest, "LOGS_MAX", 0)  # tasks would write Parquet in any case
    topic = workshop.topic("formats", {"cleantail.keyless.policy": "quarantine"})
    tables = [f"cleantail.cleantail.formats{suffix}" for suffix in ("", "_keyless")]
    for first in (0, 10):
        lines = [record(first, None, "v"), record(first + 1, "k", "v"), record(first + 2, "k", "w")]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{first}.jsonl", lines))
        workshop.ok("compact", topic, "--now", NOW, "--force")
        for table in tables:
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.format.default'='orc')")
    assert spark.table(tables[1]).count() == 2
    for table in tables:
        formats = spark.sql(f"SELECT DISTINCT file_format FROM {table}.all_data_files").collect()
        assert [row.file_format for row in formats] == ["PARQUET"], table
        number = spark.sql(f"SHOW TBLPROPERTIES {table} ('cleantail.format')").first()
        assert number is not None and number.value == "1", table
    spark.sql(f"ALTER TABLE {tables[1]} SET TBLPROPERTIES ('cleantail.format'='2')")
    refs = f"SELECT name, snapshot_id FROM {tables[0]}.refs"
    before = spark.sql(refs).collect()
    code, _, err = workshop.run("compact", topic, "--now", NOW, "--force")
    assert code == 2 and "formats_keyless has cleantail.format=2: this version of Cleantail reads format 1" in err
    assert spark.sql(refs).collect() == before


def test_a_line_of_another_topic_is_refused_with_file_and_line_and_nothing_is_appended(workshop):
    """What else a line may call its topic is tested of the lines alone (tests/cleantail/sources/test_kcat.py)."""
    topic = workshop.topic("own-lines")
    lines = [record(0, "c", "z", topic=topic), record(1, "a", "w", topic="other")]
    foreign = workshop.file("foreign.jsonl", lines)
    code, _, err = workshop.run("ingest", topic, "--file", foreign)
    says = '"topic" is "other": a record of another topic; "own-lines" is allowed, or no "topic" at all'
    assert code == 2 and "foreign.jsonl:2: " in err and says in err and "nothing was appended" in err
    assert workshop.read(topic) == []
    workshop.ok("ingest", topic, "--file", foreign, "--any-topic")
    assert offsets(workshop.read(topic)) == [0, 1]


def test_source_topic_in_the_yaml_decides_which_topic_name_the_lines_may_have(workshop):
    topic = workshop.topic("renamed", source={"topic": "prod.renamed"})
    by_its_name = workshop.file("own.jsonl", [record(0, "a", "x", topic=topic)])
    code, _, err = workshop.run("ingest", topic, "--file", by_its_name)
    assert code == 2 and '"prod.renamed" is allowed' in err
    lines = [record(0, "a", "x", topic="prod.renamed"), record(1, "b", "y")]
    assert workshop.json("ingest", topic, "--file", workshop.file("a.jsonl", lines))["records"] == 2
    assert {r["topic"] for r in workshop.read(topic)} == {topic}
    workshop.topic("renamed", source={"topic": "*"})
    lines = [record(2, "a", "x", topic="dc1.renamed"), record(3, "b", "y", topic="dc2.renamed")]
    assert workshop.json("ingest", topic, "--file", workshop.file("b.jsonl", lines))["records"] == 2


def test_the_job_of_the_dag_obeys_source_topic_and_the_allowed_folders(workshop, tmp_path):
    topic, result = workshop.topic("own-job"), tmp_path / "result.json"
    outside = workshop.file("a.jsonl", [record(0, "a", "x", topic="other")])
    file = make_folder(workshop.platform().home, "landing") / "own-job.jsonl"
    file.write_bytes(outside.read_bytes())
    arguments = ["--config", str(workshop.config), "--topic", topic, "--file", str(file), "--result", str(result)]
    assert run_station.main(["ingest", *arguments]) == 2
    assert "set source.topic: other in the topic's YAML" in json.loads(result.read_text())["error"]
    workshop.topic("own-job", source={"topic": "other"})
    assert run_station.main(["ingest", *arguments]) == 0
    assert offsets(workshop.read(topic)) == [0]
    arguments[arguments.index(str(file))] = str(outside)
    assert run_station.main(["ingest", *arguments]) == 2
    assert "it is not in one of the folders that platform.sources" in json.loads(result.read_text())["error"]


def test_a_missing_file_and_a_cut_off_gzip_are_clear_errors(workshop):
    topic = workshop.topic("broken-files")
    code, _, err = workshop.run("ingest", topic, "--file", workshop.config / "none.jsonl")
    assert code == 2 and "none.jsonl does not exist" in err
    cut = workshop.config / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress("".join(json.dumps(record(i, "a", "x")) + "\n" for i in range(100)).encode())[:-20])
    code, _, err = workshop.run("ingest", topic, "--file", cut)
    assert code == 2 and "cut.jsonl.gz" in err and "ends early" in err


def test_every_command_refuses_a_table_of_another_program(workshop, spark):
    spark.sql("CREATE TABLE IF NOT EXISTS cleantail.cleantail.foreign_table (id int) USING iceberg")
    topic = workshop.topic("adopter", table="cleantail.foreign_table")
    file = workshop.file("a.jsonl", [record(0, "a", "x")])
    for command in (["ingest", topic, "--file", file], ["compact", topic], ["status", topic], ["read", topic]):
        code, _, err = workshop.run(*command)
        assert code == 2 and "is not the table of topic adopter" in err
    assert spark.table("cleantail.cleantail.foreign_table").count() == 0


def test_binary_keys_values_headers_and_missing_timestamps_are_read_back_unchanged(workshop):
    topic = workshop.topic("binary")
    lines = [
        record(0, "gAD/", "AAEC", key_encoding="base64", payload_encoding="base64"),
        record(1, "plain", "text", headers=["h", "v", "h", None]),
        {"partition": 0, "offset": 2, "tstype": "unknown", "ts": -1, "key": "no time", "payload": "x"},
    ]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    first, second, third = workshop.read(topic)
    assert (first["key"], first["key_encoding"], first["payload"]) == ("gAD/", "base64", "\x00\x01\x02")
    assert second["headers"] == ["h", "v", "h", None]
    assert (third["tstype"], third["ts"]) == ("unknown", -1)
    assert offsets(workshop.read(topic, "--from-offset", 1)) == [1, 2]


@pytest.mark.parametrize("grows", [False, pytest.param(True, marks=pytest.mark.deep)], ids=["in place", "grows"])
def test_a_file_that_is_written_while_it_is_read_is_refused_and_appended_by_the_next_run(workshop, spark, grows):
    """Otherwise the table would have the new records under the digest of the old ones."""
    topic = workshop.topic("grows" if grows else "in-place")
    old, new = (record(0, "a", "old"), record(0, "a", "new"))
    file = workshop.file("a.jsonl", [old])

    def write_at_the_comparison(step):
        if step.startswith("comparing"):
            workshop.file("a.jsonl", [old, record(1, "b", "new")] if grows else [new])

    def ingest(progress):
        return ingest_files(spark, workshop.find(topic), [file], "text", progress)

    with pytest.raises(OutsideError, match="changed while it was read; nothing was appended"):
        ingest(write_at_the_comparison)
    assert workshop.read(topic) == []
    assert ingest(lambda _: None).records == 1 + grows
    assert [r["payload"] for r in workshop.read(topic)] == (["old", "new"] if grows else ["new"])


# ---- stdin


@pytest.fixture
def piped(workshop, monkeypatch):
    """Runs `ingest --file -` with these bytes on stdin, and other files."""

    def ingest(topic, data, *more):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return workshop.run("ingest", topic, "--file", "-", *more)

    return ingest


def test_stdin_is_ingested_once_by_its_content_and_leaves_no_copy(workshop, piped):
    topic = workshop.topic("of-stdin")
    lines = b"".join(json.dumps(record(n, "a", "x")).encode() + b"\n" for n in range(3))
    code, out, err = piped(topic, lines)
    assert (code, out) == (0, f"stdin: appended\n{topic}: 3 records appended\n"), err
    code, out, _ = piped(topic, lines)
    assert (code, out) == (0, f"stdin: already in the table, nothing added\n{topic}: 0 records appended\n")
    same = workshop.config / "same.jsonl"
    same.write_bytes(lines)
    assert workshop.json("ingest", topic, "--file", same)["files"][0]["skipped"]
    assert len(workshop.read(topic)) == 3
    assert list((workshop.platform().home / "stdin").iterdir()) == []
    assert workshop.json("history", topic)["events"][-1]["what"] == "3 records: stdin"
    assert workshop.json("rollback", topic, "--ingestion", "stdin", "--dry-run")["ingestion"]["records"] == 3


def test_stdin_and_files_are_one_commit_and_a_bad_line_of_stdin_is_named(workshop, piped):
    topic = workshop.topic("of-stdin-and-file")
    file = workshop.file("more.jsonl", [record(5, "b", "y")])
    code, out, err = piped(topic, b'{"partition": 0, "offset": 1, "key": "a"}\n', file)
    assert (code, out, workshop.run("read", topic)[1]) == (2, "", "")
    assert 'error: stdin:1: "payload" is missing' in err
    code, out, err = piped(topic, json.dumps(record(1, "a", "x") | {"colour": 1}).encode(), file)
    assert (code, "stdin: appended" in out, f"{file}: appended" in out) == (0, True, True), err
    assert "warning: stdin: field that kcat does not write, ignored" in err
    assert [r["offset"] for r in workshop.read(topic)] == [1, 5]
    assert list((workshop.platform().home / "stdin").iterdir()) == []


def test_stdin_that_is_larger_than_a_file_may_be_is_refused_before_spark(workshop, piped, monkeypatch):
    topic = workshop.topic("of-long-stdin")
    monkeypatch.setattr(ingest_command, "spark_session", None)
    (workshop.config / "defaults.yaml").write_text("platform: {limits: {file.max.bytes: 1048576}}\n")
    code, out, err = piped(topic, b" " * 1_048_577)
    assert (code, out) == (2, "")
    assert "error: stdin has more than 1048576 bytes; " in err and "nothing was appended" in err
