"""The oracle: the acknowledged records, and Kafka's rules about them (docs/soak.md). It shares no code with the
product: it reads tables with PyIceberg, and files with the file system."""

from __future__ import annotations

import os
import shutil
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from soak.histories import DAY, Record

Place = tuple[int, int]  # partition and offset
HEADER = "of"  # the header of each record. Its value is the record's key


@dataclass
class Truth:
    """The sent records, with the facts that decide which may be deleted. Times are ms after the history's beginning."""

    retention: int
    twice: int = 0  # how often a data file was registered again since the last round
    revived: int = 0  # how often in all
    again: set[Place] = field(default_factory=set)  # its records. They may be back after their tombstones were removed
    acked: dict[Place, Record] = field(default_factory=dict)  # acknowledged
    sent: dict[Place, Record] = field(default_factory=dict)  # in the table or not
    kept: dict[Place, int] = field(default_factory=dict)  # the earliest time at which a run may have kept a tombstone
    fixed: set[Place] = field(default_factory=set)  # a later run cannot have been the first that kept this tombstone
    last_run: dict[Place, int] = field(default_factory=dict)  # the latest time of a run after that
    files: dict[Place, set[int]] = field(default_factory=dict)  # the files that have the record
    gone: set[Place] = field(default_factory=set)  # removed by the broker before they were read
    held: int | None = None  # the next offset that the reader of partition 0 will read
    erasing: set[str] = field(default_factory=set)  # keys whose erasure was requested: they may be gone
    erased: set[str] = field(default_factory=set)  # those with a certificate

    def send(self, records: Iterable[Record], file: int = 0) -> None:
        """Store that a file with these records is sent. The same file may be sent again."""
        for r in records:
            self.sent[r.partition, r.offset] = r
            self.files.setdefault((r.partition, r.offset), set()).add(file)

    def acknowledge(self, records: Iterable[Record]) -> None:
        self.acked |= {(r.partition, r.offset): r for r in records}

    def run(self, at: int) -> None:
        """Store a run at this time that may compact."""
        for place, record in self.sent.items():
            if record.value is None:
                if place not in self.fixed:
                    self.kept[place] = min(at, self.kept.get(place, at))
                self.last_run[place] = max(at, self.last_run.get(place, at))

    def winners(self) -> dict[tuple[int, str], Record]:
        return {(r.partition, r.key): r for _, r in sorted(self.acked.items()) if r.key not in self.erasing}

    def problems(self, rows: list[Record], settled: bool = False) -> list[str]:
        """Return the broken rules. `rows`: records of the table."""
        found = [f"{row} was never sent" for row in rows if self.sent.get((row.partition, row.offset)) != row]
        found += [f"{row} has an erased key" for row in rows if row.key in self.erased]
        there = Counter((row.partition, row.offset) for row in rows)
        for place, count in there.items():
            copies = 1 if settled else len(self.files.get(place, ()))
            if count > copies + self.twice:
                found.append(f"offset {place} occurs {count} times")
        last: dict[tuple[int, str], int] = {}
        for record in (self.acked if settled else self.sent).values():
            last[record.partition, record.key] = max(record.offset, last.get((record.partition, record.key), -1))
        for place, record in self.acked.items():
            if place in there or place in self.gone or record.key in self.erasing:
                continue
            if last[record.partition, record.key] > record.offset:
                continue
            waits = 7 * DAY if self.held is not None and place >= (0, self.held) and place < (1, 0) else 0
            if record.value is not None:
                found.append(f"{record} is lost")
            elif self.last_run.get(place, 0) < self.kept.get(place, 0) + self.retention + waits:
                found.append(f"tombstone {record} was deleted before its horizon, or before it was read")
        if settled:
            winners = self.winners()
            for row in rows:
                winner = winners.get((row.partition, row.key), row)
                if winner.value is None and (row.partition, row.offset) in self.again:
                    continue
                if winner.offset != row.offset or winner.value is None:
                    found.append(f"{row} should have been deleted")
        return found

    @staticmethod
    def not_clean(rows: list[Record], clean: Mapping[int, int]) -> list[str]:
        """Return the keys that occur twice. `clean`: partition -> the offset below which each key is unique."""
        keys = Counter((r.partition, r.key) for r in rows if r.offset < clean.get(r.partition, 0))
        return [f"partition {p}: key {key} occurs {n} times below {clean[p]}" for (p, key), n in keys.items() if n > 1]


def read(table: Table, base_ms: int, snapshot_id: int | None = None) -> list[Record]:
    """Return the records of the table's main branch, or of a snapshot, as another engine sees them."""
    columns = ("partition", "offset", "timestamp", "key", "value", "headers", "tombstone")
    found = list[Record]()
    for row in table.scan(selected_fields=columns, snapshot_id=snapshot_id).to_arrow().to_pylist():
        assert row["tombstone"] == (row["value"] is None), f"tombstone contradicts value: {row}"
        assert row["headers"] == [{"key": HEADER, "value": row["key"]}], f"not the header that was sent: {row}"
        at, value = round(row["timestamp"].timestamp() * 1000) - base_ms, row["value"] and row["value"].decode()
        found.append(Record(row["partition"], row["offset"], at, row["key"].decode(), value))
    return found


def slow_reader_problems(table: Table, base_ms: int, winners: Iterable[Record]) -> list[str]:
    """Return the winners that a slow reader would miss. It reads the beginning of a log in one snapshot and the
    rest in a later one, so a winner in a snapshot of `main` must be in every later snapshot."""
    newest, found = 0, list[str]()
    last, seen = set(winners), set[Record]()
    for entry in table.history():
        snapshot = table.snapshot_by_id(entry.snapshot_id)  # older than the newest: after a rollback
        if snapshot and (snapshot.sequence_number or 0) > newest:
            newest = snapshot.sequence_number or 0
            rows = set(read(table, base_ms, entry.snapshot_id))
            found += [f"{record} is not in the later snapshot {entry.snapshot_id}" for record in seen - rows]
            seen |= last & rows
    return found


def open_catalog(settings: Mapping[str, Any], login: Mapping[str, str]) -> Catalog:
    """Open a catalog of `platform.catalog`, past the gateway, with the login of the environment."""
    properties = dict(settings.get("properties", {}))
    warehouse = {"warehouse": settings["warehouse"]} if "warehouse" in settings else {}
    if settings["type"] == "postgres":
        user, password = login["CLEANTAIL_CATALOG_USER"], login["CLEANTAIL_CATALOG_PASSWORD"]
        uri = settings["uri"].replace("postgresql://", f"postgresql+psycopg2://{user}:{password}@")
        return load_catalog("cleantail", type="sql", uri=uri, **warehouse, **properties)
    for name in ("credential", "token"):
        if secret := login.get(f"CLEANTAIL_CATALOG_{name.upper()}"):
            properties[name] = secret
    return load_catalog("cleantail", type="rest", uri=settings["uri"], **warehouse, **properties)


def forget(catalog: Catalog, namespace: str, topic: str) -> None:
    for name in catalog.list_tables(namespace) if catalog.namespace_exists(namespace) else ():
        if name[-1].startswith(topic) and (table := load(catalog, ".".join(name))):
            catalog.drop_table(name)
            shutil.rmtree(_plain(table.location()), ignore_errors=True)


def load(catalog: Catalog, name: str) -> Table | None:
    try:
        table: Table = catalog.load_table(name)
    except NoSuchTableError:
        return None
    return table


def unknown_files(table: Table, days: int = 0) -> list[str]:
    """Return the files of this age below the table's location that no snapshot, branch or kept metadata file names."""
    root = Path(_plain(table.location()))
    known = {_plain(table.metadata_location), *(_plain(e.metadata_file) for e in table.metadata.metadata_log)}
    known |= {_plain(s.statistics_path) for s in table.metadata.statistics}
    for snapshot in table.snapshots():
        known.add(_plain(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            known.add(_plain(manifest.manifest_path))
            known |= {_plain(e.data_file.file_path) for e in manifest.fetch_manifest_entry(table.io)}
    # the catalog's server writes a file of checksums next to each of its files
    known |= {str(Path(path).with_name(f".{Path(path).name}.crc")) for path in known}
    found = (file for file in root.rglob("*") if file.is_file() and str(file) not in known)
    return sorted(str(f.relative_to(root)) for f in found if f.stat().st_mtime <= time.time() - days * 86_400)


def erased_problems(catalog: Catalog, namespace: str, prefix: str, keys: Iterable[str]) -> list[str]:
    """Return the data files of tables that have one of the keys, also files that no snapshot names. `prefix`: the name
    of the topic's table. The names of its side tables begin with it."""
    found, values = list[str](), pa.array([key.encode() for key in keys], pa.binary())
    for name in catalog.list_tables(namespace):
        if name[-1].startswith(prefix) and (table := load(catalog, ".".join(name))):
            for file in Path(_plain(table.location())).rglob("*.parquet"):
                column = pq.read_table(file, columns=["key"]).column("key").cast(pa.binary())
                if pc.any(pc.is_in(column, values)).as_py():
                    found.append(f"{file} has an erased key")
    return found


def make_old(table: Table, kept: Sequence[Path] = ()) -> None:
    """Make the files of a table's folder as old as if a week had passed. `kept`: files with their age in the name."""
    for file in filter(Path.is_file, Path(_plain(table.location())).rglob("*")):
        days = int(file.stem) if file in kept else 9 if file.parent.name == "metadata" else 8
        os.utime(file, (time.time() - days * 86_400,) * 2)


def make_stranger(table: Table, database: Path) -> tuple[list[Path], list[Path]]:
    """Make a table of an unknown catalog in the folder of `table`. Return its files, and two files that belong to no
    table and that a reclaim keeps: one is young, and one is older than `table`. All other files become old."""
    root = Path(_plain(table.location()))
    catalog = SqlCatalog("strangers", uri=f"sqlite:///{database}", warehouse=f"file://{root}")
    catalog.create_namespace_if_not_exists("strangers")
    made = catalog.create_table(
        "strangers.theirs", Schema(NestedField(1, "offset", LongType())), location=f"file://{root}/data/strangers"
    )
    made.append(pa.table({"offset": [1]}))
    kept = [root / "data" / f"{days}.parquet" for days in (0, 10)]
    for file in kept:
        file.touch()
    make_old(table, kept)
    return [file for file in Path(_plain(made.location())).rglob("*") if file.is_file()], kept


def make_beside(catalog: Catalog, name: str) -> None:
    """Make a table of another owner under the name of a topic's side table, with two snapshots."""
    made = catalog.create_table(name, Schema(NestedField(1, "offset", LongType())))
    for _ in range(2):
        made.append(pa.table({"offset": [1]}))


def _plain(location: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlparse(location).path)


def evidence_of(catalog: Catalog, evidence: str, topic: str) -> list[dict[str, Any]]:
    """Return the topic's rows of the evidence."""
    found = load(catalog, evidence)
    return found.scan(row_filter=EqualTo("topic", topic)).to_arrow().to_pylist() if found else []


def evidence_problems(
    catalog: Catalog, evidence: str, topic: str, table: Table | None = None, is_whole: bool = False
) -> list[str]:
    """Return the rows that the evidence has twice, and the published rounds for which it has no publication. If all
    snapshots are kept, also return the publications that never happened. Without `table`, no round is compared."""
    summaries = [s.summary.additional_properties for s in (table.snapshots() if table else ()) if s.summary]
    published = {summary["cleantail.round"] for summary in summaries if "cleantail.round" in summary}
    rows = evidence_of(catalog, evidence, topic)
    said = {row["round"] for row in rows if row["outcome"] in ("published", "undone", "withdrawn")}
    done = {r["round"] for r in rows if r["outcome"] == "published" and r["kind"] == "compact"} if is_whole else set()
    columns = ("round", "kind", "partition", "outcome", "checked_at_ms", "head_snapshot_id")
    counts = Counter(tuple(row[column] for column in columns) for row in rows)
    lacks = [f"the evidence has a row {n} times: {row}" for row, n in counts.items() if n > 1]
    lacks += [f"round {name} is published, but the evidence has no publication" for name in sorted(published - said)]
    return lacks + [f"the evidence has a publication of round {name}, which has none" for name in done - published]
