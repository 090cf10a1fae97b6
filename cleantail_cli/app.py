"""`cleantail` itself: the group of all commands, how the process starts and ends, and completion in a shell."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click
from click.shell_completion import get_completion_class, shell_complete

from cleantail.home.process import end_process, run_process
from cleantail_cli.adopt_commands import adopt, convert_deletes
from cleantail_cli.command import CommandWithExamples, Group
from cleantail_cli.configuration_commands import check_config, import_config
from cleantail_cli.erase_command import erase
from cleantail_cli.erasure_commands import certificate, erasures
from cleantail_cli.history_command import history
from cleantail_cli.ingest_command import ingest
from cleantail_cli.installation_commands import doctor, init, jars
from cleantail_cli.plan_command import plan
from cleantail_cli.read_commands import latest, read, reader
from cleantail_cli.restore_command import restore
from cleantail_cli.rollback_command import rollback
from cleantail_cli.round_commands import compact, reconcile
from cleantail_cli.status_command import status
from cleantail_cli.upkeep_commands import check, mend, reclaim, release

VARIABLE = "_CLEANTAIL_COMPLETE"
"""A shell sets this variable: to `bash_source` for its script, to `bash_complete` for completions."""
SHELLS = ("bash", "zsh", "fish")


def answer_shell(app: click.Command, env: Mapping[str, str] = os.environ) -> int | None:
    """Print the completions that a shell requests, and return the exit code; None if no shell requests any."""
    instruction = env.get(VARIABLE)
    return shell_complete(app, {}, "cleantail", VARIABLE, instruction) if instruction else None


def script(app: click.Command, shell: str) -> str:
    """Return the script that a shell runs once to enable completion."""
    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"{shell}: {', '.join(SHELLS)}")
    return kind(app, {}, "cleantail", VARIABLE).source()


@click.command(
    "completion",
    cls=CommandWithExamples,
    examples=(
        'eval "$(cleantail completion bash)"                          # in ~/.bashrc',
        'eval "$(cleantail completion zsh)"                           # in ~/.zshrc, after compinit',
        "cleantail completion fish > ~/.config/fish/completions/cleantail.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL", help="bash, zsh or fish.")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the completion script for bash, zsh or fish.

    It completes commands, options and their values, files, and topic names of the configuration.
    """
    print(script(ctx.find_root().command, shell), end="")
    return 0


EXAMPLES = ("cleantail check-config", "cleantail plan customer-cdc", "cleantail compact customer-cdc")
COMMANDS = (
    init,
    check_config,
    doctor,
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
    erase,
    release,
    history,
    rollback,
    mend,
    read,
    latest,
    restore,
    reader,
    erasures,
    certificate,
    jars,
    completion,
)


@click.group(cls=Group, examples=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cleantail", message="%(prog)s %(version)s")
def app() -> None:
    """Compact Kafka changelogs in Iceberg tables from the command line, with the same code that the DAGs run.

    Words such as round, horizon and blocked are in docs/glossary.md, and in the UI under Words, at the end of a page.

    Exit codes: 0 success, also if nothing was due; 1 a check failed; 2 wrong input, configuration or table, or nothing
    to prove; 3 conflict; 4 something outside failed (catalog, disk, network, Java); 5 a round waits for approval; 130
    interrupted.
    """


for command in COMMANDS:
    app.add_command(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Raises SystemExit for --help, --version and wrong arguments."""
    try:
        with app.make_context("cleantail", list(sys.argv[1:] if argv is None else argv)) as ctx:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")  # records are UTF-8 in every locale
            code: int = app.invoke(ctx)
            return code
    except click.exceptions.Exit as e:
        raise SystemExit(e.exit_code) from None
    except click.UsageError as e:
        print(refusal(e), file=sys.stderr)
        raise SystemExit(2) from None


_PLAN = "`cleantail plan TOPIC` prints what it would do."
INSTEAD_OF_DRY_RUN = {
    "compact": _PLAN,
    "reclaim": _PLAN,
    "ingest": "It appends everything or nothing, and `cleantail rollback TOPIC --ingestion last` undoes it.",
}
"""Command without --dry-run -> its replacement."""


def refusal(error: click.UsageError) -> str:
    """Return the usage line and the error. Without a command, return the whole help."""
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
    if isinstance(error, click.NoSuchOption) and error.option_name == "--dry-run":
        text = f"{text} {INSTEAD_OF_DRY_RUN.get(str(error.ctx.info_name), '')}".rstrip()
    return f"{error.ctx.get_usage()}\nerror: {text} (`{error.ctx.command_path} --help` shows an example)"


def _name(param: click.Parameter, error: click.UsageError) -> str:
    """Return the parameter as a user types it: `--now`, or `TOPIC`."""
    return param.get_error_hint(error.ctx).strip("'").split(" ")[0]


def run_and_exit() -> NoReturn:
    """Run the command of this process, and end the process with its exit code."""
    code = answer_shell(app)
    if code is not None:
        end_process(code)
    run_process(_exit_code)


def _exit_code(argv: Sequence[str]) -> int:
    """Return the exit code of a command, also for --help, --version and wrong arguments."""
    try:
        return main(argv)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 2
