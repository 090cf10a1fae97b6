"""Adapter: input that a topic's source has and its table lacks: files, or changes of a source table. Only metadata.

A table that Cleantail has made or adopted cannot be a source. Its rounds remove records, and a read would count the
removals as changes by a sink.

A topic may continue from another source only if its positions make that safe. A read of a table starts in an empty
topic table, or continues from its own position. A read of Kafka may continue after a table or after files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.source_paths import folder_of, matching_files
from cleantail.config.topic import Topic
from cleantail.config.topic_source import MAIN, TableSource
from cleantail.config.topic_table import PROPERTY_SIDE_OF, PROPERTY_TOPIC
from cleantail.errors import CleantailError, OutsideError, SourceError, TableError
from cleantail.lake.catalogs import kept_catalog, load_table, unreachable
from cleantail.lake.facts_cache import FactsCache
from cleantail.lake.metadata_guards import require_data_alone
from cleantail.lake.records.latest_state import log_ends
from cleantail.lake.table_metadata import commits_to, properties_that_count
from cleantail.log.partition_state import ingested_files
from cleantail.log.snapshot_plan import PORTION_BYTES, SnapshotPlan, SourceSnapshot, SourceTable, plan_snapshots
from cleantail.log.source_position import (
    PROPERTY_SNAPSHOT_POSITION,
    SnapshotPosition,
    position_of,
    snapshot_position_of,
)
from cleantail.sources.digest_cache import DigestCache

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


_NOTHING = "nothing was appended"


def table_source_of(topic: Topic) -> TableSource:
    """Return the source table in the topic's YAML. Raises CleantailError if the YAML has none."""
    if topic.source.table is None:
        raise CleantailError(f"topic {topic.topic} has no source.table in its YAML; {_NOTHING}")
    return topic.source.table


def described_source(topic: Topic) -> SourceTable:
    """Return the source's current snapshots.

    Raises SourceError, TableError if its metadata cannot be read, and OutsideError if its catalog is out of reach.
    """
    source = table_source_of(topic)
    catalog, name = source.catalog or topic.platform.catalog.name, source.named_in(topic.platform.catalog.name)
    table = _loaded(topic.platform.reading(source.catalog), source, name)
    owner = table.properties.get(PROPERTY_TOPIC) or table.properties.get(PROPERTY_SIDE_OF)
    if owner:
        raise SourceError(
            f"{name} is a table of topic {owner}, from which rounds remove records: read its source instead; {_NOTHING}"
        )
    require_data_alone(name, table.properties)  # Spark also loads the named code when it only reads a table
    known = set(table.schema().column_names)
    if missing := sorted(set(source.columns.paths.values()) - known):
        raise SourceError(
            f"{name} has no column {missing[0]}, which source.table.columns names; it has {', '.join(sorted(known))}; "
            f"{_NOTHING}"
        )
    head = _head(table, source.branch, name)
    return SourceTable(
        catalog=catalog,
        table=source.name,
        uuid=str(table.metadata.table_uuid),
        branch=source.branch,
        history=tuple(
            SourceSnapshot.of_summary(c.snapshot_id, c.parent_id, c.at_ms, c.operation, c.summary)
            for c in commits_to(table, head)
        ),
        kept={snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.metadata.snapshots},
    )


def _loaded(reading: Platform, source: TableSource, name: str) -> Table:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
    from requests import RequestException

    try:
        return kept_catalog(reading).load_table(source.name)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise SourceError(f"table {name} of source.table does not exist; {_NOTHING}") from None
    except (FileNotFoundError, PermissionError) as e:
        raise SourceError(f"the metadata of {name} cannot be read: {type(e).__name__}; {_NOTHING}") from None
    except (TableError, OutsideError) as e:
        raise type(e)(f"{e}; {_NOTHING}") from None
    except RequestException as e:  # an answer that is not JSON is also a ValueError
        raise unreachable(reading, e) from None
    except (ValueError, ValidationError, NotImplementedError) as e:  # a retry does not help
        raise TableError(f"the metadata of {name} cannot be read: {type(e).__name__}; {_NOTHING}") from None
    except Exception as e:  # other errors of the driver
        raise unreachable(reading, e) from None


def _head(table: Table, branch: str, name: str) -> Snapshot | None:
    if branch == MAIN:
        return table.current_snapshot()
    if (ref := table.metadata.refs.get(branch)) is None:
        names = ", ".join(sorted(table.metadata.refs)) or "none"
        raise SourceError(f"{name} has no branch {branch}, which source.table names; it has {names}; {_NOTHING}")
    return table.snapshot_by_id(ref.snapshot_id)


_ANOTHER_TABLE = (
    "Give the topic another table in its YAML (table: …) to read the source from its start; the present table stays "
    "unchanged; nothing was appended"
)


@dataclass(frozen=True, slots=True)
class OwnPosition:
    """The topic's own table at one moment. `text`: the current position as stored, None if no read has stored it."""

    text: str | None = None
    position: SnapshotPosition | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """The next read, with the state of both tables. `plan` is None without new snapshots."""

    at: OwnPosition
    source: SourceTable
    plan: SnapshotPlan | None


def planned_read(topic: Topic, now_ms: int) -> PlannedRead:
    """Plan the read from both tables. Raises SourceError, TableError or OutsideError if it is not possible."""
    table = load_table(kept_catalog(topic.platform), topic)
    at = _own_position(topic, table)
    source = described_source(topic)
    plan = plan_snapshots(at.position, source, table_source_of(topic).on_change, now_ms, PORTION_BYTES)
    if plan is not None and table is not None:
        _require_nothing_of_others(topic, table, at.position)
    return PlannedRead(at, source, plan)


def own_position(topic: Topic) -> OwnPosition:
    """Return the position of the topic's table. Raises SourceError if the table was read from Kafka."""
    return _own_position(topic, load_table(kept_catalog(topic.platform), topic))


def _own_position(topic: Topic, table: Table | None) -> OwnPosition:
    if table is None:
        return OwnPosition()
    properties = properties_that_count(table)
    if kafka := position_of(properties, topic.table):
        raise SourceError(
            f"table {topic.table} of topic {topic.topic} was read from {kafka.topic} in Kafka, so it is unknown "
            f"which records of the source table it already has. {_ANOTHER_TABLE}"
        )
    text = properties.get(PROPERTY_SNAPSHOT_POSITION)
    position = snapshot_position_of(properties, topic.table)
    return OwnPosition(text, position, table.metadata.current_snapshot_id)


def _require_nothing_of_others(topic: Topic, table: Table, position: SnapshotPosition | None) -> None:
    """Raise SourceError if files have added records that a read of the source table would add again.

    These records may have been cleaned in the meantime.
    """
    known = position.next_offsets if position else {}
    beyond = {p: end for p, end in sorted(log_ends(table).items()) if end > known.get(p, 0)}
    if beyond:
        partition, end = next(iter(beyond.items()))
        raise SourceError(
            f"table {topic.table} of topic {topic.topic} has records up to offset {end - 1} of partition {partition} "
            f"that did not come from its source table, which was read up to {known.get(partition, 0)}. {_ANOTHER_TABLE}"
        )


def new_files(topic: Topic, kept: FactsCache | None = None) -> tuple[list[Path], list[Path]]:
    """Return the files that match source.path, and the files whose content was not ingested, by name.

    `kept`: as in evaluate_topic. An unreadable file counts as new, so that the job reports the problem. Raises
    OutsideError if the folder of ingested files is missing, because its disk may not be mounted.
    """
    matching = matching_files(topic.platform, topic.source.path) if topic.source.path else []
    folder = folder_of(topic.source.path or "", topic.platform.home)
    is_gone = bool(topic.source.path) and not matching and not folder.is_dir()
    ingested = _ingested(topic, kept) if matching or is_gone else frozenset()
    if is_gone and ingested:
        raise OutsideError(
            f"the folder {folder} of source.path does not exist, but the table of {topic.topic} has files from it: new "
            "files cannot be detected, and nothing was appended. Restore the folder, or change source.path"
        )
    with DigestCache(topic.platform.home, topic.platform.limits.of_input) as cache:
        return matching, [file for file in matching if cache.digest_if_readable(file) not in ingested]


def _ingested(topic: Topic, kept: FactsCache | None) -> frozenset[str]:
    """Return the digests of ingested files. Reads only the table's properties, and no manifest."""
    if kept is not None:
        facts = kept.of(topic)
        return facts.ingested if facts is not None else frozenset()
    table = load_table(kept_catalog(topic.platform), topic)
    return ingested_files(properties_that_count(table)) if table is not None else frozenset()
