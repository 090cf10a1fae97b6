"""The Spark tasks of a topic's DAG, in their order: what each hands to its job, and when it has nothing to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from cleantail.approval import heads_of
from cleantail.words import counted
from cleantail_airflow.approvals import ROLLBACK_TO, checked_of
from cleantail_airflow.assets import announce, asset_of
from cleantail_airflow.operators import CleantailSparkOperator, plan_of, topic_and_platform
from cleantail_airflow.red_check import failures_of
from cleantail_airflow.run_params import require_known_params

COMPACT = "compact"
CHECK_QUALITY = "check_quality"
EXPIRE_TOMBSTONES = "expire_tombstones"
PUBLISH_EXPIRY = "publish_expiry"
"""Publishes what EXPIRE_TOMBSTONES left for a person to approve."""
NO_PLAN = "evaluate made no plan"
NOTHING_PUBLISHED = "nothing was published, so the topic's asset is not updated"


class IngestOperator(CleantailSparkOperator):
    """Appends the files of source.path that the table does not have yet."""

    job = "ingest"

    def arguments(self, context: Context) -> list[str]:
        from cleantail_airflow.landing import new_files

        require_known_params(context)
        if context["params"].get(ROLLBACK_TO):
            self.skip("the run is a rollback")
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        found, new = new_files(topic, platform)
        if not new:
            self.skip(
                f"nothing new: the table already has what matches {topic.source.path} ({counted(len(found), 'file')})"
            )
        return [argument for file in new for argument in ("--file", str(file))]


class CompactOperator(CleantailSparkOperator):
    """Compacts one work unit onto a branch of its own. `unit` holds numbers and names of our making only."""

    job = "compact"
    template_fields: Sequence[str] = (*CleantailSparkOperator.template_fields, "unit")

    def __init__(self, *, unit: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.unit = unit

    @property
    def partitions(self) -> str:
        """The label of this instance of the mapped task."""
        numbers = ", ".join(str(work["partition"]) for work in self.unit["partitions"])
        return f"partitions {numbers}"

    def arguments(self, context: Context) -> list[str]:
        return ["--unit", json.dumps(self.unit)]


class CheckQualityOperator(CleantailSparkOperator):
    """Checks the branches of all units. Red partitions make the task red; publish goes on with the green ones."""

    job = "check_quality"

    def arguments(self, context: Context) -> list[str]:
        plan = plan_of(context)
        if not plan:
            self.skip(NO_PLAN)
        indexes = range(len(plan["units"]))
        units = context["ti"].xcom_pull(task_ids=COMPACT, map_indexes=indexes)
        round_ = {"round": plan["round"], "units": [unit for unit in units if unit]}
        return ["--round", json.dumps(round_), "--now", str(plan["now_ms"])]


class PublishingOperator(CleantailSparkOperator):
    """Its success updates the topic's asset, so where nothing was published it is skipped, and starts no other DAG."""

    operation: str

    def __init__(self, *, topic: str, **kwargs: Any) -> None:
        super().__init__(topic=topic, outlets=[asset_of(topic)], **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        result = super().execute(context)
        if not result.get("published"):
            context["ti"].xcom_push("return_value", result)
            self.skip(NOTHING_PUBLISHED)
        announce(context, self.topic, self.operation, result)
        return result

    def succeeded(self, result: dict[str, Any]) -> dict[str, Any]:
        """Readers whose hold an expiry has overrun are in its result; the task `alert` tells of them."""
        for reader in super().succeeded(result).get("left_behind") or ():
            where = (reader["name"], reader["offset"], reader["partition"])
            self.log.warning("reader %s is at offset %s of partition %s, before tombstones that have gone", *where)
        return result


class PublishOperator(PublishingOperator):
    """Publishes the partitions of `source` that passed, also when others did not; where the round waited for a person,
    as the answer of `approval` says."""

    job = "publish"

    def __init__(self, *, source: str = CHECK_QUALITY, approval: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.approval = approval
        self.operation = "expire" if source == EXPIRE_TOMBSTONES else "compact"

    def arguments(self, context: Context) -> list[str]:
        plan, checked = plan_of(context), checked_of(context, self.source)
        if not (plan and checked):
            self.skip(f"{self.source} came to no verdict, so nothing is published")
        return ["--checked", json.dumps(checked), "--now", str(plan["now_ms"]), *self._answer(context, checked)]

    def _answer(self, context: Context, checked: dict[str, Any]) -> list[str]:
        """Nobody's yes is for another round than the one that was shown."""
        if not checked.get("holds"):
            return []
        answer = context["ti"].xcom_pull(task_ids=self.approval) if self.approval else None
        if not answer or answer["heads"] != heads_of(checked):
            raise AirflowFailException("nobody has approved this round: nothing is published. Clear the whole run")
        if answer["approved"]:
            return [f"--approved-by={answer['by']}"]  # one argument: a name may begin as an option or a file does
        return ["--rejected", json.dumps({"by": answer["by"], "at_ms": answer["at_ms"]})]

    def failed(self, context: Context, result: dict[str, Any], error: AirflowException) -> dict[str, Any]:
        """Held back as check_quality said is not this task's failure; red anew, after the round started over, is."""
        if "published" not in result:
            return super().failed(context, result, error)
        checked = checked_of(context, self.source) or {"verdicts": []}
        known = {verdict["partition"] for verdict in checked["verdicts"] if not verdict["passed"]}
        new = [verdict for verdict in result["verdicts"] if verdict["partition"] not in known]
        if failures_of(self.topic, {"verdicts": new}):
            return super().failed(context, {**result, "verdicts": new}, error)
        self.log.info("published partitions %s, held back %s", result["published"], result["held_back"])
        return result


class ExpireTombstonesOperator(PublishingOperator):
    """Removes tombstones past their horizon, through branch, check and publish of its own."""

    job = "expire_tombstones"
    operation = "expire"

    def arguments(self, context: Context) -> list[str]:
        plan = plan_of(context)
        if not plan:
            self.skip(NO_PLAN)
        if not plan["sweep"]:
            self.skip(plan["sweep_reason"])
        return ["--round", json.dumps(plan["sweep"]), "--now", str(plan["now_ms"])]


class RollbackOperator(PublishingOperator):
    """Undoes rounds where the run was triggered with `rollback_to`; the rest of such a run is skipped."""

    job = "rollback"
    operation = "rollback"

    def arguments(self, context: Context) -> list[str]:
        to = context["params"].get(ROLLBACK_TO)
        if not to:
            self.skip("the run was not triggered with rollback_to")
        run: Any = context["dag_run"]
        by = getattr(run, "triggering_user_name", None) or run.run_id
        # a try that died may have done it: the next one must not go a round further
        return ["--to", to, f"--by={by}", f"--request={run.run_id}"]


class ReclaimOperator(CleantailSparkOperator):
    """Gives space back: rewrites files, expires snapshots, removes orphans."""

    job = "reclaim"

    def arguments(self, context: Context) -> list[str]:
        plan = plan_of(context)
        if not plan:
            self.skip(NO_PLAN)
        if not plan["reclaim"]["due"]:
            self.skip(plan["reclaim"]["reason"])
        return ["--now", str(plan["now_ms"])]
