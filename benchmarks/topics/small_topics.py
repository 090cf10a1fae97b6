"""The cost of a small topic in a running application. Each topic has a file of new records. Topics run one after
another, and in packs of twenty."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.harness.fresh_process import BenchmarkError, Stopwatch, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value
from benchmarks.harness.shape import FIRST_TIMESTAMP_MS

TOPICS, PARTITIONS, RECORDS, KEYS = 100, 6, 100, 50
"""Number of topics, of partitions of each, and of records and keys of each partition in a file. Only the later half of
the topics counts, because the JVM compiles the code of a round during the first ones. Every key occurs twice in a
file."""
PACKED, PACKS = 20, 4
"""Number of topics in a pack, and of packs. The first pack does not count."""
INGEST, EVALUATE, ROUND, CHECK, PUBLISH, ALL = "ingest", "evaluate", "round", "check", "publish", "all but ingest"
OF_A_PACK = "all but ingest, a topic of a pack"
NOT_REWRITTEN = {"segment.ms": 1, "cleantail.reclaim.deleted.ratio": 1}
"""The policy of a pack's topics: no reclaim is due, because reclaims are not measured here."""
COLUMNS = (
    Column("records of a file", "count"),
    Column("station", "text"),
    Column("median, s"),
    Column("fastest to slowest", "text"),
)


def run(options: Options) -> Table:
    seconds = in_fresh_process(measure, options.lake)
    times = {station: Times.of(each) for station, each in seconds.items()}
    whole = times[EVALUATE] + times[ROUND] + times[CHECK] + times[PUBLISH]
    packed = Times.of(in_fresh_process(measure_packs, options.lake))
    rows: list[tuple[Value, ...]] = [
        (PARTITIONS * RECORDS, station, each.warm, each.spread)
        for station, each in {**times, ALL: whole, OF_A_PACK: packed}.items()
    ]
    notes = (
        f"{TOPICS} topics of {PARTITIONS} partitions, one after another in one application; the later half is counted. "
        f"Each topic first has a round over {PARTITIONS * RECORDS} records, which is not measured. Then a file with as "
        "many records, each key twice, is ingested and compacted.",
        f"A pack has {PACKED} such topics. spark_jobs/run/pack_run.py runs them side by side on its cores, and checks "
        f"them together. The figure is the pack's seconds divided by {PACKED}. Another application runs {PACKS} packs "
        "one after another, and the first is not counted. Reclaims are off.",
    )
    return Table("small_topics", "A small topic in a warm application", COLUMNS, tuple(rows), notes)


def measure(lake: Lake) -> dict[str, list[float]]:
    """Return station -> seconds of each topic of the later half."""
    watch = Stopwatch()
    for number in range(TOPICS):
        say(f"topic {number} of {TOPICS}")
        if number == TOPICS // 2:
            watch = Stopwatch()
        _one_topic(lake, f"bench_small_{number}", watch)
    return watch.seconds


def _one_topic(lake: Lake, name: str, watch: Stopwatch) -> None:
    from cleantail.lake.evaluate import evaluate_topic
    from cleantail.rounds.pack_results import PackRequest
    from spark_jobs.round.check import check_round
    from spark_jobs.round.intake.ingest import ingest_files
    from spark_jobs.round.make import compact_unit
    from spark_jobs.round.publish import publish_round
    from spark_jobs.run.topic_run import TopicRun

    lake.write_topic(name, {"segment.ms": 1})
    topic, spark, table = lake.topic(name), lake.session(), lake.table(name)
    first, second = (write_file(lake.directory / f"{name}_{part}.jsonl", name, part) for part in range(2))
    # 1. the first round
    ingest_files(spark, topic, [first], "text", lambda _: None)
    plan = evaluate_topic(topic, now_ms=_now_ms(), force=True)
    before = TopicRun(spark, topic, PackRequest((name,), plan.now_ms))
    before.take(plan)
    before.finish()
    # 2. the new records
    with watch(INGEST):
        ingest_files(spark, topic, [second], "text", lambda _: None)
    with watch(EVALUATE):
        plan = evaluate_topic(topic, now_ms=_now_ms(), force=True)
    with watch(ROUND):
        staged = [compact_unit(table, unit) for unit in plan.units]
    with watch(CHECK):
        checked = check_round(table, plan.round, staged)
    with watch(PUBLISH):
        published = publish_round(table, checked)
    if list(published.published) != list(range(PARTITIONS)):
        raise BenchmarkError(f"{name}: only {published.published} were published")


def measure_packs(lake: Lake) -> list[float]:
    """Return the seconds of each pack, divided by its topics."""
    return [_one_pack(lake, pack) for pack in range(PACKS)]


def _one_pack(lake: Lake, pack: int) -> float:
    from cleantail.rounds.pack_results import PackRequest
    from spark_jobs.round.intake.ingest import ingest_files
    from spark_jobs.run.pack_run import run_pack

    names, watch = tuple(f"bench_pack_{pack}_{number}" for number in range(PACKED)), Stopwatch()
    for part in range(2):
        say(f"pack {pack + 1} of {PACKS}, file {part + 1} of 2")
        for name in names:
            lake.write_topic(name, NOT_REWRITTEN)
            file = write_file(lake.directory / f"{name}_{part}.jsonl", name, part)
            ingest_files(lake.session(), lake.topic(name), [file], "text", lambda _: None)
        with watch(OF_A_PACK):
            result = run_pack(lake.session(), lake.platform, PackRequest(names, _now_ms(), force=True))
        if wrong := [topic for topic in result.topics if list(topic.published) != list(range(PARTITIONS))]:
            raise BenchmarkError(f"{wrong[0].topic}: only {wrong[0].published} were published; {wrong[0].error}")
    return watch.seconds[OF_A_PACK][-1] / PACKED


def _now_ms() -> int:
    return int(time.time() * 1000)


def write_file(file: Path, topic: str, part: int) -> Path:
    """Write a file of kcat lines for a topic, and return its path."""
    file.write_text("".join(f"{json.dumps(line)}\n" for line in _lines(topic, part)))
    return file


def _lines(topic: str, part: int) -> Iterator[Mapping[str, object]]:
    for offset in range(part * RECORDS, (part + 1) * RECORDS):
        for partition in range(PARTITIONS):
            yield {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "tstype": "create",
                "ts": FIRST_TIMESTAMP_MS + offset,
                "key": f"key-{offset % KEYS}",
                "payload": "v" * 64,
            }
