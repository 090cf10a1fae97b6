"""`ingest`: append records from files, from Kafka, from a broker's log segments, or from a sink's table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from cleantail.config.input_limits import FILE_BYTES, limit_text
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import BadLineError, CleantailError, OutsideError
from cleantail.home.stdin_copies import copy_folder
from cleantail.human import counted, size
from cleantail.intake import Poll, feed_of
from cleantail.kafka.client_settings import settings_of_topic
from cleantail.kafka.segment_files import find_logs
from cleantail.lake.catalogs import require_usable
from cleantail.rounds.station_results import INGEST_RESULT_JSON, FileIngestResult, IngestResult, KafkaIngestResult
from cleantail.sources.source_files import require_readable
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, Several, command, directories
from cleantail_cli.long_work import Progress, spark_session
from cleantail_cli.output import ConsoleOutput
from cleantail_cli.parameters import DIRECTORY, FILE, clock


@command(
    "ingest",
    parameters.topic,
    click.option(
        "--file",
        "files",
        cls=Several,
        type=FILE,
        metavar="F...",
        help="One or more .jsonl or .jsonl.gz files; - is stdin. Default: read source.kafka or source.table.",
    ),
    click.option(
        "--segments",
        type=DIRECTORY,
        metavar="DIR",
        shell_complete=directories,
        help="Read the .log files in a broker's log directory, in a copy of it or of tiered storage, or in one TOPIC-N "
        "folder; no broker is needed.",
    ),
    click.option(
        "--encoding", type=click.Choice(["text", "base64"]), help="Encoding of keys, payloads and header values."
    ),
    click.option(
        "--any-topic",
        is_flag=True,
        help="Accept lines that name any topic. Default: a line with another topic than this one (or than source.topic "
        "in the YAML) is an error, and nothing is appended.",
    ),
    examples=[
        "cleantail ingest orders",
        "cleantail ingest customer-cdc --file customers.jsonl",
        "cleantail ingest customer-cdc --file monday.jsonl.gz tuesday.jsonl.gz",
        "kcat -C -J -e -b kafka:9092 -t customer-cdc | cleantail ingest customer-cdc --file -",
        "cleantail ingest orders --segments /var/lib/kafka/data",
    ],
)
def ingest(
    call: Invocation,
    topic: str,
    files: tuple[Path, ...],
    segments: Path | None,
    encoding: str | None,
    any_topic: bool,
) -> int:
    """Append records from Kafka, log segments, a sink's table or kcat -J files, each exactly once.

    Without --file it reads every partition from the table's position on. It reads Kafka (source.kafka) or the segments
    of --segments up to the last stable offset. From source.table it reads the new snapshots. All files, or all
    segments, are appended in one commit. If one of them is refused, nothing is appended.
    """
    if not files:
        if encoding or any_topic:
            raise CleantailError("--encoding and --any-topic need --file")
        if segments is not None:
            return ingest_segments(call, call.topic(topic), Path(os.path.abspath(segments)))
        return ingest_from_source(call, call.topic(topic))
    if segments is not None:
        raise CleantailError("--file and --segments cannot be combined: run ingest once for each")
    from spark_jobs.round.intake.ingest import ingest_files

    configured = call.topic(topic)
    require_readable(file for file in files if file != STDIN)
    require_usable(configured)
    encoding = encoding or configured.source.encoding
    with call.output.progress() as progress, _without_stdin(files, call.platform, progress) as paths:
        # users with a shell may ingest any file that they can read; platform.sources restricts only the YAML
        resolved = [path.resolve() for path in paths.values()]
        progress.about(f"{counted(len(files), 'file')}, {size(sum(file.stat().st_size for file in resolved))}")
        copy = str(paths[STDIN].resolve()) if STDIN in paths else ""
        with spark_session(call.platform, f"cleantail ingest {configured.topic}", progress) as spark:
            try:
                result = ingest_files(spark, configured, resolved, encoding, progress, any_topic)
            except BadLineError as e:
                raise BadLineError(_named(str(e.file), copy), e.line_number, e.reason) from None
    rows = tuple(replace(row, file=_named(row.file, copy)) for row in result.files)
    notes = tuple(_named(text, copy) for text in result.warnings)
    call.output.show(answer_of(configured, replace(result, files=rows, warnings=notes)))
    return 0


STDIN = Path("-")
BLOCK_BYTES = 1 << 20


@contextmanager
def _without_stdin(files: Sequence[Path], platform: Platform, progress: Progress) -> Iterator[dict[Path, Path]]:
    """Yield each given file -> the file to read.

    For the block, stdin is copied to a private file in CLEANTAIL_HOME, because several tasks read it, and its digest is
    computed first. Raises CleantailError if stdin has more bytes than a file may have, OutsideError if they cannot be
    written."""
    paths = {file: file for file in files}
    if STDIN not in paths:
        yield paths
        return
    progress("reading stdin")
    most, read = platform.limits.of_input.file_bytes, 0
    with ExitStack() as folders:
        try:
            paths[STDIN] = folders.enter_context(copy_folder(platform.home)) / "stdin"
            with paths[STDIN].open("xb") as copy:
                while block := sys.stdin.buffer.read(BLOCK_BYTES):
                    if (read := read + len(block)) > most:
                        too_much = f"stdin has more than {most} bytes; {limit_text(FILE_BYTES)}; nothing was appended"
                        raise CleantailError(too_much)
                    copy.write(block)
        except OSError as e:
            raise OutsideError(
                f"stdin cannot be copied to {platform.home}: {e.strerror}; nothing was appended"
            ) from None
        yield paths


def _named(text: str, copy: str) -> str:
    """Replace the path of the copy of stdin, if any, by `stdin`."""
    return text.replace(copy, "stdin") if copy else text


def ingest_from_source(call: Invocation, topic: Topic) -> int:
    """Read new records from Kafka or the source table. Spark starts only if there may be some."""
    if not (feed := feed_of(topic)).asking:
        raise CleantailError(
            f"topic {topic.topic} has no source.kafka and no source.table in its YAML: add one of them, or give files "
            "with --file"
        )
    poll = Poll(topic, settings_of_topic, clock(None))
    require_usable(topic)
    with call.output.progress() as progress:
        progress(feed.asking)
        if feed.new_input(poll).bytes is None:
            result = feed.nothing(topic)
        else:
            from spark_jobs.round.intake.readers import read_feed

            with spark_session(call.platform, f"cleantail ingest {topic.topic}", progress) as spark:
                result = read_feed(spark, poll, progress)
    call.output.show(answer_of(topic, result))
    return 0


def ingest_segments(call: Invocation, topic: Topic, directory: Path) -> int:
    """Append the new records in segments of the topic's logs in a directory."""
    from spark_jobs.round.intake.segment_logs import read_segments, segment_topic

    if topic.source.table is not None:
        raise CleantailError(
            f"topic {topic.topic} is read from table {topic.source.table.name}, so segments could append the same "
            "records again: remove source.table from its YAML first; nothing was appended"
        )
    logs = find_logs(directory, segment_topic(topic)).logs
    require_usable(topic)
    with call.output.progress() as progress:
        segments = [segment for log in logs for segment in log.segments]
        progress.about(f"{counted(len(segments), 'segment')}, {size(sum(each.size_bytes for each in segments))}")
        with spark_session(call.platform, f"cleantail ingest {topic.topic}", progress) as spark:
            result = read_segments(spark, topic, directory, clock(None), progress)
    call.output.show(answer_of(topic, result, f"from segments of {result.kafka_topic}"))
    return 0


@dataclass(frozen=True)
class IngestAnswer:
    """Answer of `ingest`: the result for JSON, and its lines for people."""

    topic: Topic
    result: IngestResult
    lines: Sequence[str]

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **INGEST_RESULT_JSON.plain(self.result)}

    def print_on(self, page: ConsoleOutput) -> None:
        for line in self.lines:
            page.line(line)
        for text in self.result.warnings:
            page.warning(text)


def answer_of(topic: Topic, result: IngestResult, origin: str = "") -> IngestAnswer:
    """Return the answer. `origin` replaces the words about the broker."""
    name, appended = topic.topic, f"{counted(result.records, 'record')} appended"
    if isinstance(result, FileIngestResult):
        skipped = "already in the table, nothing added"
        files = [f"{file.file}: {skipped if file.skipped else 'appended'}" for file in result.files]
        return IngestAnswer(topic, result, [*files, f"{name}: {appended}"])
    if isinstance(result, KafkaIngestResult):
        origin = origin or f"from {result.kafka_topic} in Kafka"
        read = [(each.partition, each.from_offset, each.to_offset) for each in result.partitions]
        logs = [f"partition {p}: read from offset {low} to {end}" for p, low, end in read]
        return IngestAnswer(topic, result, [*logs, f"{name}: {appended} {origin}"])
    ranges = [
        f"partition {p.partition}: read records between offset {p.from_offset} and {p.to_offset}"
        for p in result.partitions
    ]
    end = f"nothing is new in {result.table}"
    if result.snapshot_id is not None:
        end = f"{appended} from {result.table} up to snapshot {result.snapshot_id}"
    return IngestAnswer(topic, result, [*ranges, f"{name}: {end}"])
