"""`cleantail ingest TOPIC` of a topic with source.table: what the sink's table has and its own has not."""

from __future__ import annotations

import os

from cleantail.config.topic import Topic
from cleantail_cli.command import Invocation
from cleantail_cli.parameters import clock
from cleantail_cli.spark import spark_session


def ingest_from_table(call: Invocation, topic: Topic) -> int:
    """Reads the topic on. Spark is started only where there is something to read."""
    from cleantail.lake.catalogs import require_usable
    from cleantail.lake.source_table.planned_read import is_table_read
    from cleantail.lake.source_table.source_snapshots import table_source_of
    from cleantail.rounds.station_results import TableIngestResult
    from cleantail_cli.reports.upkeep import ReadFromTable

    now_ms = clock(None)
    require_usable(topic, call.platform, os.environ)
    with call.output.progress() as progress:
        progress("looking at the source table")
        if is_table_read(topic, call.platform, now_ms):
            result = TableIngestResult(table_source_of(topic).named_in(call.platform.catalog.name))
        else:
            from spark_jobs.round.source_table.reading import read_source_table

            with spark_session(call.platform, f"cleantail ingest {topic.topic}", progress) as spark:
                result = read_source_table(spark, topic, call.platform, now_ms, progress)
    call.output.show(ReadFromTable(topic, result))
    return 0
