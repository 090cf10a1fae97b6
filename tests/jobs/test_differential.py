"""A small part of `make differential`: a real broker's cleaner and the engine leave the same records."""

from __future__ import annotations

import os
from dataclasses import replace

from differential.archive import Archive
from differential.broker import kafka_jars, running_broker
from differential.families import FAMILIES, random_plans
from differential.kafka_client import KafkaClient
from differential.observing import observe
from differential.trial import replay

JARS = kafka_jars(os.environ)
"""Asked when the module is imported: the session's own CLEANTAIL_HOME has no jars."""
SEED = 7


def test_after_every_round_a_topic_is_what_kafkas_own_cleaner_leaves(workshop, tmp_path):
    """Eight histories: tombstones are kept by the first round and gone after the second."""
    [family] = [f for f in FAMILIES if f.name == "past-horizon"]
    [plan] = random_plans(8, SEED, [replace(family, configs=family.configs[:2])])
    with running_broker(tmp_path, JARS) as broker:
        observed = observe(broker, KafkaClient(broker.address), plan)
    first, second = (tombstones(seen.left) for seen in observed)
    kept = {(p, offset) for p, offset in first if offset < observed[0].checkpoints[p]}
    assert kept and not {(p, offset) for p, offset in kept & second if p in observed[1].cleaned}
    trial = replay(Archive(workshop.config), plan, observed, lambda _: None)
    assert trial.unexplained == []
    assert trial.comparisons == 16


def tombstones(logs):
    return {(p, record.offset) for p, records in logs.items() for record in records if record.value is None}
