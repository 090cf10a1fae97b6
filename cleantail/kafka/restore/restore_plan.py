"""Adapter: what a restore would do, by the metadata of the archive and of the topic. Starts no Spark, changes nothing.

1. The topic has to be there, with as many partitions as the archive.
2. A branch of the table says whether a restore into this very topic was begun (restore_pin). If not, the topic has to
   be empty, and the snapshot is the present one, or that of --as-of. If so, it goes on with what was begun.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, TargetError
from cleantail.kafka.restore.restore_pin import PIN, RESTORE_PIN_JSON, Mode, RestorePin, pin_stem
from cleantail.kafka.restore.restore_target import (
    NOTHING,
    TargetTopic,
    creation_command,
    require_configs,
    require_empty,
    require_partitions,
    require_whole,
)
from cleantail.kafka.restore.target_client import TargetBrokers
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.log_bounds import log_ends, log_starts
from cleantail.lake.table_metadata import live_files, snapshot_id_of
from cleantail.log.segments import DataFile

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Says what somebody asks for. `as_of`: a snapshot's id, or a branch or tag; None for the present one.
    `partitions`: how many the topic had, where the archive does not know; None where it does."""

    target: str
    mode: Mode
    as_of: str | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Says what is to be written. `branch`: that of a restore that was begun; None where this is the first run of one.
    `files`: of the snapshot, by which the work of finding the latest records is shared out."""

    target: TargetTopic
    pin: RestorePin
    branch: str | None
    files: tuple[DataFile, ...]

    @property
    def resumed(self) -> bool:
        return self.branch is not None

    @property
    def stem(self) -> str:
        return pin_stem(self.pin.cluster_id, self.pin.topic, self.pin.topic_id)


def plan_restore(
    topic: Topic, platform: Platform, request: RestoreRequest, brokers: TargetBrokers, now_ms: int
) -> RestorePlan:
    """Plans a restore. Raises TargetError for a topic that it cannot write into, TableError for a snapshot that is not
    there."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    if table is None or table.current_snapshot() is None:
        raise CleantailError(f"topic {topic.topic} has no records yet: there is nothing to restore")
    partitions = _partitions(table, request)
    target = brokers.describe(request.target)
    if target is None:
        raise TargetError(
            f"there is no topic {request.target} in {brokers.address}, or this login may not know of it; {NOTHING}. "
            f"To make it: {creation_command(brokers.address, request.target, partitions, request.mode)}"
        )
    require_partitions(target, partitions)
    require_configs(target, request.mode)
    begun = _begun(table, target)
    if begun is None:
        require_empty(target)
        return _first_run(table, topic, request, target, partitions, now_ms)
    branch, pin = begun
    _require_same(table, request, pin)
    require_whole(target)
    return RestorePlan(target, pin, branch, ())


def _partitions(table: Table, request: RestoreRequest) -> int:
    """Return the number of partitions of the archive.

    An archive that was read from Kafka has all partitions of the last read, also empty ones. An archive of files has
    those up to the last one with a record, and `--partitions` may add more. Raises CleantailError for fewer.
    """
    known = max(log_ends(table), default=-1) + 1
    if request.partitions is not None and request.partitions < known:
        raise CleantailError(f"--partitions {request.partitions} is not allowed: the archive has {known}")
    return request.partitions or known


def _begun(table: Table, target: TargetTopic) -> tuple[str, RestorePin] | None:
    """Returns the branch of a restore into this topic that was begun and not ended, and what it says; None where there
    is none. A run that was killed before its branch said anything had written nothing."""
    stem = pin_stem(target.cluster_id, target.topic, target.topic_id)
    names = sorted((name for name in table.metadata.refs if name.startswith(f"{stem}_")), reverse=True)
    for name in names:
        text = _summary(table, table.metadata.refs[name].snapshot_id).get(PIN)
        if text:
            return name, RESTORE_PIN_JSON.unpacked(text, f"{PIN} of branch {name}")
    return None


def _summary(table: Table, snapshot_id: int) -> Mapping[str, str]:
    snapshot = table.snapshot_by_id(snapshot_id)
    return dict(snapshot.summary.additional_properties) if snapshot and snapshot.summary else {}


def _first_run(
    table: Table, topic: Topic, request: RestoreRequest, target: TargetTopic, partitions: int, now_ms: int
) -> RestorePlan:
    current = table.current_snapshot()
    assert current is not None  # plan_restore has asked
    snapshot_id = current.snapshot_id if request.as_of is None else snapshot_id_of(table, request.as_of)
    files = live_files(table, snapshot_id)
    pin = RestorePin(
        cluster_id=target.cluster_id,
        topic=target.topic,
        topic_id=target.topic_id,
        mode=request.mode,
        snapshot_id=snapshot_id,
        now_ms=now_ms,
        partitions=partitions,
        starts=log_starts(table, topic.config, snapshot_id),
    )
    return RestorePlan(target, pin, None, files)


def _require_same(table: Table, request: RestoreRequest, pin: RestorePin) -> None:
    """Raises TargetError where another restore into the topic was begun than the one that is asked for."""
    begun = f"a restore of --{pin.mode} of snapshot {pin.snapshot_id} into topic {pin.topic} was begun and not ended"
    way_out = "Go on with that one, or delete the topic and make it anew"
    if pin.mode != request.mode:
        raise TargetError(f"{begun}, and --{request.mode} is asked for; {NOTHING}. {way_out}")
    if request.as_of is not None and snapshot_id_of(table, request.as_of) != pin.snapshot_id:
        raise TargetError(f"{begun}, and --as-of {request.as_of} is another snapshot; {NOTHING}. {way_out}")
