"""When a run reconciles a topic with its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.config.topic import Topic
from cleantail.log.due_work import resolve_reconcile
from cleantail.log.source_position import Forgotten
from tests.cleantail.kernel_builders import log_state

ENTRY = Forgotten(0, 2, 9, 3, 1_000, 1_000)
NEEDED, CALM = log_state(forgotten=ENTRY), log_state()
NEEDED_TOO = log_state(partition=1, forgotten=replace(ENTRY, partition=1))
HINDERED = log_state(forgotten=replace(ENTRY, hindrance="the policy deletes"))


def topic_of(when="trigger", kafka=True):
    source = {"source": {"kafka": {"bootstrap.servers": "h:1"}}} if kafka else {}
    return Topic.model_validate(
        {"topic": "orders", "table": "n.orders", "config": {"cleantail.reconcile": when}, **source}
    )


@pytest.mark.parametrize(
    ("when", "logs", "asked", "due", "words"),
    [
        pytest.param("needed", [CALM, NEEDED], False, True, "reconcile needed, partition 0", id="needed"),
        pytest.param("needed", [NEEDED, NEEDED_TOO], False, True, "reconcile needed, partition 0", id="the first"),
        pytest.param("trigger", [NEEDED], False, False, "cleantail.reconcile is trigger", id="only when triggered"),
        pytest.param("trigger", [NEEDED, NEEDED_TOO], False, False, "needed, partition 0", id="the first to trigger"),
        pytest.param("trigger", [CALM], True, True, "was triggered with reconcile", id="triggered"),
        pytest.param("needed", [CALM], False, False, "every deletion was read in time", id="not needed"),
        pytest.param("needed", [HINDERED], False, False, "no reconciliation is needed", id="none could mend it"),
        pytest.param("needed", [], True, False, "no records yet", id="nothing to compare"),
    ],
)
def test_a_run_reconciles_where_it_was_asked_for_or_is_needed(when, logs, asked, due, words):
    decision = resolve_reconcile(topic_of(when), logs, asked)
    assert decision.due is due and words in decision.reason


def test_a_topic_without_a_source_in_kafka_has_nothing_to_compare_with():
    assert resolve_reconcile(topic_of(kafka=False), [NEEDED], True).due is False
