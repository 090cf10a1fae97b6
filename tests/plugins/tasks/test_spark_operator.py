"""CleantailSparkOperator: argv in, a JSON result out, and errors that say what to do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from cleantail_airflow.installation import ROOT, config_dir, spark_environment
from cleantail_airflow.outcomes.failures import RedCheck
from cleantail_airflow.tasks.spark_job import CleantailSparkOperator
from cleantail_airflow.tasks.topic_dag import CompactOperator
from tests.airflow_site import Recorder, Site, StubbedJobs, failure, plan, unit, verdict


class FakeTask:
    """A task instance that keeps what is pushed."""

    dag_id, run_id, task_id, map_index = "orders", "manual__1", "publish", -1

    def __init__(self, plan: dict[str, Any] | None = None) -> None:
        self.pushed: dict[str, Any] = {}
        self.plan = plan

    def xcom_pull(self, task_ids: str, key: str) -> dict[str, Any] | None:
        return self.plan if (task_ids, key) == ("evaluate", "plan") else None

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


class Publish(CleantailSparkOperator):
    job = "publish"
    given: list[str] = []

    def arguments(self, context: Any) -> list[str]:
        return self.given


@pytest.fixture
def operator(site: Site, jobs: StubbedJobs) -> Publish:
    site.topic("orders")
    return Publish(task_id="publish", topic="orders", config_dir=str(site.config))


def execute(operator: CleantailSparkOperator, task: FakeTask | None = None) -> dict[str, Any]:
    return operator.execute({"ti": task or FakeTask()})  # type: ignore[arg-type, typeddict-item]


def test_the_result_of_the_job_is_the_result_of_the_task(operator: Publish, jobs: StubbedJobs) -> None:
    jobs.answer("publish", {"ok": True, "published": [0, 1]})
    assert execute(operator) == {"ok": True, "published": [0, 1]}


def test_the_job_gets_configuration_topic_its_own_arguments_and_a_place_for_the_result(
    operator: Publish, jobs: StubbedJobs, site: Site
) -> None:
    operator.given = ["--checked", "{}"]
    execute(operator)
    (call,) = jobs.calls
    assert call["arguments"][:6] == ["--config", str(site.config), "--topic", "orders", "--checked", "{}"]
    assert call["arguments"][6] == "--result"


def test_the_place_of_the_result_is_gone_afterwards(operator: Publish, jobs: StubbedJobs) -> None:
    execute(operator)
    assert not Path(jobs.argument("publish", "--result")).parent.exists()


def test_the_connection_names_the_master_and_the_platform_the_rest(
    operator: Publish, jobs: StubbedJobs, site: Site
) -> None:
    (site.config / "defaults.yaml").write_text("platform: {spark: {master: 'local[7]', conf: {spark.a.b: 5}}}\n")
    execute(operator)
    submit = jobs.calls[0]["submit"]
    assert submit[:2] == ["--master", "local[1]"]
    assert "spark.a.b=5" in submit
    assert not [argument for argument in submit if argument.startswith("spark.master=")]


@pytest.mark.parametrize(
    ("planned", "small"), [(None, False), ({"records": 10}, True), ({"records": 10**9}, False)], ids=str
)
def test_a_run_over_few_records_is_set_up_for_few(
    operator: Publish, jobs: StubbedJobs, planned: dict[str, Any] | None, small: bool
) -> None:
    execute(operator, FakeTask(planned and plan() | planned))
    assert ("spark.sql.codegen.wholeStage=false" in jobs.calls[0]["submit"]) is small


@pytest.mark.parametrize(
    "forged", [plan() | {"now_ms": "@/etc/hostname"}, plan() | {"records": "many"}, {}, ["now_ms"]], ids=str
)
def test_a_plan_that_evaluate_did_not_write_starts_no_job(operator: Publish, jobs: StubbedJobs, forged: Any) -> None:
    """An argument that begins with @ names a file of more arguments."""
    with pytest.raises(AirflowFailException, match="the XCom plan of evaluate is not as its task wrote it"):
        execute(operator, FakeTask(forged))
    assert jobs.calls == []


def test_bad_input_fails_without_retry_with_the_error_of_the_job(operator: Publish, jobs: StubbedJobs) -> None:
    jobs.answer("publish", {"ok": False, "error": "no table cleantail.orders"}, code=2)
    with pytest.raises(AirflowFailException, match="^no table cleantail.orders$"):
        execute(operator)


def test_a_conflict_may_be_tried_again(operator: Publish, jobs: StubbedJobs) -> None:
    jobs.answer("publish", {"ok": False, "error": "another writer"}, code=3)
    with pytest.raises(AirflowException, match="^another writer$") as caught:
        execute(operator)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_crash_shows_the_last_output_and_not_the_command_line(operator: Publish, jobs: StubbedJobs) -> None:
    jobs.answer("publish", None, code=1, output="java.lang.OutOfMemoryError: heap")
    with pytest.raises(AirflowException, match="^publish crashed: Error code is: 1") as caught:
        execute(operator)
    assert "OutOfMemoryError" in str(caught.value)
    assert "--master" not in str(caught.value)


def test_a_job_that_ends_well_without_a_result_did_not_end_well(operator: Publish, jobs: StubbedJobs) -> None:
    jobs.answer("publish", None, code=0)
    with pytest.raises(AirflowException, match="^publish wrote no result$"):
        execute(operator)


def test_a_red_check_is_pushed_and_then_raised_with_every_failed_expectation(
    operator: Publish, jobs: StubbedJobs
) -> None:
    result = {
        "ok": False,
        "verdicts": [verdict(0), verdict(1, failure()), verdict(3, failure(), failure(observed="7"))],
    }
    jobs.answer("publish", result, code=1)
    task = FakeTask()
    with pytest.raises(RedCheck, match="^orders: the check failed, blocked partitions: 1, 3\n") as caught:
        execute(operator, task)
    assert task.pushed["return_value"] == result
    assert len(caught.value.failures) == 3
    assert "orders partition 3: expect_column_values_to_not_be_null (critical): observed 7" in str(caught.value)


def test_expectations_that_only_warn_are_logged(
    operator: Publish, jobs: StubbedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Recorder()
    monkeypatch.setattr(Publish, "log", log)
    row = failure(partition=2, severity="warning")
    jobs.answer(
        "publish", {"ok": True, "verdicts": [{"partition": 2, "passed": True, "failures": [], "warnings": [row]}]}
    )
    execute(operator)
    assert [text for text in log.lines if "orders partition 2: expect_column_values_to_not_be_null (warning)" in text]


def test_warnings_of_an_ingestion_are_logged(site: Site, jobs: StubbedJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that Kafka deleted before they were read fail no task: without this line only the XCom has them."""
    site.topic("orders")
    monkeypatch.setattr(Publish, "job", "ingest")
    monkeypatch.setattr(Publish, "log", log := Recorder())
    jobs.answer("ingest", {"ok": True, "records": 2, "warnings": ["partition 0: offsets 3 to 7 are gone"]})
    execute(Publish(task_id="ingest", topic="orders", config_dir=str(site.config)))
    assert "partition 0: offsets 3 to 7 are gone" in log.lines


def test_documents_never_stand_on_a_command_line(operator: Publish, jobs: StubbedJobs) -> None:
    """Everybody on the machine can list the arguments of a process, and Airflow keeps and logs those of a task."""
    operator.given = ["--checked", json.dumps({"topic": "MARKER"}), "--now", "5", "--approved-by=anna"]
    execute(operator)
    (call,) = jobs.calls
    assert "MARKER" in jobs.argument("publish", "--checked")
    assert "MARKER" not in json.dumps([call["argv"], call["submit"], list(operator.application_args or ())])
    assert call["argv"][-5:-2] == ["--now", "5", "--approved-by=anna"]


def test_documents_are_passed_in_files_that_only_their_owner_can_open(
    operator: Publish, jobs: StubbedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real = SparkSubmitHook.submit

    def looking(hook: SparkSubmitHook, application: str, **more: Any) -> None:
        file = next(a[1:] for a in operator.application_args or () if a.startswith("@"))
        modes.append(Path(file).parent.stat().st_mode & 0o777)
        real(hook, application, **more)

    monkeypatch.setattr(SparkSubmitHook, "submit", looking)
    operator.given = ["--checked", "{}"]
    execute(operator)
    assert modes == [0o700]
    assert not Path(jobs.calls[0]["argv"][5][1:]).exists()


def test_a_document_of_any_length_arrives_whole(operator: Publish, jobs: StubbedJobs) -> None:
    """Linux takes no argument over 128 KiB."""
    long = json.dumps({"names": ["x" * 200_000]})
    operator.given = ["--checked", long]
    execute(operator)
    assert jobs.argument("publish", "--checked") == long


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ('java.lang.NumberFormatException: For input string: "MARKER"', "1, NumberFormatException"),
        (
            "pyspark.errors.exceptions.NumberFormatException: [CAST_INVALID_INPUT] The value 'MARKER' of the type",
            "1, NumberFormatException, CAST_INVALID_INPUT",
        ),
        ("ValueError: MARKER", "1, ValueError"),
        ("MARKER", "1"),
    ],
)
def test_the_report_of_a_crash_quotes_no_output_of_the_job(
    operator: Publish, jobs: StubbedJobs, output: str, said: str
) -> None:
    jobs.answer("publish", None, code=1, output=output)
    task = FakeTask()
    with pytest.raises(AirflowException, match=f"^publish crashed: Error code is: {said}; the task's log has more$"):
        execute(operator, task)
    assert "MARKER" not in json.dumps(task.pushed)


def test_without_a_spark_connection_no_job_is_submitted(site: Site, jobs: StubbedJobs, airflow_db: Path) -> None:
    site.topic("orders")
    operator = Publish(task_id="publish", topic="orders", config_dir=str(site.config), conn_id="spark_nowhere")
    with pytest.raises(
        AirflowFailException, match="Airflow has no connection spark_nowhere.*AIRFLOW_CONN_SPARK_NOWHERE"
    ):
        execute(operator)
    assert jobs.calls == []


def test_a_connection_of_another_kind_is_refused(
    operator: Publish, jobs: StubbedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "http", "host": "h"}')
    with pytest.raises(AirflowFailException, match="spark_default is of type http, not spark"):
        execute(operator)
    assert jobs.calls == []


def test_a_topic_that_is_gone_is_a_clear_error(operator: Publish, site: Site) -> None:
    (site.config / "topics" / "orders.yaml").unlink()
    with pytest.raises(Exception, match="no topic orders"):
        execute(operator)


def test_skipping_keeps_the_reason_for_the_ui(operator: Publish) -> None:
    with pytest.raises(AirflowSkipException, match="^nothing to merge$"):
        operator.skip("nothing to merge")
    assert operator.reason == "nothing to merge"


def test_a_unit_is_labelled_by_its_partitions(site: Site) -> None:
    site.topic("orders")
    compact = CompactOperator(task_id="compact", topic="orders", config_dir=str(site.config), unit=unit(0, (2, 5)))
    assert compact.partitions == "partitions 2, 5"


def test_spark_submit_is_found_where_the_bin_of_the_venv_is_not_on_path() -> None:
    env = spark_environment({})
    assert env["PATH"] == str(Path(sys.executable).parent)
    assert env["PYSPARK_PYTHON"] == sys.executable
    assert spark_environment({"PATH": "/usr/bin"})["PATH"].endswith(f"{os.pathsep}/usr/bin")


def test_the_configuration_is_named_by_the_environment_or_is_that_of_the_repository(tmp_path: Path) -> None:
    assert config_dir({}) == ROOT / "config"
    assert config_dir({"CLEANTAIL_CONFIG": str(tmp_path)}) == tmp_path


def test_no_secret_of_the_environment_reaches_logs_arguments_or_rendered_fields(
    operator: Publish, jobs: StubbedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Recorder()
    monkeypatch.setattr(SparkSubmitHook, "log", log)
    for name in ("CLEANTAIL_CATALOG_PASSWORD", "CLEANTAIL_S3_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2")
    execute(operator)
    assert [line for line in log.lines if line.startswith("Spark-Submit cmd:")]
    shown = [*log.lines, *map(str, jobs.calls), str(operator.conf), str(operator.env_vars)]
    assert not [line for line in shown if "hunter2" in line]
