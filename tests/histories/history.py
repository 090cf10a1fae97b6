"""Events of a topic. A history of events prints as a script for a shell."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.histories.rules import Record


@dataclass(frozen=True)
class Append:
    """The ingestion of a file. `records`: partition -> records."""

    records: dict[int, tuple[Record, ...]]

    def script(self, n: int, partitions: set[int]) -> str:
        lines = "\n".join(json.dumps(line) for line in kcat_lines(self.records, partitions))
        if not lines:
            return "# nothing of these partitions in this file"
        return f"cat > {n}.jsonl <<'END'\n{lines}\nEND\ncleantail ingest TOPIC --file {n}.jsonl"


@dataclass(frozen=True)
class Compact:
    """A run at this time (Unix ms). `crash`: (function that raises, before or after its work, at which call)."""

    now: int
    force: bool = False
    partition: int | None = None
    crash: tuple[str, str, int] | None = None

    @property
    def argv(self) -> list[str]:
        only = [] if self.partition is None else ["--partition", str(self.partition)]
        return ["--now", str(self.now), *(["--force"] if self.force else []), *only]

    def script(self, n: int, partitions: set[int]) -> str:
        crash = ""
        if self.crash:
            what, when, call = self.crash
            crash = f"   # dies {when} call {call} of {what}"
        return f"cleantail compact TOPIC {' '.join(self.argv)}{crash}"


@dataclass(frozen=True)
class Configure:
    """New configs of the topic, and of the cleaner in defaults.yaml."""

    config: dict[str, Any]
    cleaner: dict[str, Any] = field(default_factory=dict)

    def script(self, n: int, partitions: set[int]) -> str:
        topic = json.dumps({"topic": "TOPIC", "config": self.config})
        defaults = json.dumps({"platform": {"cleaner": self.cleaner}})
        return f"echo '{topic}' > config/topics/TOPIC.yaml\necho '{defaults}' > config/defaults.yaml"


@dataclass(frozen=True)
class Misplace:
    """Another writer sets a checkpoint outside the log. `by`: distance above its end, or, negative, below its start."""

    partition: int
    by: int

    def script(self, n: int, partitions: set[int]) -> str:
        return f"# the checkpoint of partition {self.partition} is set to {describe(self.by)}"


@dataclass(frozen=True)
class Reclaim:
    """A reclaim, which rewrites and merges files."""

    now: int

    def script(self, n: int, partitions: set[int]) -> str:
        return f"cleantail reclaim TOPIC --now {self.now}"


@dataclass(frozen=True)
class Reader:
    """A reader registers its position."""

    name: str
    partition: int
    offset: int

    def script(self, n: int, partitions: set[int]) -> str:
        return f"cleantail reader set TOPIC {self.name} --partition {self.partition} --offset {self.offset}"


Step = Append | Compact | Configure | Misplace | Reclaim | Reader


def describe(by: int) -> str:
    return f"{-by} below the log start" if by < 0 else f"{by} above the log end"


def script(steps: Iterable[Step], partitions: set[int]) -> str:
    """Return the steps as commands, with the records of these partitions only: logs do not depend on each other."""
    return "\n".join(step.script(n, partitions) for n, step in enumerate(steps))


def kcat_lines(records: dict[int, tuple[Record, ...]], partitions: set[int] | None = None) -> list[dict[str, Any]]:
    wanted = [p for p in sorted(records) if partitions is None or p in partitions]
    return [kcat_line(p, r) for p in wanted for r in records[p]]


def kcat_line(partition: int, record: Record) -> dict[str, Any]:
    """Return a record as `kcat -J` writes it. Bytes that are not UTF-8 are in base64."""
    headers = [text for name, value in record.headers for text in (name, in_base64(value))]
    more = {"headers": headers, "headers_encoding": "base64"} if headers else {}
    return (
        {"partition": partition, "offset": record.offset, "tstype": "create", "ts": record.ts}
        | more
        | encoded("key", record.key)
        | encoded("payload", record.value)
    )


def encoded(name: str, data: bytes | None) -> dict[str, Any]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {name: in_base64(data), f"{name}_encoding": "base64"}


def in_base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
