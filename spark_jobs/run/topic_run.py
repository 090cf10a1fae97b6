"""Run one topic, station by station, in a running Spark application: the whole algorithm.

`TopicRun` takes a topic through its stations. A pack of a group's DAG does so for many topics in one application.
`cleantail compact` does so for one topic in its own process, without `ingest`, `reconcile` and `reclaim`, which are
commands of their own. In a topic's DAG each station is a task with its own application (spark_jobs/run_station.py). All
call the same rounds (spark_jobs.round.run).

1. `ingest`: append the files that the table does not have yet, or the new records of Kafka or of a source table. In
   an adopted table, convert deletes by values.
2. `evaluate`: plan the run from the table's current metadata. A topic with nothing due ends here.
3. `compact`: find the superseded records of each due log and write delete files onto branches, one branch for each
   unit.
4. `check_quality`: count and compare on the branches, before any reader sees them. A log whose check fails is
   blocked.
5. `publish`: commit what passed to `main` in one commit: delete files, checkpoints, horizons, log starts. If another
   writer changed what the round had read, the round is withdrawn and starts again.
6. `reconcile`: remove keys that were deleted at the source and whose tombstones were cleaned before they were read.
7. `expire_tombstones`: delete tombstones past their horizon, in a round of its own.
8. `reclaim`: rewrite files, expire snapshots and remove orphans, if due.

A station that fails ends the topic's run. The results of earlier stations stay, and the next run does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from cleantail.config.topic import Topic
from cleantail.errors import ConflictError
from cleantail.human import counted
from cleantail.intake import Poll, feed_of
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail.kafka.client_settings import settings_in_driver
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.catalogs import kept_catalog, require_known_evidence, require_usable
from cleantail.lake.evaluate import evaluate_topic
from cleantail.log.work_units import branch_stem, round_name
from cleantail.rounds.checked_round import CheckedRound, ExpiryRequest, RoundResult
from cleantail.rounds.pack_results import PackRequest
from cleantail.rounds.run_plan import EvaluatedTopic
from cleantail.rounds.stations import (
    COMPACT,
    EVALUATE,
    EXPIRE_TOMBSTONES,
    INGEST,
    NOTHING_DUE,
    RECLAIM,
    RECONCILE,
    SHOWN,
    Ingested,
    TopicOutcome,
    done,
    in_order,
    why_idle,
)
from spark_jobs.convert import convert_deletes
from spark_jobs.iceberg.java_calls import each
from spark_jobs.iceberg.tables import TopicTable, Uncommitted
from spark_jobs.quality.time_limit import are_cores_lost
from spark_jobs.round.check import MeasuredRound, measured_round
from spark_jobs.round.intake.readers import READERS, read_feed
from spark_jobs.round.publish import publish_round
from spark_jobs.round.reclaim import reclaim_topic
from spark_jobs.round.run import (
    Progress,
    Run,
    compact_round,
    compaction,
    drop_if_waiting,
    expire_round,
    planned_compaction,
    reconcile_round,
    silent,
    stage_units,
    write_back,
)
from spark_jobs.run.next_try import record_publications, with_unreported

logger = logging.getLogger("cleantail.packs")
Begun = Callable[[TopicOutcome, str], None]
"""Called with a topic's outcome so far and the name of the station that begins."""
Settings = Mapping[str, str]
"""Settings of a Kafka client."""
LOCK_S = 10
"""Maximum wait for another ingestion of the topic (s): short, because the pack's other topics wait too."""


class StationError(Exception):
    """Names the station at which a topic failed; the error itself is its cause."""

    def __init__(self, station: str) -> None:
        super().__init__(station)
        self.station = station


@dataclass(slots=True)
class TopicRun:
    """Takes one topic through its stations, once.

    `client`: settings of its Kafka client, None if they were not passed on. `begun`: called with the outcome so far
    when a station begins. `died`: the outcome that an earlier try reported before it ended during this topic, or None.
    `silent_brokers`: shared by all topics. `by_person`: a user called the run. Then logs in quarantine are tried at
    once, and a round that waits for approval is dropped, because the command ends. `approved_by`: who approved every
    round. `outcome`: the results so far. `measured`: the round, once it waits to be checked. `lost_cores`: whether
    the run ended early because a cancelled check keeps its cores.
    """

    spark: SparkSession
    topic: Topic
    request: PackRequest
    client: Settings | None = None
    begun: Begun = lambda _outcome, _station: None
    died: TopicOutcome | None = None
    silent_brokers: SilentBrokers = field(default_factory=SilentBrokers)
    progress: Progress = silent
    by_person: bool = False
    approved_by: str | None = None
    outcome: TopicOutcome = field(init=False)
    uncommitted: Uncommitted = field(init=False)
    measured: MeasuredRound | None = None
    plan: EvaluatedTopic | None = None
    lost_cores: bool = False

    def __post_init__(self) -> None:
        self.outcome = TopicOutcome(self.topic.topic)
        # people read the branch; only expiry removes files of adopted tables
        needed = self.topic.waits_for_people or self.topic.columns is not None
        self.uncommitted = Uncommitted(of_run=not needed)

    @property
    def table(self) -> TopicTable:
        return TopicTable.of(self.spark, self.topic, self.uncommitted)

    def earlier_outcome(self) -> TopicOutcome | None:
        """Return the outcome of the earlier try that died during the topic, or None. Raises StationError."""
        if self.died is None:
            return None
        with self._at(EVALUATE):
            require_usable(self.topic)
            if not self.table.exists():
                return self.died
            record_publications(self.table, self.request.now_ms)
            return with_unreported(self.table, self.request.now_ms, self.died)

    def prepare(self) -> None:
        """Ingest, evaluate, make and measure the round, which then waits to be checked. If nothing is due, `plan` stays
        None. Raises StationError."""
        for station, work in in_order({INGEST: self._ingest, EVALUATE: self._evaluate, COMPACT: self._stage}):
            with self._at(station):
                work()
            if self.outcome.reason:
                return

    def _ingest(self) -> None:
        require_known_evidence(kept_catalog(self.topic.platform), self.topic.platform)
        self.outcome = replace(self.outcome, ingested=self._ingested())

    def _ingested(self) -> Ingested | None:
        """Return the number of appended records, with warnings. None if runs read no source and convert no deletes."""
        topic, now_ms = self.topic, self.request.now_ms
        poll = Poll(topic, lambda of: settings_in_driver(of, self.client), now_ms, silent=self.silent_brokers)
        if topic.fed_by in READERS:
            result = read_feed(self.spark, poll, silent, LOCK_S)
            return Ingested(result.records, result.warnings)
        if not feed_of(topic).new_input(poll).converts:
            return None
        converted = convert_deletes(self.spark, topic.platform, topic.table)
        return Ingested(0, (f"{counted(converted.equality_deletes, 'file')} of deletes by values converted",))

    def _evaluate(self) -> None:
        require_usable(self.topic)
        asked = self.request
        plan = evaluate_topic(
            self.topic,
            now_ms=asked.now_ms,
            force=asked.force,
            partition=asked.partition,
            reconcile=asked.reconcile,
        )
        if plan.has_work:
            self.plan = plan
        else:
            self.outcome = replace(self.outcome, reason=NOTHING_DUE)

    def _stage(self) -> None:
        plan = self.plan
        assert plan is not None, "a topic without a plan ends at evaluate"
        self.take(plan)
        self._drop_branches_of_earlier_try()
        self.measured = self._measured(plan) if plan.units else None

    def take(self, plan: EvaluatedTopic) -> None:
        """Accept the plan of the run, and repair the checkpoints that are outside their log."""
        self.plan = plan
        write_back(self.table, plan)

    def _measured(self, plan: EvaluatedTopic) -> MeasuredRound | None:
        """Make and measure the round of the plan. None if the table changed meanwhile: `finish` begins again."""
        kind = compaction(self.table, plan.now_ms)
        planned = planned_compaction(self.table, plan)
        try:
            staged = stage_units(Run(self.table), COMPACT, planned)
            return measured_round(self.table, planned.round, staged, kind.kind, kind.measure)
        except ConflictError as error:
            logger.warning("round %s of %s starts over: %s", planned.round, self.topic.topic, error)
            return None

    def publish_held(self, checked: CheckedRound) -> None:
        """Block the logs that the check of the round has blocked, publish the rest, and stop.

        This needs no core of Spark, except to move records without a key (cleantail.keyless.policy: quarantine).
        Raises StationError, also if the round would have to start over.
        """
        with self._at(COMPACT):
            compacted = publish_round(self.table, checked)
            self.outcome = replace(self.outcome, compacted=done(compacted), ok=compacted.ok)

    def finish(self, checked: CheckedRound | None = None, stations: Collection[str] = SHOWN) -> None:
        """Publish the round if it was checked, else make, check and publish it; then run the later stations.

        A station without work in the plan is left out. Stops after the first station that loses cores. Drops the
        branches that killed runs left. `stations`: the names of those to run. Raises StationError.
        """
        plan = self.plan
        if plan is None:
            return
        run = Run(self.table, self.progress, self.approved_by)
        work = {
            COMPACT: lambda: self._compact(run, plan, checked),
            RECONCILE: lambda: self._reconcile(run),
            EXPIRE_TOMBSTONES: lambda: self._expire(run, plan.sweep),
            RECLAIM: self._reclaim,
        }
        for station, do in in_order({name: do for name, do in work.items() if name in stations}):
            if why_idle(station, plan) is not None:
                continue
            with self._at(station):
                do()
            if self._loses_cores():
                return
        with self._at(RECLAIM):
            self.table.drop_stale_branches()
        self.outcome = replace(self.outcome, ok=all(result.ok for result in self.outcome.rounds.values()))

    def _compact(self, run: Run, plan: EvaluatedTopic, checked: CheckedRound | None) -> None:
        compacted = compact_round(run, plan, checked)
        self.outcome = replace(self.outcome, compacted=done(self._dropped_if_waiting(run, compacted)))

    def _reconcile(self, run: Run) -> None:
        client = settings_in_driver(self.topic, self.client)
        with self.silent_brokers.asked(client, self.topic.stall_timeout_ms):
            source = SourceTopic.of(self.topic, client, self.topic.platform.limits.ingest_max_ms)
            reconciled = reconcile_round(run, source, self.request.now_ms, wait=not self.by_person)
        self.outcome = replace(self.outcome, reconciled=done(reconciled))

    def _expire(self, run: Run, sweep: ExpiryRequest | None) -> None:
        assert sweep is not None, "the station is idle without it"
        logs = [p for p in sweep.partitions if p not in self.outcome.held_back]
        expired = expire_round(run, sweep.now_ms, logs, sweep.fresh_from, retry_quarantined=self.by_person)
        self.outcome = replace(self.outcome, expired=done(self._dropped_if_waiting(run, expired)))

    def _reclaim(self) -> None:
        self.outcome = replace(self.outcome, reclaimed=reclaim_topic(self.table, self.request.now_ms))

    def _dropped_if_waiting(self, run: Run, result: RoundResult) -> RoundResult:
        """Return the result. If its round waits for approval and a user called the run, drop the round first."""
        return drop_if_waiting(run, result) if self.by_person else result

    def _loses_cores(self) -> bool:
        """Return whether one of the topic's own checks was cancelled and keeps its cores."""
        self.lost_cores = bool(self.topic.checks and self.outcome.held_back) and are_cores_lost(self.spark)
        if self.lost_cores:
            self.outcome = replace(self.outcome, ok=False)
        return self.lost_cores

    def _drop_branches_of_earlier_try(self) -> None:
        """Drop the branches that an earlier try has staged. Both tries derive the names of their rounds from the run's
        clock. Branches of other runs are dropped once they are stale."""
        if self.died is not None:
            # ct_TIME_ without the parts that are not known here: the round's sequence number, and its unit
            of_run = branch_stem(round_name(self.request.now_ms, 0), 0).removesuffix("0_u0")
            self.table.drop_branches(
                name for name in each(self.table.load().refs().keySet()) if name.startswith(of_run)
            )

    @contextmanager
    def _at(self, station: str) -> Iterator[None]:
        self.begun(self.outcome, station)
        try:
            yield
        except Exception as error:
            raise StationError(station) from error
