"""The table of configs of a topic: name, default, range, meaning and source of each.

Names, defaults and ranges are Kafka's. docs/configs.md, the JSON Schema and error messages are generated from the
table. An attribute has the config's name with `_` for `.`: `min.compaction.lag.ms` is `configs.min_compaction_lag_ms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema, model_validator

from cleantail.config.config_model import (
    INT_MAX,
    KIP_280,
    LONG_MAX,
    TOPIC_CONFIG,
    Configs,
    PrintableText,
    config,
    cross_field_error,
)
from cleantail.errors import shown

CleanupPolicy = Literal["compact", "delete"]
CompactionStrategy = Literal["offset", "timestamp", "header", "order"]
RecordPolicy = Literal["fail", "quarantine", "drop"]


def _split_policies(value: object) -> object:
    """Return the policies as a set. Accepts `compact,delete` as Kafka writes it, or a list."""
    names: Any = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    is_some = isinstance(names, list | tuple | frozenset) and len(names) > 0
    if not is_some or any(name not in ("compact", "delete") for name in names):
        raise ValueError("not a cleanup policy")
    return frozenset(names)


def _empty_is_offset(value: object) -> object:
    """Return `offset` for an empty strategy, as in KIP-280 (semantics.md 2)."""
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


_WHY_BROKERS_ONLY = (
    (r"compression\.", "data files are Parquet, compressed with zstd"),
    (r"(leader|follower)\.replication|min\.insync|unclean\.leader|replica", "an archive has no replicas of its own"),
    (r"(local|remote)\.|errors\.deadletterqueue", "about tiered storage; the archive is the table"),
    (r"max\.message|message\.|internal\.", "the broker applies it when records are produced"),
    (
        r"flush\.|preallocate|index\.|segment\.|file\.",
        "about files on a broker's disk; segments of an archive are virtual",
    ),
    (r"redpanda\.|confluent\.", "for one vendor's brokers"),
)


def why_brokers_only(name: str) -> str:
    matching = (why for pattern, why in _WHY_BROKERS_ONLY if re.match(pattern, name))
    return next(matching, "Cleantail has no such config")


BROKERS_ONLY: Mapping[str, str] = {
    name: why_brokers_only(name)
    for name in (
        "compression.type",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    )
}
"""Topic configs of Kafka without a counterpart in Cleantail, each with the reason."""


class KafkaConfigs(Configs):
    """The `config:` of a topic. Times are in milliseconds, sizes in bytes. Both ends of a range are allowed."""

    model_config = ConfigDict(json_schema_extra={"x-brokers-only": dict(BROKERS_ONLY)})

    cleanup_policy: Annotated[
        frozenset[CleanupPolicy],
        BeforeValidator(_split_policies),
        PlainSerializer(sorted, when_used="json"),  # the order of a set differs between processes
        WithJsonSchema(POLICY_SCHEMA),
    ] = config(
        "cleanup.policy",
        frozenset({"compact"}),
        "compact keeps the winner of every key. delete drops whole segments past retention. compact,delete does both. "
        "Kafka's own default is delete.",
        TOPIC_CONFIG,
    )
    min_cleanable_dirty_ratio: float = config(
        "min.cleanable.dirty.ratio",
        0.5,
        "A log is compacted when the dirty share of its bytes is above this. 1.0 switches the ratio off.",
        TOPIC_CONFIG,
        low=0.0,
        high=1.0,
    )
    min_compaction_lag_ms: int = config(
        "min.compaction.lag.ms",
        0,
        "Shortest time that a record stays uncompacted. It must not exceed max.compaction.lag.ms.",
        TOPIC_CONFIG,
        low=0,
    )
    max_compaction_lag_ms: int = config(
        "max.compaction.lag.ms",
        LONG_MAX,
        "Longest time that a record stays uncompacted, regardless of the ratio. It also limits segment.ms.",
        TOPIC_CONFIG,
        low=1,
    )
    delete_retention_ms: int = config(
        "delete.retention.ms",
        86_400_000,
        "How long a tombstone stays readable after the first round that kept it.",
        TOPIC_CONFIG,
        low=0,
    )
    segment_bytes: int = config(
        "segment.bytes",
        1_073_741_824,
        "Size limit of a virtual segment, and of merged small files. Kafka 4 requires at least 1 MiB.",
        TOPIC_CONFIG,
        low=14,
        high=INT_MAX,
    )
    segment_ms: int = config(
        "segment.ms",
        604_800_000,
        "Age at which the newest segment stops being active, so that it can be compacted.",
        TOPIC_CONFIG,
        low=1,
    )
    retention_ms: int = config(
        "retention.ms",
        604_800_000,
        "With delete in the policy: segments whose youngest record is older are deleted. -1 keeps them.",
        TOPIC_CONFIG,
        low=-1,
    )
    retention_bytes: int = config(
        "retention.bytes",
        -1,
        "With delete in the policy: the oldest segments of a larger partition are deleted. -1: no limit.",
        TOPIC_CONFIG,
        low=-1,
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = config(
        "message.timestamp.type",
        "CreateTime",
        "Clock of the record timestamps: the producer's, or the broker's at the append. With LogAppendTime "
        "message.timestamp.after.max.ms has no effect, as in Kafka.",
        TOPIC_CONFIG,
    )
    message_timestamp_after_max_ms: int = config(
        "message.timestamp.after.max.ms",
        LONG_MAX,
        "With the timestamp strategy: a record further in the future than this counts as having no timestamp. "
        "Kafka 4's default is one hour; an archive accepts all records.",
        TOPIC_CONFIG,
        low=0,
    )
    compaction_strategy: Annotated[
        CompactionStrategy, BeforeValidator(_empty_is_offset), WithJsonSchema(STRATEGY_SCHEMA)
    ] = config(
        "compaction.strategy",
        "offset",
        "Which record of a key wins: that with the highest offset, record timestamp, or version in a header. The "
        "highest offset decides ties. In an adopted table with `columns.order` that column decides (order).",
        KIP_280,
    )
    compaction_strategy_header: PrintableText = config(
        "compaction.strategy.header",
        "",
        "Key of the header with the version, an 8-byte big-endian long. The header strategy requires it.",
        KIP_280,
    )
    cleantail_header_occurrence: Literal["last", "first"] = config(
        "cleantail.header.occurrence", "last", "Which header counts if a record has several version headers."
    )
    cleantail_keyless_policy: RecordPolicy = config(
        "cleantail.keyless.policy",
        "fail",
        "Records without a key: block their partition, move them to a side table, or drop and count them.",
    )
    cleantail_unholdable_policy: RecordPolicy = config(
        "cleantail.unholdable.policy",
        "fail",
        "Records that the table cannot hold (timestamps in nanoseconds, header names that are not UTF-8): refuse the "
        "ingestion, move them to a side table, or drop and count them.",
    )
    cleantail_reconcile: Literal["trigger", "needed"] = config(
        "cleantail.reconcile",
        "trigger",
        "When a run compares the table with its topic in Kafka and removes keys that are missing there. trigger: if "
        "the run was triggered with reconcile. needed: also if Kafka may have removed deletions before they were read.",
    )
    cleantail_tombstone_lateness_ms: int = config(
        "cleantail.tombstone.lateness.ms",
        0,
        "How long the version of an expired tombstone is kept, so that a late older record stays deleted.",
        low=0,
    )
    cleantail_reclaim_deleted_ratio: float = config(
        "cleantail.reclaim.deleted.ratio",
        0.3,
        "A data file is rewritten if its deleted share is above this. Neighbouring files of less than 128 KiB together "
        "are rewritten for this reason at most once a day, or once in a shorter cleantail.snapshot.retention.ms. They "
        "do not wait if this is 0, or in `cleantail reclaim`.",
        low=0.0,
        high=1.0,
    )
    cleantail_reclaim_min_merge_files: int = config(
        "cleantail.reclaim.min.merge.files",
        8,
        "Minimum number of neighbouring files below 1 MiB to merge. A file above 128 KiB waits until its neighbours "
        "have twice its bytes. Files of 1 MiB and more are merged when together they reach 24 MiB, or half of "
        "segment.bytes.",
        low=2,
        high=INT_MAX,
    )
    cleantail_snapshot_retention_ms: int = config(
        "cleantail.snapshot.retention.ms",
        129_600_000,
        "How long old snapshots of the table stay readable. A run lets them expire together: once 32 are past this "
        "time, or one is past it by a day, or by this time if it is shorter. `cleantail reclaim` does not wait.",
        low=0,
    )
    cleantail_orphan_retention_ms: int = config(
        "cleantail.orphan.retention.ms",
        259_200_000,
        "Age from which a reclaim removes files that no snapshot references, if it also expires snapshots. Files "
        "younger than a day always stay, because they may belong to an unfinished commit.",
        low=0,
    )
    cleantail_adopted_orphans: Literal["keep", "remove"] = config(
        "cleantail.adopted.orphans",
        "keep",
        "What a reclaim does with files in an adopted table's folder that no snapshot references: keep or remove them. "
        "Use remove only if no other table of any catalog and no other program keeps files there.",
    )
    cleantail_ingested_retention_ms: int = config(
        "cleantail.ingested.retention.ms",
        604_800_000,
        "How long an ingested file is recognized by its content after it has left the folder of source.path. If it "
        "comes back later, its records are ingested again, and a warning names them.",
        low=0,
    )
    cleantail_evidence_retention_ms: int = config(
        "cleantail.evidence.retention.ms",
        2_592_000_000,
        "How long each round keeps its own rows of evidence, its results of Great Expectations and its Data Docs. "
        "After that a reclaim that expires snapshots removes the results and pages. The rows of a log become one row a "
        "day, once the oldest is past this time by a week, or by this time if it is shorter.",
        low=0,
    )
    cleantail_readers_hold_cap_ms: int = config(
        "cleantail.readers.hold.cap.ms",
        604_800_000,
        "Longest time that a slow registered reader can delay the removal of tombstones.",
        low=0,
    )

    cleantail_full_proof_interval_ms: int = config(
        "cleantail.full.proof.interval.ms",
        604_800_000,
        "How often a round proves from scratch that all keys below the first dirty offset are unique. Rounds in "
        "between prove it for the keys that they changed, and prove that no other key changed. 0: every round.",
        low=0,
    )
    cleantail_max_drop_ratio: float = config(
        "cleantail.max.drop.ratio",
        1.0,
        "A round that would remove more than this share of a log's records waits for approval. 1.0 switches it off.",
        low=0.0,
        high=1.0,
    )
    cleantail_approval_timeout_ms: int = config(
        "cleantail.approval.timeout.ms",
        86_400_000,
        "How long a round waits for approval under Airflow. After that it counts as rejected.",
        low=1000,
        high=31_536_000_000,
    )
    cleantail_approval_pause_ms: int = config(
        "cleantail.approval.pause.ms",
        86_400_000,
        "How long the logs of a rejected round rest before a run tries them again, unless they are released.",
        low=0,
    )

    cleantail_failed_branch_retention_ms: int = config(
        "cleantail.failed.branch.retention.ms",
        604_800_000,
        "How long the branch of a round whose check failed is kept for inspection. 0: it is not kept.",
        low=0,
    )
    cleantail_erasure_grace_ms: int = config(
        "cleantail.erasure.grace.ms",
        86_400_000,
        "How long a tombstone may be overdue before the alert erasure_overdue is sent.",
        low=0,
    )

    @model_validator(mode="after")
    def _lags_in_order(self) -> Self:
        """Refuse a minimum lag above the maximum one, as Kafka does (semantics.md 1.1)."""
        low, high = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if low > high:
            allowed = f"at most max.compaction.lag.ms, which is {shown(high)}"
            raise cross_field_error("min.compaction.lag.ms", low, allowed)
        return self

    @model_validator(mode="after")
    def _header_is_named(self) -> Self:
        """Refuse the strategy `header` without the key of the version header (semantics.md 2)."""
        if self.compaction_strategy == "header" and not self.compaction_strategy_header:
            allowed = "the key of the version header"
            fact = "required with compaction.strategy: header"
            raise cross_field_error("compaction.strategy.header", "", allowed, fact)
        return self

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def effective_segment_ms(self) -> int:
        """Return min(segment.ms, max.compaction.lag.ms), so that a segment is rolled before its records are overdue."""
        return min(self.segment_ms, self.max_compaction_lag_ms)
