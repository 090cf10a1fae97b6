"""One run of a topic's DAG with the real jobs on real Spark, from landing files to the published table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cleantail.config import find_topic, load_platform
from cleantail.evaluate import read_facts
from cleantail.incident_texts import parse_book
from cleantail_airflow.incident_book import variable_name
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, forget_incidents
from tests.alert_sinks import Mailbox
from tests.statsd_sink import UdpSink

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
KEYS = 7
RECORDS = 40  # per partition
HOUR_MS = 3_600_000
QUICK = {"spark.sql.shuffle.partitions": 1, "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""Four short applications: less to warm up."""


def load_incidents(topic: str) -> list[tuple[str, str]]:
    """Event and subject of what the topic's Airflow variable says is open."""
    from airflow.models.variable import Variable

    return sorted((event.value, subject) for event, subject in parse_book(Variable.get(variable_name(topic))).incidents)


def record(partition: int, offset: int) -> dict[str, Any]:
    """Keys repeat; every eleventh record is a tombstone."""
    payload = None if offset % 11 == 10 else f"v{offset}"
    return {
        "partition": partition,
        "offset": offset,
        "ts": 1_700_000_000_000 + offset,
        "key": f"k{offset % KEYS}",
        "payload": payload,
    }


@pytest.fixture
def orders(site: Site, monkeypatch: pytest.MonkeyPatch, airflow_db: Path) -> Any:
    """A topic of two partitions with one file to land; partition 1 breaks the topic's own check."""
    forget_incidents("orders")
    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    lines = [record(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
    lines[RECORDS]["key"] = "a-key-that-is-too-long"
    (site.home / "landing").mkdir()
    (site.home / "landing" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    defaults = {"platform": {"spark": {"master": "local[2]", "conf": QUICK}}}
    (site.config / "defaults.yaml").write_text(json.dumps(defaults))
    site.topic(
        "orders",
        source={"path": "landing/*.jsonl"},
        checks=[
            {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 9}}
        ],
        alerts=[{"type": "file", "path": "alerts.jsonl"}, {"type": "mail", "to": ["ops@lake.example"]}],
    )
    return site.dag("orders")


def test_green_partitions_are_published_and_red_ones_held_back_with_an_alert(
    orders: Any, site: Site, mailbox: Mailbox, statsd: UdpSink
) -> None:
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
    (alert,) = [json.loads(line) for line in (site.home / "alerts.jsonl").read_text().splitlines()]
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


def published_to(run_id: str) -> list[dict[str, int]]:
    """The clean points that the run's events of the topic's asset say."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        return [event.extra["checkpoints"] for event in session.query(AssetEvent).filter_by(source_run_id=run_id)]
