"""Arguments and options that several commands share, the types of their values, and their completion in a shell."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import COLUMNS
from cleantail.errors import CleantailError
from cleantail.human import moment_ms, seconds_problem
from cleantail_cli.command import config_dir_of

_TOPIC = re.compile(r"""^(?:\{[ \t]*)?["']?topic["']?[ \t]*:[ \t]+["']?([^\s"',}#]+)""", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""A topic name that Kafka allows. A shell reads it as one plain word."""
_CHARS = 4_096
"""Number of characters to read of a file, because `topic:` is at its beginning."""


def topic_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete the name of a configured topic. Only the beginning of each file is read."""
    try:
        files = sorted((config_dir_of(ctx) / "topics").glob("*"))
        names = [_name(file) for file in files if file.suffix in (".yaml", ".yml") and not file.name.startswith(".")]
    except OSError:
        return []
    return [CompletionItem(name) for name in names if _NAME.fullmatch(name) and name.startswith(incomplete)]


def config_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete `NAME=` of a topic config, for --set."""
    names = (f"{field.alias}=" for field in KafkaConfigs.model_fields.values() if field.alias)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def column_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete `NAME=` of a column of a topic's table, for --column."""
    return [CompletionItem(f"{name}=") for name in COLUMNS if f"{name}=".startswith(incomplete)]


def _name(file: Path) -> str:
    """Return the file's `topic:`, else the file's name."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        named = _TOPIC.search(stream.read(_CHARS))
    return named[1] if named else file.stem


LONG_END = 1 << 63
LAST = "last"
"""Names the newest round, or the newest ingestion, that can be undone."""


class Natural(click.ParamType[int]):
    """An integer from 0 to 2^63 - 1: an offset, a partition or a snapshot id."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        return int(value) if is_natural(value) else self.fail(f"{value!r} is not an integer from 0 to 2^63 - 1")


class Offset(click.ParamType[int]):
    """An offset. Below 0 it counts back from the log's end."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not is_natural(value.removeprefix("-")):
            self.fail(f"{value!r} is not an offset, and not a number below 0, which counts back from the log's end")
        return int(value)


class Clock(click.ParamType[int]):
    """A time in Unix ms: `2026-11-29T14:20:00` (UTC unless it has a zone), or the number itself."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or is_natural(value):
            if problem := seconds_problem(int(value)):
                self.fail(problem)
            return int(value)
        if (at_ms := moment_ms(value)) is None:
            self.fail(
                f"{value!r} is not an integer from 0 to 2^63 - 1 (Unix ms), and not a time such as 2026-11-29T14:20"
            )
        return at_ms


class Target(click.ParamType[str]):
    """`last`, or the id of a snapshot."""

    name = "SNAPSHOT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == LAST or is_natural(value):
            return str(value)
        return self.fail(
            f"{value!r} is neither last nor the id of a snapshot: `cleantail history TOPIC` lists them; --ingestion "
            "undoes an ingestion"
        )


def is_natural(text: str) -> bool:
    """Return whether the text is an integer from 0 to 2^63 - 1 in ASCII digits."""
    return text.isascii() and text.isdigit() and int(text) < LONG_END


NATURAL, OFFSET, CLOCK, TARGET = Natural(), Offset(), Clock(), Target()
FILE = click.Path(path_type=Path)
DIRECTORY = click.Path(path_type=Path, file_okay=False)
topic = click.argument("topic", metavar="TOPIC", shell_complete=topic_names, help="The topic's name, as in its YAML.")
optional_topic = click.argument(
    "topic",
    metavar="[TOPIC]",
    required=False,
    shell_complete=topic_names,
    help="Default: all topics.",
)
now = click.option(
    "--now", type=CLOCK, metavar="TIME", help="Decide as if it were this time: 2026-11-29T14:20 (UTC), or Unix ms."
)
partition = click.option("--partition", type=NATURAL, metavar="N", help="Only this partition.")
force = click.option(
    "--force",
    is_flag=True,
    help="Compact even below min.cleanable.dirty.ratio. The active segment and min.compaction.lag.ms still apply.",
)
as_of = click.option(
    "--as-of",
    metavar="SNAPSHOT|TIME",
    help="Read this state: a snapshot id (`cleantail history` lists them), a branch, a tag, or a time such as "
    "2026-11-29T14:20 (UTC).",
)
key = click.option(
    "--key", metavar="KEY", help="Only records of this key. Other users of this machine can see it in the process list."
)
key_encoding = click.option(
    "--encoding", type=click.Choice(["text", "base64"]), default="text", help="Encoding of --key (default: text)."
)
dry_run = click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
command_config = click.option(
    "--command-config", type=FILE, metavar="F", help="File of client properties, with librdkafka's names."
)


def key_bytes(key: str | None, encoding: str) -> bytes | None:
    """Return the bytes of --key in the encoding of --encoding. Raises CleantailError."""
    if key is None or encoding == "text":
        return key.encode("utf-8", "surrogateescape") if key is not None else None
    try:
        return base64.b64decode(key, validate=True)
    except ValueError:
        raise CleantailError("--key is not base64, as --encoding base64 requires") from None


def clock(now_ms: int | None) -> int:
    """Return --now if it is given, else the current time (Unix ms)."""
    return now_ms if now_ms is not None else int(time.time() * 1000)
