"""The task `run_pack` of a group: one Spark application does all due work of a pack of topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.sdk import Context

from cleantail.codec import digest_of
from cleantail.config.loading import find_group, find_topics
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.home_folder import append_line
from cleantail.human import counted, duration
from cleantail.kafka.client_settings import CLIENTS_JSON
from cleantail.rounds.job_report import EndedJob
from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PACK_RESULT_JSON, PackResult, read_outcomes
from cleantail.rounds.stations import EVALUATE, RUN_PACK, SHOWN, TOPIC_OUTCOME_JSON, TopicOutcome
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.alerts.alerting import EVALUATED
from cleantail_airflow.groups.group_plan import PlannedPack, group_plan_of, planned_pack, topics_of_group
from cleantail_airflow.groups.station_tasks import failed_in, reported_pack
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.outcomes.failures import cause_of_crash
from cleantail_airflow.outcomes.run_xcoms import report_of
from cleantail_airflow.tasks.spark_job import NO_PLAN, SparkJobOperator, as_airflow, platform_of

OUTCOMES = "packs"
"""Folder in CLEANTAIL_HOME with a file for each running pack: the outcomes of its topics so far."""

RECORD_BYTES = 64
"""Lower bound of a record's size in a small topic, in data files and in files of lines."""


class RunPackOperator(SparkJobOperator):
    """Runs one pack. `pack` is a PlannedPack as JSON. The stations after it report the failures of topics.

    This task fails if the application crashed, or if a topic's work may be tried again. It also fails if a topic
    failed at a station that `evaluate` has skipped, because that station cannot report it.
    """

    job = RUN_PACK
    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "pack")

    def __init__(self, *, group: str, config_dir: str, pack: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config_dir=config_dir, of=group, **kwargs)
        self.group = group
        self.pack = pack
        self.outcomes = ""
        self.result: PackResult | None = None

    @property
    def label(self) -> str:
        return str(self.pack["label"])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        super().execute(context)
        assert self.result is not None, "received() stores the result or raises"
        return dict(PACK_RESULT_JSON.plain(self.result.in_short()))

    def arguments(self, context: Context) -> list[str]:
        plan, pack = group_plan_of(context), planned_pack(self.pack)
        if pack.errors:
            raise AirflowFailException("\n".join(f"{topic}: {error}" for topic, error in sorted(pack.errors.items())))
        if plan is None:
            self.skip(NO_PLAN)
        self._require_time_left(context)
        pack = self._still_of_group(pack)
        self.outcomes = f"{OUTCOMES}/{_name_of(context)}.jsonl"
        request = plan.request(pack, self.outcomes)
        return ["--request", PACK_REQUEST_JSON.text(request), *self._settings_of_clients(pack)]

    def records(self, context: Context) -> int | None:
        """Return the maximum number of records of the largest topic, or None if unknown.

        Each topic has its own Spark plans, so the largest decides whether generated code pays off.
        """
        largest_bytes = planned_pack(self.pack).largest_bytes
        return None if largest_bytes is None else largest_bytes // RECORD_BYTES

    def _still_of_group(self, pack: PlannedPack) -> PlannedPack:
        """Return the pack without topics that the group does not run: they may have moved, or the XCom was forged.

        Skips the task if no topic is left.
        """
        named = {name for name, _ in topics_of_group(self.group, self.config_dir)}
        topics = tuple(topic for topic in pack.topics if topic in named)
        if others := [topic for topic in pack.topics if topic not in named]:
            self.log.warning("no longer in the group %s, and left out: %s", self.group, ", ".join(others))
        if not topics:
            self.skip(f"no topic of the pack is still in the group {self.group}")
        return replace(pack, topics=topics)

    def _require_time_left(self, context: Context) -> None:
        """Skip the pack if the run has taken longer than `run.max.ms`. Its topics are first in the next run."""
        ti: Any = context["ti"]
        if ti.try_number > 1:  # a pack that crashed is finished: a skip would hide the crash
            return
        limit_ms = find_group(self.group, Path(self.config_dir)).limits.run_max_ms
        run: Any = context["dag_run"]
        if run.start_date and time.time() * 1000 - run.start_date.timestamp() * 1000 > limit_ms:
            self.skip(f"the run takes longer than run.max.ms ({duration(limit_ms)}): the next run does this pack")

    def _settings_of_clients(self, pack: PlannedPack) -> list[str]:
        """Return the job's arguments with the Kafka settings of the pack's topics.

        A topic with invalid settings is left out. Its station reports the error.
        """
        found = find_topics(pack.topics, Path(self.config_dir))
        settings: dict[str, Mapping[str, str]] = {}
        for name, topic in found.items():
            if isinstance(topic, Topic) and topic.source.kafka is not None:
                with suppress(CleantailError):
                    settings[name] = client_settings(topic)
        return self.client_arguments(CLIENTS_JSON.text(settings)) if settings else []

    def received(self, context: Context, ended: EndedJob, error: AirflowException | None) -> None:
        """Raise if the application crashed, if a topic may be tried again, or if a skipped station failed.

        The result is pushed as an XCom before that.
        """
        self.result = report = reported_pack(ended)
        if report is None:
            self._hand_on_kept(context)
            if text := report_of(ended).error:
                raise as_airflow(text, self.exit_code) from None
            raise AirflowException(f"{self.job} crashed: {cause_of_crash(str(error))}") from None
        self._send_metrics(report.topics)
        again = [f"{o.topic}: {o.station} failed: {o.error}" for o in report.topics if o.may_retry]
        plan = group_plan_of(context)
        skipped = [station for station in SHOWN.values() if plan and station.name in plan.skipped]
        unshown = [f"{station.name} failed: {line}" for station in skipped for line in failed_in(station, report)]
        if again or unshown:
            context["ti"].xcom_push("return_value", PACK_RESULT_JSON.plain(report.in_short()))
        if again:
            lines = [f"{counted(len(again), 'topic')} to try again", *again, *unshown]
            raise AirflowException("\n".join(lines)) from None
        if unshown:
            raise AirflowFailException("\n".join(["evaluate had found no work there", *unshown])) from None
        self.log.info("%s", report.reason)

    def _hand_on_kept(self, context: Context) -> None:
        """Push the outcomes of the topics that were done before the crash, if this worker has their file."""
        kept = read_outcomes(platform_of(self.config_dir).home, self.outcomes)
        topics = [kept[topic] for topic in planned_pack(self.pack).topics if topic in kept]
        if topics:
            self._send_metrics(topics)
            context["ti"].xcom_push("return_value", PACK_RESULT_JSON.plain(PackResult.of(topics).in_short()))

    def _send_metrics(self, topics: Sequence[TopicOutcome]) -> None:
        """Send the outcomes that no earlier try has sent, and store what was sent below CLEANTAIL_HOME.

        If that file cannot be written, the task continues, and the next try sends the metrics again.
        """
        from cleantail_airflow.outcomes.run_metrics import send_outcome

        home, kept = platform_of(self.config_dir).home, self.outcomes.replace(".jsonl", ".sent.jsonl")
        sent = read_outcomes(home, kept)
        new = [outcome for outcome in topics if outcome != sent.get(outcome.topic)]
        if not new:
            return
        for outcome in new:
            send_outcome(outcome, sent.get(outcome.topic))
        try:
            append_line(home, kept, "\n".join(map(TOPIC_OUTCOME_JSON.text, new)))
        except CleantailError as error:
            self.log.warning("sent metrics cannot be stored, and may be sent again: %s", error)


def _name_of(context: Context) -> str:
    """Return the name of the pack's file, the same in each try of the task.

    It changes if `evaluate` was cleared, because the pack of this number may then have other topics.
    """
    ti = context["ti"]
    evaluated_ms = ti.xcom_pull(task_ids=EVALUATE, key=EVALUATED)
    return digest_of([ti.dag_id, ti.run_id, ti.map_index, evaluated_ms])
