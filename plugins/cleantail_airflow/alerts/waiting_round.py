"""Telling the channels that a round waits for a person, and that it does not any more."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from airflow.sdk import Context
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt, wait_chain, wait_fixed

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.watch.alerting.alarms import round_waits
from cleantail.watch.alerting.incidents import Condition
from cleantail.watch.approval_text import count_lines
from cleantail_airflow.alerts.alerting import Sight, tell_now

PAUSES_S = (5, 20, 60)
"""Between the tries to tell that a round waits for a person. The task holds its slot meanwhile."""

logger = logging.getLogger(__name__)


def tell_that_it_waits(
    topic: Topic,
    platform: Platform,
    checked: CheckedRound,
    context: Context,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Nothing else of the run tells it while it waits, so a channel that does not take it is tried again. The sample is
    shown where the answer is given, behind Airflow's login."""
    waits = _condition(topic, context, "\n".join([held_message(topic.topic, checked.holds), *count_lines(checked)]))
    sight = Sight(lambda: [waits], int(time.time() * 1000))
    tries = Retrying(
        sleep=sleep,
        retry=retry_if_result(bool),
        wait=wait_chain(*map(wait_fixed, PAUSES_S)),
        stop=stop_after_attempt(1 + len(PAUSES_S)),
        retry_error_callback=_last_result,
    )
    for name in tries(tell_now, topic, platform, context, sight):
        logger.error("given up: %s does not know that a round waits for approval", name)


def _last_result(state: RetryCallState) -> list[str]:
    """The channels that the last try did not reach."""
    unreached: list[str] = state.outcome.result() if state.outcome else []
    return unreached


def tell_that_it_was_answered(topic: Topic, platform: Platform, context: Context) -> None:
    """Also where the time to answer is over."""
    subject = _condition(topic, context, "").subject
    sight = Sight(list, int(time.time() * 1000), lambda known: known.subject == subject)
    tell_now(topic, platform, context, sight)


def _condition(topic: Topic, context: Context, text: str) -> Condition:
    ti = context["ti"]
    return round_waits(ti.task_id, ti.run_id, text, ti.log_url)


def waiting_subjects(known: Mapping[str, str], context: Context) -> frozenset[str]:
    """Those of the incidents (subject -> run id) whose task has not ended: a person may have marked its run."""
    ti = context["ti"]
    runs = sorted(set(known.values()))
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=runs) if runs else {}
    waiting = {
        round_waits(task_id, run_id, "", "").subject
        for run_id, tasks in states.items()
        for task_id, state in tasks.items()
        if state not in _ENDED
    }
    return frozenset(known) & waiting


_ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")
