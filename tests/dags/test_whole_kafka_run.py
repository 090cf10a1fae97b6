"""One run of a topic's DAG with the real jobs on real Spark, from a real broker to the published table.

It starts two Spark applications and more, and is of `make test-deep`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.records.latest import load_latest
from cleantail.lake.runs.evaluate import read_facts
from differential.broker import kafka_jars, running_broker
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, forget_incidents

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.gx,
    pytest.mark.deep,
]
JARS = kafka_jars(os.environ)


def test_a_run_reads_from_kafka_and_compacts_and_the_next_one_finds_nothing_new(
    site: Site, monkeypatch: pytest.MonkeyPatch, airflow_db: Path, tmp_path: Path
) -> None:
    from tests.jobs.kafka_site import KafkaSite

    forget_incidents("orders")
    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    (site.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]"}}}))
    folder = tmp_path / "broker"
    folder.mkdir()
    with running_broker(folder, JARS) as broker:
        extra = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": broker.address}})
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_LAKE", extra)
        kafka = KafkaSite(broker.address, "", broker)
        kafka.create("orders", 2)
        sender = kafka.transactions("orders", "orders")
        for partition in (0, 1):
            sender.commit([(b"k%d" % (n % 7), b"v", None, 1_700_000_000_000 + n) for n in range(40)], partition)
            sender.abort([(b"k", b"aborted")], partition)
        site.topic("orders", source={"kafka": {"connection": "kafka_lake"}})
        states = of_run(site)
        assert (states["ingest"], states["compact"], states["publish"]) == ("success", "success", "success")
        facts = read_facts(find_topic("orders", site.config), load_platform(site.config, os.environ))
        assert facts is not None
        assert {p: sum(f.live_records for f in facts.files_of(p)) for p in facts.partitions} == {0: 7, 1: 7}
        assert {p: state.log_end_offset for p, state in facts.states.items()} == {0: 43, 1: 43}
        assert of_run(site)["ingest"] == "skipped"


def test_a_run_that_needs_it_removes_what_is_gone_in_kafka(
    site: Site, monkeypatch: pytest.MonkeyPatch, airflow_db: Path, tmp_path: Path
) -> None:
    from tests.jobs.kafka_site import KafkaSite

    forget_incidents("forgetting")
    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    (site.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[2]"}}}))
    folder = tmp_path / "broker"
    folder.mkdir()
    with running_broker(folder, JARS) as broker:
        extra = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": broker.address}})
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_LAKE", extra)
        kafka = KafkaSite(broker.address, "", broker)
        kafka.create(
            "forgetting",
            cleanup_policy="compact",
            segment_ms=100,
            delete_retention_ms=100,
            min_cleanable_dirty_ratio=0.01,
        )
        kafka.send("forgetting", [(b"k%d" % n, b"v") for n in range(9)])
        site.topic(
            "forgetting", source={"kafka": {"connection": "kafka_lake"}}, config={"cleantail.reconcile": "needed"}
        )
        assert of_run(site, "forgetting")["ingest"] == "success"
        kafka.send("forgetting", [(b"k0", None), (b"k1", None)])
        until = time.monotonic() + 60
        while any(record.value is None for record in kafka.consumed("forgetting")):
            assert time.monotonic() < until
            kafka.send("forgetting", [(b"roll", b"x")])
            time.sleep(0.3)
        states = of_run(site, "forgetting")
        assert (states["ingest"], states["reconcile"]) == ("success", "success")
        topic, platform = find_topic("forgetting", site.config), load_platform(site.config, os.environ)
        state = load_latest(topic, platform, int(time.time() * 1000))
        assert {*state.to_arrow()["key"].to_pylist()} == {r.key for r in kafka.consumed("forgetting")}
        assert of_run(site, "forgetting")["reconcile"] == "skipped"


def of_run(site: Site, topic: str = "orders") -> dict[str, Any]:
    finished = site.dag(topic).test()
    return {instance.task_id: str(instance.state) for instance in finished.get_task_instances()}
