"""One run of a topic's DAG with the real jobs on real Spark, from landing files to the published table."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.catalog_settings import SMALL_RUN
from cleantail.lake.runs.evaluate import read_facts
from cleantail.watch.alerting.incident_texts import parse_book
from cleantail_airflow.alerts.incident_book import variable_name
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, forget_incidents
from tests.alert_sinks import Mailbox
from tests.statsd_sink import UdpSink

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
KEYS = 7
RECORDS = 40  # per partition
HOUR_MS = 3_600_000
IN_KEY, IN_VALUE, IN_HEADER, TOO_LONG = "KEYMARK", "VALUEMARK", "HEADERMARK", "KEYMARK-that-is-too-long"
MARKS = (IN_KEY, IN_VALUE, IN_HEADER)
QUICK = {**SMALL_RUN, "spark.sql.shuffle.partitions": 1}
"""Short applications, those before the plan too: less to warm up."""


def load_incidents(topic: str) -> list[tuple[str, str]]:
    """Event and subject of what the topic's Airflow variable says is open."""
    from airflow.models.variable import Variable

    return sorted((event.value, subject) for event, subject in parse_book(Variable.get(variable_name(topic))).incidents)


def record(partition: int, offset: int) -> dict[str, Any]:
    """Keys repeat; every eleventh record is a tombstone."""
    payload = None if offset % 11 == 10 else f"{IN_VALUE}{offset}"
    return {
        "partition": partition,
        "offset": offset,
        "ts": 1_700_000_000_000 + offset,
        "key": f"{IN_KEY}{offset % KEYS}",
        "payload": payload,
        "headers": ["h", IN_HEADER],
    }


@pytest.fixture
def orders(site: Site, monkeypatch: pytest.MonkeyPatch, airflow_db: Path) -> Any:
    """A topic of two partitions with one file to land; partition 1 breaks the topic's own check."""
    forget_incidents("orders")
    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    lines = [record(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
    lines[RECORDS]["key"] = TOO_LONG
    (site.home / "landing").mkdir()
    (site.home / "landing" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    defaults = {"platform": {"allow_clock": True, "spark": {"master": "local[2]", "conf": QUICK}}}
    (site.config / "defaults.yaml").write_text(json.dumps(defaults))
    site.topic(
        "orders",
        source={"path": "landing/*.jsonl"},
        checks=[
            {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 9}},
            {
                "expectation": "expect_column_most_common_value_to_be_in_set",
                "kwargs": {"column": "value", "value_set": ["x"]},
                "severity": "warning",
            },
        ],
        alerts=[
            {"type": "file", "path": "alerts/all.jsonl"},
            {"type": "file", "path": "alerts/with-values.jsonl", "values": True},
            {"type": "mail", "to": ["ops@lake.example"]},
        ],
    )
    return site.dag("orders")


def _children(pid: int) -> Iterator[int]:
    """And theirs."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from _children(child)


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """The command lines of all processes that this one starts while the block runs, as `ps` shows them."""
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            for pid in _children(os.getpid()):
                with suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    seen.add(line.replace(b"\0", b" ").decode(errors="replace"))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the jobs print, line by line as Airflow's hook puts it into the log of the task."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    lines: list[str] = []
    real = SparkSubmitHook._process_spark_submit_log

    def keeping(hook: Any, printed_lines: Iterator[Any]) -> None:
        def kept() -> Iterator[Any]:
            for line in printed_lines:
                lines.append(str(line))
                yield line

        real(hook, kept())

    monkeypatch.setattr(SparkSubmitHook, "_process_spark_submit_log", keeping)
    return lines


def marked(texts: dict[str, str]) -> dict[str, list[str]]:
    """Those of the texts that hold a key, a value or a header of a record."""
    return {name: found for name, text in texts.items() if (found := [mark for mark in MARKS if mark in text])}


def rows_of_airflow() -> dict[str, str]:
    """Every row of every table of Airflow's database as text."""
    from airflow.utils.session import create_session
    from sqlalchemy import MetaData, select

    with create_session() as session:
        everything = MetaData()
        everything.reflect(session.get_bind())
        return {
            table.name: "\n".join(str(tuple(row)) for row in session.execute(select(table)))
            for table in everything.tables.values()
        }


def files_of_ours(home: Path) -> dict[str, str]:
    """What is below CLEANTAIL_HOME but for the topic's own records: its table, and the files that landed."""
    ours = [f for f in home.rglob("*") if f.is_file() and f.relative_to(home).parts[0] not in ("landing", "warehouse")]
    return {str(file.relative_to(home)): file.read_bytes().decode(errors="replace") for file in ours}


def evidence_of(site: Site) -> list[str]:
    """The rows of the evidence, whose files are compressed."""
    from cleantail.lake.catalogs import open_catalog

    platform = load_platform(site.config, os.environ)
    evidence = open_catalog(platform, os.environ).load_table("cleantail.cleantail_evidence")
    return [str(row) for row in evidence.scan().to_arrow().to_pylist()]


def assert_no_record_was_left_about(site: Site, seen: set[str], printed: str, mails: Sequence[Any]) -> None:
    """The logs, what `ps` showed, Airflow's database, the evidence, Great Expectations' stores, Data Docs and alerts."""
    files = files_of_ours(site.home)
    quoting = json.loads(files.pop("alerts/with-values.jsonl").splitlines()[0])
    assert [name for name in files if name.startswith("data_docs/orders/gx/uncommitted/validations/records")]
    # The JVM that spark-submit turns into: the script itself is over before a slow look at the processes.
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in seen)
    texts = {"logs": printed, "ps": "\n".join(seen), "evidence": "\n".join(evidence_of(site))}
    texts |= {f"mail {i}": str(mail) for i, mail in enumerate(mails)}
    assert marked({**texts, **rows_of_airflow(), **files}) == {}
    (failure,) = quoting["failures"]
    assert (failure["offsets"], failure["observed"]) == ([0], "1 of 8 records, at offset 0")
    headers = f'headers "h": "{IN_HEADER}"'
    assert failure["examples"] == [f'offset 0: key "{TOO_LONG}", value "{IN_VALUE}0", {headers}']
    assert failure["examples"][0] in quoting["text"]


def test_green_partitions_are_published_and_red_ones_held_back_with_an_alert(
    orders: Any,
    site: Site,
    mailbox: Mailbox,
    statsd: UdpSink,
    printed: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    with command_lines() as seen:
        finished = orders.test(run_conf={"now_ms": 1_700_000_000_000 + HOUR_MS})
    states = {instance.task_id: str(instance.state) for instance in finished.get_task_instances()}
    assert states == {
        "ingest": "success",
        "evaluate": "success",
        "compact": "success",
        "check_quality": "failed",
        "publish": "success",
        "expire_tombstones": "skipped",
        "reclaim": "skipped",
        "rollback": "skipped",
        "outcome": "failed",
        "alert": "success",
    }
    facts = read_facts(find_topic("orders", site.config), load_platform(site.config, os.environ))
    assert facts is not None
    live = {p: sum(f.live_records for f in facts.files_of(p)) for p in facts.partitions}
    assert live == {0: KEYS, 1: RECORDS}
    assert facts.states[0].checkpoint == RECORDS
    assert facts.states[1].checkpoint is None
    (alert,) = [json.loads(line) for line in (site.home / "alerts" / "all.jsonl").read_text().splitlines()]
    assert [failure["partition"] for failure in alert["failures"]] == [1]
    assert [mail["Subject"] for mail in mailbox.mails] == ["[cleantail] orders: check failed, partition 1 held back"]
    assert [kind for kind, _ in load_incidents("orders")] == ["check_failed", "partition_quarantined"]
    held = facts.states[1].quarantine
    assert held is not None and held.branch in facts.branches
    assert published_to(finished.run_id) == [{"0": RECORDS}]
    sent = dict(line.split(":", 1) for line in statsd.cleantail())
    assert sent["max-dirty-percent.orders"] == "100.0|g"
    assert sent["rounds.orders.0.compact.published"] == sent["rounds.orders.1.compact.held_back"] == "1|c"
    assert sent["checks-failed.orders.1.critical"] == "1|c"
    assert sent["records-dropped.orders.0.superseded"] == f"{RECORDS - KEYS}|c"
    assert float(sent["max-clean-time-secs.orders"].removesuffix("|g")) > 0
    assert not [name for name in sent if name.startswith("records-dropped.orders.1")]
    assert facts.last_compaction is not None
    assert facts.last_compaction.messages_read == 2 * RECORDS
    logs = "".join([*printed, *capfd.readouterr()])
    assert "ended with exit code 1" in logs
    assert_no_record_was_left_about(site, seen, logs, mailbox.mails)


def published_to(run_id: str) -> list[dict[str, int]]:
    """The clean points that the run's events of the topic's asset say."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        return [event.extra["checkpoints"] for event in session.query(AssetEvent).filter_by(source_run_id=run_id)]
