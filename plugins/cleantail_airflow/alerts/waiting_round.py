"""Tells the channels that a round waits for a person, and that it does not any more."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from airflow.sdk import Context

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.retries import repeated
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import CheckedRound
from cleantail.watch.alarms import round_waits
from cleantail.watch.approval_text import count_lines
from cleantail.watch.incidents import Condition
from cleantail_airflow.alerts.alerting import EarlyLook, tell_now

PAUSES_S = (5, 20, 60)
"""The pauses between the tries to tell that a round waits for a person. The task holds its slot meanwhile."""
_ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")
"""Airflow's states of a task that waits for nobody any more."""

logger = logging.getLogger(__name__)


def tell_that_it_waits(
    topic: Topic,
    platform: Platform,
    checked: CheckedRound,
    context: Context,
) -> None:
    """Tells that the round waits, and tries a channel that does not take it again: nothing else tells it meanwhile.

    The message has counts and no sample; Airflow shows that where the answer is given, behind its login.
    """
    waiting = _condition(context, "\n".join([held_message(topic.topic, checked.holds), *count_lines(checked)]))
    early = EarlyLook(lambda: [waiting], int(time.time() * 1000))
    for name in repeated(lambda: tell_now(topic, platform, context, early), PAUSES_S):
        logger.error("given up: %s does not know that a round waits for approval", name)


def tell_that_it_was_answered(topic: Topic, platform: Platform, context: Context) -> None:
    """Tells that the round does not wait any more: it was answered, or the time to answer is over."""
    subject = _condition(context, "").subject
    early = EarlyLook(list, int(time.time() * 1000), lambda condition: condition.subject == subject)
    tell_now(topic, platform, context, early)


def _condition(context: Context, text: str) -> Condition:
    ti = context["ti"]
    return round_waits(ti.task_id, ti.run_id, text, ti.log_url)


def waiting_subjects(run_ids: Mapping[str, str], context: Context) -> frozenset[str]:
    """Returns the subjects of the incidents (subject -> run id) whose task has not ended.

    Airflow is asked, since a person may have marked the task or its run.
    """
    ti = context["ti"]
    runs = sorted(set(run_ids.values()))
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=runs) if runs else {}
    waiting = {
        round_waits(task_id, run_id, "", "").subject
        for run_id, tasks in states.items()
        for task_id, state in tasks.items()
        if state not in _ENDED
    }
    return frozenset(run_ids) & waiting
