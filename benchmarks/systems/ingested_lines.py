"""A file of kcat lines: ingested by Cleantail, and only parsed by plain Python."""

from __future__ import annotations

import base64
import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.dataset import dropped
from benchmarks.harness.fresh_process import Stopwatch, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.report import Times
from benchmarks.harness.shape import FIRST_TIMESTAMP_MS, KEY_DIGITS
from benchmarks.systems.ingested_kafka import Measured
from benchmarks.systems.spark_costs import Meter
from benchmarks.topics.commands import cleantail

TOPIC = "bench_lines"
PARTITIONS = 4
WRITTEN = 10_000


def write_lines(file: Path, lines: int) -> None:
    """Write this number of lines in kcat's form, from the partitions in turn. A value has 256 characters."""
    with file.open("w") as stream:
        for first in range(0, lines, WRITTEN):
            stream.writelines(_lines(first, min(first + WRITTEN, lines)))


def _lines(first: int, end: int) -> Iterator[str]:
    for number in range(first, end):
        partition, offset = number % PARTITIONS, number // PARTITIONS
        value = "".join(hashlib.sha512(f"{number}-{i}".encode()).hexdigest() for i in range(2))
        yield (
            f'{{"topic":"{TOPIC}","partition":{partition},"offset":{offset},"tstype":"create",'
            f'"ts":{FIRST_TIMESTAMP_MS + number},"broker":0,"key":"key-{number:0{KEY_DIGITS}}","payload":"{value}"}}\n'
        )


def measure_parser(file: Path, lines: int, processes: int, repetitions: int) -> Measured:
    """Measure the seconds to parse all lines in this number of processes. Each parses a part of the file."""
    size = os.path.getsize(file)
    cuts = [size * number // processes for number in range(processes + 1)]
    seconds = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number in range(repetitions + 1):
            say(f"bare parser, {number} of {repetitions}")
            began = time.perf_counter()
            counts = pool.starmap(_parsed, [(file, low, high) for low, high in zip(cuts, cuts[1:], strict=False)])
            seconds.append(time.perf_counter() - began)
            require_records(sum(counts), lines, "the bare parser")
    return Measured(Times.of(seconds))


def _parsed(file: Path, start: int, end: int) -> int:
    """Parse the lines that begin in bytes [start, end), and drop them."""
    count = 0
    with file.open("rb") as stream:
        if start:
            stream.seek(start - 1)
            stream.readline()
        while stream.tell() < end and (line := stream.readline()):
            json.loads(line)
            count += 1
    return count


@dataclass(frozen=True, slots=True)
class Denied:
    """A topic's denylist with this number of keys. No line has one of them. `grows`: before each ingestion another key
    is added. The ingestion then reads and sends only the new key."""

    keys: int
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Ingested(Measured):
    """`cpu`: the processor's seconds of all processes. `denylist`: seconds to read the topic's denylist, a part of the
    times."""

    cpu: Times = Times(())
    denylist: Times = Times(())


def measure_lines(
    lake: Lake, file: Path, lines: int, repetitions: int, erased: Mapping[str, Denied]
) -> Mapping[str, Ingested]:
    """Measure the ingestion of the file into new tables, in turn. Each ingestion computes its digest, as for a new
    file.

    `erased`: name of a row -> the denylist of its topic."""
    from cleantail.erasure.store import ErasureStore
    from spark_jobs.round.intake.ingest import ingest_files

    os.environ["CLEANTAIL_ERASURE_KEY"] = base64.b64encode(bytes(32)).decode()
    whole, denylist, topics = Stopwatch(), Stopwatch(), {name: f"{TOPIC}_{n}" for n, name in enumerate(erased)}
    for name, topic in topics.items():
        lake.write_topic(topic, {})
        if erased[name].keys:
            _erase(lake, topic, range(erased[name].keys))
    spark = lake.session()
    meter, cpu = Meter(spark), dict[str, list[float]]()
    for number in range(repetitions + 1):
        for name, topic in topics.items():
            say(f"{name}, {number} of {repetitions}")
            if erased[name].grows:
                _erase(lake, topic, [erased[name].keys + number])
            os.utime(file)  # so that its digest is not cached
            before = meter.cpu_seconds()
            with whole(name):
                result = ingest_files(spark, lake.topic(topic), [file], "text", lambda _: None, any_topic=True)
            cpu.setdefault(name, []).append(meter.cpu_seconds() - before)
            require_records(result.records, lines, name)
            table = lake.table(topic)
            require_records(table.current().count(), lines, f"the table of: {name}")
            with denylist(name):
                requests = ErasureStore(table.platform).denied(topic)
            more = number + 1 if erased[name].grows else 0
            require_records(sum(r.keys for r in requests), erased[name].keys + more, f"the denylist of: {name}")
            dropped(table)
    memory = meter.peak_memory_bytes()
    return {
        name: Ingested(Times.of(seconds), memory, Times.of(cpu[name]), Times.of(denylist.seconds[name]))
        for name, seconds in whole.seconds.items()
    }


def measure_commands(
    lake: Lake, file: Path, lines: int, repetitions: int, erased: Mapping[str, int]
) -> Mapping[str, Times]:
    """Measure `cleantail ingest` of the file into new tables, in turn. Each command is a new application, which must
    read and send the keys.

    `erased`: name of a row -> the number of keys on the denylist of its topics."""
    from cleantail.lake.catalogs import load_table, open_catalog
    from cleantail.lake.table_metadata import live_files

    os.environ["CLEANTAIL_ERASURE_KEY"] = base64.b64encode(bytes(32)).decode()
    seconds: dict[str, list[float]] = {name: [] for name in erased}
    for number in range(repetitions + 1):
        for row, (name, keys) in enumerate(erased.items()):
            say(f"{name}, {number} of {repetitions}")
            topic = f"{TOPIC}_command_{row}_{number}"
            lake.write_topic(topic, {})
            if keys:
                _erase(lake, topic, range(keys))
            os.utime(file)  # so that its digest is not cached
            seconds[name].append(cleantail(lake, "ingest", topic, "--file", str(file), "--any-topic"))
            table = load_table(open_catalog(lake.platform), lake.topic(topic))
            require_records(sum(f.live_records for f in live_files(table, None)) if table else 0, lines, name)
    return {name: Times.of(each) for name, each in seconds.items()}


def _erase(lake: Lake, topic: str, numbers: Iterable[int]) -> None:
    """Put keys with these numbers on the topic's denylist. The file has none of them."""
    from cleantail.erasure.requests import APPROVED, ErasureEvent
    from cleantail.erasure.store import ErasureStore

    store = ErasureStore(lake.platform.with_env(os.environ))
    absent = (f"gone-{number:0{KEY_DIGITS}}".encode() for number in numbers)
    request = store.request(topic, absent, by="the benchmark", now_ms=0, deadline_ms=1)
    store.append(ErasureEvent(topic, request.id, APPROVED, 0, "the benchmark"))
