"""The table of configs: name, default, range, meaning and source of each, declared here and nowhere else.

Names, defaults and ranges are Kafka's, verbatim; the reference in docs/configs.md, the JSON Schema and the error
messages are generated from this table. An attribute has the config's name with `_` for `.`:
`min.compaction.lag.ms` is `configs.min_compaction_lag_ms`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema, model_validator

from cleantail.config.config_model import (
    CLEANTAIL,
    INT_MAX,
    KIP_280,
    LONG_MAX,
    TOPIC_CONFIG,
    Configs,
    PrintableText,
    config,
    cross_field_error,
)

AdoptedOrphans = Literal["keep", "remove"]
CleanupPolicy = Literal["compact", "delete"]
CompactionStrategy = Literal["offset", "timestamp", "header", "order"]
HeaderOccurrence = Literal["last", "first"]
RecordPolicy = Literal["fail", "quarantine", "drop"]
ReconcilePolicy = Literal["trigger", "needed"]
TimestampType = Literal["CreateTime", "LogAppendTime"]


def _split_policies(value: object) -> object:
    """Returns the policies as a set, of `compact,delete` as Kafka writes them, or of a list. Raises ValueError for any
    other value."""
    names: Any = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    is_some = isinstance(names, list | tuple | frozenset) and len(names) > 0
    if not is_some or any(name not in ("compact", "delete") for name in names):
        raise ValueError("not a cleanup policy")
    return frozenset(names)


def _empty_is_offset(value: object) -> object:
    """Returns `offset` for an empty strategy, as KIP-280 says (semantics.md 2)."""
    return "offset" if value == "" else value


POLICY_SCHEMA = {
    "anyOf": [
        {"enum": ["compact", "delete", "compact,delete", "delete,compact"]},
        {"type": "array", "items": {"enum": ["compact", "delete"]}, "minItems": 1, "uniqueItems": True},
    ],
    "x-allowed": "compact, delete or compact,delete",
}
STRATEGY_SCHEMA = {
    "enum": ["offset", "timestamp", "header", "order", ""],
    "x-allowed": "offset, timestamp or header; order with columns.order",
}


class KafkaConfigs(Configs):
    """The `config:` of a topic. Times are in milliseconds, sizes in bytes; both ends of a range are allowed."""

    cleanup_policy: Annotated[
        frozenset[CleanupPolicy],
        BeforeValidator(_split_policies),
        PlainSerializer(sorted, when_used="json"),  # the order of a set is another one in each process
        WithJsonSchema(POLICY_SCHEMA),
    ] = config(
        "cleanup.policy",
        frozenset({"compact"}),
        "compact keeps the winner of every key; delete drops whole segments past retention; compact,delete "
        "does both. Kafka's own default is delete.",
        TOPIC_CONFIG,
    )
    min_cleanable_dirty_ratio: float = config(
        "min.cleanable.dirty.ratio",
        0.5,
        "A log is compacted when its dirty share of the bytes is above this; 1.0 switches the ratio off.",
        TOPIC_CONFIG,
        low=0.0,
        high=1.0,
    )
    min_compaction_lag_ms: int = config(
        "min.compaction.lag.ms",
        0,
        "A record stays uncompacted at least this long; must not exceed max.compaction.lag.ms.",
        TOPIC_CONFIG,
        low=0,
        high=LONG_MAX,
    )
    max_compaction_lag_ms: int = config(
        "max.compaction.lag.ms",
        LONG_MAX,
        "A record stays uncompacted at most this long, whatever the ratio; also shortens segment.ms.",
        TOPIC_CONFIG,
        low=1,
        high=LONG_MAX,
    )
    delete_retention_ms: int = config(
        "delete.retention.ms",
        86_400_000,
        "How long a tombstone stays readable after the first round that kept it.",
        TOPIC_CONFIG,
        low=0,
        high=LONG_MAX,
    )
    segment_bytes: int = config(
        "segment.bytes",
        1_073_741_824,
        "Size limit of a virtual segment, and of what the merging of small files makes. Kafka 4 asks for "
        "1 MiB at least.",
        TOPIC_CONFIG,
        low=14,
        high=INT_MAX,
    )
    segment_ms: int = config(
        "segment.ms",
        604_800_000,
        "Age at which the newest segment stops being active and can be compacted.",
        TOPIC_CONFIG,
        low=1,
        high=LONG_MAX,
    )
    retention_ms: int = config(
        "retention.ms",
        604_800_000,
        "With delete in the policy: segments whose youngest record is older go; -1 keeps them.",
        TOPIC_CONFIG,
        low=-1,
        high=LONG_MAX,
    )
    retention_bytes: int = config(
        "retention.bytes",
        -1,
        "With delete in the policy: the oldest segments of a partition go above this size; -1 is no limit.",
        TOPIC_CONFIG,
        low=-1,
        high=LONG_MAX,
    )
    message_timestamp_type: TimestampType = config(
        "message.timestamp.type",
        "CreateTime",
        "Whose clock the record timestamps are: the producer's, or the broker's at the append. By LogAppendTime "
        "message.timestamp.after.max.ms is not looked at, as in Kafka.",
        TOPIC_CONFIG,
    )
    message_timestamp_after_max_ms: int = config(
        "message.timestamp.after.max.ms",
        LONG_MAX,
        "With the timestamp strategy: a record further in the future than this counts as having no timestamp. "
        "Kafka 4 says one hour, an archive takes all.",
        TOPIC_CONFIG,
        low=0,
        high=LONG_MAX,
    )
    compaction_strategy: Annotated[
        CompactionStrategy, BeforeValidator(_empty_is_offset), WithJsonSchema(STRATEGY_SCHEMA)
    ] = config(
        "compaction.strategy",
        "offset",
        "What decides between records of one key: highest offset, record timestamp, or version in a header; "
        "ties go to the highest offset. In an adopted table with `columns.order` that column decides (order).",
        KIP_280,
    )
    compaction_strategy_header: PrintableText = config(
        "compaction.strategy.header",
        "",
        "Key of the header with the version, an 8-byte big-endian long; required by the header strategy.",
        KIP_280,
    )
    cleantail_header_occurrence: HeaderOccurrence = config(
        "cleantail.header.occurrence",
        "last",
        "Which header counts when a record repeats the version header.",
        CLEANTAIL,
    )
    cleantail_keyless_policy: RecordPolicy = config(
        "cleantail.keyless.policy",
        "fail",
        "Records without a key: hold their partition back, move them to a side table, or drop and count them.",
        CLEANTAIL,
    )
    cleantail_unholdable_policy: RecordPolicy = config(
        "cleantail.unholdable.policy",
        "fail",
        "Records that the table cannot hold (timestamps in nanoseconds, header names that are not UTF-8): refuse the "
        "ingestion, move them to a side table, or drop and count them.",
        CLEANTAIL,
    )
    cleantail_reconcile: ReconcilePolicy = config(
        "cleantail.reconcile",
        "trigger",
        "When a run compares the table with its topic in Kafka, and removes keys that are gone there: where it was "
        "triggered with reconcile, or also where the broker may have removed deletions before they were read.",
        CLEANTAIL,
    )
    cleantail_tombstone_lateness_ms: int = config(
        "cleantail.tombstone.lateness.ms",
        0,
        "How long an expired tombstone's version is remembered, so that a late older record stays dead.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )
    cleantail_reclaim_deleted_ratio: float = config(
        "cleantail.reclaim.deleted.ratio",
        0.3,
        "A data file is rewritten when its deleted share is above this.",
        CLEANTAIL,
        low=0.0,
        high=1.0,
    )
    cleantail_reclaim_min_merge_files: int = config(
        "cleantail.reclaim.min.merge.files",
        8,
        "So many small neighbours at least are merged, up to segment.bytes.",
        CLEANTAIL,
        low=2,
        high=INT_MAX,
    )
    cleantail_snapshot_retention_ms: int = config(
        "cleantail.snapshot.retention.ms",
        432_000_000,
        "How long old snapshots of the table stay readable. They expire together, a tenth of that later at most.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )
    cleantail_orphan_retention_ms: int = config(
        "cleantail.orphan.retention.ms",
        259_200_000,
        "Age from which files that no snapshot knows are removed, by a reclaim in which snapshots expire. Less than a "
        "day counts as a day: a younger file may belong to a commit under way.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )
    cleantail_adopted_orphans: AdoptedOrphans = config(
        "cleantail.adopted.orphans",
        "keep",
        "Whether files in the folder of an adopted table that no snapshot knows stay, or are removed as those of other "
        "topics. Say remove only if no other table, of any catalog, and nothing else keeps files there.",
        CLEANTAIL,
    )
    cleantail_readers_hold_cap_ms: int = config(
        "cleantail.readers.hold.cap.ms",
        604_800_000,
        "Longest time that a slow registered reader can hold back the removal of tombstones.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )

    cleantail_full_proof_interval_ms: int = config(
        "cleantail.full.proof.interval.ms",
        604_800_000,
        "How often a round proves all keys below the clean point unique from nothing; in between it proves that the "
        "keys it touched are, and that nothing else changed. 0: every round.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )
    cleantail_max_drop_ratio: float = config(
        "cleantail.max.drop.ratio",
        1.0,
        "A round that would remove more than this share of a log's records waits for approval; 1.0 switches it off.",
        CLEANTAIL,
        low=0.0,
        high=1.0,
    )
    cleantail_approval_timeout_ms: int = config(
        "cleantail.approval.timeout.ms",
        86_400_000,
        "How long a round waits for approval under Airflow; then it counts as rejected.",
        CLEANTAIL,
        low=1000,
        high=31_536_000_000,
    )
    cleantail_approval_pause_ms: int = config(
        "cleantail.approval.pause.ms",
        86_400_000,
        "How long the logs of a rejected round rest before a run tries them again, unless they are released.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )

    cleantail_failed_branch_retention_ms: int = config(
        "cleantail.failed.branch.retention.ms",
        604_800_000,
        "How long the branch of a round whose check failed is kept for inspection; 0 keeps none.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )
    cleantail_erasure_grace_ms: int = config(
        "cleantail.erasure.grace.ms",
        86_400_000,
        "How long after it was due a tombstone may still be there before the alert erasure_overdue is sent.",
        CLEANTAIL,
        low=0,
        high=LONG_MAX,
    )

    @model_validator(mode="after")
    def _lags_in_order(self) -> Self:
        """Refuses a minimum lag above the maximum one, as Kafka does (semantics.md 1.1)."""
        low, high = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if low > high:
            allowed = f"at most max.compaction.lag.ms, which is {high}"
            raise cross_field_error("min.compaction.lag.ms", low, allowed)
        return self

    @model_validator(mode="after")
    def _header_is_named(self) -> Self:
        """Refuses `header` without the key of the header that has the version (semantics.md 2)."""
        if self.compaction_strategy == "header" and not self.compaction_strategy_header:
            allowed = "the key of the version header"
            fact = "required with compaction.strategy: header"
            raise cross_field_error("compaction.strategy.header", "", allowed, fact)
        return self

    @property
    def compacts(self) -> bool:
        """Returns whether `compact` is in the policy."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Returns whether `delete` is in the policy."""
        return "delete" in self.cleanup_policy

    @property
    def effective_segment_ms(self) -> int:
        """Returns min(segment.ms, max.compaction.lag.ms): a segment is never active beyond the longest lag."""
        return min(self.segment_ms, self.max_compaction_lag_ms)
