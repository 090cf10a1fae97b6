"""The tasks that wait for a person; only topics that can be held have them.

While a round waits it holds no process and no slot of the pool: Airflow parks the task, and wakes it with the answer,
from the page Required Actions, the task's own tab or the REST API, or with the refusal when the time to answer is over.
What a person is shown holds data, so it is set in `execute` and never rendered as a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from cleantail import approval_text
from cleantail.approval import heads_of
from cleantail.topic import Topic
from cleantail_airflow.operators import topic_and_platform
from cleantail_airflow.waiting_round import tell_that_it_waits, tell_that_it_was_answered

APPROVE, REJECT = "Approve", "Reject"
NOBODY_ASKED = "nothing waits for approval: nobody was asked"
ASKED = "asked"
"""XCom of a task that waits: the snapshots that were shown. Only they may be published by its answer."""
ROLLBACK_TO = "rollback_to"
"""Param of a run that undoes rounds instead of doing one."""


class ApproveOperator(HITLOperator):
    """Asks whether what `source` has checked may be published.

    The answer is the task's XCom: {"approved", "by" (None: nobody in time), "at_ms", "heads"}. Where nothing has to be
    asked the task is skipped: green would say that somebody had approved.
    """

    template_fields: Sequence[str] = ("topic", "source")

    def __init__(self, *, topic: Topic, config_dir: str, source: str, **kwargs: Any) -> None:
        super().__init__(
            subject=f"{topic.topic}: a round waits for approval",
            options=[APPROVE, REJECT],
            defaults=[REJECT],
            assigned_users=[{"id": name, "name": name} for name in topic.approvers] or None,
            response_timeout=timedelta(milliseconds=topic.config.cleantail_approval_timeout_ms),
            **kwargs,
        )
        self.topic = topic.topic
        self.config_dir = config_dir
        self.source = source

    def execute(self, context: Context) -> None:
        checked = checked_of(context, self.source)
        if not checked or not checked.get("holds"):
            self.log.info("%s", NOBODY_ASKED)
            raise AirflowSkipException(NOBODY_ASKED)
        self.subject = approval_text.subject(checked)
        self.body = approval_text.body(checked, self._question(context))
        context["ti"].xcom_push(ASKED, heads_of(checked))
        self.log.info("%s", self.body)
        tell_that_it_waits(*topic_and_platform(self.topic, self.config_dir), checked, context)
        super().execute(context)

    def _question(self, context: Context) -> approval_text.Question:
        """Airflow counts the time to answer from now on."""
        from cleantail_airflow.alerting import place_of

        place, timeout = place_of(self.topic, context), self.response_timeout or timedelta()
        until_ms = int((datetime.now(UTC) + timeout).timestamp() * 1000)
        return approval_text.Question(until_ms, place.page(), place.data_docs)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        answer = super().execute_complete(context, event)
        user = answer["responded_by_user"]
        approved = answer["chosen_options"] == [APPROVE]
        by = (user["name"] or user["id"]) if user else None
        self.log.info("%s by %s", "approved" if approved else "rejected", by or "nobody: the time to answer is over")
        tell_that_it_was_answered(*topic_and_platform(self.topic, self.config_dir), context)
        at_ms = int(answer["responded_at"].timestamp() * 1000)
        heads = context["ti"].xcom_pull(task_ids=self.task_id, key=ASKED)
        return {"approved": approved, "by": by, "at_ms": at_ms, "heads": heads}


def checked_of(context: Context, source: str) -> dict[str, Any] | None:
    """The checked round that a task has left: check_quality's result is one, expire_tombstones' has one if it waits."""
    result: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=source)
    if result and "published" in result:  # an expiry publishes by itself what need not wait
        return result.get("checked")
    return result
