"""The topic that a restore writes into: its pin, and the rules that the topic must fulfil. Pure.

A branch of the table is the pin of a restore. It stores which topic gets which records.

1. The branch points to a snapshot with the records to write. For `log` this is an existing snapshot. For `latest` it is
   a new snapshot in which all but the latest record of every key are deleted. While the branch exists, reclaim keeps
   its files.
2. The branch's name begins with a hash of the cluster's id and the topic's own id. So a killed restore continues only
   into the same topic, because a recreated topic has another id.
3. The branch is dropped after the restore is verified, or a week after it began. Such an old restore counts as given
   up.

The topic must fulfil these rules:

1. It has as many partitions as the archive, because a key's partition depends on their number.
2. It is empty, and has always been. Record n of a partition gets offset n, so the number of records is the only
   progress of a restore. A restore that continues compares the existing records first.
3. Its timestamps are CreateTime. With LogAppendTime the broker would set its own.
4. No record is deleted while the restore writes and reads back. If cleanup.policy has `delete`, old records are deleted
   at once unless retention.ms is longer than the oldest record's age. retention.bytes may delete any record. `compact`
   removes superseded records, so a whole log could not be verified. Of the latest records, none supersedes another.
5. The broker accepts every timestamp (message.timestamp.before.max.ms and after), and librdkafka can write it.
   librdkafka writes 0 as "now".
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from cleantail.codec import Codec
from cleantail.errors import TargetError
from cleantail.human import counted, instant

Mode = Literal["log", "latest"]
PIN = "cleantail.restore"
"""Key of the pin in the summary of the branch's commit."""


@dataclass(frozen=True, slots=True)
class RestorePin:
    """Which records are written to which topic.

    cluster_id, topic, topic_id  the topic in Kafka that the restore writes into
    mode         log: every live record; latest: the latest record of every key, without tombstones
    snapshot_id  the snapshot of the archive
    now_ms       the clock for the latest records (Unix ms); bounds future timestamps and deletions in the ledger
    partitions   number of partitions of the archive
    starts       partition -> the first offset visible to readers, if retention has moved it
    denied       ids of the requests whose erased keys are left out, which changes the offsets of later records
    """

    cluster_id: str
    topic: str
    topic_id: str
    mode: Mode
    snapshot_id: int
    now_ms: int
    partitions: int
    starts: Mapping[int, int]
    denied: tuple[str, ...] = ()


RESTORE_PIN_JSON: Codec[RestorePin] = Codec(RestorePin)


def pin_stem(cluster_id: str, topic: str, topic_id: str) -> str:
    """Return the prefix of the branch's name. The time of the branch's creation follows in the name."""
    whole = "\n".join((cluster_id, topic, topic_id))
    return f"re_{hashlib.sha256(whole.encode()).hexdigest()[:16]}"


MARGIN_MS = 3_600_000
"""Margin by which retention.ms must exceed the age of the oldest record, so that it outlives the restore."""
NEVER_MS = (1 << 63) - 1
CONFIGS = {
    "message.timestamp.type": "CreateTime",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "message.timestamp.before.max.ms": str(NEVER_MS),
    "message.timestamp.after.max.ms": str(NEVER_MS),
}
"""Configs of a topic that a restore reads, with Kafka's defaults."""
NOTHING = "nothing was written"


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """The brokers' description of a topic. `starts` and `ends`: partition -> first and next offset."""

    cluster_id: str
    topic: str
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    configs: Mapping[str, str]

    def config(self, name: str) -> str:
        return self.configs.get(name) or CONFIGS[name]

    def number(self, name: str) -> int:
        return int(self.config(name))

    @property
    def policies(self) -> Collection[str]:
        return {policy.strip() for policy in self.config("cleanup.policy").split(",")}

    @property
    def records(self) -> int:
        return sum(self.ends.values())


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about the records that a restore writes of one log, from metadata and timestamp columns.

    records        number of records
    first_offset, last_offset  in the archive; None without records
    oldest_ms, newest_ms  lowest and highest timestamp (Unix ms); None if no record has one
    zero_stamps    records whose timestamp is 0 or -1, which clients do not write unchanged
    without_type   records whose timestamp was set by the broker (LogAppendTime)
    erased         records that are left out, because their keys were erased
    """

    partition: int
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    oldest_ms: int | None = None
    newest_ms: int | None = None
    zero_stamps: int = 0
    without_type: int = 0
    erased: int = 0


def creation_command(bootstrap_servers: str, topic: str, partitions: int, mode: Mode) -> str:
    """Return the command that creates a topic that a restore can write into."""
    policy = "compact" if mode == "latest" else "delete"
    configs = {
        "cleanup.policy": policy,
        "retention.ms": "-1",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.after.max.ms": str(NEVER_MS),
    }
    options = " ".join(f"--config {name}={value}" for name, value in configs.items())
    return (
        f"kafka-topics --bootstrap-server {bootstrap_servers} --create --topic {topic} --partitions {partitions} "
        f"{options}"
    )


def require_partitions(target: TargetTopic, partitions: int) -> None:
    """Raise TargetError if the archive has another number of partitions (rule 1)."""
    if len(target.ends) != partitions:
        raise TargetError(
            f"topic {target.topic} has {counted(len(target.ends), 'partition')}, the archive {partitions}: a key's "
            f"partition depends on their number, so both must have the same number; {NOTHING}. An archive of files "
            "lacks the last partitions if they never had a record: give the topic's number with --partitions"
        )


def require_empty(target: TargetTopic) -> None:
    """Raise TargetError for a topic that has, or ever had, a record (rule 2)."""
    used = [p for p, end in sorted(target.ends.items()) if end > 0]
    if used:
        raise TargetError(
            f"topic {target.topic} is not empty: partition {used[0]} ends at offset {target.ends[used[0]]}, and no "
            f"unfinished restore from this archive into it exists; {NOTHING}. A restore needs a topic that never "
            "had a record: create one with another name, or delete and recreate this one"
        )


def require_denied(target: TargetTopic, branch: str, pinned: Collection[str], denied: Collection[str]) -> None:
    """Raise TargetError if keys were erased since the restore began, because the topic may have some of them.

    `branch`: the branch of the restore. `pinned`, `denied`: ids of requests then and now."""
    if later := sorted(set(denied) - set(pinned)):
        raise TargetError(
            f"topic {target.topic} may have keys of {', '.join(later)}: requests to erase keys, approved after this "
            f"restore began. Delete and recreate the topic, drop branch {branch} of the table, and restore again"
        )


def require_whole(target: TargetTopic) -> None:
    """Raise TargetError if the beginning of a partition was deleted after a restore began there (rule 2)."""
    cut = [p for p, start in sorted(target.starts.items()) if start > 0]
    if cut:
        raise TargetError(
            f"topic {target.topic}: partition {cut[0]} begins at offset {target.starts[cut[0]]}: restored "
            f"records were deleted again (retention.ms, retention.bytes, or by hand); {NOTHING}. Delete the topic, "
            "create it again with retention.ms=-1, and restore again"
        )


def require_configs(target: TargetTopic, mode: Mode) -> None:
    """Raise TargetError for configs that would change or remove restored records (rules 3 and 4)."""
    if target.config("message.timestamp.type") != "CreateTime":
        raise _refused(
            target, "message.timestamp.type", "the broker would replace the timestamps; CreateTime keeps them"
        )
    if mode == "log" and "compact" in target.policies:
        raise _refused(
            target,
            "cleanup.policy",
            "the broker's cleaner would remove superseded records before they are read back. Restore with "
            "cleanup.policy=delete and retention.ms=-1, and set compact afterwards; or restore with --latest",
        )
    if "delete" in target.policies and target.number("retention.bytes") >= 0:
        raise _refused(
            target,
            "retention.bytes",
            "records could be deleted while they are written: set it to -1 during the restore",
        )


def require_fitting(target: TargetTopic, facts: Collection[LogFacts], now_ms: int) -> None:
    """Raise TargetError for timestamps that the topic would not keep or not accept (rules 4 and 5).

    `now_ms`: the real clock.
    """
    for log in facts:
        if log.zero_stamps:
            raise TargetError(
                f"partition {log.partition} has {counted(log.zero_stamps, 'record')} with the timestamp 0 or -1, which "
                f"librdkafka would write as the present time, or as none; {NOTHING} into {target.topic}"
            )
    oldest_ms = min((f.oldest_ms for f in facts if f.oldest_ms is not None), default=None)
    newest_ms = max((f.newest_ms for f in facts if f.newest_ms is not None), default=None)
    if oldest_ms is None or newest_ms is None:
        return
    retention_ms = target.number("retention.ms")
    if "delete" in target.policies and 0 <= retention_ms <= now_ms - oldest_ms + MARGIN_MS:
        raise _refused(
            target,
            "retention.ms",
            f"the broker would delete the restored records: the oldest is of {instant(oldest_ms)} UTC. Set "
            "it to -1 during the restore",
        )
    if now_ms - oldest_ms > target.number("message.timestamp.before.max.ms"):
        raise _refused(
            target, "message.timestamp.before.max.ms", f"the broker would refuse the record of {instant(oldest_ms)} UTC"
        )
    if newest_ms - now_ms > target.number("message.timestamp.after.max.ms"):
        raise _refused(
            target, "message.timestamp.after.max.ms", f"the broker would refuse the record of {instant(newest_ms)} UTC"
        )


def _refused(target: TargetTopic, config: str, why: str) -> TargetError:
    return TargetError(f"topic {target.topic} has {config}={target.config(config)}: {why}; {NOTHING}")
