"""`cleantail`: the platform without a scheduler, by the same code as the DAGs.

Exit codes: 0 fine, also when nothing was due; 1 a check failed; 2 wrong input, configuration or table, or nothing to
prove; 3 conflict; 4 something outside failed (catalog out of reach, disk, network, Java); 5 a round waits for approval;
130 interrupted.
"""

from __future__ import annotations

import argparse
import atexit
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from cleantail import adopt_command, commands, import_command, reading_commands, what_if_command
from cleantail.config import CONFIG_VARIABLE, Platform, config_place, load_platform
from cleantail.errors import CleantailError
from cleantail.outside import explained
from cleantail.own_home import open_to_others

Command = Callable[[argparse.Namespace, Platform], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. An error that Cleantail raises on purpose is one plain message on stderr."""
    given = argparse.Namespace(config=config_place(os.environ), json=False)
    arguments = _parser().parse_args(argv, given)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # records are UTF-8 whatever the terminal's language
    try:
        platform = load_platform(arguments.config, os.environ)
        if (warning := open_to_others(platform.home)) and arguments.run is not commands.check_config:
            print(f"warning: {warning}", file=sys.stderr)
        code: int = arguments.run(arguments, platform)
        return code
    except CleantailError as e:
        return _fail(arguments, e)
    except BrokenPipeError:
        # the reader of a pipe has enough: not an error of ours, and nothing more can be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:
        if (known := explained(e)) is None:
            raise
        return _fail(arguments, known)
    except KeyboardInterrupt:
        print("interrupted; whatever was not published is as it was", file=sys.stderr)
        return 130


def _fail(arguments: argparse.Namespace, error: CleantailError) -> int:
    if arguments.json:
        print(json.dumps({"ok": False, "error": str(error)}))
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    # SUPPRESS: the same option works before and after the command, and the one that is given wins
    config_help = f"configuration (default: {CONFIG_VARIABLE}, else config)"
    common.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="DIR", help=config_help)
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="for machines: JSON on stdout")
    top = argparse.ArgumentParser(prog="cleantail", description=__doc__, parents=[common])
    top.add_argument("--version", action="version", version=f"cleantail {version('cleantail')}")
    added = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        made = added.add_parser(name, help=text, description=text, parents=[common])
        made.set_defaults(run=run)
        return made

    add("check-config", commands.check_config, "validate the whole configuration")
    import_command.add_arguments(add("import-config", import_command.run, "write topic YAML from what Kafka says"))
    adopt_command.add_arguments(add("adopt", adopt_command.run, "take over an existing table of a sink, in place"))
    _clock(_optional_topic(add("status", commands.status, "the state of every log, from metadata")))
    _ingest_arguments(_topic(add("ingest", commands.ingest, "append files of kcat -J lines, each exactly once")))
    planning = _decisions(
        _clock(_optional_topic(add("plan", commands.plan, "what a run would do and why; changes nothing")))
    )
    what_if_command.add_arguments(planning)
    _approve_argument(
        _decisions(_clock(_topic(add("compact", commands.compact, "evaluate, compact, check, publish, expire"))))
    )
    _topic(
        add(
            "check",
            commands.check,
            "prove that all keys below the clean points are unique, and that no offset has two different records",
        )
    )
    _clock(_topic(add("reclaim", commands.reclaim, "rewrite files, expire snapshots, remove orphans, where due")))
    _release_arguments(
        _topic(add("release", commands.release, "take a partition out of quarantine: the next run tries it"))
    )
    _rollback_arguments(
        _topic(
            add("rollback", commands.rollback, "undo published rounds, or an ingestion; what was appended since stays")
        )
    )
    _read_arguments(_topic(add("read", reading_commands.read, "records as kcat -J lines, in offset order")))
    _latest_arguments(
        _clock(_topic(add("latest", reading_commands.latest, "the current state as kcat -J lines: one record a key")))
    )
    _reader_arguments(add("reader", reading_commands.reader, "positions of readers, for which tombstones wait"), common)
    return top


def _topic(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("topic", metavar="TOPIC")
    return made


def _optional_topic(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("topic", metavar="TOPIC", nargs="?")
    return made


def _clock(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("--now", type=_clock_time, metavar="TIME", help="the clock of every decision: UTC, or Unix ms")
    return made


def _decisions(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("--partition", type=_natural, metavar="N")
    made.add_argument("--force", action="store_true", help="pass over the ratio, never over the bounds")
    return made


def _approve_argument(made: argparse.ArgumentParser) -> None:
    made.add_argument("--approve", action="store_true", help="publish also what would wait for approval")


def _rollback_arguments(made: argparse.ArgumentParser) -> None:
    what = made.add_mutually_exclusive_group()
    # not as the option's own default: argparse would take `last`, which is None as well, for not given
    made.set_defaults(to=None)
    what.add_argument(
        "--to",
        type=_rollback_target,
        default=argparse.SUPPRESS,
        metavar="SNAPSHOT",
        help="last (the default): before the last published round",
    )
    what.add_argument(
        "--ingestion",
        metavar="last|SNAPSHOT|FILE",
        help="take an ingestion back instead: the newest, that of a snapshot, or that of a file (by its content, else "
        "by its name); its records and file marks go. --dry-run lists all that are known",
    )
    made.add_argument("--dry-run", action="store_true", help="say what it would do; changes nothing")


def _ingest_arguments(made: argparse.ArgumentParser) -> None:
    files = "one or more .jsonl or .jsonl.gz; may be repeated"
    made.add_argument("--file", type=Path, nargs="+", action="extend", required=True, metavar="F", help=files)
    made.add_argument("--encoding", choices=["text", "base64"], help="of keys, payloads and header values")
    made.add_argument(
        "--any-topic",
        action="store_true",
        help="take lines whatever topic they name; without it one that names another topic than this (or than "
        "source.topic in the YAML) is refused, and nothing is appended",
    )


def _release_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("partition", type=_natural, metavar="PARTITION")


def _read_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--partition", type=_natural, metavar="N")
    made.add_argument("--from-offset", type=_natural, default=0, metavar="N")
    made.add_argument("--as-of", metavar="SNAPSHOT", help="an Iceberg snapshot id, or the name of a branch or tag")


def _latest_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--partition", type=_natural, metavar="N")
    made.add_argument("--as-of", metavar="SNAPSHOT", help="an Iceberg snapshot id, or the name of a branch or tag")
    made.add_argument("--positions", type=Path, metavar="F", help="write the offsets to go on from to this JSON file")


def _reader_arguments(made: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = made.add_subparsers(required=True, metavar="ACTION", dest="action")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return _topic(actions.add_parser(name, help=text, description=text, parents=[common]))

    position = add("set", "register a reader, or move its position")
    position.add_argument("name", metavar="NAME")
    position.add_argument("--partition", type=_natural, required=True, metavar="N")
    position.add_argument("--offset", type=_natural, required=True, metavar="N", help="the next offset it will read")
    position.add_argument("--back", action="store_true", help="allow an offset below the one that it has")
    add("list", "the topic's readers and where they are")
    forgotten = add("remove", "forget a reader: tombstones wait for it no longer")
    forgotten.add_argument("name", metavar="NAME")
    forgotten.add_argument("--partition", type=_natural, metavar="N", help="only in this log")


def _rollback_target(text: str) -> int | None:
    if text == "last":
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither last nor the id of a snapshot: `cleantail rollback TOPIC --dry-run` and the topic's "
            "page name those that can be undone; --ingestion takes back a file"
        )
    return int(text)


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 0 to 2^63 - 1")
    return int(text)


def _clock_time(text: str) -> int:
    """`2026-11-29T14:20:00` (UTC where no zone is said), or Unix ms."""
    try:
        at = datetime.fromisoformat(text) if not text.lstrip("+-").isdigit() else None
    except ValueError:
        at = None
    if at is None and not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        hint = "not an integer from 0 to 2^63 - 1 (Unix ms), nor a time as 2026-11-29T14:20"
        raise argparse.ArgumentTypeError(f"{text!r} is {hint}")
    return int(text) if at is None else int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def run_and_exit() -> NoReturn:
    """The command as a process. Ends it once all is written and closed, without taking the interpreter apart: DuckDB
    2.0 prints lists of what it calls leaks where its module goes before its last object."""
    try:
        code = main()
    except SystemExit as e:  # argparse: --help, --version, wrong arguments
        code = e.code if isinstance(e.code, int) else 2
    atexit._run_exitfuncs()  # the JVM is told, temporary files go
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run_and_exit()
