"""The `latest` view in Spark SQL: a topic's current state, clean tail and head together (semantics.md 2, hazard 3).

`<table>_latest` has the topic table's columns and one row per key and partition: the winner by the topic's strategy.
A key has no row if the winner is a tombstone or older than a remembered deletion. Records without a key are left out.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import COLUMNS, KEY, LATEST_SUFFIX, OFFSET, ORDER, PARTITION, VALUE
from cleantail.errors import ConflictError, UnknownCommitError
from cleantail.log.log_state import kept_log_start
from cleantail.log.partition_state import states_of_properties
from cleantail.log.winners import latest_timestamp_sql, rank_sql, remembered_units
from cleantail.sources.kcat import LONG_MAX
from spark_jobs.engine.deleted_versions import ensure_ledger, ledger_table
from spark_jobs.iceberg.commits import java_message, repeat
from spark_jobs.iceberg.iceberg_reads import asked_again
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.snapshot_files import POSITION_AS_ROW_ID, topic_columns
from spark_jobs.iceberg.tables import TopicTable

logger = logging.getLogger("cleantail.latest_view")

PROPERTY_VIEW = "cleantail.latest-view"
"""Hash of the view's text. The view is replaced only if the hash changes."""

FIRST = "`_last_updated_sequence_number`, `_row_id`"
"""Hidden columns that order the copies of a record. A round keeps the first (semantics.md 3.5)."""


def view_name(table: TopicTable) -> str:
    return f"{table.name[:-1]}{LATEST_SUFFIX}`"


def ensure_latest_view(table: TopicTable, iceberg: Any = None) -> None:
    """Create the view, or replace it after the topic's strategy or a log start changed. `iceberg`: the loaded table.
    Only warns if the catalog does not support views."""
    properties, configs = texts((iceberg or table.load()).properties()), table.topic.config
    states = states_of_properties(properties, table.name)
    starts = {p: kept_log_start(state, configs) for p, state in sorted(states.items())}
    text = latest_sql(_source(table), ledger_table(table), configs, starts)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    if properties.get(PROPERTY_VIEW) == digest:
        return
    try:
        if table.topic.config.cleantail_tombstone_lateness_ms:
            ensure_ledger(table)
        repeat(lambda: table.spark.sql(f"CREATE OR REPLACE VIEW {view_name(table)} AS {text}"))
    except (PySparkException, Py4JJavaError, UnknownCommitError, ConflictError) as e:
        cause = java_message(e) if isinstance(e, Py4JJavaError) else str(e).splitlines()[0]
        logger.warning("view %s was not created: the catalog refused it: %s", view_name(table), cause)
        return
    table.set_properties({PROPERTY_VIEW: digest})


def _source(table: TopicTable) -> str:
    """Return the table's name, or for an adopted table a query with a topic table's columns."""
    if table.topic.columns is None:
        return table.name
    columns = ", ".join(topic_columns(asked_again(lambda: table.spark.table(table.name)), table.topic.columns))
    ordered = () if table.topic.columns.has_offsets else (ORDER,)
    shown = ", ".join(f"`{name}`" for name in (*COLUMNS, *ordered))
    # Not every file stores its records' sequence numbers. The metadata entry has one, but a new file may lack it.
    records = f"SELECT {columns}, `_file` AS `ct_file`, {POSITION_AS_ROW_ID} FROM {table.name}"
    entries = f"SELECT data_file.file_path AS `ct_path`, sequence_number AS `ct_came` FROM {table.name}.entries"
    arrival = f"coalesce(`ct_came`, {LONG_MAX}) AS `_last_updated_sequence_number`"
    joined = f"({records}) LEFT JOIN ({entries} WHERE status < 2) ON `ct_file` = `ct_path`"
    return f"(SELECT {shown}, {arrival}, `_row_id` FROM {joined})"


def latest_sql(table: str, ledger: str, configs: KafkaConfigs, starts: Mapping[int, int]) -> str:
    """Return the view's query. `table`: quoted name or query. `ledger`: quoted name. `starts`: partition -> log start;
    records below are hidden."""
    columns = ", ".join(f"`{name}`" for name in COLUMNS)
    rank = rank_sql(configs, latest_timestamp_sql(configs))
    keyed = f"SELECT {columns}, {FIRST}, {rank} AS `rank` FROM {table} WHERE `{KEY}` IS NOT NULL{_inside(starts)}"
    order = f"row_number() OVER (PARTITION BY `{PARTITION}`, `{KEY}` ORDER BY `rank` DESC, {FIRST}) AS `nth`"
    winners = f"SELECT *, {order} FROM ({keyed})"
    state = f"`nth` = 1 AND `{VALUE}` IS NOT NULL"
    if not configs.cleantail_tombstone_lateness_ms:
        return f"SELECT {columns} FROM ({winners}) WHERE {state}"
    deleted = _deleted_sql(ledger, configs)
    shown = ", ".join(f"w.`{name}`" for name in COLUMNS)
    same = f"d.`{PARTITION}` = w.`{PARTITION}` AND d.`{KEY}` = w.`{KEY}`"
    return (
        f"SELECT {shown} FROM ({winners}) w LEFT JOIN ({deleted}) d ON {same} "
        f"WHERE {state} AND (d.`deleted` IS NULL OR d.`deleted` <= w.`rank`)"
    )


def _inside(starts: Mapping[int, int]) -> str:
    """Return the condition that hides records below log starts, with one term for all logs with the same start."""
    partitions_by_start: dict[int, list[int]] = {}
    for partition, start in starts.items():
        if start > 0:
            partitions_by_start.setdefault(start, []).append(partition)
    logs = ((start, ", ".join(f"{p:d}" for p in partitions)) for start, partitions in partitions_by_start.items())
    return "".join(f" AND NOT (`{OFFSET}` < {start:d} AND `{PARTITION}` IN ({named}))" for start, named in logs)


def _deleted_sql(ledger: str, configs: KafkaConfigs) -> str:
    """Return a query for the deletions that are remembered now: (partition, key, rank as `deleted`)."""
    units = {f"decode(X'{text.encode().hex()}', 'UTF-8')": unit for text, unit in remembered_units(configs).items()}
    unit = "".join(f" WHEN {text} THEN {unit:d}L" for text, unit in units.items())
    version = "`version`" if len(units) == 1 else f"`version` * CASE `strategy`{unit} END"
    fields = f"`{OFFSET}`" if configs.compaction_strategy == "offset" else f"`has_version`, {version}, `{OFFSET}`"
    return (
        f"SELECT `{PARTITION}`, `{KEY}`, max(struct({fields})) AS `deleted` FROM {ledger} "
        f"WHERE `forget_at_ms` > unix_millis(current_timestamp()) AND `strategy` IN ({', '.join(units)}) "
        f"GROUP BY `{PARTITION}`, `{KEY}`"
    )
