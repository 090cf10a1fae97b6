"""The reference of the command line, from its parser: docs/command-line.md, part `commands`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cleantail.cli import _parser

_SELF_EVIDENT = {
    "TOPIC": "the topic",
    "[TOPIC]": "the topic; without it all topics",
    "PARTITION": "the partition",
    "NAME": "the reader's name",
    "--partition N": "only this partition",
    "--from-offset N": "begin at this offset",
}
"""What arguments mean that the parser leaves without a text."""


@dataclass(frozen=True)
class Argument:
    """What a command takes. `form` is how it is written, such as `--now TIME`; `meaning` may be empty."""

    form: str
    meaning: str


@dataclass(frozen=True)
class Command:
    """A command with its words after `cleantail`, what it does, and what it takes."""

    words: str
    does: str
    arguments: tuple[Argument, ...]


def commands_markdown(commands: Iterable[Command]) -> str:
    """A section for each command, with a table of its arguments."""
    return "\n".join(_section(command) for command in commands)


def commands_found() -> list[Command]:
    """The commands of the command line as it is, in its own order. Whatever parses it, this alone knows."""
    return list(_below(_parser(), ""))


def _below(parser: argparse.ArgumentParser, words: str) -> Iterator[Command]:
    for group in parser._actions:
        if isinstance(group, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in group._choices_actions}
            for name, inner in group.choices.items():
                if not any(isinstance(action, argparse._SubParsersAction) for action in inner._actions):
                    yield Command(f"{words}{name}", texts[name], tuple(_arguments(inner)))
                yield from _below(inner, f"{words}{name} ")


def _arguments(parser: argparse.ArgumentParser) -> Iterator[Argument]:
    for action in parser._actions:
        if {"--help", "--config", "--json"} & set(action.option_strings):
            continue  # every command has them
        value = " or ".join(action.choices or ()) or str(action.metavar or action.dest.upper()).replace("|", " or ")
        forms: dict[str | int | None, str] = {"?": f"[{value}]", "+": f"{value} …", 0: ""}
        form = f"{', '.join(action.option_strings)} {forms.get(action.nargs, value)}".strip()
        yield Argument(form, action.help or _SELF_EVIDENT[form])


def _section(command: Command) -> str:
    lines = [f"### cleantail {command.words}", "", f"{command.does[:1].upper()}{command.does[1:]}.", ""]
    if command.arguments:
        rows = [f"| {_cell(f'`{one.form}`')} | {_cell(one.meaning)} |" for one in command.arguments]
        lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
