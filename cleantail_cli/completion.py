"""Completes a command line in a shell. A shell that asks is told nothing of what goes wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from cleantail_cli.command import config_dir_of

VARIABLE = "_CLEANTAIL_COMPLETE"
"""A shell asks by this variable: `bash_source` for its script, `bash_complete` for completions."""
SHELLS = ("bash", "zsh", "fish")
_TOPIC = re.compile(r"""^(?:\{[ \t]*)?["']?topic["']?[ \t]*:[ \t]+["']?([^\s"',}#]+)""", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""What Kafka lets a topic be called: a shell takes nothing of it for more than a word."""
_CHARS = 4_096
"""So much of a file is read: a topic's name stands at its beginning."""


def answer_shell(app: click.Command, env: Mapping[str, str] = os.environ) -> int | None:
    """Answers a shell that asks for completions, and gives the exit code; None where none asks."""
    instruction = env.get(VARIABLE)
    return shell_complete(app, {}, "cleantail", VARIABLE, instruction) if instruction else None


def script(app: click.Command, shell: str) -> str:
    """Returns the script that the shell has to read once for completion to work."""
    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"{shell}: {', '.join(SHELLS)}")
    return kind(app, {}, "cleantail", VARIABLE).source()


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
