"""The cost of a run of one small topic as the topic grows old: 60 records a run, by a simulated clock."""

from __future__ import annotations

import gzip
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.fresh_process import BenchmarkError, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value
from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE

if TYPE_CHECKING:
    from cleantail.rounds.pack_results import PackOutcomes
    from cleantail.rounds.stations import TopicOutcome

TOPIC, RECORDS, KEYS, MINUTE_MS = "bench_age", 60, 40, 60_000
"""Records in the file of a run, in one partition."""
POLICY = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.01}
"""Each run compacts what it has ingested. All other configs have their defaults."""
PART, PARTS, TOLD = 100, 5, 20
"""Runs in a row, and the number of rows. With fewer runs, a row has an equal part. Each 20th run is printed."""
COLUMNS = (
    Column("run", "count"),
    Column("median, s"),
    Column("commits of the table, a run", "text"),
    Column("commits of the evidence, a run", "text"),
    Column("metadata.json", "bytes"),
    Column("properties", "count"),
    Column("of properties", "bytes"),
    Column("snapshots", "count"),
    Column("files of the table", "count"),
    Column("of the table", "bytes"),
    Column("files of the evidence", "count"),
    Column("of the evidence", "bytes"),
    Column("files of the home", "count"),
    Column("of the home", "bytes"),
)
NO_STATION, CHECK = "batch", "check"


@dataclass(slots=True)
class Commits:
    """Counts the commits of the topic's table and of the evidence by station. With each commit, the number in the name
    of the metadata file grows by one. `lost_s`: seconds that the counting took."""

    platform: Platform
    table: str
    station: str = NO_STATION
    versions: dict[str, int] = field(default_factory=dict)
    of_table: Counter[str] = field(default_factory=Counter)
    of_evidence: Counter[str] = field(default_factory=Counter)
    lost_s: float = 0.0

    def begins(self, station: str) -> None:
        began = time.perf_counter()
        for name, counts in self._tables().items():
            now, before = _version(self.platform, name), self.versions.get(name, 0)
            self.versions[name] = now
            if now > before:
                counts[self.station] += now - before
        self.station = station
        self.lost_s += time.perf_counter() - began

    def begun(self, outcome: TopicOutcome, station: str) -> None:
        self.begins(station)

    def _tables(self) -> dict[str, Counter[str]]:
        return {self.table: self.of_table, f"{self.platform.catalog.namespace}.{EVIDENCE}": self.of_evidence}


def _version(platform: Platform, name: str) -> int:
    """Return the number of the table's metadata file plus one, 0 without a table."""
    from pyiceberg.exceptions import NoSuchTableError

    from cleantail.lake.catalogs import kept_catalog

    try:
        location = kept_catalog(platform).load_table(name).metadata_location
    except NoSuchTableError:
        return 0
    return int(location.rpartition("/")[2].partition("-")[0]) + 1


@dataclass(frozen=True, slots=True)
class Age:
    """The sizes after a run, its seconds, and its commits by station.

    `of_folders`: number and bytes of the files of the table, of the evidence, and of the home without the warehouse."""

    run: int
    seconds: float
    of_table: Mapping[str, int]
    of_evidence: Mapping[str, int]
    metadata_bytes: int
    properties: int
    property_bytes: int
    snapshots: int
    of_folders: tuple[int, ...]


def run(options: Options) -> Table:
    ages = in_fresh_process(measure, options.lake, options.runs, options.minutes)
    step = max(min(len(ages) // PARTS, PART), 1)
    parts = [ages[first : first + step] for first in range(0, len(ages) - step + 1, step)]
    notes = (
        f"One topic of one partition, {RECORDS} records a run, a run every {options.minutes} minutes by a simulated "
        "clock, in one Spark application. A row has the last run of its part, with median and mean of that part.",
        "Python uses that clock. After each run, snapshots and files of the table and of the evidence get times of "
        "that clock, in place of those of the JVM and the file system. So all expire as in a year.",
        "Snapshots of all branches count. Files of the home do not include the warehouse.",
    )
    return Table("age", "A small topic as it grows old", COLUMNS, tuple(map(_row, parts)), notes)


def _row(ages: Sequence[Age]) -> tuple[Value, ...]:
    last = ages[-1]
    return (
        *(last.run, statistics.median(age.seconds for age in ages)),
        *(_by_station([age.of_table for age in ages]), _by_station([age.of_evidence for age in ages])),
        *(last.metadata_bytes, last.properties, last.property_bytes, last.snapshots),
        *last.of_folders,
    )


def _by_station(counts: Sequence[Mapping[str, int]]) -> str:
    total: Counter[str] = sum(map(Counter, counts), Counter())
    each = (f"{station} {number / len(counts):.2f}" for station, number in sorted(total.items()))
    return f"{total.total() / len(counts):.2f}: {', '.join(each)}"


def measure(lake: Lake, runs: int, minutes: int) -> list[Age]:
    ages: list[Age] = []
    lake.write_topic(TOPIC, POLICY, source={"path": f"{lake.home}/landing/*.jsonl"})
    (lake.home / "landing").mkdir(parents=True, exist_ok=True)
    platform = lake.platform.model_copy(update={"allow_clock": True})
    lake.session()
    real, every_s = time.time, minutes * 60
    try:
        for number in range(1, runs + 1):
            time.time = partial(_behind, real, (runs - number) * every_s)  # the last run has the real clock
            ages.append(_aged(lake, platform, number))
    finally:
        time.time = real
    return ages


def _behind(clock: Callable[[], float], by_s: float) -> float:
    return clock() - by_s


def _aged(lake: Lake, platform: Platform, number: int) -> Age:
    from cleantail.rounds.pack_results import PackRequest
    from cleantail.rounds.stations import EVALUATE
    from spark_jobs.run.topic_batch import run_batch
    from spark_jobs.run.topic_run import TopicRun

    now_ms = int(time.time() * 1000)
    landed = lake.home / "landing" / f"{number:06}.jsonl"
    landed.write_text("".join(f"{json.dumps(line)}\n" for line in _lines(number, now_ms)))
    topic = lake.topic(TOPIC).on(platform)
    commits = Commits(platform, topic.table)
    commits.begins(EVALUATE)  # present commits count for no station of this run
    commits.of_table.clear()
    commits.of_evidence.clear()
    began, commits.lost_s = time.perf_counter(), 0.0
    outcomes = _outcomes(platform, commits)
    stations = TopicRun(lake.session(), topic, PackRequest((TOPIC,), now_ms), begun=commits.begun)
    run_batch(platform, [stations], outcomes, None)
    commits.begins(NO_STATION)
    seconds = time.perf_counter() - began - commits.lost_s
    if not stations.outcome.ok or not stations.outcome.published:
        raise BenchmarkError(f"run {number} of {TOPIC} did not publish: {stations.outcome}")
    landed.unlink()
    age = _age(lake, platform, number, seconds, commits, topic.table)
    _date(lake, platform, commits.versions, now_ms)
    if number % TOLD == 0:
        say(str(age))
    return age


def _age(lake: Lake, platform: Platform, number: int, seconds: float, commits: Commits, table: str) -> Age:
    return Age(number, seconds, commits.of_table, commits.of_evidence, *_metadata(platform, table), _disk(lake, table))


def _date(lake: Lake, platform: Platform, tables: Iterable[str], now_ms: int) -> None:
    """Set times to the simulated clock: of snapshots in the tables' current metadata files, and of all files of the
    run."""
    from cleantail.lake.catalogs import kept_catalog

    for table in tables:
        location = Path(kept_catalog(platform).load_table(table).metadata_location.removeprefix("file:"))
        packed = location.name.endswith(".gz.metadata.json")
        text = location.read_bytes()
        metadata = json.loads(gzip.decompress(text) if packed else text)
        for entry in (metadata, *(e for name in ("snapshots", "snapshot-log", "metadata-log") for e in metadata[name])):
            for name in ("timestamp-ms", "last-updated-ms"):
                if name in entry:
                    entry[name] = min(entry[name], now_ms)
        text = json.dumps(metadata).encode()
        location.write_bytes(gzip.compress(text) if packed else text)
    for file in lake.home.rglob("*"):
        if file.is_file() and file.stat().st_mtime > now_ms / 1000 + 1:
            os.utime(file, (now_ms / 1000, now_ms / 1000))


def _outcomes(platform: Platform, commits: Commits) -> PackOutcomes:
    from cleantail.rounds.pack_results import PackOutcomes

    class Told(PackOutcomes):
        """A round that waits is checked next. After the topic has ended, the batch appends its rows to the evidence."""

        def waits(self, outcome: TopicOutcome, station: str) -> None:
            commits.begins(CHECK)

        def ended(self, outcome: TopicOutcome) -> None:
            commits.begins(NO_STATION)

    return Told(platform.home, "")


def _metadata(platform: Platform, name: str) -> tuple[int, int, int, int]:
    """Return bytes of metadata.json, number and bytes of properties, number of snapshots."""
    from cleantail.lake.catalogs import kept_catalog

    table = kept_catalog(platform).load_table(name)
    file = Path(table.metadata_location.removeprefix("file:"))
    texts = sum(len(key) + len(value) for key, value in table.properties.items())
    return file.stat().st_size, len(table.properties), texts, len(table.metadata.snapshots)


def _disk(lake: Lake, table: str) -> tuple[int, ...]:
    """Return number and bytes of the files of the table, of the evidence, and of the home without the warehouse."""
    warehouse = lake.home / "warehouse"
    sizes: dict[str, list[int]] = {table.rpartition(".")[2]: [], EVIDENCE: [], "": []}
    for file in lake.home.rglob("*"):
        if file.is_file():
            folder = file.relative_to(warehouse).parts[1] if warehouse in file.parents else ""
            sizes.setdefault(folder, []).append(file.stat().st_size)
    return tuple(number for found in list(sizes.values())[:3] for number in (len(found), sum(found)))


def _lines(number: int, now_ms: int) -> Iterator[Mapping[str, object]]:
    """Yield the records of a run: keys in turn, so that most supersede a record of an earlier run."""
    for offset in range(number * RECORDS, (number + 1) * RECORDS):
        yield {
            "topic": TOPIC,
            "partition": 0,
            "offset": offset,
            "tstype": "create",
            "ts": now_ms - MINUTE_MS + offset % RECORDS,
            "key": f"key-{offset % KEYS}",
            "payload": "v" * 64,
        }
