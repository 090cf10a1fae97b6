"""Says whether the names of a table's files may hold values of its records, which are then kept nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleantail.config.topic import Topic
from cleantail.config.topic_table import OFFSET, PARTITION, TIMESTAMP

if TYPE_CHECKING:
    from pyiceberg.table import Table


def partitioned_by_values(topic: Topic, table: Table) -> bool:
    """Returns whether a partition of the table, now or before, is made of another column than a record's log, offset
    and time: Iceberg writes partition values into manifests, and mostly into the paths of files."""
    paths = topic.columns.paths if topic.columns else {name: name for name in (PARTITION, OFFSET, TIMESTAMP)}
    harmless = {paths[name] for name in (PARTITION, OFFSET, TIMESTAMP) if name in paths}
    fields = [field for spec in table.specs().values() for field in spec.fields]
    return any(table.schema().find_column_name(field.source_id) not in harmless for field in fields)
