"""The base of all commands: common options, examples in the help, and one way to end.

A command is a function of an `Invocation` and its own arguments that returns the exit code. Its docstring is its help.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from cleantail.config.loading import CONFIG_VARIABLE, config_directory, find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.state_home import state_home
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, NoSnapshotError, TableError
from cleantail.home.home_folder import open_to_others
from cleantail.lake.foreign_errors import explained
from cleantail_cli.output import ConsoleOutput, JsonOutput, Output

CONFIG, JSON = "cleantail.config", "cleantail.json"
"""Keys of `Context.meta`, which a command shares with its groups. If an option is given twice, the later one wins."""


@dataclass(frozen=True)
class Invocation:
    """What every command needs: the configuration's directory, the platform in it, and the output."""

    config: Path
    platform: Platform
    output: Output

    def topic(self, name: str) -> Topic:
        return find_topic(name, self.config)


Body = Callable[..., int]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class CommandWithExamples(click.Command):
    """Base of all commands and groups: has the common options, and examples at the end of the help."""

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
        """Write the examples without line breaks, so that they can be copied."""
        formatter.write_paragraph()
        formatter.write_heading("Example" if len(self.examples) == 1 else "Examples")
        for example in self.examples:
            formatter.write(f"  {example}\n")


class Command(CommandWithExamples):
    """Runs a command's function, and turns its errors into messages and exit codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for param in self.params:
            if isinstance(param, Several):
                args = param.spread(args)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete a further value of a `Several` option that has one already, else what click completes."""
        begun = [param for param in self.params if isinstance(param, Several) and ctx.params.get(str(param.name))]
        if begun and not incomplete.startswith("-"):
            return begun[0].shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> int:
        """Run the function, and return its exit code.

        1. A CleantailError becomes one message on stderr, and its `exit_code`.
        2. An error of a library for which `explained` has a message is treated in the same way.
        3. Any other error is a defect, and keeps its traceback.
        4. Ctrl-C gives 130, as in a shell.
        """
        output: Output = JsonOutput() if ctx.meta.get(JSON) else ConsoleOutput()
        config = config_dir_of(ctx)
        try:
            call = Invocation(config, self._platform(config), output)
            # check-config reports this itself
            if (warning := open_to_others(call.platform.home)) and self.name != "check-config":
                output.warning(warning)
            body: Any = self.callback
            return int(ctx.invoke(body, call, **ctx.params))
        except NoSnapshotError as e:
            return output.refuse(_with_erasure(e, config))
        except CleantailError as e:
            return output.refuse(e)
        except BrokenPipeError:
            # the process at the other end of the pipe has closed it: nothing more can be printed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as e:
            if (error := explained(e)) is None:
                raise
            return output.refuse(error)
        except KeyboardInterrupt:
            print("interrupted; only published changes are kept", file=sys.stderr)
            return 130

    def _platform(self, config: Path) -> Platform:
        """Return the configured platform. A command that needs no configuration, or reports its errors itself, may get
        the default platform."""
        if self.checked and (self.configured or config.is_dir()):
            return load_platform(config)
        home = state_home(config, None, os.environ)
        return Platform(home=home, config_dir=config.absolute()).with_env(os.environ)


def _with_erasure(error: NoSnapshotError, config: Path) -> CleantailError:
    """Return the error, with the erasure that made the snapshot expire, if one did."""
    from cleantail.erasure.store import ErasureStore

    with suppress(Exception):  # a user without the right to read requests gets the error unchanged
        for request in ErasureStore(load_platform(config)).requests():
            if error.snapshot_id in request.expired_snapshots:
                return TableError(
                    f"{error}. It expired because keys of topic {request.topic} were erased: "
                    f"`cleantail erasures {request.topic}` shows request {request.id}"
                )
    return error


class Group(CommandWithExamples, click.Group):
    """A group of commands, listed in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Several(click.Option):
    """An option that takes one or more values, and may be repeated: `--file a b --file c`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"multiple": True})

    def spread(self, args: Sequence[str]) -> list[str]:
        """Return the arguments with the option's name before each of its values: `--file a --file b`.

        The values end at the next option. After `--` no argument is an option.
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
    """Make a function the command `name`. `parameters` are its arguments and options, in the order of its help.

    `configured`: the command needs a configuration. `checked`: the configuration must be valid.
    """

    def decorated(body: Body) -> Command:
        for parameter in reversed(parameters):
            body = parameter(body)
        return click.command(name, cls=Command, examples=examples, configured=configured, checked=checked)(body)

    return decorated


def common_options() -> list[click.Option]:
    """Return the options that every command and group has. They work before and after the command's name."""
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
        help="Print JSON on stdout, for machines.",
        expose_value=False,
        callback=_remembered(JSON),
    )
    return [config_dir, json_output]


def directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(incomplete, type="dir")]


def config_dir_of(ctx: click.Context) -> Path:
    option: Path | None = ctx.meta.get(CONFIG)
    return option if option is not None else config_directory()


def _remembered(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that stores an option's value under `key` in the context."""

    def remember(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.meta[key] = value

    return remember
