"""The engine's half: the same records through the commands `cleantail ingest`, `compact` and `read`."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleantail.sources.kcat import Record, format_record, parse_line
from cleantail_cli import main

INTERRUPTED = 130


class ArchiveError(Exception):
    """A command of Cleantail failed. The message has its exit code and its output."""


@dataclass(slots=True)
class Archive:
    """Topics in the catalog of the caller's CLEANTAIL_HOME. Their YAML and input files are in `config`."""

    config: Path
    _files: int = 0

    def configure(self, topic: str, configs: Mapping[str, object], source: Mapping[str, object]) -> None:
        """Write the topic's YAML (JSON is YAML), new or changed."""
        folder = self.config / "topics"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{topic}.yaml").write_text(json.dumps({"topic": topic, "config": configs, "source": source}))

    def ingest(self, topic: str, records: Iterable[Record]) -> None:
        """Ingest the records by one call, so that those of each partition become one data file."""
        self._files += 1
        file = self.config / f"{topic}-{self._files}.jsonl"
        file.write_text("".join(f"{format_record(topic, record)}\n" for record in records))
        self._run("ingest", topic, "--file", file)

    def read_kafka(self, topic: str) -> None:
        """Ingest the topic's present records in Kafka, as one data file per partition."""
        self._run("ingest", topic)

    def compact(self, topic: str, now_ms: int) -> None:
        self._run("compact", topic, "--now", now_ms)

    def read(self, topic: str) -> list[Record]:
        return [parse_line(line.encode()) for line in self._run("read", topic).splitlines()]

    def checkpoints(self, topic: str, now_ms: int) -> dict[int, int]:
        """Return partition -> first dirty offset, 0 for a log that was never compacted."""
        status: dict[str, Any] = json.loads(self._run("status", topic, "--now", now_ms, "--json"))
        return {log["partition"]: log["checkpoint"] or 0 for log in status["topics"][topic]}

    def _run(self, *argv: object) -> str:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*map(str, argv), "--config", str(self.config)])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            command = " ".join(map(str, argv))
            raise ArchiveError(f"cleantail {command} ended with {code}:\n{out.getvalue()}{err.getvalue()}")
        return out.getvalue()
