"""What a Spark job has left, as its metrics and its lineage read it."""

import pytest

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.checked_round import CHECKED_ROUND_JSON, ROUND_RESULT_JSON, RoundResult
from cleantail.rounds.station_results import (
    INGEST_RESULT_JSON,
    KAFKA_INGEST_RESULT_JSON,
    RECLAIM_RESULT_JSON,
    TABLE_INGEST_RESULT_JSON,
    IngestedFile,
    IngestResult,
    KafkaIngestResult,
    ReclaimResult,
    TableIngestResult,
)
from cleantail.watch.job_results import CheckedUnits, EndedJob, ReadRecords, UndoneLog, UndoneLogs
from tests.round_builders import checked_round, partition_work, staged_unit

ROUNDS = ("publish", "expire_tombstones", "reconcile")
INGESTIONS = ("ingest",)
FILE = IngestedFile("/landing/a.jsonl", "0" * 64, skipped=False)


@pytest.mark.parametrize("job", ROUNDS)
def test_a_round_is_read_as_its_job_has_written_it(job):
    result = RoundResult(round="r1", kind="compact", published=(0,), held_back=(1,), checkpoints={0: 5})
    assert EndedJob(job, ROUND_RESULT_JSON.plain(result)).result == result


def test_a_check_has_its_units_beside_what_every_round_has():
    checked = checked_round(units=(staged_unit(partition_work()),))
    result = EndedJob("check_quality", {"ok": checked.ok, **CHECKED_ROUND_JSON.plain(checked)}).result
    assert isinstance(result, CheckedUnits)
    assert (result.round, result.units, result.measures) == (checked.round, checked.units, checked.measures)


@pytest.mark.parametrize(
    ("job", "codec", "written", "read"),
    [
        ("ingest", INGEST_RESULT_JSON, IngestResult((FILE,), 3), ReadRecords(3, (FILE,))),
        ("ingest", KAFKA_INGEST_RESULT_JSON, KafkaIngestResult("orders", 4), ReadRecords(4)),
        ("ingest", TABLE_INGEST_RESULT_JSON, TableIngestResult("a.b", 7, 5), ReadRecords(5)),
        ("reclaim", RECLAIM_RESULT_JSON, ReclaimResult(("orphans",), 77), ReclaimResult(("orphans",), 77)),
    ],
    ids=["files", "kafka", "table", "reclaim"],
)
def test_what_was_appended_or_freed_is_read_as_its_job_has_written_it(job, codec: Codec, written, read):
    assert EndedJob(job, codec.plain(written)).result == read


@pytest.mark.parametrize("more", [{}, {"of_a_later_version": [1]}], ids=["as it is", "a name that nobody knows"])
def test_a_rollback_names_its_logs_where_it_was_done_now(more):
    logs = [{"partition": 0, "records": 9}, {"partition": 3, "records": 9}]
    assert EndedJob("rollback", {"partitions": logs, **more}).result == UndoneLogs((UndoneLog(0), UndoneLog(3)))
    assert EndedJob("rollback", {"done_before": True, **more}).result == UndoneLogs()


NOTHING = {
    **dict.fromkeys(ROUNDS, RoundResult(ok=False)),
    **dict.fromkeys(INGESTIONS, ReadRecords()),
    "check_quality": CheckedUnits(ok=False),
    "reclaim": ReclaimResult(ok=False),
    "rollback": UndoneLogs(),
    "compact": None,
}


@pytest.mark.parametrize(("job", "nothing"), NOTHING.items(), ids=NOTHING)
def test_a_job_that_failed_has_a_result_with_nothing_in_it(job, nothing):
    assert EndedJob(job, {"ok": False, "error": "no table"}).result == nothing
    assert not EndedJob(job, {"ok": False, "error": "no table"}).is_empty


@pytest.mark.parametrize("job", NOTHING)
def test_so_has_a_job_that_was_killed(job):
    assert EndedJob(job, {}).is_empty
    assert EndedJob(job, {}).result == EndedJob(job, {"ok": True}).result


def test_a_result_is_read_once():
    ended = EndedJob("reclaim", {"reclaimed_bytes": 77})
    assert ended.result is ended.result


def test_what_no_job_has_written_is_an_error_that_names_the_job():
    with pytest.raises(TableError, match="^the result of reclaim cannot be read: reclaimed_bytes"):
        _ = EndedJob("reclaim", {"reclaimed_bytes": "many"}).result
