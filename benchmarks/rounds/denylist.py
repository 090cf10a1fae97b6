"""The cost of a topic's denylist of erased keys for an ingestion: without an entry, and with a million."""

from __future__ import annotations

from benchmarks.harness.fresh_process import in_fresh_process
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, ratio
from benchmarks.systems.ingested_lines import Denied, measure_commands, measure_lines, write_lines

LINES, ERASED = 1_000_000, 1_000_000
ROWS = {
    "no key is erased": Denied(0),
    f"{ERASED:,} erased keys": Denied(ERASED),
    f"{ERASED:,}, and one more since the last ingestion": Denied(ERASED, grows=True),
}
COMMANDS = {"no key is erased, by a command": 0, f"{ERASED:,} erased keys, by a command": ERASED}
COLUMNS = (
    Column("lines", "count"),
    Column("the topic's denylist", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("to an empty one, warm", "ratio"),
    Column("processor's time, warm, s"),
    Column("to an empty one, processor's time", "ratio"),
    Column("reading its requests, s"),
)
NOTES = (
    "One file of kcat -J is ingested into a new table, in a running session. Values have 256 characters that do not "
    "compress. The lines have none of the erased keys.",
    "The processor's time is that of the JVM and of all its Python processes. It depends less on other programs.",
    "The topics are of one platform, and are ingested in turn in one process.",
    "An application reads and sends the same erased keys once. After another request it reads and sends only the new "
    "keys if there are few. The last two rows are `cleantail ingest` from start to end. Each command is a separate "
    "application, which reads and sends all keys.",
)


def run(options: Options) -> Table:
    lines, file = min(options.records, LINES), options.lake.directory / "lines.jsonl"
    in_fresh_process(write_lines, file, lines)
    try:
        measured = in_fresh_process(measure_lines, options.lake, file, lines, options.repetitions, ROWS)
        commands = in_fresh_process(measure_commands, options.lake, file, lines, options.repetitions, COMMANDS)
    finally:
        file.unlink()
    empty = next(iter(measured.values()))
    rows: list[tuple[Value, ...]] = [
        (
            lines,
            name,
            each.times.cold,
            each.times.warm,
            each.times.spread,
            ratio(each.times.warm, empty.times.warm),
            each.cpu.warm,
            ratio(each.cpu.warm, empty.cpu.warm),
            each.denylist.warm,
        )
        for name, each in measured.items()
    ]
    without = next(iter(commands.values()))
    for name, times in commands.items():
        to_empty = ratio(times.warm, without.warm)
        rows.append((lines, name, times.cold, times.warm, times.spread, to_empty, None, None, None))
    return Table("denylist", "Ingestion with erased keys", COLUMNS, tuple(rows), (*NOTES, options.text))
