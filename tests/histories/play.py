"""Run a history through the command line and through the rules, and compare the results after every step."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.table_metadata import table_facts
from cleantail.sources.kcat import parse_line
from cleantail_cli import main
from spark_jobs.iceberg import snapshot_files
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round import publish
from spark_jobs.round import run as rounds
from tests.conftest import DEEP
from tests.histories import features
from tests.histories.history import Append, Compact, Configure, Misplace, Reader, Reclaim, Step, kcat_lines, script
from tests.histories.rules import (
    DEFAULTS,
    File,
    Log,
    Record,
    latest,
    retained_from,
    sections_of,
    stages,
)

CRASHES: dict[str, list[tuple[Any, str]]] = {
    "create_branch": [(TopicTable, "create_branch"), (snapshot_files, "create_branch")],
    "delete_positions": [(SnapshotFiles, "delete_positions")],
    "check_round": [(rounds, "check_round")],
    "publish_deletes": [(publish, "publish_deletes")],
    "append_answer": [(publish, "append_answer")],
    "drop_branches": [(TopicTable, "drop_branches")],
}
"""The commits of a round, in their order. A crash is possible at each."""


class Died(BaseException):
    """Stands for a killed process. No code of Cleantail may catch it."""


class Disagreement(AssertionError):
    """The engine and the rules differ. The message prints the steps."""


class Player:
    """A topic, its model, and the steps so far."""

    def __init__(self, config: Path, topic: str, capture: pytest.CaptureFixture[str]) -> None:
        self.place, self.topic, self.capture = config, topic, capture
        self.config: dict[str, Any] = dict(DEFAULTS)
        self.logs: dict[int, Log] = {}
        self.done: list[Step] = []
        self.times: set[int] = set()
        self.compared = {"steps": 0, "rounds": 0, "plans": 0, "records": 0, "crashes": 0}

    # ---- the command line

    def run(self, *argv: object) -> tuple[int, str, str]:
        self.capture.readouterr()
        code = main([*map(str, argv), "--config", str(self.place)])
        out, err = self.capture.readouterr()
        return code, out, err

    def ok(self, *argv: object) -> str:
        code, out, err = self.run(*argv)
        if code:
            self.differ(set(self.logs), f"cleantail {' '.join(map(str, argv))}: exit code {code}\n{err}")
        return out

    # ---- steps

    def play(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.done.append(step)
            doing: dict[type, Callable[[Any], None]] = {
                Append: self.append,
                Compact: self.compact,
                Configure: self.configure,
                Misplace: self.misplace,
                Reclaim: self.reclaim,
                Reader: self.reader,
            }
            doing[type(step)](step)
            self.compared["steps"] += 1

    def configure(self, step: Configure) -> None:
        self.config = DEFAULTS | step.config | step.cleaner
        (self.place / "topics").mkdir(parents=True, exist_ok=True)
        text = json.dumps({"topic": self.topic, "config": step.config})
        (self.place / "topics" / f"{self.topic}.yaml").write_text(text)
        (self.place / "defaults.yaml").write_text(json.dumps({"platform": {"cleaner": step.cleaner}}))

    def append(self, step: Append) -> None:
        """Ingest a file, without records below a log start that retention has moved: they are outside the log."""
        inside = {
            p: tuple(
                r
                for r in records
                if p not in self.logs or not self.logs[p].start_moved or r.offset >= self.logs[p].start
            )
            for p, records in step.records.items()
        }
        inside = {p: records for p, records in inside.items() if records}
        self.done[-1] = Append(inside)
        if not inside:
            return
        file = self.place / f"{len(self.done)}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in kcat_lines(inside)))
        self.ok("ingest", self.topic, "--file", file)
        for p, records in inside.items():
            self.logs.setdefault(p, Log()).append(records)
        self.compare_records()

    def compact(self, step: Compact) -> None:
        if not self.logs:
            return
        if step.partition not in self.logs:  # an unknown partition is an error, which other tests cover
            step = replace(step, partition=None)
        step = self.in_its_own_millisecond(step)
        self.done[-1] = step
        self.compare_plans(step.now)
        before, layout = copy.deepcopy(self.logs), self.layout()
        expected = [before]
        for _ in stages(self.logs, layout, self.config, step.now, step.force, step.partition):
            expected.append(copy.deepcopy(self.logs))
        held = {p for p, log in self.logs.items() if log.held_back}
        if step.crash:
            self.crash(step, expected)
        elif held:
            code, _, err = self.run("compact", self.topic, *step.argv)
            if code != 1 or any(f"partition {p}: invalid_left" not in err for p in held):
                self.differ(held, f"a record without a key must hold its log back: exit code {code}, {err!r}")
        else:
            self.ok("compact", self.topic, *step.argv)
        self.compared["rounds"] += 1
        self.compare_records()
        self.compare_states(step.now)

    def in_its_own_millisecond(self, step: Compact) -> Compact:
        """If tombstones are due at once, the engine recognizes a horizon of this run by its time. It leaves a horizon of an
        earlier run in the same millisecond to the next run. No rule covers this case."""
        while self.config["delete.retention.ms"] == 0 and step.now in self.times:
            step = replace(step, now=step.now + 1)
        self.times.add(step.now)
        return step

    def crash(self, step: Compact, expected: list[dict[int, Log]]) -> None:
        """The process dies once, between two commits. The next run continues from the state that it left."""
        assert step.crash is not None
        what, when, call = step.crash
        try:
            with dying(what, when, call):
                self.run("compact", self.topic, *step.argv)
        except Died:
            self.compared["crashes"] += 1
        found = self.found_records()
        fits = [logs for logs in expected if records_of(logs) == found and not self.differing_states(logs, step.now)]
        if not fits:
            self.logs = expected[-1]
            self.differ(set(self.logs), f"the crash left neither the old nor the new state: {shown(found)}")
        self.logs = copy.deepcopy(fits[-1])

    def misplace(self, step: Misplace) -> None:
        log = self.logs.get(step.partition)
        if log is None or log.checkpoint is None:
            return
        log.checkpoint = max(0, log.start + step.by) if step.by < 0 else log.end + step.by
        for c in log.copies:  # once records come up to it, it is believed of what was there at the last round (1.2)
            c.covered = c.covered or c.known
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        assert spark is not None
        table = TopicTable.of(spark, find_topic(self.topic, self.place))
        name = f"cleantail.partition.{step.partition}"
        state = json.loads(dict(table.load().properties())[name])
        table.set_properties({name: json.dumps(state | {"checkpoint": log.checkpoint})})

    def reclaim(self, step: Reclaim) -> None:
        if self.logs:
            self.ok("reclaim", self.topic, "--now", step.now)
            self.compare_records()
            self.compare_states(step.now)

    def reader(self, step: Reader) -> None:
        if step.partition in self.logs:
            log = self.logs[step.partition]
            offset = min(max(step.offset, log.start or 0), log.end)  # a reader cannot be outside the log
            where = ("--partition", step.partition, "--offset", offset, "--back")
            self.ok("reader", "set", self.topic, step.name, *where)
            log.readers[step.name] = offset

    # ---- what the engine has

    @property
    def platform(self) -> Any:
        return load_platform(self.place)

    def layout(self) -> dict[int, list[File]]:
        """Return the data files of every log, from Iceberg's manifests and from the files."""
        table = load_table(open_catalog(self.platform), find_topic(self.topic, self.place))
        assert table is not None
        snapshot = table.current_snapshot()
        entries = [e for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]
        data = [e for e in entries if e.data_file.content.value == 0]
        live = {file.path: file.live_records for file in table_facts(table).files}
        found: dict[int, list[File]] = {p: [] for p in self.logs}
        for entry in sorted(data, key=lambda e: e.sequence_number):
            file = entry.data_file
            offsets, timestamps = columns_of(file.file_path)
            found[file.partition[0]].append(File(offsets, timestamps, file.file_size_in_bytes, live[file.file_path]))
        for p, log in self.logs.items():
            if sum(f.live for f in found[p]) != len(log.copies):
                self.differ({p}, f"live records of partition {p}: {[f.live for f in found[p]]} in its files")
        return found

    def found_records(self, command: str = "read", *argv: object) -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {p: [] for p in self.logs}
        for line in self.ok(command, self.topic, *argv).splitlines():
            r = parse_line(line.encode())
            ts = -1 if r.timestamp_ms is None else r.timestamp_ms
            found.setdefault(r.partition, []).append(Record(r.offset, ts, r.key, r.value, r.headers))
        return found

    def status(self, now: int) -> dict[int, dict[str, Any]]:
        found = json.loads(self.ok("status", self.topic, "--now", now, "--json"))["topics"][self.topic]
        return {log["partition"]: log for log in found}

    # ---- comparisons

    def compare_records(self) -> None:
        found, expected = self.found_records(), records_of(self.logs)
        wrong = {p for p in expected | found if expected.get(p) != found.get(p)}
        if wrong:
            self.differ(
                wrong, f"records\n  by the rules: {shown(expected, wrong)}\n  by the engine: {shown(found, wrong)}"
            )
        self.compared["records"] += sum(map(len, expected.values()))
        if features.LATEST:
            self.compare_latest()

    def compare_latest(self) -> None:
        """The state as of the last run's clock, with what was appended since."""
        now = max((step.now for step in self.done[-2:] if isinstance(step, Compact)), default=0)
        expected = {p: latest(log, self.config, now) for p, log in self.logs.items()}
        found = self.found_records("latest", "--now", now)
        wrong = {p for p in expected if expected[p] != found[p]}
        if wrong:
            text = f"  by the rules: {shown(expected, wrong)}\n  by the engine: {shown(found, wrong)}"
            self.differ(wrong, f"cleantail latest TOPIC --now {now}\n{text}")

    def compare_states(self, now: int) -> None:
        wrong = self.differing_states(self.logs, now)
        if wrong:
            text = "\n".join(
                f"  partition {p}: {name} is {b} by the rules, {a} by the engine" for p, name, a, b in wrong
            )
            self.differ({p for p, *_ in wrong}, text)

    def differing_states(self, logs: dict[int, Log], now: int) -> list[tuple[int, str, Any, Any]]:
        status, wrong = self.status(now), []
        for p, log in logs.items():
            engine = status[p]
            pairs = {
                "the log start": (engine["log_start_offset"], log.start),
                "the log end": (engine["log_end_offset"], log.end),
                "the checkpoint": (
                    engine["log_start_offset"] if engine["checkpoint"] is None else engine["checkpoint"],
                    log.start if log.checkpoint is None else log.checkpoint,
                ),
            }
            for c in log.copies:
                if c.horizon is not None and c.record.offset < (log.checkpoint or 0):
                    name = f"the horizon of the tombstone @{c.record.offset}"
                    pairs[name] = (horizon_of(engine["horizons"], c.record.offset), c.horizon)
            wrong += [(p, name, a, b) for name, (a, b) in pairs.items() if a != b]
        return wrong

    def compare_plans(self, now: int) -> None:
        """What a run would do, at this moment and at others near the boundaries: needs no Spark, so it costs little."""
        layout = self.layout()
        for clock in clocks(self.config, now):
            planned = json.loads(self.ok("plan", self.topic, "--now", clock, "--json"))
            self.compared["plans"] += len(self.logs)
            engine = {p["partition"]: p for p in planned["partitions"]}
            for p, log in self.logs.items():
                wanted = self.wanted(log, layout[p], clock)
                got = {name: engine[p][name] for name in wanted}
                if got != wanted:
                    self.differ(
                        {p}, f"plan --now {clock}, partition {p}\n  by the rules: {wanted}\n  by the engine: {got}"
                    )

    def wanted(self, log: Log, files: list[File], now: int) -> dict[str, Any]:
        log = copy.deepcopy(log)
        log.repair()
        start = retained_from(log, files, self.config, now)
        if start > (log.start or 0):  # then plan shows the log as it will be
            return {}
        s = sections_of(log, files, self.config, now)
        due = s.due(self.config, force=False)
        return {"compact": due} | (
            {"first_dirty_offset": s.first_dirty, "end_offset": s.first_uncleanable} if due else {}
        )

    def differ(self, partitions: set[int], text: str) -> None:
        lines = script(self.done, partitions)
        raise Disagreement(f"\n{text}\n\n# the history, partitions {sorted(partitions)}:\n{lines}\n")


BOUNDARIES = ("min.compaction.lag.ms", "segment.ms", *(("delete.retention.ms",) if DEEP else ()))
"""What a plan can change at. That a tombstone which falls due makes no log due for a compaction,
test_several_tasks_expire_tombstones_as_one_task_does in test_engine.py holds."""


def clocks(config: dict[str, Any], now: int) -> list[int]:
    near = [config[name] for name in BOUNDARIES if config[name] < 1 << 40]
    return sorted({now, now + 1, *(now + n + d for n in near for d in (-1, 0, 1))})


def records_of(logs: dict[int, Log]) -> dict[int, list[Record]]:
    return {p: log.records for p, log in logs.items()}


def horizon_of(ledger: list[dict[str, Any]], offset: int) -> int | None:
    """3.3: the horizon that the first round with a higher end offset has set."""
    for entry in sorted(ledger, key=lambda e: e["end_offset"]):
        if entry["end_offset"] > offset:
            return int(entry["horizon_ms"])
    return None


def shown(found: dict[int, list[Record]], partitions: Iterable[int] | None = None) -> str:
    wanted = sorted(found if partitions is None else partitions)
    return "; ".join(
        f"{p}: " + ", ".join(f"{r.key!r}={r.value!r}@{r.offset}" for r in found.get(p, ())) for p in wanted
    )


COLUMNS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}


def columns_of(path: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return offsets and timestamps of a data file, including deleted records. Data files never change."""
    if path not in COLUMNS:
        table = pq.read_table(path.removeprefix("file:"), columns=["offset", "timestamp"], partitioning=None)
        stamps = [int(t.timestamp() * 1000) if t else -1 for t in table["timestamp"].to_pylist()]
        COLUMNS[path] = tuple(table["offset"].to_pylist()), tuple(stamps)
    return COLUMNS[path]


class dying:  # noqa: N801  a context manager that reads as a verb
    """Let one call of a function raise, before or after its work."""

    def __init__(self, what: str, when: str, call: int) -> None:
        self.what, self.when, self.call = what, when, call
        self.calls = 0
        self.patches: list[Any] = []

    def __enter__(self) -> None:
        for owner, name in CRASHES[self.what]:
            self.patches.append(patch.object(owner, name, self.wrapped(getattr(owner, name))))
        for p in self.patches:
            p.start()

    def __exit__(self, *_: object) -> None:
        for p in self.patches:
            p.stop()

    def wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls != self.call:
                return real(*arguments, **named)
            if self.when == "after":
                real(*arguments, **named)
            raise Died(f"{self.when} {self.what}")

        return call
