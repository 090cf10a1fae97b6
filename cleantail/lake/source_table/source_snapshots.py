"""Adapter: what a topic's source table is at the moment, through PyIceberg. Nothing of it is changed.

A table that Cleantail has made or adopted is no source: its rounds remove records, which a read would take for changes
of a sink.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_source import MAIN, TableSource
from cleantail.config.topic_table import PROPERTY_SIDE_OF, PROPERTY_TOPIC
from cleantail.errors import CleantailError, OutsideError, SourceError, TableError
from cleantail.lake.catalogs import kept_catalog, unreachable
from cleantail.lake.metadata_guards import require_data_alone
from cleantail.lake.table_metadata import ancestry
from cleantail.log.snapshot_plan import SourceSnapshot, SourceTable

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_NOTHING = "nothing was appended"


def table_source_of(topic: Topic) -> TableSource:
    """Returns what the topic's YAML says of its source table. Raises CleantailError where it has none."""
    if topic.source.table is None:
        raise CleantailError(f"topic {topic.topic} has no source.table in its YAML; {_NOTHING}")
    return topic.source.table


def described_source(topic: Topic, platform: Platform) -> SourceTable:
    """Returns the source's snapshots as they are now. Raises SourceError, TableError where its metadata cannot be read,
    and OutsideError where its catalog is out of reach."""
    source = table_source_of(topic)
    catalog, name = source.catalog or platform.catalog.name, source.named_in(platform.catalog.name)
    table = _loaded(platform.reading(source.catalog), source, name)
    _require_of_a_sink(table, name)
    require_data_alone(name, table.properties)  # Spark makes what names code where a table is read, too
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
        history=tuple(_snapshots(table, head)),
        kept={snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.metadata.snapshots},
    )


def _loaded(reading: Platform, source: TableSource, name: str) -> Table:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
    from requests import RequestException

    try:
        return kept_catalog(reading, os.environ).load_table(source.name)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise SourceError(f"there is no table {name}, which source.table names; {_NOTHING}") from None
    except (FileNotFoundError, PermissionError) as e:
        raise SourceError(f"the metadata of {name} cannot be read: {type(e).__name__}; {_NOTHING}") from None
    except (TableError, OutsideError) as e:
        raise type(e)(f"{e}; {_NOTHING}") from None
    except RequestException as e:  # that an answer is no JSON is a ValueError as well
        raise unreachable(reading, e) from None
    except (ValueError, ValidationError, NotImplementedError) as e:  # no retry helps
        raise TableError(f"the metadata of {name} cannot be read: {type(e).__name__}; {_NOTHING}") from None
    except Exception as e:  # whatever the driver raises
        raise unreachable(reading, e) from None


def _require_of_a_sink(table: Table, name: str) -> None:
    owner = table.properties.get(PROPERTY_TOPIC) or table.properties.get(PROPERTY_SIDE_OF)
    if owner:
        raise SourceError(
            f"{name} is a table of topic {owner}, from which rounds remove records: read what fills it; {_NOTHING}"
        )


def _head(table: Table, branch: str, name: str) -> Snapshot | None:
    if branch == MAIN:
        return table.current_snapshot()
    if (ref := table.metadata.refs.get(branch)) is None:
        names = ", ".join(sorted(table.metadata.refs)) or "none"
        raise SourceError(f"{name} has no branch {branch}, which source.table names; it has {names}; {_NOTHING}")
    return table.snapshot_by_id(ref.snapshot_id)


def _snapshots(table: Table, head: Snapshot | None) -> Iterator[SourceSnapshot]:
    for each in ancestry(table, head):
        operation = each.summary.operation.value if each.summary else ""
        summary = dict(each.summary.additional_properties) if each.summary else {}
        yield SourceSnapshot.of_summary(
            each.snapshot_id, each.parent_snapshot_id, each.timestamp_ms, operation, summary
        )
