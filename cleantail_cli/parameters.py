"""Arguments and options that several commands share, the types of their values, and how a shell completes them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from cleantail_cli.command import config_dir_of

_TOPIC = re.compile(r"""^(?:\{[ \t]*)?["']?topic["']?[ \t]*:[ \t]+["']?([^\s"',}#]+)""", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""What Kafka lets a topic be called: a shell takes nothing of it for more than a word."""
_CHARS = 4_096
"""So much of a file is read: a topic's name stands at its beginning."""


def topic_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Completes a topic of the configuration that the line names, by the beginnings of its files alone."""
    try:
        files = sorted((config_dir_of(ctx) / "topics").glob("*"))
        names = [_name(file) for file in files if file.suffix in (".yaml", ".yml") and not file.name.startswith(".")]
    except OSError:
        return []
    return [CompletionItem(name) for name in names if _NAME.fullmatch(name) and name.startswith(incomplete)]


def config_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Completes `NAME=` of a topic config, for --set."""
    from cleantail.config.kafka_configs import KafkaConfigs

    names = (f"{field.alias}=" for field in KafkaConfigs.model_fields.values() if field.alias)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def column_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Completes `NAME=` of a column of a topic's table, for --column."""
    from cleantail.config.topic_table import COLUMNS

    return [CompletionItem(f"{name}=") for name in COLUMNS if f"{name}=".startswith(incomplete)]


def _name(file: Path) -> str:
    """Returns what the file calls its topic, else the file's own name."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        named = _TOPIC.search(stream.read(_CHARS))
    return named[1] if named else file.stem


LONG_END = 1 << 63
LAST = "last"
"""The word for the newest of what can be undone."""


class Natural(click.ParamType[int]):
    """Is an integer from 0 to 2^63 - 1, as offsets, partitions and snapshot ids are."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        return int(value) if is_natural(value) else self.fail(f"{value!r} is not an integer from 0 to 2^63 - 1")


class Clock(click.ParamType[int]):
    """Is a moment in Unix ms: `2026-11-29T14:20:00` (UTC where no zone is said), or the number itself."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or is_natural(value):
            return int(value)
        try:
            at = datetime.fromisoformat(value) if not value.lstrip("+-").isdigit() else None
        except ValueError:
            at = None
        if at is None:
            hint = "not an integer from 0 to 2^63 - 1 (Unix ms), nor a time as 2026-11-29T14:20"
            self.fail(f"{value!r} is {hint}")
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


class Target(click.ParamType[str]):
    """Is `last`, or the id of a snapshot."""

    name = "SNAPSHOT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == LAST or is_natural(value):
            return str(value)
        return self.fail(
            f"{value!r} is neither last nor the id of a snapshot: `cleantail rollback TOPIC --dry-run` and the topic's "
            "page name those that can be undone; --ingestion takes back a file"
        )


def is_natural(text: str) -> bool:
    """Returns whether the text is an integer from 0 to 2^63 - 1 in ASCII digits."""
    return text.isascii() and text.isdigit() and int(text) < LONG_END


NATURAL, CLOCK, TARGET = Natural(), Clock(), Target()
FILE = click.Path(path_type=Path)
DIRECTORY = click.Path(path_type=Path, file_okay=False)
topic = click.argument("topic", metavar="TOPIC", shell_complete=topic_names, help="Its name, as in its YAML.")
optional_topic = click.argument(
    "topic", metavar="[TOPIC]", required=False, shell_complete=topic_names, help="One topic; without it all of them."
)
now = click.option("--now", type=CLOCK, metavar="TIME", help="The clock of every decision: UTC, or Unix ms.")
partition = click.option("--partition", type=NATURAL, metavar="N", help="Only this partition.")
force = click.option("--force", is_flag=True, help="Pass over the ratio, never over the bounds.")
as_of = click.option("--as-of", metavar="SNAPSHOT", help="An Iceberg snapshot id, or the name of a branch or tag.")
dry_run = click.option("--dry-run", is_flag=True, help="Say what it would do; changes nothing.")


def clock(now_ms: int | None) -> int:
    """Returns --now where it is set, else the clock (Unix ms)."""
    return now_ms if now_ms is not None else int(time.time() * 1000)
