"""Says what a rollback of rounds has done: what its task hands on to those who read after the topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cleantail.codec import Codec
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.lake.runs.evaluate import read_facts
from cleantail.lake.runs.rollback_preview import LogUndo
from cleantail.rounds.commit_summaries import UNDONE, Commit
from cleantail.rounds.rollback_plan import RollbackPlan, UndoneRound


@dataclass(frozen=True, slots=True)
class ChangedLogs:
    """Holds the logs that a rollback has changed, and the clean point of every log of the topic as it is after it."""

    published: tuple[int, ...]
    checkpoints: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """Describes the result of a rollback that was done now. `undone`: the rounds that are taken back; `earlier`: those
    that stay and that a rollback could undo as well; `appends_kept`: commits since whose records stay;
    `rewrites_undone`: commits of reclaim that were undone with the rounds. `published` and `checkpoints` are those of
    ChangedLogs."""

    to_snapshot_id: int
    to_at_ms: int
    undone: tuple[UndoneRound, ...]
    appends_kept: int
    rewrites_undone: int
    earlier: tuple[UndoneRound, ...]
    partitions: tuple[LogUndo, ...]
    snapshot_id: int
    published: tuple[int, ...] = ()
    checkpoints: Mapping[int, int] = field(default_factory=dict)
    round: None = None
    ok: bool = True

    @classmethod
    def of(cls, plan: RollbackPlan, logs: Sequence[LogUndo], snapshot_id: int, changed: ChangedLogs) -> RollbackResult:
        """Returns the result of carrying out `plan` as snapshot `snapshot_id`."""
        return cls(
            to_snapshot_id=plan.to_snapshot_id,
            to_at_ms=plan.to_at_ms,
            undone=plan.undone,
            appends_kept=len(plan.appends),
            rewrites_undone=plan.rewrites,
            earlier=plan.earlier,
            partitions=tuple(logs),
            snapshot_id=snapshot_id,
            published=changed.published,
            checkpoints=changed.checkpoints,
        )


@dataclass(frozen=True, slots=True)
class RepeatedRollback:
    """Describes the result of a rollback that the same request had brought about before, as snapshot `snapshot_id`:
    nothing was undone again. `undone`: the names of the rounds, as that snapshot's summary has them."""

    snapshot_id: int
    undone: str | None
    published: tuple[int, ...]
    checkpoints: Mapping[int, int]
    round: None = None
    done_before: bool = True
    ok: bool = True

    @classmethod
    def of(cls, done: Commit, changed: ChangedLogs) -> RepeatedRollback:
        """Returns the result of a request that commit `done` had answered before."""
        return cls(done.snapshot_id, done.summary.get(UNDONE), changed.published, changed.checkpoints)


ROLLBACK_RESULT_JSON: Codec[RollbackResult | RepeatedRollback] = Codec(RollbackResult | RepeatedRollback)


def changed_logs(topic: Topic, platform: Platform, undone: Iterable[int] | None = None) -> ChangedLogs:
    """Reads the clean points from the table. `undone`: the logs that the undone rounds touched; None where that is not
    known any more, since the rollback was done before: then any log may have changed."""
    facts = read_facts(topic, platform)
    states = facts.states if facts else {}
    checkpoints = {p: state.checkpoint for p, state in sorted(states.items()) if state.checkpoint is not None}
    return ChangedLogs(tuple(sorted(states if undone is None else undone)), checkpoints)
