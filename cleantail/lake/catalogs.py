"""Adapter: open the catalog, load a topic's table through PyIceberg, and check that the table is the topic's.

Side tables of a topic hold versions of deleted keys, records without a key, and records that the topic table cannot
hold.

A DELETE removes rows of side tables but leaves the bytes in older snapshots, as in a topic table. `reclaim` expires
these snapshots.
"""

from __future__ import annotations

import gzip
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import (
    COLUMNS,
    EVIDENCE,
    KEYLESS_SUFFIX,
    LEDGER_SUFFIX,
    PARTITION,
    PROPERTY_FORMAT,
    PROPERTY_SIDE_OF,
    PROPERTY_TOPIC,
    UNHOLDABLE_SUFFIX,
    require_known_format,
)
from cleantail.errors import CleantailError, OutsideError, TableError
from cleantail.home.home_folder import exclusive, make_home
from cleantail.human import one_line
from cleantail.lake.client_properties import pyiceberg_properties, with_renewed_tokens
from cleantail.lake.exchange import OF_FILES
from cleantail.lake.foreign_errors import NOT_A_DATABASE, cause
from cleantail.lake.metadata_guards import DELETES_PROPERTY, most_delete_bytes, opened, require_data_alone
from cleantail.lake.records.topic_columns import PROPERTY_COLUMNS, property_of_columns
from cleantail.lake.storage_locations import only_own_files, require_safe_commits

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


SUFFIXES = (LEDGER_SUFFIX, KEYLESS_SUFFIX, UNHOLDABLE_SUFFIX)


def side_tables(topic: Topic) -> dict[str, Table]:
    """Return suffix -> side table for each existing side table that belongs to the topic."""
    catalog, tables = open_catalog(topic.platform), {}
    for suffix in SUFFIXES:
        table = load_any(catalog, f"{topic.table}{suffix}", topic.platform)
        if table is not None and table.properties.get(PROPERTY_SIDE_OF) == topic.topic:
            tables[suffix] = table
    return tables


def side_due(topic: Topic, now_ms: int) -> bool:
    """Return whether a side table has superseded snapshots that are past cleantail.snapshot.retention.ms."""
    oldest_kept_ms = now_ms - topic.config.cleantail_snapshot_retention_ms
    return any(
        snapshot.timestamp_ms < oldest_kept_ms and snapshot != table.current_snapshot()
        for table in side_tables(topic).values()
        for snapshot in table.snapshots()
    )


_LOST_RACES = {"IntegrityError", "ProgrammingError"}
"""SQLAlchemy's errors if another client creates the tables of a new database at the same moment."""


def open_catalog(platform: Platform) -> Catalog:
    """Return the platform's catalog, opened with the secrets of its environment.

    Raises OutsideError, without credentials in its text, if the catalog cannot be reached, and TableError if the file
    is not a catalog.
    """
    name, properties = platform.catalog.name, with_renewed_tokens(pyiceberg_properties(platform))
    try:
        if platform.catalog.type == "sqlite":
            make_home(platform.home)
            with exclusive(platform.home, "catalog"):  # two first clients would both create the catalog's tables
                return opened(name, properties, platform.limits)
        try:
            return opened(name, properties, platform.limits)
        except Exception as error:
            if type(error).__name__ not in _LOST_RACES:
                raise
            return opened(name, properties, platform.limits)
    except Exception as e:  # every error of the driver means the same to a user
        raise unreachable(platform, e) from None


LOGIN_LIVES_S = 60.0
"""Seconds that a REST catalog is kept open. Some of its clients do not notice that a token has expired."""
MOST_KEPT = 8
"""Maximum number of catalogs that a process keeps open: its own, and those of tables that topics read."""
_opened: dict[tuple[object, ...], tuple[float, Catalog]] = {}
_opening = threading.Lock()


def _renew_lock() -> None:
    """Give a forked process its own lock: in the parent, a thread that the fork does not have may hold the old one."""
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def kept_catalog(platform: Platform) -> Catalog:
    """Return the catalog that this process has already opened with the same settings, or open it.

    Opening reads the catalog's own tables, which takes longer than loading a topic's table. If several threads call
    this, one of them opens the catalog.
    """
    # the two sides of a fork must not use one connection
    settings = (os.getpid(), platform.catalog.name, *sorted(pyiceberg_properties(platform).items()))
    # return an open catalog without waiting for another catalog to open, which may be out of reach
    if kept := _kept(platform, settings):
        return kept
    with _opening:
        if kept := _kept(platform, settings):
            return kept
        _opened.pop(settings, None)
        while len(_opened) >= MOST_KEPT:
            _opened.pop(next(iter(_opened)), None)
        catalog = open_catalog(platform)
        _opened[settings] = (time.monotonic(), catalog)
        return catalog


def _kept(platform: Platform, settings: tuple[object, ...]) -> Catalog | None:
    opened_s, catalog = _opened.get(settings, (0.0, None))
    return None if is_outdated(platform, opened_s, time.monotonic()) else catalog


def is_outdated(platform: Platform, opened_s: float, now_s: float) -> bool:
    """Return whether a catalog that was opened at `opened_s` has to be opened again."""
    return platform.catalog.type == "rest" and now_s - opened_s >= LOGIN_LIVES_S


def unreachable(platform: Platform, error: Exception) -> CleantailError:
    """Return the error to raise for an error of the catalog's driver."""
    if isinstance(error, CleantailError):
        return error
    where = platform.catalog.uri or platform.catalog_uri
    kind, why = f"{platform.catalog.name} ({platform.catalog.type})", cause(error)
    if why == NOT_A_DATABASE:
        return TableError(f"catalog {kind} at {where} cannot be opened: {why}")
    return OutsideError(f"catalog {kind} at {where} cannot be reached: {why}")


_DAMAGED_METADATA = (ValueError, EOFError, KeyError, TypeError, AttributeError, zlib.error, gzip.BadGzipFile)
"""Errors that PyIceberg and its parsers raise for damaged metadata."""
_DAMAGE = (
    "Put the file back from a backup, or from an earlier version of the object. Or register the table again with an "
    "earlier metadata file, by Iceberg's procedure register_table"
)


def load_any(catalog: Catalog, name: str, platform: Platform) -> Table | None:
    """Return a table of any owner, or None if the catalog has no table of this name.

    Raises TableError for damaged metadata and for an unknown format, OutsideError if the catalog is out of reach.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        table = catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as e:
        require_undamaged(name, e, lambda: metadata_locations(catalog, platform).get(name, ""))
        raise unreachable(platform, e) from None
    require_known_format(name, table.properties)
    return table


def require_undamaged(name: str, error: Exception, file: Callable[[], str] = str) -> None:
    """Raise TableError if a table could not be loaded because its metadata is damaged. `file`: finds its location."""
    from pyiceberg.exceptions import ValidationError

    if isinstance(error, FileNotFoundError):
        raise TableError(f"table {name} is broken: its metadata is missing: {error}. {_DAMAGE}") from None
    if isinstance(error, PermissionError | IsADirectoryError):
        raise TableError(f"table {name} is broken: its metadata cannot be read: {error}. {_DAMAGE}") from None
    if isinstance(error, (*_DAMAGED_METADATA, ValidationError)):  # the text of these errors contains the whole metadata
        require_known_types(name, error)
        kind = type(error).__name__
        raise TableError(f"table {name} is broken: its metadata {file()} cannot be read: {kind}. {_DAMAGE}") from None


def load_table(catalog: Catalog, topic: Topic) -> Table | None:
    """Return the topic's table, or None if it does not exist yet.

    Raises TableError if it is not this topic's, OutsideError if the catalog is out of reach.
    """
    table = load_any(catalog, topic.table, topic.platform)
    if table is None:
        return None
    require_ours(table.properties, topic)
    required = topic.columns.paths.values() if topic.columns else COLUMNS
    missing = [path for path in required if path not in set(table.schema().column_names)]
    if missing:
        raise TableError(f"table {topic.table} is not a topic table: it has no column {', '.join(missing)}")
    if topic.columns is None:
        _require_own_partitioning(table, topic)
    else:
        only_own_files(table, topic.platform.imported_folders)
    return table


def metadata_locations(catalog: Catalog, platform: Platform) -> dict[str, str]:
    """Return `namespace.table` -> location of its metadata, in one query. Empty if the catalog has no such list.

    `platform`: the owner of the catalog. Raises OutsideError if the catalog is out of reach.
    """
    from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.orm import Session

    if not isinstance(catalog, SqlCatalog):
        return {}
    columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    try:
        with Session(catalog.engine) as session:
            rows = session.execute(select(*columns).where(IcebergTables.catalog_name == catalog.name)).all()
    except SQLAlchemyError as e:
        raise unreachable(platform, e) from None
    return {f"{namespace}.{name}": location or "" for namespace, name, location in rows}


def require_known_types(table: str, error: Exception) -> None:
    """Raise TableError if PyIceberg cannot read a column's type, in any schema that the metadata keeps."""
    if kinds := sorted(set(re.findall(r"Unsupported field type: '([\w(), ]{1,80})'", str(error)))):
        raise TableError(
            f"table {table} has, or had, a column of type {', '.join(kinds)}, which PyIceberg cannot read. Have its "
            "sink write text or bytes. Then drop the column, and its schema from the metadata: ALTER TABLE … DROP "
            "COLUMN …; CALL system.rewrite_data_files(table => …, options => map('rewrite-all', 'true')); CALL "
            "system.expire_snapshots(table => …, older_than => now(), retain_last => 1, clean_expired_metadata => true)"
        )


def _require_own_partitioning(table: Table, topic: Topic) -> None:
    """Raise TableError unless the topic's own table is partitioned by `partition` alone.

    That field assigns each data file to one log.
    """
    schema = table.schema()
    fields = [(str(field.transform), schema.find_column_name(field.source_id)) for field in table.spec().fields]
    if fields != [("identity", PARTITION)]:
        partitioning = ", ".join(f"{transform} of {column}" for transform, column in fields) or "nothing"
        raise TableError(
            f"table {topic.table} is partitioned by {partitioning}, but a topic's own table must be partitioned by "
            f"{PARTITION} alone; nothing was changed. Add or drop partition fields (Spark: ALTER TABLE … ADD "
            "PARTITION FIELD, DROP PARTITION FIELD)."
        )


def require_usable(topic: Topic) -> None:
    """Raise an error if a job could not work on the topic, before anything is read or changed.

    OutsideError: the catalog is out of reach. TableError, in three cases. The table is not the topic's. The evidence or
    a side table that the topic uses has an unknown format. Or a commit to an adopted table would delete metadata files
    that are not its own.
    """
    catalog = kept_catalog(topic.platform)
    require_known_evidence(catalog, topic.platform)
    for suffix in _used_suffixes(topic.config):
        load_any(catalog, f"{topic.table}{suffix}", topic.platform)
    table = load_table(catalog, topic)
    if table is not None:
        require_data_alone(topic.table, table.properties)
    if table is not None and topic.columns is not None:
        require_safe_commits(table)


def _used_suffixes(configs: KafkaConfigs) -> Iterator[str]:
    """Yield the suffixes of the side tables that these configs let a run write to."""
    if configs.cleantail_tombstone_lateness_ms:
        yield LEDGER_SUFFIX
    if configs.cleantail_keyless_policy == "quarantine":
        yield KEYLESS_SUFFIX
    if configs.cleantail_unholdable_policy == "quarantine":
        yield UNHOLDABLE_SUFFIX


def require_known_evidence(catalog: Catalog, platform: Platform) -> None:
    """Raise TableError if this version does not read the format of the evidence: a round would fail after its work."""
    if time.monotonic() - _evidence_known_s.get(catalog, float("-inf")) < STORES_LIVE_S:
        return
    name = f"{platform.catalog.namespace}.{EVIDENCE}"
    load_any(catalog, name, platform)
    _evidence_known_s[catalog] = time.monotonic()


_evidence_known_s: WeakKeyDictionary[Catalog, float] = WeakKeyDictionary()
"""Catalog -> when require_known_evidence last read it (monotonic seconds). A pack of many topics reads it once."""


def file_io_properties(topic: Topic) -> dict[str, str]:
    """Return the properties with which a process opens the table's files through PyIceberg.

    They include the store's secrets, also those that a REST catalog gives with the table. They exclude what opens the
    catalog, because its address may have a password. They include the class of the file IO: a warehouse that is only a
    name does not identify a store.

    A round needs them several times, so they are cached for a while, except with a REST catalog.
    """
    catalog, now_s = kept_catalog(topic.platform), time.monotonic()
    asked_s, stores = _stores.get(catalog, (float("-inf"), {}))
    if now_s - asked_s >= STORES_LIVE_S or topic.platform.catalog.type == "rest":
        asked_s, stores = _stores[catalog] = now_s, {}
    if topic.table not in stores:
        table = load_table(catalog, topic)
        if table is None:
            return {}
        stores[topic.table] = store_properties(table)
    return dict(stores[topic.table])


STORES_LIVE_S = 60.0
"""How long the result of file_io_properties is cached. Bounded because a table's properties may change."""
_stores: WeakKeyDictionary[Catalog, tuple[float, dict[str, dict[str, str]]]] = WeakKeyDictionary()
"""Catalog -> (monotonic seconds of the cache's start, table -> result of file_io_properties)."""


def store_properties(table: Table) -> dict[str, str]:
    """Return the properties with which a process opens a table's files, as file_io_properties does."""
    kept = {k: v for k, v in table.io.properties.items() if isinstance(v, str) and k.startswith(OF_FILES)}
    kind = type(table.io)
    limit = {DELETES_PROPERTY: str(most_delete_bytes(table.io))}
    return {**kept, **limit, "py-io-impl": f"{kind.__module__}.{kind.__qualname__}"}


OWNERS = (PROPERTY_TOPIC, PROPERTY_COLUMNS, PROPERTY_FORMAT)
"""The properties that require_ours checks."""


def require_ours(properties: Mapping[str, str | None], topic: Topic) -> None:
    """Raise TableError unless the table's properties name this topic and a known format."""
    owner = properties.get(PROPERTY_TOPIC)
    if owner != topic.topic:
        fact = f"belongs to topic {one_line(owner)}" if owner else f"has no property {PROPERTY_TOPIC}"
        raise TableError(
            f"table {topic.table} is not the table of topic {topic.topic}: it {fact}; nothing was changed. "
            f"Name another `table:` in the topic's YAML, or take it over with `cleantail adopt {topic.table}`."
        )
    require_known_format(topic.table, properties)
    table_columns = properties.get(PROPERTY_COLUMNS)
    topic_columns = property_of_columns(topic.columns) if topic.columns else None
    if table_columns != topic_columns:
        raise TableError(
            f"table {topic.table} was adopted with columns {one_line(table_columns or 'none')}, but the YAML of "
            f"topic {topic.topic} has {topic_columns or 'none'}; nothing was changed. Make the YAML equal to the "
            f"table, or run `cleantail adopt {topic.table}`."
        )


def load_named(platform: Platform, name: str) -> Table:
    """Load the table that a user names.

    Raises CleantailError if the name is invalid, and TableError if the table or the catalog does not exist.
    """
    if name.count(".") != 1:
        raise CleantailError(f"{name!r} is not a table: namespace.name is needed, such as redpanda.orders")
    table = load_any(open_catalog(platform), name, platform)
    if table is None:
        raise TableError(f"catalog {platform.catalog.name} has no table {name}")
    return table
