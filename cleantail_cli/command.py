"""Gives every command the common options, examples in its help, and one way to end.

A command's body gets an `Invocation` and its own arguments, and returns the exit code. Its docstring is its help.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from cleantail.config.loading import CONFIG_VARIABLE, config_directory, find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.state_home import state_home
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.home_folder import open_to_others
from cleantail.lake.foreign_errors import explained
from cleantail_cli.output import ConsoleOutput, JsonOutput, Output

CONFIG, JSON = "cleantail.config", "cleantail.json"
"""Keys of `Context.meta`, which a command shares with the groups above it: of two options the later one wins."""


@dataclass(frozen=True)
class Invocation:
    """Holds what every body gets: where the configuration is, what it says, and where the answer goes."""

    config: Path
    platform: Platform
    output: Output

    def topic(self, name: str) -> Topic:
        """Returns the topic that the command is about. Raises ConfigError."""
        return find_topic(name, self.config, os.environ)


Body = Callable[..., int]
"""A command's function: takes an Invocation and the command's arguments, and returns the exit code."""
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class CommandWithExamples(click.Command):
    """Is the base of all commands and groups: it has the common options, and its help ends with examples as typed."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        configured: bool = True,
        checked: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.configured, self.checked = configured, checked
        self.params += common_options()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples unfolded, so that they can be copied."""
        formatter.write_paragraph()
        formatter.write_heading("Example" if len(self.examples) == 1 else "Examples")
        for example in self.examples:
            formatter.write(f"  {example}\n")


class Command(CommandWithExamples):
    """Runs a body, and ends in one way whatever happens there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments, after options that are `Several` got their name before each value."""
        for param in self.params:
            if isinstance(param, Several):
                args = param.spread(args)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Completes one more value where an option that is `Several` has some already, else what click completes."""
        begun = [param for param in self.params if isinstance(param, Several) and ctx.params.get(str(param.name))]
        if begun and not incomplete.startswith("-"):
            return begun[0].shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> int:
        """Runs the body, and returns its exit code.

        1. An error that Cleantail raises on purpose is one plain message on stderr, and its `exit_code`.
        2. So is an error of a library that Cleantail knows the meaning of (`explained`).
        3. Any other error is a defect, and keeps its traceback.
        4. Interrupted by Ctrl-C it is 130, as in a shell.
        """
        output: Output = JsonOutput() if ctx.meta.get(JSON) else ConsoleOutput()
        config = config_dir_of(ctx)
        try:
            call = Invocation(config, self._platform(config), output)
            # check-config reports this by itself
            if (warning := open_to_others(call.platform.home)) and self.name != "check-config":
                output.warning(warning)
            body: Any = self.callback
            return int(ctx.invoke(body, call, **ctx.params))
        except CleantailError as e:
            return output.refuse(e)
        except BrokenPipeError:
            # the reader of a pipe has enough: not an error of ours, and nothing more can be said to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as e:
            if (error := explained(e)) is None:
                raise
            return output.refuse(error)
        except KeyboardInterrupt:
            print("interrupted; whatever was not published is as it was", file=sys.stderr)
            return 130

    def _platform(self, config: Path) -> Platform:
        """Returns the platform; that of no settings where there is no configuration and the command needs none, or
        where the command itself looks at what is wrong with it."""
        if self.checked and (self.configured or config.is_dir()):
            return load_platform(config, os.environ)
        return Platform(home=state_home(config, None, os.environ), config_dir=config.absolute())


class Group(CommandWithExamples, click.Group):
    """Holds the commands of one name, listed in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Several(click.Option):
    """Is an option that takes one or more values, and may be repeated: `--file a b --file c`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"multiple": True})

    def spread(self, args: Sequence[str]) -> list[str]:
        """Returns the arguments with the option's name before each of its values: `--file a --file b`.

        The values end at the next option; after `--` nothing is an option.
        """
        spread: list[str] = []
        name = ""
        for i, argument in enumerate(args):
            if argument == "--":
                return [*spread, *args[i:]]
            if argument in self.opts:
                name = argument
            elif argument.startswith("-") and argument != "-":
                name = ""
            elif name and spread[-1] != name:
                spread.append(name)
            spread.append(argument)
        return spread


def command(
    name: str, *parameters: Decorator, examples: Sequence[str], configured: bool = True, checked: bool = True
) -> Callable[[Body], Command]:
    """Makes a body the command `name`; `parameters` are its own arguments and options, in the order of its help.
    `configured`: whether it needs a configuration; `checked`: whether one that this version can read."""

    def decorated(body: Body) -> Command:
        for parameter in reversed(parameters):
            body = parameter(body)
        return click.command(name, cls=Command, examples=examples, configured=configured, checked=checked)(body)

    return decorated


def common_options() -> list[click.Option]:
    """Makes the options of every command and group: each works before and after the command's name."""
    config_dir = click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="DIR",
        help=f"Configuration (default: {CONFIG_VARIABLE}, else config).",
        shell_complete=directories,
        expose_value=False,
        callback=_remembered(CONFIG),
    )
    json_output = click.Option(
        ["--json"],
        is_flag=True,
        default=None,
        help="For machines: JSON on stdout.",
        expose_value=False,
        callback=_remembered(JSON),
    )
    return [config_dir, json_output]


def directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Leaves it to the shell to name its directories."""
    return [CompletionItem(incomplete, type="dir")]


def config_dir_of(ctx: click.Context) -> Path:
    """Returns the directory that --config names, else that of the environment."""
    option: Path | None = ctx.meta.get(CONFIG)
    return option if option is not None else config_directory(os.environ)


def _remembered(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Returns the callback that keeps an option's value in the context, for the command whichever side it stands on."""

    def remember(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.meta[key] = value

    return remember
