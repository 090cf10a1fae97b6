"""Adapter: plan a restore from the metadata of the archive and of the topic. Starts no Spark, changes nothing.

1. The topic must exist and have as many partitions as the archive.
2. If a restore into this topic was begun, a branch of the table stores it (`RestorePin`), and the restore continues.
   Otherwise the topic must be empty, and the snapshot is the current snapshot or the one of --as-of.
3. A restore leaves out the keys that were erased when it began. If more keys were erased since, it does not continue.

The settings of the clients come from a connection, a file of properties, or the environment. Brokers on the command
line get no login from the environment, because a login is sent only to the brokers that it was configured with. Brokers
of a restore are often in another cluster than the archive's source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS, KafkaSource
from cleantail.erasure.store import ErasureStore
from cleantail.errors import CleantailError, TargetError
from cleantail.kafka.client_settings import DEFAULTS, PREFIX, settings_of_environment
from cleantail.kafka.import_config import client_settings
from cleantail.kafka.restore_target import (
    NOTHING,
    PIN,
    RESTORE_PIN_JSON,
    Mode,
    RestorePin,
    TargetTopic,
    creation_command,
    pin_stem,
    require_configs,
    require_denied,
    require_empty,
    require_partitions,
    require_whole,
)
from cleantail.kafka.target_client import TargetBrokers
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.latest_state import log_ends, log_starts
from cleantail.lake.table_metadata import live_files, snapshot_id_of
from cleantail.log.partition_state import PROPERTY_DENYLIST
from cleantail.log.segments import DataFile

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """Counts of one partition.

    already_written  records of an earlier run of this restore, each compared by this run
    written          records of this run
    verified         all records of the partition: each was read back and equals the archive's
    first_offset     offset in the archive of the record at offset 0 in Kafka; None without records
    last_offset      offset in the archive of the partition's last record; None without records
    erased           records of the archive that were left out, because their keys were erased
    """

    partition: int
    already_written: int
    written: int
    verified: int
    first_offset: int | None = None
    last_offset: int | None = None
    erased: int = 0


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore.

    `resumed`: whether an earlier run had begun. `without_type`: number of records with a timestamp by the broker
    (LogAppendTime), which becomes CreateTime.
    """

    target: str
    mode: Mode
    snapshot_id: int
    resumed: bool
    partitions: tuple[RestoredLog, ...]
    without_type: int = 0
    ok: bool = True

    @property
    def verified(self) -> int:
        return sum(log.verified for log in self.partitions)

    @property
    def written(self) -> int:
        return sum(log.written for log in self.partitions)

    @property
    def already_written(self) -> int:
        return sum(log.already_written for log in self.partitions)

    @property
    def erased(self) -> int:
        return sum(log.erased for log in self.partitions)


RESTORE_RESULT_JSON: Codec[RestoreResult] = Codec(RestoreResult)


def target_settings(
    bootstrap_server: str | None, connection: str | None, command_config: Path | None, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the clients' settings. Raises CleantailError if no brokers are named, or if two options name them."""
    if connection is not None and (bootstrap_server or command_config):
        raise CleantailError("--connection names brokers and login: give it without --bootstrap-server and the file")
    if command_config is not None and bootstrap_server is None:
        raise CleantailError("--command-config has the login of brokers that --bootstrap-server names: give both")
    if command_config is not None:
        return DEFAULTS | client_settings(str(bootstrap_server), command_config)
    known = env.get(f"{PREFIX}BOOTSTRAP_SERVERS")
    if bootstrap_server is None and connection is None and not known:
        raise CleantailError(
            f"no brokers are named: give --bootstrap-server HOST:PORT or --connection NAME, or set {PREFIX}"
            "BOOTSTRAP_SERVERS"
        )
    source = _source(bootstrap_server, connection)
    if bootstrap_server is not None and known and known != bootstrap_server:
        return settings_of_environment(source, {})
    return settings_of_environment(source, env)


def _source(bootstrap_server: str | None, connection: str | None) -> KafkaSource:
    try:
        return KafkaSource.model_validate({ADDRESS: bootstrap_server, "connection": connection})
    except ValidationError:
        named = f"--connection {connection}" if connection else f"--bootstrap-server {bootstrap_server}"
        raise CleantailError(
            f"{named} is not allowed: host:port, several with commas between them, or the id of an Airflow connection"
        ) from None


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The restore that a user requests.

    `as_of`: a snapshot's id, or a branch or tag; None for the current snapshot. `partitions`: number of partitions of
    the topic, if the archive does not contain it; otherwise None.
    """

    target: str
    mode: Mode
    as_of: str | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The records to write.

    `branch`: the branch of a begun restore, None in its first run. `files`: the snapshot's files, which divide the
    search for the latest records.
    """

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


def plan_restore(topic: Topic, request: RestoreRequest, brokers: TargetBrokers, now_ms: int) -> RestorePlan:
    """Plan a restore.

    Raises TargetError for a topic that a restore cannot write into, TableError for a snapshot that does not exist.
    """
    table = load_table(open_catalog(topic.platform), topic)
    if table is None or table.current_snapshot() is None:
        raise CleantailError(f"topic {topic.topic} has no records yet: there is nothing to restore")
    partitions = _partitions(table, request)
    target = brokers.describe(request.target)
    if target is None:
        raise TargetError(
            f"there is no topic {request.target} in {brokers.address}, or this login may not describe it; {NOTHING}. "
            f"To create it: {creation_command(brokers.address, request.target, partitions, request.mode)}"
        )
    require_partitions(target, partitions)
    require_configs(target, request.mode)
    begun = _begun(table, target)
    if begun is None:
        require_empty(target)
        return _first_run(table, topic, request, target, partitions, now_ms)
    branch, pin = begun
    _require_same(table, request, pin, now_ms)
    require_denied(target, branch, pin.denied, denied_requests(topic, table.properties))
    require_whole(target)
    return RestorePlan(target, pin, branch, ())


def denied_requests(topic: Topic, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of the requests whose erased keys stay out. `properties`: properties of the topic's table.

    Raises CleantailError without the secret, and TableError if the requests are lost."""
    denied = ErasureStore(topic.platform).denied(topic.topic, noted=PROPERTY_DENYLIST in properties)
    return tuple(request.id for request in denied)


def _partitions(table: Table, request: RestoreRequest) -> int:
    """Return the number of partitions of the archive. Raises CleantailError if `--partitions` is lower.

    An archive that was read from Kafka has all partitions of the last read, including empty ones. An archive of files
    has the partitions up to the last one with a record. `--partitions` may add more.
    """
    known = max(log_ends(table), default=-1) + 1
    if request.partitions is not None and request.partitions < known:
        raise CleantailError(f"--partitions {request.partitions} is not allowed: the archive has {known}")
    return request.partitions or known


def _begun(table: Table, target: TargetTopic) -> tuple[str, RestorePin] | None:
    """Return branch and pin of an unfinished restore into this topic, or None.

    A run that was killed before it stored its pin had not written any record.
    """
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
    assert current is not None  # plan_restore has checked it
    snapshot_id = current.snapshot_id if request.as_of is None else snapshot_id_of(table, request.as_of, now_ms)
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
        denied=denied_requests(topic, table.properties),
    )
    return RestorePlan(target, pin, None, files)


def _require_same(table: Table, request: RestoreRequest, pin: RestorePin, now_ms: int) -> None:
    """Raise TargetError if the begun restore into the topic differs from the requested one."""
    begun = f"topic {pin.topic} has an unfinished restore with --{pin.mode} of snapshot {pin.snapshot_id}"
    way_out = "Continue that restore, or delete and recreate the topic"
    if pin.mode != request.mode:
        raise TargetError(f"{begun}, and --{request.mode} is requested; {NOTHING}. {way_out}")
    if request.as_of is not None and snapshot_id_of(table, request.as_of, now_ms) != pin.snapshot_id:
        raise TargetError(f"{begun}, and --as-of {request.as_of} is another snapshot; {NOTHING}. {way_out}")
