"""One run of a topic's DAG with the real jobs on real Spark, from a real broker to the published table.

It starts two Spark applications and more, and is of `make test-deep`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.evaluate import read_facts
from cleantail.lake.records.latest_state import load_latest
from differential.broker import kafka_jars, running_broker
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, forget_incidents
from tests.dags.test_held_runs import answers

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.gx,
    pytest.mark.deep,
]
JARS = kafka_jars(os.environ)


@pytest.fixture
def kafka(site: Site, monkeypatch: pytest.MonkeyPatch, airflow_db: Path, tmp_path: Path) -> Iterator[Any]:
    """A real broker, which Airflow's connection kafka_lake names."""
    from tests.jobs.kafka_site import KafkaSite

    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    (site.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]"}}}))
    folder = tmp_path / "broker"
    folder.mkdir()
    with running_broker(folder, JARS) as broker:
        extra = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": broker.address}})
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_LAKE", extra)
        yield KafkaSite(broker.address, "", broker)


def test_a_run_reads_from_kafka_and_compacts_and_the_next_one_finds_nothing_new(site: Site, kafka: Any) -> None:
    forget_incidents("orders")
    kafka.create("orders", 2)
    sender = kafka.transactions("orders", "orders")
    for partition in (0, 1):
        sender.commit([(b"k%d" % (n % 7), b"v", None, 1_700_000_000_000 + n) for n in range(40)], partition)
        sender.abort([(b"k", b"aborted")], partition)
    site.topic("orders", source={"kafka": {"connection": "kafka_lake"}})
    states = of_run(site)
    assert (states["ingest"], states["compact"], states["publish"]) == ("success", "success", "success")
    facts = read_facts(find_topic("orders", site.config))
    assert facts is not None
    assert {p: sum(f.live_records for f in facts.files_of(p)) for p in facts.partitions} == {0: 7, 1: 7}
    assert {p: state.log_end_offset for p, state in facts.states.items()} == {0: 43, 1: 43}
    assert of_run(site)["ingest"] == "skipped"


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("forgetting", {}, {"ingest": "success", "reconcile": "success"}),
        (
            "forgetting-approved",
            {"publish": "approve"},
            {"reconcile": "skipped", "approve_reconcile": "success", "publish_reconcile": "success"},
        ),
    ],
)
def test_a_run_that_needs_it_removes_what_is_gone_in_kafka(
    site: Site, kafka: Any, name: str, more: dict[str, Any], expected: dict[str, str]
) -> None:
    forget_incidents(name)
    soon = {"segment_ms": 100, "delete_retention_ms": 100, "min_cleanable_dirty_ratio": 0.01}
    kafka.create(name, cleanup_policy="compact", **soon)
    kafka.send(name, [(b"k%d" % n, b"v") for n in range(9)])
    config = {"cleantail.reconcile": "needed"}
    site.topic(name, source={"kafka": {"connection": "kafka_lake"}}, config=config, **more)
    assert of_run(site, name)["ingest"] == "success"
    kafka.send(name, [(b"k0", None), (b"k1", None)])
    until = time.monotonic() + 60
    while any(record.value is None for record in kafka.consumed(name)):
        assert time.monotonic() < until
        kafka.send(name, [(b"roll", b"x")])
        time.sleep(0.3)
    states = of_run(site, name)
    assert {task: states[task] for task in expected} == expected, states
    topic, _platform = find_topic(name, site.config), load_platform(site.config)
    state = load_latest(topic, int(time.time() * 1000))
    assert {*state.to_arrow()["key"].to_pylist()} == {r.key for r in kafka.consumed(name)}
    last = of_run(site, name)
    assert {last[task] for task in expected if task != "ingest"} == {"skipped"}


def of_run(site: Site, topic: str = "orders") -> dict[str, Any]:
    """Runs the DAG; whoever is asked approves."""
    with answers("Approve"):
        finished = site.dag(topic).test()
    return {instance.task_id: str(instance.state) for instance in finished.get_task_instances()}
