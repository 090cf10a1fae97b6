"""The task that goes on with requests to erase keys."""

from __future__ import annotations

import base64
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic
from cleantail.erasure.requests import REJECTED, ErasureEvent
from cleantail.erasure.store import ErasureStore
from cleantail.watch.incidents import Book
from cleantail_airflow import erasure_dag
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException
from cleantail_airflow.alerts import alerting
from cleantail_airflow.tasks import erase_task
from cleantail_airflow.tasks.erase_task import EraseOperator

KEY = base64.b64encode(bytes(32)).decode()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config" / "topics").mkdir(parents=True)
    (tmp_path / "config" / "topics" / "orders.yaml").write_text("topic: orders\n")
    (tmp_path / "config" / "topics" / "payments.yaml").write_text(
        "topic: payments\nsource: {kafka: {connection: kafka_a}}\n"
    )
    monkeypatch.setenv("CLEANTAIL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", KEY)
    return tmp_path / "config"


def request_for(config: Path, topic: str, *events: str) -> None:
    store = ErasureStore(find_topic(topic, config).platform)
    request = store.request(topic, [b"marker-k1"], by="ana", now_ms=1, deadline_ms=2)
    for event in events:
        store.append(ErasureEvent(topic, request.id, event, 2, "ana"))


def execute(config: Path, topic: str | None = None) -> Any:
    return EraseOperator(task_id="erase", config_dir=str(config)).execute({"params": {"topic": topic}})  # type: ignore[typeddict-item]


def test_without_an_open_request_the_task_is_skipped(config: Path) -> None:
    with pytest.raises(AirflowSkipException, match="no request to erase keys is open"):
        execute(config)
    request_for(config, "orders", REJECTED)
    with pytest.raises(AirflowSkipException):
        execute(config, "orders")


def test_topics_with_open_requests_or_files_are_worked_on(config: Path, tmp_path: Path) -> None:
    request_for(config, "orders")
    assert [t.topic for t in erase_task._topics(config, None)[0]] == ["orders"]
    folder = tmp_path / "home" / "erasures" / "payments"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("{}")
    assert sorted(t.topic for t in erase_task._topics(config, None)[0]) == ["orders", "payments"]
    assert [t.topic for t in erase_task._topics(config, "payments")[0]] == ["payments"]


def test_a_topic_that_does_not_exist_fails_the_task(config: Path) -> None:
    with pytest.raises(AirflowFailException, match="absent"):
        execute(config, "absent")


def test_a_topic_whose_command_cannot_be_started_stops_no_other_and_the_log_has_the_reasons_of_the_answer(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The connection of the first topic was deleted. The real command of the other one needs no Spark: its request waits
    for approval, and a file is no request. Certificates are not in the log."""
    (config / "topics" / "payments.yaml").rename(config / "topics" / "a.yaml")  # it comes first
    (config / "topics" / "a.yaml").write_text("topic: a\nsource: {kafka: {connection: kafka_a}}\n")
    (config / "topics" / "orders.yaml").write_text("topic: orders\npublish: approve\n")
    monkeypatch.setenv("CLEANTAIL_CERTIFICATE_KEY", KEY)
    notified = list[str]()
    monkeypatch.setattr(erase_task, "notify_now", lambda topic, *_: notified.append(topic.topic))
    for topic in ("a", "orders"):
        request_for(config, topic)
    folder = tmp_path / "home" / "erasures" / "orders"
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text('{"keys": ["marker-k2"], "requested_by": 7}')
    with pytest.raises(AirflowFailException, match=r"a \(not started\), orders \(exit code 5\)"):
        execute(config)
    log = capsys.readouterr().out
    assert "kafka_a" in log and "waits for approval" in log
    assert "broken.json is not a request: requested_by must be a text of 1 to 200 characters" in log
    assert '"requests"' not in log and "marker" not in log
    assert notified == ["a", "orders", "orders"]  # before anything is erased, and after


def test_open_requests_and_files_of_topics_without_a_valid_file_fail_the_task(config: Path, tmp_path: Path) -> None:
    request_for(config, "orders")
    for name in ("orders", "payments"):
        (config / "topics" / f"{name}.yaml").write_text(f"topic: {name}\nno_such_key: 1\n")
    folder = tmp_path / "home" / "erasures" / "absent"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("{}")
    with pytest.raises(AirflowFailException, match=r"absent \(no valid topic\), orders \(no valid topic\); "):
        execute(config)


class Task:
    task_id, run_id, dag_id = "erase", "manual__1", "cleantail_erasures"
    log_url = "http://localhost/dags/cleantail_erasures/runs/manual__1/tasks/erase"

    def xcom_pull(self, **_: Any) -> None:
        """The DAG has no task `evaluate`."""


def test_channels_are_notified_of_deadlines_although_the_topics_own_dag_does_not_run(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor can the command be started: the connection of the topic was deleted."""
    alerts = '[{"type": "file", "path": "alerts/all.jsonl"}]'
    source = "source: {kafka: {connection: kafka_a}}"
    (config / "topics" / "orders.yaml").write_text(f"topic: orders\nalerts: {alerts}\n{source}\n")
    book = Book()

    class Store:
        def load(self) -> Book:
            return book

        def save(self, changed: Book) -> None:
            nonlocal book
            book = changed

    monkeypatch.setattr(alerting, "locked_book", lambda *_: nullcontext(Store()))  # Airflow's variable
    request_for(config, "orders")

    def notified() -> list[tuple[str, str]]:
        context = {"params": {"topic": "orders"}, "ti": Task()}
        with pytest.raises(AirflowFailException, match="not started"):
            EraseOperator(task_id="erase", config_dir=str(config)).execute(context)  # type: ignore[arg-type]
        lines = (tmp_path / "home" / "alerts" / "all.jsonl").read_text().splitlines()
        return [(line["event"], line["state"]) for line in map(json.loads, lines)]

    assert notified() == notified() == [("erasure_overdue", "open")]
    store = ErasureStore(find_topic("orders", config).platform)
    [request] = store.requests("orders")
    store.append(ErasureEvent("orders", request.id, REJECTED, 3, "ana"))
    store.request("orders", [b"k2"], by="ana", now_ms=4, deadline_ms=1 << 50)  # has time
    assert notified() == [("erasure_overdue", "open"), ("erasure_overdue", "over")]


def test_the_command_gets_the_key_that_signs_and_only_its_own_brokers(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"bootstrap.servers": "broker:9092", "sasl.password": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_A", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "fernet")
    monkeypatch.setenv("CLEANTAIL_CERTIFICATE_KEY", "signs")
    env = erase_task._environment(find_topic("orders", config))
    assert env["CLEANTAIL_CERTIFICATE_KEY"] == "signs" and env["CLEANTAIL_ERASURE_KEY"] == KEY
    assert not [name for name in env if name.startswith("AIRFLOW_") and "CTX" not in name]
    env = erase_task._environment(find_topic("payments", config))
    assert json.loads(env["AIRFLOW_CONN_KAFKA_A"])["extra"]["sasl.password"] == "hunter2"


def test_the_dag_has_one_task_and_no_schedule_unless_it_is_given_one(config: Path) -> None:
    dag = erasure_dag(config)
    assert (dag.dag_id, dag.task_ids, dag.schedule) == ("cleantail_erasures", ["erase"], None)
    assert dag.get_task("erase").pool == "cleantail_spark"
    assert erasure_dag(config, "@daily").schedule == "@daily"
