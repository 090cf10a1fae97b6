"""What a Spark job has left, as tasks, metrics and lineage read it."""

import pytest

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.checked_round import CHECKED_ROUND_JSON, ROUND_RESULT_JSON, STAGED_UNIT_JSON, RoundResult
from cleantail.rounds.job_report import EndedJob, JobReport
from cleantail.rounds.station_results import (
    INGEST_RESULT_JSON,
    RECLAIM_RESULT_JSON,
    FileIngestResult,
    IngestedFile,
    KafkaIngestResult,
    OffsetRange,
    ReclaimResult,
    TableIngestResult,
)
from tests.round_builders import checked_round, partition_work, staged_unit

FILE = IngestedFile("/landing/a.jsonl", "0" * 64, skipped=False)
JOBS = ("ingest", "compact", "check_quality", "publish", "expire_tombstones", "reconcile", "reclaim", "rollback")


@pytest.mark.parametrize("job", ["publish", "expire_tombstones", "reconcile"])
def test_a_round_is_read_as_its_job_has_written_it(job):
    result = RoundResult(
        round="r1", kind="compact", published=(0,), held_back=(1,), checkpoints={0: 5}, checked=checked_round()
    )
    report = EndedJob(job, ROUND_RESULT_JSON.plain(result)).report
    assert {name: getattr(report, name) for name in RoundResult.__slots__} == {
        name: getattr(result, name) for name in RoundResult.__slots__
    }


def test_a_check_has_its_units_and_their_heads():
    checked = checked_round(units=(staged_unit(partition_work(), head_snapshot_id=41),))
    report = EndedJob("check_quality", {"ok": checked.ok, **CHECKED_ROUND_JSON.plain(checked)}).report
    assert (report.round, report.units, report.measures) == (checked.round, checked.units, checked.measures)
    assert (report.heads_by_log, report.reference("other").heads) == ({0: 41}, (41,))


def test_a_staged_unit_has_its_branch():
    unit = staged_unit(partition_work())
    assert EndedJob("compact", {"ok": True, **STAGED_UNIT_JSON.plain(unit)}).report.branch == unit.branch


READ = OffsetRange(0, 3, 7)


@pytest.mark.parametrize(
    ("job", "codec", "written", "read"),
    [
        ("ingest", INGEST_RESULT_JSON, FileIngestResult((FILE,), 3), JobReport(records=3, files=(FILE,))),
        ("ingest", INGEST_RESULT_JSON, KafkaIngestResult("orders", 4, 1, (READ,), (READ,)), JobReport(records=4)),
        ("ingest", INGEST_RESULT_JSON, TableIngestResult("a.b", 7, 5), JobReport(records=5, snapshot_id=7)),
        ("reclaim", RECLAIM_RESULT_JSON, ReclaimResult(("orphans",), 77), JobReport(reclaimed_bytes=77)),
    ],
    ids=["files", "kafka", "table", "reclaim"],
)
def test_what_was_appended_or_freed_is_read_as_its_job_has_written_it(job, codec: Codec, written, read):
    assert EndedJob(job, codec.plain(written)).report == read


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_failed_has_a_report_with_its_error_alone(job):
    ended = EndedJob(job, {"ok": False, "error": "no table"})
    assert (ended.report, ended.is_empty) == (JobReport(ok=False, error="no table"), False)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_was_killed_has_a_report_with_nothing_in_it(job):
    assert (EndedJob(job, {}).is_empty, EndedJob(job, {}).report) == (True, JobReport())


def test_a_report_is_read_once():
    ended = EndedJob("reclaim", {"reclaimed_bytes": 77})
    assert ended.report is ended.report


def test_what_no_job_has_written_is_an_error_that_names_the_job():
    with pytest.raises(TableError, match="^the result of reclaim cannot be read: reclaimed_bytes"):
        _ = EndedJob("reclaim", {"reclaimed_bytes": "many"}).report
