"""A topic's own checks: an error that only the data show blocks a log, no SQL gets in, and no value gets out."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from spark_jobs.iceberg import snapshot_files
from spark_jobs.quality.expectations import Auditor
from tests.jobs.round.test_rounds import NOW, record

SECRET = "4711-is-a-secret"
"""A value that no number can be made of."""
CANNOT = "could not be evaluated: "
SUM = {"expectation": "expect_column_sum_to_be_between", "kwargs": {"column": "value", "max_value": 100}}
IN_SCHEMA = {
    "expectation": "expect_column_values_to_match_json_schema",
    "kwargs": {"column": "value", "json_schema": {"type": "object"}},
}
WRONG_PATTERN = {
    "expectation": "expect_column_values_to_match_regex",
    "kwargs": {"column": "value", "regex": "(?<name>x)(?<name>y)"},
}
"""Right in Python, which does not know such names, and wrong in Java."""
FINE = {"expectation": "expect_column_values_to_not_be_null", "kwargs": {"column": "key"}}


def _published(workshop, topic):
    return [(r["partition"], r["offset"]) for r in workshop.read(topic)]


def _two_logs(workshop, topic, values):
    """Partition 0 holds numbers, partition 1 other values; each has one superseded record."""
    lines = [record(i, "k", v, partition=p) for p, vs in enumerate((("1", "2"), values)) for i, v in enumerate(vs)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))


@pytest.mark.parametrize(
    ("check", "reason", "few"),
    [
        pytest.param(SUM, "[CAST_INVALID_INPUT]", True, id="a value that is no number", marks=pytest.mark.deep),
        pytest.param(SUM, "[CAST_INVALID_INPUT]", False, id="no number, of many"),
        pytest.param(IN_SCHEMA, "JSONDecodeError", True, id="a value that is no JSON", marks=pytest.mark.deep),
    ],
)
def test_a_check_that_fails_on_the_data_alone_blocks_its_log_and_shows_no_value(
    workshop, monkeypatch, check, reason, few
):
    if not few:
        monkeypatch.setattr(snapshot_files, "FEW_RECORDS", 3)
    kept = []

    def noted(auditor, round_id, records, *rest):
        kept.append(records.is_cached)
        return check_records(auditor, round_id, records, *rest)

    check_records = Auditor.check_records
    monkeypatch.setattr(Auditor, "check_records", noted)
    alerts = [{"type": "file", "path": "alerts/all.jsonl"}]
    topic = workshop.topic(f"data-{check['expectation'][-8:]}-{few}", checks=[FINE, check], alerts=alerts)
    good = ("1", "2") if check is SUM else ("{}", "{}")
    lines = [record(i, "k", v, partition=p) for p, vs in enumerate((good, (good[0], SECRET))) for i, v in enumerate(vs)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    code, out, err = workshop.run("compact", topic, "--now", NOW)
    assert (code, kept) == (1, [few]), err
    assert _published(workshop, topic) == [(0, 1), (1, 0), (1, 1)], err
    [free, held] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert free["state"]["quarantine"] is None
    told = held["state"]["quarantine"]["reason"]
    assert told.startswith(f"check failed: {check['expectation']} ({CANNOT}")
    assert reason in told
    assert check["expectation"] in err
    seen = [out, err, told, *(row["checks"] for row in workshop.evidence(topic))]
    assert not [text for text in seen if "4711" in text]


@pytest.mark.deep
def test_a_pattern_that_java_refuses_blocks_every_log_with_exit_code_1(workshop):
    """test_a_check_that_fails_on_the_data_alone_blocks_its_log_and_shows_no_value holds the rule for one log."""
    topic = workshop.topic("java-pattern", checks=[WRONG_PATTERN, FINE])
    _two_logs(workshop, topic, ("1", "2"))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 1, err
    assert CANNOT in err
    assert len(_published(workshop, topic)) == 4


@pytest.mark.deep
def test_a_check_that_great_expectations_refuses_blocks_every_log(workshop, monkeypatch):
    """The test above holds the rule for a pattern that Java refuses."""
    from cleantail.config import topic_checks

    monkeypatch.setattr(topic_checks, "argument_problems", lambda *_: [])
    monkeypatch.setattr("cleantail.config.topic_checks.argument_problems", lambda *_: [])
    broken = {"expectation": "expect_column_values_to_be_between", "kwargs": {"column": "offset", "colum": 1}}
    topic = workshop.topic("gx-refuses", checks=[broken, FINE])
    _two_logs(workshop, topic, ("1", "2"))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 1, err
    assert f"{CANNOT}ValidationError" in err
    assert len(_published(workshop, topic)) == 4


SQL = "(select max(cast(value as string)) from cleantail.cleantail.victim) is null"


@pytest.mark.parametrize(
    "kwargs",
    [
        pytest.param({"row_condition": SQL, "condition_parser": "spark"}, id="row_condition"),
        pytest.param({"row_condition": {"type": "pass_through", "pass_through_filter": SQL}}, id="as a mapping"),
        pytest.param({"max_value": {"$PARAMETER": "now() - timedelta(days=1)"}}, id="suite parameter"),
        pytest.param({"meta": {"a": "b"}}, id="meta"),
        pytest.param({"result_format": "COMPLETE"}, id="result_format"),
    ],
)
def test_check_arguments_that_could_be_sql_are_refused_before_anything_starts(workshop, kwargs):
    check = {
        "expectation": "expect_column_values_to_be_between",
        "kwargs": {"column": "key", "max_value": "1", **kwargs},
    }
    topic = workshop.topic("sql-in-checks", checks=[check])
    for command in (("check-config",), ("compact", topic)):
        code, _, err = workshop.run(*command)
        assert code == 2
        assert f"checks[0].kwargs.{next(iter(kwargs))}: " in err


@pytest.mark.parametrize("source", ["text", "csv", "json", "parquet", "binaryFile"])
def test_no_sql_of_a_session_reads_a_file_by_its_path(workshop, spark, tmp_path, source):
    secret = tmp_path / "secret.txt"
    secret.write_text("TOP SECRET\n")
    workshop.platform()
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY|TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {source}.`file:{secret}`").collect()
