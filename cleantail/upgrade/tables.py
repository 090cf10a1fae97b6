"""Says what earlier versions have left in the catalog: topic tables, side tables, the evidence, and rounds that wait.

Only the heads of tables are read, and of the evidence three columns where a table has a branch of a round. No table
of an adopted topic gets a column or a property: it is another writer's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import (
    EVIDENCE,
    LEDGER_SUFFIX,
    PROPERTY_SIDE_OF,
    PROPERTY_TOPIC,
    TOMBSTONE,
    table_properties,
)
from cleantail.errors import TableError
from cleantail.human import counted
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.side_tables import SUFFIXES
from cleantail.log.partition_state import states_of_properties
from cleantail.log.source_position import position_of
from cleantail.log.source_table.snapshot_position import snapshot_position_of
from cleantail.rounds.evidence_row import CHECKED_ROUND, EVIDENCE_COLUMNS
from cleantail.rounds.past_rounds import CHECKED
from cleantail.upgrade.changes import Area, By, Change

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_ROUND_PREFIX = "ct_"
"""So begins the name of the branch of a round (cleantail.log.work_units)."""
DATABASE = "catalog.db"
"""File of CLEANTAIL_HOME with the catalog, where the configuration names no other."""
_NO_PROPERTIES = ("format-version", PROPERTY_TOPIC)
"""What is asked for as a property when a table is made, and is none that could be missing."""


@dataclass(frozen=True, slots=True)
class TableUpgrade:
    """Says what a topic's own table needs: the column `tombstone`, and properties that newer tables have."""

    topic: Topic
    tombstone: bool
    properties: Mapping[str, str]


@dataclass(slots=True)
class CatalogUpgrade:
    """Says what the catalog needs. `evidence`: whether its table needs columns."""

    changes: list[Change] = field(default_factory=list)
    tables: list[TableUpgrade] = field(default_factory=list)
    evidence: bool = False


def planned_catalog(platform: Platform, topics: Sequence[Topic]) -> CatalogUpgrade:
    """Looks at the tables of these topics. Raises OutsideError where the catalog is out of reach."""
    upgrade, branches = CatalogUpgrade(), dict[str, tuple[str, ...]]()
    if platform.catalog.type == "sqlite" and platform.catalog.uri is None and not (platform.home / DATABASE).exists():
        return upgrade  # nothing was ever ingested, and a look makes no catalog
    catalog = open_catalog(platform, os.environ)
    for topic in topics:
        try:
            table = load_table(catalog, topic, platform)
            if table is not None:
                require_readable(table)
        except TableError as e:
            upgrade.changes.append(Change(Area.TABLE, topic.table, f"this version cannot use it: {e}", By.PERSON))
            continue
        if table is not None:
            _look_at(upgrade, topic, table)
            branches[topic.topic] = tuple(name for name in table.metadata.refs if name.startswith(_ROUND_PREFIX))
        upgrade.changes += _side_tables(catalog, topic)
    _look_at_evidence(upgrade, catalog, platform, branches)
    return upgrade


def require_readable(table: Table) -> None:
    """Raises TableError where the states of the logs, or how far they were read at their source, are no texts of this
    version or an earlier one."""
    name = ".".join(table.name())
    states_of_properties(table.properties, name)
    position_of(table.properties, name)
    snapshot_position_of(table.properties, name)


def _look_at(upgrade: CatalogUpgrade, topic: Topic, table: Table) -> None:
    if topic.columns is not None:
        return
    lacks = TOMBSTONE not in table.schema().column_names
    missing = missing_properties(table.properties, topic)
    if lacks:
        text = f"it gets the column {TOMBSTONE}, which counts deletes without reading values; older records have none"
        upgrade.changes.append(Change(Area.TABLE, topic.table, text, By.UPGRADE))
    if missing:
        settings = ", ".join(f"{name}={value}" for name, value in missing.items())
        upgrade.changes.append(Change(Area.TABLE, topic.table, f"it gets properties: {settings}", By.UPGRADE))
    if lacks or missing:
        upgrade.tables.append(TableUpgrade(topic, lacks, missing))


def missing_properties(properties: Mapping[str, str], topic: Topic) -> dict[str, str]:
    """Returns the properties of a new table that this one lacks. What somebody has set to another value stays."""
    of_new_table = table_properties(topic.topic, topic.config)
    return {
        name: value for name, value in of_new_table.items() if name not in properties and name not in _NO_PROPERTIES
    }


def _side_tables(catalog: Catalog, topic: Topic) -> Iterator[Change]:
    """Yields the side tables that do not say whose they are: a round refuses them."""
    from pyiceberg.exceptions import NoSuchTableError

    for suffix in SUFFIXES:
        name = f"{topic.table}{suffix}"
        try:
            properties = catalog.load_table(name).properties
        except NoSuchTableError:
            continue
        if PROPERTY_SIDE_OF not in properties and PROPERTY_TOPIC not in properties:
            what = "versions of deleted keys" if suffix == LEDGER_SUFFIX else "records without a key"
            text = (
                f"it does not say whose it is, and rounds refuse it. If it has {what} of {topic.topic}, set its "
                f"property {PROPERTY_SIDE_OF} to {topic.topic}"
            )
            yield Change(Area.SIDE_TABLE, name, text, By.PERSON)


def _look_at_evidence(
    upgrade: CatalogUpgrade, catalog: Catalog, platform: Platform, branches: Mapping[str, tuple[str, ...]]
) -> None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    name = f"{platform.catalog.namespace}.{EVIDENCE}"
    try:
        table = catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return
    missing = [column for column in EVIDENCE_COLUMNS if column not in table.schema().column_names]
    if missing:
        text = f"it gets {counted(len(missing), 'column')}: {', '.join(missing)}"
        upgrade.changes.append(Change(Area.EVIDENCE, name, text, By.UPGRADE))
        upgrade.evidence = True
    if any(branches.values()):
        upgrade.changes += unpublishable(_checked_rounds(table), branches)


def _checked_rounds(table: Table) -> list[dict[str, str]]:
    """Returns topic and round of the rows of checks that have not written down what publish needs."""
    from pyiceberg.expressions import And, BooleanExpression, EqualTo, IsNull

    condition: BooleanExpression = EqualTo("outcome", CHECKED)
    if CHECKED_ROUND in table.schema().column_names:
        condition = And(condition, IsNull(CHECKED_ROUND))
    rows: list[dict[str, str]] = table.scan(condition, selected_fields=("topic", "round")).to_arrow().to_pylist()
    return rows


def unpublishable(rows: Iterable[Mapping[str, str]], branches: Mapping[str, tuple[str, ...]]) -> list[Change]:
    """Returns the rounds among these rows that still have a branch: they were checked, and wait to be published."""
    waiting = {
        (row["topic"], row["round"])
        for row in rows
        if any(name.startswith(f"{_ROUND_PREFIX}{row['round']}_") for name in branches.get(row["topic"], ()))
    }
    text = (
        "it was checked by a version that did not write down what is needed to publish it. An approval of it "
        "publishes nothing: clear compact and what follows it, or let the next run make and check it anew"
    )
    return [Change(Area.ROUND, f"{topic}: {name}", text, By.ITSELF) for topic, name in sorted(waiting)]
