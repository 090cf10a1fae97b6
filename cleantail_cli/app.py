"""`cleantail` itself: the group of all commands, and how the process starts and ends."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from cleantail.home.process import end_process, run_process
from cleantail_cli.command import Group
from cleantail_cli.commands.adopt import adopt
from cleantail_cli.commands.completion import completion
from cleantail_cli.commands.configuration import check_config, import_config
from cleantail_cli.commands.convert_deletes import convert_deletes
from cleantail_cli.commands.jars import jars
from cleantail_cli.commands.planning import plan, status
from cleantail_cli.commands.readers import latest, read, reader
from cleantail_cli.commands.reconcile import reconcile
from cleantail_cli.commands.recovery import mend, release, rollback
from cleantail_cli.commands.restore import restore
from cleantail_cli.commands.rounds import check, compact, ingest, reclaim
from cleantail_cli.completion import answer_shell

EXAMPLES = ("cleantail check-config", "cleantail plan customer-cdc", "cleantail compact customer-cdc")
COMMANDS = (
    check_config,
    import_config,
    adopt,
    convert_deletes,
    status,
    ingest,
    plan,
    compact,
    check,
    reclaim,
    reconcile,
    release,
    rollback,
    mend,
    read,
    latest,
    restore,
    reader,
    jars,
    completion,
)


@click.group(cls=Group, examples=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cleantail", message="%(prog)s %(version)s")
def app() -> None:
    """Run the platform without a scheduler, by the same code as the DAGs.

    Exit codes: 0 fine, also when nothing was due; 1 a check failed; 2 wrong input, configuration or table, or nothing
    to prove; 3 conflict; 4 something outside failed (catalog out of reach, disk, network, Java); 5 a round waits for
    approval; 130 interrupted.
    """


for command in COMMANDS:
    app.add_command(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Raises SystemExit for --help, --version and wrong arguments."""
    try:
        with app.make_context("cleantail", list(sys.argv[1:] if argv is None else argv)) as ctx:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")  # records are UTF-8 whatever the terminal's language
            code: int = app.invoke(ctx)
            return code
    except click.exceptions.Exit as e:
        raise SystemExit(e.exit_code) from None
    except click.UsageError as e:
        print(refusal(e), file=sys.stderr)
        raise SystemExit(2) from None


def refusal(error: click.UsageError) -> str:
    """Says how the command is used and what is wrong with how it was; without a command it is all of the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    param = getattr(error, "param", None)
    if isinstance(error, click.MissingParameter) and param is not None:
        text = f"{_name(param, error)} is missing"
    elif isinstance(error, click.BadParameter) and param is not None:
        text = f"{_name(param, error)}: {error.message}"
    else:
        text = error.format_message()
    if error.ctx is None:
        return f"error: {text}"
    return f"{error.ctx.get_usage()}\nerror: {text} (`{error.ctx.command_path} --help` shows an example)"


def _name(param: click.Parameter, error: click.UsageError) -> str:
    """Returns the parameter as people type it: `--now`, or `TOPIC`."""
    return param.get_error_hint(error.ctx).strip("'").split(" ")[0]


def run_and_exit() -> NoReturn:
    """Runs the command as a process, and ends that."""
    code = answer_shell(app)
    if code is not None:
        end_process(code)
    run_process(_exit_code)


def _exit_code(argv: Sequence[str]) -> int:
    """Returns the exit code of a command, also of --help, --version and wrong arguments."""
    try:
        return main(argv)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 2
