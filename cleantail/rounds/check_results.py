"""The stored results of checks: counts, names, types and offsets, never the content of a record. Pure.

Results go to the evidence, Great Expectations' stores, Data Docs, Airflow's database and alerts. An erasure could not
find a person's records in these places. The same holds for samples of removed records: the evidence outlives the
records. To see such records, read them by their offsets while a branch or snapshot still has them
(`cleantail.lake.records.shown_records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import JsonValue

from cleantail.codec import Codec
from cleantail.config.topic_table import OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE
from cleantail.human import counted
from cleantail.log.rules import Contradiction
from cleantail.rounds.evidence_row import EvidenceRow

COUNTS = (
    "element_count",
    "unexpected_count",
    "unexpected_percent",
    "unexpected_percent_total",
    "unexpected_percent_nonmissing",
    "missing_count",
    "missing_percent",
)
"""Counts in a result of any expectation."""
OBSERVES_NO_VALUE = frozenset(
    {
        "expect_column_kl_divergence_to_be_less_than",
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_to_exist",
        "expect_column_type_to_be",
        "expect_column_unique_value_count_to_be_between",
        "expect_column_values_to_be_in_type_list",
        "expect_column_values_to_be_of_type",
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
    }
)
"""Expectations whose observed value contains no data of a record.

Such a value is a count, a share, a distance, a type or the name of a column. The observed value of any other
expectation may be data of a record, for example a maximum.
"""
LOCATING_COLUMNS = (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE)
"""Columns that locate a record. Observed values of these are kept for any expectation."""
EXAMPLES = 20
"""Number of offsets that are kept of records that failed an expectation."""
OFFSETS, HIDDEN = "offsets", "hidden"
_EXAMPLES_IN = "partial_unexpected_index_list"
_OBSERVED = "observed_value"
_SAMPLE_JSON: Codec[tuple[tuple[int, int | None], ...]] = Codec(tuple[tuple[int, int | None], ...])
"""The column `sample` of the evidence: offset and kept offset of each sampled record of the row's log."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Great Expectations' result of one expectation in one log of one round.

    `rule`: the expectation as text. `severity`: `critical` blocks the log, `warning` does not. `observed`: text for
    users. `error`: the expectation could not be evaluated, for the reason in `observed`. `offsets`: of records that
    failed.
    """

    partition: int
    expectation: str
    rule: str
    severity: str
    passed: bool
    observed: str
    error: bool = False
    offsets: tuple[int, ...] = ()


CHECK_RESULTS_JSON: Codec[tuple[CheckResult, ...]] = Codec(tuple[CheckResult, ...])
"""The column `checks` of the evidence."""


def checks_text(passed: int, total: int, partitions: int) -> str:
    """Return `20 of 20 checks passed (10 rules on 2 partitions)`: each rule is checked on each partition."""
    is_even = partitions > 1 and total and total % partitions == 0
    rules = f" ({counted(total // partitions, 'rule')} on {counted(partitions, 'partition')})" if is_even else ""
    return f"{passed} of {counted(total, 'check')} passed{rules}"


def checks_of(row: EvidenceRow) -> tuple[CheckResult, ...]:
    return CHECK_RESULTS_JSON.value(row["checks"], "column checks of the evidence")


def kept_result(expectation: str, kwargs: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `result` on an allow-list. A second call changes nothing.

    `hidden` marks that an observed value was left out.
    """
    kept = {name: result[name] for name in COUNTS if result.get(name) is not None}
    # Great Expectations returns a list of rows, or one of columns
    examples = [example[OFFSET] for example in result.get(_EXAMPLES_IN) or () if OFFSET in example]
    offsets = [offset for example in examples for offset in (example if isinstance(example, list) else [example])]
    if known := sorted({*result.get(OFFSETS, ()), *offsets})[:EXAMPLES]:
        kept[OFFSETS] = known
    if result.get(HIDDEN):
        kept[HIDDEN] = True
    if result.get(_OBSERVED) is not None:
        shown = expectation in OBSERVES_NO_VALUE or kwargs.get("column") in LOCATING_COLUMNS
        kept |= {_OBSERVED: result[_OBSERVED]} if shown else {HIDDEN: True}
    return kept


def observed_text(kept: Mapping[str, Any]) -> str:
    """Return the observed result as text: `2 of 9 records, at offsets 4, 7`. `kept` comes from `kept_result`."""
    if kept.get(_OBSERVED) is not None:
        return f"observed {kept[_OBSERVED]}"
    if kept.get(HIDDEN):
        return "observed a value of records, which is not kept"
    wrong = kept.get("unexpected_count")
    if wrong is None:
        return ""
    if (records := kept.get("element_count")) is None and not wrong:
        return "0 records"
    if records is None:  # results about distinct values do not count the records
        return counted(wrong, "unexpected value")
    return f"{wrong} of {counted(records, 'record')}{_at(kept.get(OFFSETS, ()), wrong) if wrong else ''}"


def _at(offsets: list[int], wrong: int) -> str:
    if not offsets:
        return ""
    some = "at" if wrong <= len(offsets) else "such as at"
    return f", {some} {'offset' if len(offsets) == 1 else 'offsets'} {_spans(offsets)}"


def _spans(offsets: Iterable[int]) -> str:
    """Return offsets with neighbours as one span: `4, 7, 4350 to 4369`."""
    spans: list[list[int]] = []
    for offset in sorted(offsets):
        if spans and offset == spans[-1][-1] + 1:
            spans[-1].append(offset)
        else:
            spans.append([offset])
    return ", ".join(f"{s[0]} to {s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans)


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """A record that a round removes, and the offset of the record that stays for its key in its log, or None."""

    partition: int
    offset: int
    kept_offset: int | None


@dataclass(frozen=True, slots=True)
class SampledLog:
    """The sample of one log in one round.

    `base_snapshot_id`: the snapshot that the round read, with the removed records. `head_snapshot_id`: the snapshot
    that it would publish. Both are 0 if unknown.
    """

    base_snapshot_id: int = 0
    head_snapshot_id: int = 0
    records: tuple[RemovedRecord, ...] = ()


NOT_SAMPLED = SampledLog()


def sampled_log(row: EvidenceRow) -> SampledLog:
    pairs = _SAMPLE_JSON.value(row.get("sample") or "[]", "column sample of the evidence")
    records = tuple(RemovedRecord(row["partition"], offset, kept_offset) for offset, kept_offset in pairs)
    return SampledLog(row.get("base_snapshot_id") or 0, row.get("head_snapshot_id") or 0, records)


def sample_column(sample: Iterable[RemovedRecord], partition: int) -> str:
    return _SAMPLE_JSON.text(tuple((r.offset, r.kept_offset) for r in sample if r.partition == partition))


@dataclass(frozen=True, slots=True)
class ProvenLog:
    """One log of a proof: its keys below `end_offset`, the first dirty offset, and the number of keys that occur
    twice."""

    partition: int
    end_offset: int
    keys: int = 0
    duplicate_keys: int = 0


@dataclass(frozen=True, slots=True)
class Proof:
    """A full proof of a topic: all logs that have a first dirty offset, and the offsets that have two different
    records."""

    partitions: tuple[ProvenLog, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether no key and no offset occurs twice."""
        return not self.contradictions and not any(log.duplicate_keys for log in self.partitions)

    def as_json(self) -> dict[str, JsonValue]:
        """Return what `cleantail check --json` prints."""
        logs: list[JsonValue] = [asdict(log) for log in self.partitions]
        return {"ok": self.ok, "partitions": logs, "contradictions": [c.as_json() for c in self.contradictions]}
