"""The task that asks a person whether a round may be published. Only topics whose rounds may wait have it.

1. The check has decided whether the round waits (cleantail.rounds.approval.holds_of). The task reads the decision from
   the evidence.
2. `execute` asks. Airflow then parks the task, which has no process and no slot of the pool.
3. Airflow resumes it with the answer (`execute_complete`). The answer comes from the page Required Actions, the
   task's tab or the REST API. If no answer arrives in time, the round is rejected.
4. Question and answer are stored in Cleantail's namespace of the catalog (cleantail.rounds.approval), and `publish`
   reads only these. So a user who may only write XComs and set tasks to success cannot publish.

The question has the positions of records, not their values, because Airflow stores it. The topic's page shows the
records. `execute` sets the question, which is not a template field, so Jinja never renders it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context

from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.own_namespace import read_answer, write_answer
from cleantail.lake.recorded_rounds import recorded_round
from cleantail.lineage import StationLineage
from cleantail.rounds.approval import Rejection, answered, approved_note, name_of, question, shown_of
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.stations import BY_NAME
from cleantail.watch import approval_text
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException
from cleantail_airflow.alerts.alerting import notify_round_answered, notify_round_waits, origin_of
from cleantail_airflow.outcomes.failures import noting
from cleantail_airflow.outcomes.run_xcoms import checked_by
from cleantail_airflow.station_lineage import LineageOperator, lineage_of_approval
from cleantail_airflow.tasks.spark_job import loaded_topic

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

APPROVE, REJECT = "Approve", "Reject"
NO_ROUND_WAITS = "no round waits for approval"


class ApproveOperator(LineageOperator, HITLOperator):
    """Asks whether the round that the task `source` has checked may be published.

    The task's XCom, {"approved", "by" (None: no answer in time), "at_ms" (Unix ms)}, is for people only. If no
    approval is needed, the task is skipped, because a green task would look like an approval.
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

    @noting
    def execute(self, context: Context) -> None:
        # 1. Read the round with its decision.
        topic = loaded_topic(self.topic, self.config_dir)
        catalog = open_catalog(topic.platform)
        checked = self._checked(context, topic, catalog)
        self.keep_lineage(lambda: self._lineage_of_round(topic, checked))
        if not checked or not checked.holds:
            self.log.info("%s", NO_ROUND_WAITS)
            raise AirflowSkipException(NO_ROUND_WAITS)
        # 2. Make the question for Airflow, and store it.
        self.subject = approval_text.subject(checked)
        self.body = approval_text.body(checked, self._question(context, checked))
        self._require_shown(context, shown_of(checked))
        write_answer(catalog, topic, question(checked, instance_of(context), int(time.time() * 1000)))
        self.log.info("%s", self.body)
        # 3. Notify the channels. Airflow then parks the task.
        notify_round_waits(topic, checked, context)
        super().execute(context)

    def _checked(self, context: Context, topic: Topic, catalog: Catalog) -> CheckedRound | None:
        """Return the round that the XCom of `source` names, from the evidence. None if no round was checked."""
        if not (report := checked_by(context, self.source)):
            return None
        try:
            return recorded_round(catalog, topic, str(report.round), BY_NAME[self.source].kind)
        except HeldError as error:
            raise AirflowFailException(str(error)) from None

    def _lineage_of_round(self, topic: Topic, checked: CheckedRound | None) -> StationLineage | None:
        return lineage_of_approval(topic, checked.heads) if checked else None

    def _require_shown(self, context: Context, shown: str) -> None:
        """Raise AirflowFailException if Airflow shows an older question, or asks other people.

        After a task is cleared, Airflow still shows the question of its first try. `shown`: the part of the body that
        is unique to this round (shown_of).
        """
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        people: Any = [{"id": user["id"], "name": user["name"]} for user in self.assigned_users or ()]
        payload = CreateHITLDetailPayload(
            ti_id=context["ti"].id,
            options=self.options,
            subject=self.subject,
            body=self.body,
            defaults=self.defaults,
            params={},
            assigned_users=people,
        )
        # Airflow returns the question that it stored first
        kept: Any = SUPERVISOR_COMMS.send(msg=payload)
        if shown not in (kept.body or "") or list(kept.assigned_users or ()) != list(payload.assigned_users or ()):
            raise AirflowFailException(
                "Airflow still shows this task's earlier question, but the round or the topic's approvers have changed "
                "since. So the task asks and publishes nothing. The topic's next run asks again"
            )

    def _question(self, context: Context, checked: CheckedRound) -> approval_text.Question:
        """Return deadline, links and mark of the round. The time to answer begins now."""
        topic = loaded_topic(self.topic, self.config_dir)
        place, timeout = origin_of(topic, context), self.response_timeout or timedelta()
        until_ms = int((datetime.now(UTC) + timeout).timestamp() * 1000)
        records = place.records(checked.round, checked.kind)
        return approval_text.Question(until_ms, place.page(), place.data_docs, records, shown_of(checked))

    @noting
    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        # 1. Read the answer, and check the permission of its author.
        answer = super().execute_complete(context, event)
        topic = loaded_topic(self.topic, self.config_dir)
        user, approved = answer["responded_by_user"], answer["chosen_options"] == [APPROVE]
        by = name_of(user)
        if approved and topic.approvers and (user or {}).get("id") not in topic.approvers:
            raise AirflowFailException(f"{by} approved it, but is not among the topic's approvers. Clear this task")
        # 2. Store it with its question.
        at_ms = int(answer["responded_at"].timestamp() * 1000)
        outcome = approved_note(by) if approved else Rejection(by, at_ms).reason
        self.log.info("%s", outcome)
        catalog = open_catalog(topic.platform)
        kept = read_answer(catalog, topic, BY_NAME[self.source].kind)
        try:
            write_answer(catalog, topic, answered(kept, instance_of(context), approved, user, at_ms))
        except HeldError as error:
            raise AirflowFailException(str(error)) from None
        # 3. Notify the channels.
        self.keep_lineage(lambda: self._lineage_of_round(topic, self._checked(context, topic, catalog)))
        notify_round_answered(topic, context, outcome)
        return {"approved": approved, "by": by, "at_ms": at_ms}


def instance_of(context: Context) -> tuple[str, str, str]:
    """Return DAG, run and task, which all tries of a task share."""
    ti = context["ti"]
    return ti.dag_id, ti.run_id, ti.task_id
