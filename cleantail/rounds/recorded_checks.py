"""A checked round as the evidence stores it. Publish reads only this. Pure.

1. A check writes a row for each log, in one commit. Next to the readable columns each row has its part of the round as
   JSON (`RoundPart`): verdict and measures of the log. The row of a work unit's first log also has the unit.
2. Users who may edit the DAG may change task results in Airflow's database. So task results only name the round
   (`RoundReference`). If a name contradicts the evidence, nothing is published.

`cleantail.lake.recorded_rounds` reads the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.log.log_state import KEYLESS_RULE
from cleantail.log.round_state import COMPACT
from cleantail.log.rules import LogMeasure
from cleantail.rounds.approval import holds_of
from cleantail.rounds.check_results import checks_of, sampled_log
from cleantail.rounds.checked_round import CheckedRound, Hold, StagedUnit, Verdict
from cleantail.rounds.evidence_row import CHECKED_ROUND, EvidenceRow
from cleantail.rounds.past_rounds import CHECKS, PUBLISHED, WITHDRAWN

CLEAR_ALL = "clear compact and all tasks after it, so that the round is made and checked again"


@dataclass(frozen=True, slots=True)
class RoundPart:
    """One log's part of a checked round in the evidence. `hold`: why the log makes the round wait, or empty.
    `unit`: the work unit, for its first log only."""

    measure: LogMeasure
    verdict: Verdict
    hold: str = ""
    unit: StagedUnit | None = None


@dataclass(frozen=True, slots=True)
class RoundReference:
    """A task's reference to a round: the name, the heads of the branches, and the logs that passed."""

    round: str
    heads: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()


_ROUND_PART_JSON: Codec[RoundPart] = Codec(RoundPart)
REFERENCE_JSON: Codec[RoundReference] = Codec(RoundReference)


def parts_of(checked: CheckedRound) -> dict[int, str]:
    """Return partition -> the JSON of its part.

    The JSON contains no key or value of a record, and no observed value of a check.
    """
    units = {unit.partitions[0].partition: unit for unit in checked.units}
    verdicts = {v.partition: _without_values(v) for v in checked.verdicts}
    reasons = {hold.partition: hold.reason for hold in checked.holds}
    return {
        m.partition: _ROUND_PART_JSON.text(
            RoundPart(m, verdicts[m.partition], reasons.get(m.partition, ""), units.get(m.partition))
        )
        for m in checked.measures
    }


def _without_values(verdict: Verdict) -> Verdict:
    """Return the verdict without observed values, which are data. Keeps errors, and the text about keyless records,
    because these texts are Cleantail's."""
    failures = tuple(
        failure if failure.error or failure.expectation == KEYLESS_RULE else replace(failure, observed="")
        for failure in verdict.failures
    )
    return replace(verdict, failures=failures, warnings=())


def recorded(topic: Topic, round_id: str, kind: str, evidence: Iterable[EvidenceRow]) -> CheckedRound:
    """Return the last check of a round, from its rows of evidence.

    `holds`: holds of that check, and holds that the topic's YAML requires now. Raises HeldError if the round was never
    checked or its rows are incomplete, and TableError if a row cannot be parsed.
    """
    last = last_check(evidence)
    if not last:
        raise HeldError(
            f"{topic.topic}: the evidence has no check of a round {round_id} ({kind}), so nothing was published. A "
            f"task's XCom does not prove that its round was checked: {CLEAR_ALL}"
        )
    if not all(row.get(CHECKED_ROUND) for row in last):
        raise HeldError(
            f"{topic.topic}: the evidence of round {round_id} ({kind}) lacks column {CHECKED_ROUND}, which publish "
            f"needs, so nothing was published: {CLEAR_ALL}"
        )
    return _joined(topic, round_id, kind, last)


def _joined(topic: Topic, round_id: str, kind: str, evidence: Sequence[EvidenceRow]) -> CheckedRound:
    where = f"{topic.topic}: column {CHECKED_ROUND} of the evidence of round {round_id} ({kind})"
    texts = [row[CHECKED_ROUND] or "" for row in sorted(evidence, key=lambda r: r["partition"])]
    parts = [_ROUND_PART_JSON.value(text, where) for text in texts]
    checks = [check.passed for row in evidence for check in checks_of(row)]
    measures = tuple(part.measure for part in parts)
    holds_now = holds_of(topic, measures, [part.verdict.partition for part in parts if part.verdict.passed])
    reasons = {part.verdict.partition: part.hold for part in parts if part.hold}
    reasons |= {hold.partition: hold.reason for hold in holds_now}
    return CheckedRound(
        topic=topic.topic,
        round=round_id,
        kind=kind,
        units=tuple(sorted((part.unit for part in parts if part.unit), key=lambda unit: unit.unit)),
        measures=measures,
        verdicts=tuple(part.verdict for part in parts),
        checks_passed=sum(checks),
        checks_total=len(checks),
        holds=tuple(Hold(p, reason) for p, reason in sorted(reasons.items())),
        sample=tuple(record for row in evidence for record in sampled_log(row).records),
    )


def last_check(evidence: Iterable[EvidenceRow]) -> list[EvidenceRow]:
    """Return the rows of the newest check. All rows of a check have the same time."""
    checks = [row for row in evidence if row.get("outcome") in CHECKS]
    newest = max((row["checked_at_ms"] for row in checks), default=0)
    return [row for row in checks if row["checked_at_ms"] == newest]


@dataclass(frozen=True, slots=True)
class RecordedCompaction:
    """The last compaction in the evidence. `rows`: rows of its check. `retaining`: the round of retention in the logs
    that it blocked, or None."""

    checked: CheckedRound
    rows: tuple[EvidenceRow, ...]
    retaining: CheckedRound | None = None


def last_compaction(topic: Topic, evidence: Iterable[EvidenceRow]) -> RecordedCompaction | None:
    """Return the last compaction that was checked, or None. `evidence` has the rows of one round, or of all rounds of a
    run. Raises TableError if a row cannot be parsed.

    Retention of blocked logs is a separate round, right after the round that blocked them. It may have the same name.
    """
    by_check: dict[tuple[int, str], list[EvidenceRow]] = {}
    for row in evidence:
        if row.get("outcome") in CHECKS and row.get(CHECKED_ROUND):
            by_check.setdefault((row["checked_at_ms"], row["round"]), []).append(row)
    last: RecordedCompaction | None = None
    for (_, name), rows in sorted(by_check.items()):
        checked = _joined(topic, name, COMPACT, rows)
        red = last.checked.red if last else []
        if last and all(work.only_retention and work.partition in red for _, work in checked.works()):
            last = replace(last, retaining=checked)
        else:
            last = RecordedCompaction(checked, tuple(rows))
    return last


def require_matching_reference(
    reference: RoundReference, checked: CheckedRound, evidence: Iterable[EvidenceRow]
) -> None:
    """Raise HeldError if a task's reference differs from the check of this round, so that Airflow's database was
    changed.

    `evidence`: the round's rows.
    """
    where = f"{checked.topic}: nothing was published of round {checked.round} ({checked.kind})"
    heads = {row["head_snapshot_id"] for row in evidence if row.get("outcome") in CHECKS}
    if not set(reference.heads) <= heads:
        raise HeldError(
            f"{where}: the XCom of its check names snapshots that no check of it has read. The XCom was changed: "
            f"{CLEAR_ALL}"
        )
    earlier = reference.heads and set(reference.heads) != set(checked.heads)  # an earlier try was repeated
    if not earlier and sorted(reference.passed) != checked.green:
        raise HeldError(
            f"{where}: the XCom of its check has partitions {sorted(reference.passed)} as passed, but the "
            f"evidence has {checked.green}. The XCom was changed: {CLEAR_ALL}"
        )


def require_open(checked: CheckedRound, evidence: Iterable[EvidenceRow]) -> None:
    """Raise HeldError if the evidence has an outcome of this check.

    The round was then published and is not on `main`, or was dropped while it waited for approval. `evidence`: the
    round's rows."""
    heads, evidence = set(checked.heads), list(evidence)
    # the same snapshots may have been checked before
    since_ms = max(row["checked_at_ms"] for row in last_check(evidence))
    later = (row for row in evidence if row["checked_at_ms"] >= since_ms and row["head_snapshot_id"] in heads)
    ends = {row["outcome"]: row["note"] for row in later}
    if PUBLISHED in ends:
        end = "was published before and is not on main any more: it was undone, or its snapshot has expired"
    elif WITHDRAWN in ends and checked.holds:
        end = f"was withdrawn: {ends[WITHDRAWN]}"
    else:
        return
    raise HeldError(
        f"{checked.topic}: nothing was published: round {checked.round} ({checked.kind}) {end}. The next run makes it "
        "again"
    )
