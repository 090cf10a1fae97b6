"""`read`, `latest` and `reader`: print records, print the current state, and manage registered readers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted, instant
from cleantail.log.horizons import Reader
from cleantail_cli import parameters
from cleantail_cli.command import Group, Invocation, command
from cleantail_cli.output import Output, Page
from cleantail_cli.parameters import FILE, NATURAL, clock

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from cleantail.lake.records.reader_state import Latest


@command(
    "read",
    parameters.topic,
    parameters.partition,
    click.option("--from-offset", type=NATURAL, default=0, metavar="N", help="The first offset (default: 0)."),
    parameters.as_of,
    examples=[
        "cleantail read customer-cdc",
        "cleantail read customer-cdc --partition 0 --from-offset 1042 > tail.jsonl",
    ],
)
def read(call: Invocation, topic: str, partition: int | None, from_offset: int, as_of: str | None) -> int:
    """Print records as kcat -J lines, partition by partition, in offset order.

    The output is the same with --json.
    """
    from cleantail.lake.catalogs import load_table, open_catalog
    from cleantail.lake.records.reader_state import log_ends, log_starts
    from cleantail.lake.records.shown_records import read_records
    from cleantail.lake.table_metadata import live_partitions, require_partition, snapshot_id_of
    from cleantail.sources.kcat import format_record

    configured = call.topic(topic)
    table = load_table(open_catalog(call.platform), configured)
    if table is None:
        raise CleantailError(f"topic {configured.topic} has no table yet; run `cleantail ingest` first")
    require_partition(configured, partition, log_ends(table))
    snapshot = snapshot_id_of(table, as_of) if as_of is not None else None
    partitions = [partition] if partition is not None else live_partitions(table, snapshot)
    starts = log_starts(table, configured.config, snapshot)
    with call.output.records_progress() as progress:
        progress.about(counted(len(partitions), "partition"))
        progress("reading")
        records = read_records(table, partitions, from_offset, snapshot, starts)
        for record in progress.counting(records, "record"):
            sys.stdout.write(format_record(configured.topic, record) + "\n")
    return 0


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
    from cleantail.lake.records.reader_state import load_latest
    from cleantail.lake.records.shown_records import records_of
    from cleantail.lake.table_metadata import require_partition
    from cleantail.sources.kcat import format_record

    configured = call.topic(topic)
    with call.output.records_progress() as progress:
        progress("finding the latest record of every key")
        state = load_latest(configured, clock(now), _snapshot_of(configured, as_of))
        require_partition(configured, partition, state.positions)
        records = (record for batch in state.batches(partition) for record in records_of(batch))
        for record in progress.counting(records, "record"):
            sys.stdout.write(format_record(configured.topic, record) + "\n")
        sys.stdout.flush()
    tell_positions(configured, state, positions, call.output)
    return 0


def _snapshot_of(topic: Topic, as_of: str | None) -> int | None:
    """Return the snapshot that --as-of names by its id, a branch or a tag. Raises TableError if it does not exist."""
    from cleantail.lake.catalogs import load_table, open_catalog
    from cleantail.lake.table_metadata import snapshot_id_of

    table = load_table(open_catalog(topic.platform), topic) if as_of is not None else None
    return snapshot_id_of(table, as_of) if table is not None and as_of is not None else None


@click.group("reader", cls=Group, examples=["cleantail reader list customer-cdc"])
def reader() -> None:
    """Manage readers: tombstones stay until the readers are past them."""


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
    from cleantail.lake.records.reader_state import set_position

    configured, catalog = _readers_of(call, topic)
    set_position(catalog, configured, name, partition, offset, back=back)
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
    from cleantail.lake import own_namespace

    configured, catalog = _readers_of(call, topic)
    if not own_namespace.remove(catalog, configured, name, partition):
        names = sorted({r.name for r in own_namespace.registered(catalog, configured)})
        raise CleantailError(f"topic {configured.topic} has no reader {name!r}; it has {names or 'none'}")
    return _show_readers(call, configured, catalog)


for _command in (set_reader, list_readers, remove_reader):
    reader.add_command(_command)


def _readers_of(call: Invocation, name: str) -> tuple[Topic, Catalog]:
    """Return the topic, and the catalog with its readers. Raises TableError if its table is not Cleantail's."""
    from cleantail.lake.catalogs import load_table, open_catalog

    topic = call.topic(name)
    catalog = open_catalog(call.platform)
    load_table(catalog, topic)
    return topic, catalog


def _show_readers(call: Invocation, topic: Topic, catalog: Catalog) -> int:
    from cleantail.lake import own_namespace

    call.output.show(Readers(topic, own_namespace.registered(catalog, topic)))
    return 0


@dataclass(frozen=True)
class Readers:
    """Answer of `reader`: a row for each reader and log."""

    topic: Topic
    readers: Sequence[Reader]

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, "readers": [asdict(r) for r in self.readers]}

    def tell(self, page: Page) -> None:
        if not self.readers:
            page.line(f"{self.topic.topic}: no readers are registered")
            return
        title = f"readers of {self.topic.topic}"
        rows = [(r.name, r.partition, r.offset, instant(r.at_ms)) for r in self.readers]
        page.table(("reader", "partition", "next offset", "said at (UTC)"), rows, title)


def tell_positions(topic: Topic, state: Latest, file: Path | None, output: Output) -> None:
    """Write the snapshot and the next offset of every log to the file, and print them on stderr."""
    if file is not None:
        offsets = {str(p): offset for p, offset in sorted(state.positions.items())}
        document = {"topic": topic.topic, "snapshot_id": state.snapshot_id, "positions": offsets}
        file.write_text(json.dumps(document) + "\n", encoding="utf-8")
    offsets_text = ", ".join(f"{p} at {offset}" for p, offset in sorted(state.positions.items()))
    where = (
        f"partition {offsets_text}" if offsets_text else "the start of every partition, the table has no records yet"
    )
    output.note(f"snapshot {state.snapshot_id}; continue from: {where}")
