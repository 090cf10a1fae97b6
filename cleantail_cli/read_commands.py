"""`read`, `latest` and `reader`: print records, print the current state, and manage registered readers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted, instant
from cleantail.lake import reader_positions
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.latest_state import load_latest, log_ends, log_starts
from cleantail.lake.records.shown_records import read_records, records_of
from cleantail.lake.table_metadata import live_files, require_partition, snapshot_id_of
from cleantail.log.horizons import Reader
from cleantail.log.segments import DataFile
from cleantail.sources.kcat import Record, format_record
from cleantail_cli import parameters
from cleantail_cli.command import Group, Invocation, command
from cleantail_cli.output import ConsoleOutput
from cleantail_cli.parameters import FILE, NATURAL, OFFSET, clock, key_bytes

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@command(
    "read",
    parameters.topic,
    parameters.partition,
    click.option(
        "--from-offset",
        type=OFFSET,
        default=0,
        metavar="N",
        help="The first offset (default: 0). Below 0 it counts back from the log's end, as in kcat's -o.",
    ),
    click.option("--to-offset", type=OFFSET, metavar="N", help="Stop before this offset; below 0 as above."),
    click.option("--limit", type=NATURAL, metavar="N", help="Print at most N records."),
    parameters.key,
    parameters.key_encoding,
    parameters.as_of,
    examples=[
        "cleantail read customer-cdc",
        "cleantail read customer-cdc --partition 0 --from-offset 1042 > tail.jsonl",
        "cleantail read customer-cdc --from-offset -10",
        "cleantail read customer-cdc --key customer-17 --as-of 2026-11-29T14:20",
    ],
)
def read(
    call: Invocation,
    topic: str,
    partition: int | None,
    from_offset: int,
    to_offset: int | None,
    limit: int | None,
    key: str | None,
    encoding: str,
    as_of: str | None,
) -> int:
    """Print records as kcat -J lines, partition by partition, in offset order.

    The output is the same with --json.
    """
    configured, wanted = call.topic(topic), key_bytes(key, encoding)
    table = load_table(open_catalog(call.platform), configured)
    snapshot = None
    if table is None:
        raise CleantailError(f"topic {configured.topic} has no table yet; run `cleantail ingest` first")
    ends = log_ends(table)
    require_partition(configured, partition, ends)
    if as_of is not None:
        snapshot = snapshot_id_of(table, as_of, clock(None))
        ends = log_ends(table, snapshot)
    partitions = sorted(ends) if partition is None else [partition]
    starts = log_starts(table, configured.config, snapshot)
    few = limit if wanted is None else None  # records of one key are in any file
    files = live_files(table, snapshot) if few is not None else ()

    def records() -> Iterator[Record]:
        for p in partitions:
            low = _counted_back(from_offset, ends.get(p, 0))
            high = None if to_offset is None else _counted_back(to_offset, ends.get(p, 0))
            for start, end in _windows([f for f in files if f.partition == p], low, high, few):
                yield from read_records(table, [p], start, snapshot, starts, end, wanted)

    with call.output.records_progress() as progress:
        progress.about(counted(len(partitions), "partition"))
        progress("reading")
        for record in progress.counting(islice(records(), limit), "record"):
            sys.stdout.write(format_record(configured.topic, record) + "\n")
    return 0


def _counted_back(offset: int, end: int) -> int:
    """Return the offset. An offset below 0 counts back from the log's end."""
    return max(end + offset, 0) if offset < 0 else offset


def _windows(files: Sequence[DataFile], start: int, end: int | None, limit: int | None) -> list[tuple[int, int | None]]:
    """Return [start, end) as windows to read one after another.

    The first window has `limit` records, counted in the metadata of the log's files. So a large log is not read whole
    for a few records.
    """
    found = 0
    for file in sorted(files, key=lambda f: f.upper_offset):
        if limit is not None and file.lower_offset >= start and (found := found + file.live_records) >= limit:
            cut = file.upper_offset + 1
            return [(start, end)] if end is not None and end <= cut else [(start, cut), (cut, end)]
    return [(start, end)]


@command(
    "latest",
    parameters.topic,
    parameters.now,
    parameters.partition,
    parameters.as_of,
    click.option("--positions", type=FILE, metavar="F", help="Write the offsets to continue from to this JSON file."),
    examples=["cleantail latest customer-cdc --positions positions.json > state.jsonl"],
)
def latest(
    call: Invocation, topic: str, now: int | None, partition: int | None, as_of: str | None, positions: Path | None
) -> int:
    """Print the current state as kcat -J lines: the latest record of each key.

    The offsets to continue from are printed on stderr, and written to the file of --positions.
    """
    configured = call.topic(topic)
    with call.output.records_progress() as progress:
        progress("finding the latest record of every key")
        state = load_latest(configured, clock(now), _snapshot_of(configured, as_of))
        require_partition(configured, partition, state.positions)
        records = (record for batch in state.batches(partition) for record in records_of(batch))
        for record in progress.counting(records, "record"):
            sys.stdout.write(format_record(configured.topic, record) + "\n")
        sys.stdout.flush()
    offsets = dict(sorted(state.positions.items()))
    if positions is not None:
        by_name = {str(p): offset for p, offset in offsets.items()}
        document = {"topic": configured.topic, "snapshot_id": state.snapshot_id, "positions": by_name}
        positions.write_text(json.dumps(document) + "\n", encoding="utf-8")
    where = "the start of every partition (the table has no records yet)"
    if offsets:
        where = f"partition {', '.join(f'{p} at {offset}' for p, offset in offsets.items())}"
    call.output.note(f"snapshot {state.snapshot_id}; continue from: {where}")
    return 0


def _snapshot_of(topic: Topic, as_of: str | None) -> int | None:
    """Return the snapshot of --as-of: an id, a branch, a tag or a time. Raises TableError if it does not exist."""
    table = load_table(open_catalog(topic.platform), topic) if as_of is not None else None
    return snapshot_id_of(table, as_of, clock(None)) if table is not None and as_of is not None else None


@click.group("reader", cls=Group, examples=["cleantail reader list customer-cdc"])
def reader() -> None:
    """Manage readers: tombstones stay until the readers have read them."""


_name = click.argument("name", metavar="NAME", help="The reader's name.")


@command(
    "set",
    parameters.topic,
    _name,
    click.option("--partition", type=NATURAL, required=True, metavar="N", help="The partition that it reads."),
    click.option("--offset", type=NATURAL, required=True, metavar="N", help="The next offset it will read."),
    click.option("--back", is_flag=True, help="Allow an offset below the current one."),
    examples=["cleantail reader set customer-cdc search-index --partition 0 --offset 1042"],
)
def set_reader(call: Invocation, topic: str, name: str, partition: int, offset: int, back: bool) -> int:
    """Register a reader, or move its position."""
    configured, catalog = _readers_of(call, topic)
    reader_positions.set_position(catalog, configured, name, partition, offset, back=back)
    return _show_readers(call, configured, catalog)


@command("list", parameters.topic, examples=["cleantail reader list customer-cdc --json"])
def list_readers(call: Invocation, topic: str) -> int:
    """List the topic's readers and their offsets."""
    return _show_readers(call, *_readers_of(call, topic))


@command(
    "remove",
    parameters.topic,
    _name,
    click.option("--partition", type=NATURAL, metavar="N", help="Only in this partition."),
    examples=["cleantail reader remove customer-cdc search-index"],
)
def remove_reader(call: Invocation, topic: str, name: str, partition: int | None) -> int:
    """Remove a reader: tombstones no longer wait for it."""
    configured, catalog = _readers_of(call, topic)
    if not reader_positions.remove(catalog, configured, name, partition):
        names = sorted({r.name for r in reader_positions.registered(catalog, configured)})
        has = f"its readers are {', '.join(names)}" if names else "no reader is registered"
        raise CleantailError(f"topic {configured.topic} has no reader {name}: {has}")
    return _show_readers(call, configured, catalog)


for _command in (set_reader, list_readers, remove_reader):
    reader.add_command(_command)


def _readers_of(call: Invocation, name: str) -> tuple[Topic, Catalog]:
    """Return the topic, and the catalog with its readers. Raises TableError if its table is not Cleantail's."""
    topic = call.topic(name)
    catalog = open_catalog(call.platform)
    load_table(catalog, topic)
    return topic, catalog


def _show_readers(call: Invocation, topic: Topic, catalog: Catalog) -> int:
    call.output.show(Readers(topic, reader_positions.registered(catalog, topic)))
    return 0


@dataclass(frozen=True)
class Readers:
    """Answer of `reader`: a row for each reader and log."""

    topic: Topic
    readers: Sequence[Reader]

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, "readers": [asdict(r) for r in self.readers]}

    def print_on(self, page: ConsoleOutput) -> None:
        if not self.readers:
            page.line(f"{self.topic.topic}: no readers are registered")
            return
        title = f"readers of {self.topic.topic}"
        rows = [(r.name, r.partition, r.offset, instant(r.at_ms)) for r in self.readers]
        page.table(("reader", "partition", "next offset", "reported at (UTC)"), rows, title)
