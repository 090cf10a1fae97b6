"""A small part of `make differential`: a real broker's cleaner and the engine leave the same records."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from cleantail.config.loading import load_topic
from cleantail_cli import main
from differential.archive import Archive
from differential.broker import kafka_jars, random_cluster_id, running_broker
from differential.families import FAMILIES, random_plans
from differential.kafka_client import KafkaClient
from differential.trial import run_trial

pytestmark = pytest.mark.integration

JARS = kafka_jars(os.environ)
"""Asked when the module is imported: the session's own CLEANTAIL_HOME has no jars."""
SEED = 7


def test_after_every_round_a_topic_is_what_kafkas_own_cleaner_leaves(workshop, tmp_path):
    """Four histories, read from the broker: tombstones are kept by the first round and gone after the second."""
    [family] = [f for f in FAMILIES if f.name == "past-horizon"]
    [plan] = random_plans(4, SEED, [replace(family, configs=family.configs[:2])])
    # one random id of 64 begins with a dash
    with running_broker(tmp_path, JARS, cluster_id=f"-{random_cluster_id()[1:]}") as broker:
        trial = run_trial(Archive(workshop.config), plan, broker, lambda _: None)
        imported = imported_from(broker, tmp_path / "imported")
    assert trial.unexplained == []
    assert trial.comparisons == 8
    observed = trial.broker_rounds
    first, second = (tombstones(seen.left) for seen in observed)
    kept = {(p, offset) for p, offset in first if offset < observed[0].checkpoints[p]}
    assert kept and not {(p, offset) for p, offset in kept & second if p in observed[1].cleaned}
    assert workshop.json("status", plan.topic)["sources"][plan.topic]["next_offsets"].keys() == set("0123")
    assert imported.model_dump(exclude_unset=True) == {
        "cleanup_policy": {"compact"},
        "max_compaction_lag_ms": 7_200_000,
        "min_cleanable_dirty_ratio": 0.25,
    }


def imported_from(broker, config):
    """A topic's configs as `import-config` writes them when it asks the broker; what no topic was made for is told."""
    given = {"cleanup.policy": "compact", "max.compaction.lag.ms": 7_200_000, "min.cleanable.dirty.ratio": 0.25}
    KafkaClient(broker.address).create("to.import", 1, given | {"compression.type": "zstd"})
    config.mkdir()
    arguments = ["import-config", "--bootstrap-server", broker.address, "--config", str(config)]
    assert main([*arguments, "--topic", "to.import"]) == 0
    text = (config / "topics" / "to.import.yaml").read_text()
    assert "# compression.type=zstd: data files are Parquet" in text
    assert main([*arguments, "--topic", "nowhere"]) == 2
    assert main([*arguments, "--force"]) == 0
    return load_topic(config / "topics" / "to.import.yaml", config).config


def tombstones(logs):
    return {(p, record.offset) for p, records in logs.items() for record in records if record.value is None}
