"""What the commands of readers do: records, the current state, and the positions of those who follow."""

from __future__ import annotations

import argparse
import os
import sys

from cleantail.cli.commands.rounds import clock_of, named_topic
from cleantail.config import Platform, Topic
from cleantail.errors import CleantailError


def read(arguments: argparse.Namespace, platform: Platform) -> int:
    """kcat -J lines on stdout, with and without --json."""
    from cleantail.catalogs import load_table, open_catalog
    from cleantail.kcat import format_record
    from cleantail.reading import read_records
    from cleantail.table_metadata import live_partitions, log_ends, log_starts, require_partition, snapshot_id_of

    topic = named_topic(arguments)
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: ingest something first")
    require_partition(topic, arguments.partition, log_ends(table))
    as_of = snapshot_id_of(table, arguments.as_of) if arguments.as_of is not None else None
    wanted = [arguments.partition] if arguments.partition is not None else live_partitions(table, as_of)
    starts = log_starts(table, topic.config, as_of)
    for record in read_records(table, wanted, arguments.from_offset, as_of, starts):
        sys.stdout.write(format_record(topic.topic, record) + "\n")
    return 0


def latest(arguments: argparse.Namespace, platform: Platform) -> int:
    """The state on stdout; where to go on from on stderr, and in a file where one is named."""
    from cleantail.cli.reports import upkeep as report
    from cleantail.kcat import format_record
    from cleantail.latest import load_latest
    from cleantail.reading import records_of
    from cleantail.table_metadata import require_partition

    topic = named_topic(arguments)
    state = load_latest(topic, platform, clock_of(arguments), _snapshot_of(topic, platform, arguments.as_of))
    require_partition(topic, arguments.partition, state.positions)
    for batch in state.batches(arguments.partition):
        for record in records_of(batch):
            sys.stdout.write(format_record(topic.topic, record) + "\n")
    sys.stdout.flush()
    report.positions(topic, state, arguments.positions, arguments.json)
    return 0


def _snapshot_of(topic: Topic, platform: Platform, as_of: str | None) -> int | None:
    """The snapshot that --as-of names: by its id, or by a branch or tag. Raises TableError for none of them."""
    from cleantail.catalogs import load_table, open_catalog
    from cleantail.table_metadata import snapshot_id_of

    table = load_table(open_catalog(platform, os.environ), topic, platform) if as_of is not None else None
    return snapshot_id_of(table, as_of) if table is not None and as_of is not None else None


def reader(arguments: argparse.Namespace, platform: Platform) -> int:
    """Sets, lists or removes positions."""
    from cleantail import readers
    from cleantail.catalogs import load_table, open_catalog
    from cleantail.cli.reports import upkeep as report

    topic = named_topic(arguments)
    catalog = open_catalog(platform, os.environ)
    load_table(catalog, topic, platform)  # a foreign table has no readers of ours
    if arguments.action == "set":
        given = (arguments.name, arguments.partition, arguments.offset)
        readers.set_position(catalog, topic, *given, back=arguments.back)
    elif arguments.action == "remove" and not readers.remove(catalog, topic, arguments.name, arguments.partition):
        names = sorted({r.name for r in readers.registered(catalog, topic)})
        raise CleantailError(f"topic {topic.topic} has no reader {arguments.name!r}; it has {names or 'none'}")
    report.readers(topic, readers.registered(catalog, topic), arguments.json)
    return 0
