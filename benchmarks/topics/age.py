"""The cost of a run of a small topic as the topic grows old: 60 records a run, by a simulated clock."""

from __future__ import annotations

import gzip
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.fresh_process import BenchmarkError, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value
from benchmarks.topics.aged_policies import POLICIES, RECORDS, Feed, Policy
from cleantail.config.config_model import LONG_MAX
from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE

if TYPE_CHECKING:
    from cleantail.rounds.pack_results import PackOutcomes
    from cleantail.rounds.stations import TopicOutcome

PART, PARTS, TOLD = 100, 5, 10
"""Runs in a row, and the number of rows. With fewer runs, a row has an equal part. Each 10th run is printed."""
COLUMNS = (
    Column("policy", "text"),
    Column("run", "count"),
    Column("median, s"),
    Column("commits of the table, a run", "text"),
    Column("commits of the evidence, a run", "text"),
    Column("metadata.json", "bytes"),
    Column("properties", "count"),
    Column("of properties", "bytes"),
    Column("snapshots", "count"),
    Column("files that a reader opens", "count"),
    Column("of these files", "bytes"),
    Column("files of the table", "count"),
    Column("of the table", "bytes"),
    Column("files of the evidence", "count"),
    Column("of the evidence", "bytes"),
    Column("files of the home", "count"),
    Column("of the home", "bytes"),
    Column("bytes written to bytes that came in", "ratio"),
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

    `of_folders`: number and bytes of the files of all tables of the topics, of the evidence, and of the home without
    the warehouse. `opened`: number and bytes of the data files and delete files of the current snapshot. `came_in`,
    `written`: bytes of the run's new data files as they came in, and of all its new data files and delete files. With
    several topics, all but the seconds and `of_folders` are of the first topic."""

    run: int
    seconds: float
    of_table: Mapping[str, int]
    of_evidence: Mapping[str, int]
    metadata_bytes: int
    properties: int
    property_bytes: int
    snapshots: int
    opened: tuple[int, int]
    came_in: int
    written: int
    of_folders: tuple[int, ...]


def run(options: Options) -> Table:
    rows: list[tuple[Value, ...]] = []
    for name in options.policies:
        say(f"policy {name}")
        lake = replace(options.lake, directory=options.lake.directory / f"age-{name}")
        ages = in_fresh_process(measure, lake, name, options.runs, options.minutes)
        step = max(min(len(ages) // PARTS, PART), 1)
        parts = [ages[first : first + step] for first in range(0, len(ages) - step + 1, step)]
        rows += [(name, *_row(part)) for part in parts]
    notes = (
        f"One topic of one partition, {RECORDS} records a run of each partition, a run every {options.minutes} minutes "
        "by a simulated clock, in one Spark application. A row has the last run of its part, with median and mean of "
        "that part. The policies are in benchmarks/topics/aged_policies.py.",
        "Python uses that clock. After each run, snapshots and files of the table and of the evidence get times of "
        "that clock, in place of those of the JVM and the file system. So all expire as in a year.",
        "Snapshots of all branches count. Files of the home do not include the warehouse.",
    )
    return Table("age", "A small topic as it grows old", COLUMNS, tuple(rows), notes)


def _row(ages: Sequence[Age]) -> tuple[Value, ...]:
    last = ages[-1]
    return (
        *(last.run, statistics.median(age.seconds for age in ages)),
        *(_by_station([age.of_table for age in ages]), _by_station([age.of_evidence for age in ages])),
        *(last.metadata_bytes, last.properties, last.property_bytes, last.snapshots),
        *(*last.opened, *last.of_folders),
        sum(age.written for age in ages) / max(sum(age.came_in for age in ages), 1),
    )


def _by_station(counts: Sequence[Mapping[str, int]]) -> str:
    total: Counter[str] = sum(map(Counter, counts), Counter())
    each = (f"{station} {number / len(counts):.2f}" for station, number in sorted(total.items()))
    return f"{total.total() / len(counts):.2f}: {', '.join(each)}"


def measure(lake: Lake, name: str, runs: int, minutes: int) -> list[Age]:
    ages: list[Age] = []
    policy = POLICIES[name]
    # a task that reads Kafka has the real clock, and the limit of its driver's clock
    limits = lake.platform.limits.model_copy(update={"ingest_max_ms": LONG_MAX // 2})
    platform = lake.platform.model_copy(update={"allow_clock": True, "limits": limits})
    lake.session()
    real, every_s = time.time, minutes * 60
    with policy.feed(lake, policy) as feed:
        try:
            for number in range(1, runs + 1):
                time.time = partial(_behind, real, (runs - number) * every_s)  # the last run has the real clock
                ages.append(_aged(lake, platform, policy, feed, number))
        finally:
            time.time = real
    return ages


def _behind(clock: Callable[[], float], by_s: float) -> float:
    return clock() - by_s


def _aged(lake: Lake, platform: Platform, policy: Policy, feed: Feed, number: int) -> Age:
    from cleantail.rounds.pack_results import PackRequest
    from cleantail.rounds.stations import EVALUATE
    from spark_jobs.run.topic_batch import run_batch
    from spark_jobs.run.topic_run import TopicRun

    now_ms = int(time.time() * 1000)
    for topic in policy.topics:
        feed(topic, number, [list(policy.lines(number, now_ms)) for _ in range(policy.logs)])
    _date(lake, platform, now_ms)
    topics = [lake.topic(topic).on(platform) for topic in policy.topics]
    table, files = topics[0].table, _data_files(lake, topics[0].table)
    commits = Commits(platform, table)
    commits.begins(EVALUATE)  # present commits count for no station of this run
    commits.of_table.clear()
    commits.of_evidence.clear()
    began, commits.lost_s = time.perf_counter(), 0.0
    outcomes = _outcomes(platform, commits)
    request = PackRequest(tuple(policy.topics), now_ms)
    of_topics = [TopicRun(lake.session(), topic, request, begun=commits.begun) for topic in topics]
    run_batch(platform, of_topics, outcomes, None)
    commits.begins(NO_STATION)
    seconds = time.perf_counter() - began - commits.lost_s
    for stations in of_topics:
        if not policy.failing and not (stations.outcome.ok and (stations.outcome.published or number in policy.undue)):
            raise BenchmarkError(f"run {number} of {stations.topic.topic} did not publish: {stations.outcome}")
    new = _data_files(lake, table).items() - files.items()
    age = Age(
        *(number, seconds, commits.of_table, commits.of_evidence, *_metadata(platform, table)),
        *(_came_in(platform, table, now_ms), sum(size for _, size in new), _disk(lake)),
    )
    _date(lake, platform, now_ms)
    if policy.after:
        policy.after(topics[0], number)
    if number % TOLD == 0:
        say(str(age))
    return age


def _date(lake: Lake, platform: Platform, now_ms: int) -> None:
    """Set times to the simulated clock: of snapshots in the tables' current metadata files, and of all files of the
    run."""
    from cleantail.lake.catalogs import kept_catalog

    catalog = kept_catalog(platform)
    for table in (table for namespace in catalog.list_namespaces() for table in catalog.list_tables(namespace)):
        location = Path(catalog.load_table(table).metadata_location.removeprefix("file:"))
        packed = location.name.endswith(".gz.metadata.json")
        text = location.read_bytes()
        metadata = json.loads(gzip.decompress(text) if packed else text)
        entries = (e for name in ("snapshots", "snapshot-log", "metadata-log") for e in metadata.get(name, ()))
        for entry in (metadata, *entries):
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


def _metadata(platform: Platform, name: str) -> tuple[int, int, int, int, tuple[int, int]]:
    """Return bytes of metadata.json, number and bytes of properties, number of snapshots, and number and bytes of the
    files that a reader opens."""
    from cleantail.lake.catalogs import kept_catalog

    table = kept_catalog(platform).load_table(name)
    file = Path(table.metadata_location.removeprefix("file:"))
    texts = sum(len(key) + len(value) for key, value in table.properties.items())
    files = [file for task in table.scan().plan_files() for file in (task.file, *task.delete_files)]
    sizes = {file.file_path: file.file_size_in_bytes for file in files}
    of_table = len(table.properties), texts, len(table.metadata.snapshots)
    return file.stat().st_size, *of_table, (len(sizes), sum(sizes.values()))


def _came_in(platform: Platform, name: str, now_ms: int) -> int:
    """Return the bytes of data files of the run's appends. The run's snapshots are not dated yet."""
    from pyiceberg.table.snapshots import Operation

    from cleantail.lake.catalogs import kept_catalog

    new = [s for s in kept_catalog(platform).load_table(name).metadata.snapshots if s.timestamp_ms >= now_ms]
    summaries = [snapshot.summary for snapshot in new if snapshot.summary is not None]
    appends = [summary for summary in summaries if summary.operation is Operation.APPEND]
    return sum(int(summary["added-files-size"] or 0) for summary in appends)


def _data_files(lake: Lake, table: str) -> dict[Path, int]:
    """Return data file or delete file of the table -> bytes, also of those that no snapshot has."""
    folder = lake.home.joinpath("warehouse", *table.split("."), "data")
    return {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def _disk(lake: Lake) -> tuple[int, ...]:
    """Return number and bytes of the files of the tables, of the evidence, and of the home without the warehouse."""
    warehouse = lake.home / "warehouse"
    sizes: dict[str, list[int]] = {"": [], EVIDENCE: [], "home": []}
    for file in lake.home.rglob("*"):
        if file.is_file():
            inside = file.relative_to(warehouse).parts[1] if warehouse in file.parents else "home"
            sizes.get(inside, sizes[""]).append(file.stat().st_size)
    return tuple(number for found in sizes.values() for number in (len(found), sum(found)))
