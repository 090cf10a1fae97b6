"""Generate the reference in docs/command-line.md from the commands (docs_site.generated calls it)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import click

from cleantail_cli.app import app
from cleantail_cli.command import CommandWithExamples

COMMON = frozenset({"--config", "--json", "--help", "--version"})
"""Options that every command has: the reference lists them once, at its beginning."""


def as_markdown() -> str:
    """Return all commands as Markdown, each with usage, arguments, options and examples. Common options come first."""
    top = _top()
    parts = [_text(app), _options(top, shared=True), _examples(app)]
    parts += [part for ctx in _contexts(top) for part in _section(ctx)]
    return "\n\n".join(part for part in parts if part) + "\n"


def commands() -> dict[str, CommandWithExamples]:
    """Return words after `cleantail` -> the command or group: `plan`, `reader`, `reader set`."""
    below = {ctx.command_path: ctx.command for ctx in _contexts(_top())}
    return {path.partition(" ")[2]: cmd for path, cmd in below.items() if isinstance(cmd, CommandWithExamples)}


def parsed(argv: Sequence[str]) -> click.Context:
    """Parse the arguments without running the command. The context has the command, and its values in `params`.

    Raises click.UsageError for wrong arguments.
    """
    ctx = app.make_context("cleantail", list(argv))
    while isinstance(ctx.command, click.Group):
        name, command, arguments = ctx.command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert command is not None  # else it has raised
        ctx = command.make_context(name, arguments, parent=ctx)
    return ctx


def _top() -> click.Context:
    """Return the context of `cleantail` itself, as `main` makes it, but without arguments."""
    return click.Context(app, info_name="cleantail", **app.context_settings)


def _contexts(ctx: click.Context) -> Iterator[click.Context]:
    """Yield a context for every command below the group of `ctx`, a group before its commands."""
    group = ctx.command
    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        below = click.Context(command, info_name=name, parent=ctx)
        yield below
        if isinstance(command, click.Group):
            yield from _contexts(below)


def _section(ctx: click.Context) -> list[str]:
    usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
    head = [f"## `{ctx.command_path}`", _text(ctx.command), f"```sh\n{usage}\n```"]
    return [*head, _arguments(ctx), _options(ctx, shared=False), _examples(ctx.command)]


def _text(command: click.Command) -> str:
    """Return the command's help, each paragraph on one line."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _arguments(ctx: click.Context) -> str:
    rows = [param.get_help_record(ctx) for param in ctx.command.params if isinstance(param, click.Argument)]
    return _table("argument", rows)


def _options(ctx: click.Context, shared: bool) -> str:
    """Return the command's own options, or the common ones."""
    options = [param for param in ctx.command.get_params(ctx) if bool(COMMON & {*param.opts}) == shared]
    rows = [option.get_help_record(ctx) for option in options if isinstance(option, click.Option)]
    return _table("option", [row for row in rows if row is not None])


def _table(head: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows]
    return "\n".join([f"| {head} | |", "|---|---|", *lines]) if lines else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _examples(command: click.Command) -> str:
    lines = "\n".join(command.examples) if isinstance(command, CommandWithExamples) else ""
    return f"```sh\n{lines}\n```" if lines else ""
