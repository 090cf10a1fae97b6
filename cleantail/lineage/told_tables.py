"""Adapter: what lineage tells of a topic's table and of the evidence, through PyIceberg, without Spark."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.evidence_table import load_evidence
from cleantail.lake.recorded_rounds import evidence_of_round
from cleantail.lineage.datasets import LineageDataset, catalog_name, place_name
from cleantail.lineage.stations import ToldTables
from cleantail.log.source_position import snapshot_position_of
from cleantail.rounds.check_results import CheckResult, checks_of
from cleantail.rounds.recorded_checks import last_check

if TYPE_CHECKING:
    from pyiceberg.table import Table


def told_evidence(platform: Platform) -> LineageDataset | None:
    """Returns the evidence table; None where there is none yet."""
    table = load_evidence(kept_catalog(platform, os.environ), platform)
    return _dataset(table, f"{platform.catalog.namespace}.{EVIDENCE}", platform) if table is not None else None


def told_tables(topic: Topic, platform: Platform, evidence: LineageDataset | None) -> ToldTables | None:
    """Returns the topic's table, with the evidence beside it; None where the topic has no table yet."""
    table = load_table(kept_catalog(platform, os.environ), topic, platform)
    if table is None:
        return None
    branches = {name: ref.snapshot_id for name, ref in table.refs().items()}
    return ToldTables(_dataset(table, topic.table, platform), branches, evidence)


def told_source(topic: Topic, platform: Platform) -> LineageDataset | None:
    """Returns the topic's source table at the snapshot up to which it was read; None where there is none. Of its
    columns those alone that a topic's table has by the same name: of these it is true that they are taken over."""
    source, table = topic.source.table, load_table(kept_catalog(platform, os.environ), topic, platform)
    if source is None or table is None:
        return None
    reading, position = platform.reading(source.catalog), snapshot_position_of(table.properties, topic.table)
    dataset = _dataset(kept_catalog(reading, os.environ).load_table(source.name), source.name, reading)
    same = {name for name, path in source.columns.paths.items() if name == path}
    columns = {name: kind for name, kind in dataset.columns.items() if name in same}
    return replace(dataset, columns=columns, snapshot_id=position.snapshot_id if position else None)


def recorded_checks(platform: Platform, topic: str, round_id: str, kind: str) -> tuple[CheckResult, ...]:
    """Returns the last checks of a round, as the evidence has them, those that were met too."""
    rows = evidence_of_round(kept_catalog(platform, os.environ), platform, topic, round_id, kind)
    return tuple(check for row in last_check(rows) for check in checks_of(row))


def _dataset(table: Table, name: str, platform: Platform) -> LineageDataset:
    snapshot = table.current_snapshot()
    address = platform.catalog.uri or platform.warehouse or platform.catalog_uri
    return LineageDataset(
        place_name(table.location()),
        catalog_name(address, name),
        {field.name: _type(str(field.field_type)) for field in table.schema().fields},
        snapshot.snapshot_id if snapshot else None,
    )


NESTED: Collection[str] = ("struct", "list", "map")


def _type(text: str) -> str:
    """Returns the name of a type, of a nested one without what is in it."""
    return next((kind for kind in NESTED if text.startswith(f"{kind}<")), text)
