"""`cleantail`: the platform without a scheduler, by the same code as the DAGs.

Exit codes: 0 fine, also when nothing was due; 1 a check failed; 2 wrong input, configuration or table; 3 conflict;
4 something outside failed (disk, network, Java); 5 a round waits for approval.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cleantail import adopt_command, commands, import_command, what_if_command
from cleantail.config import Platform, load_platform
from cleantail.errors import CleantailError
from cleantail.outside import explained

Command = Callable[[argparse.Namespace, Platform], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. An error that Cleantail raises on purpose is one plain message on stderr."""
    given = argparse.Namespace(config=Path("config"), json=False)
    arguments = _parser().parse_args(argv, given)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # records are UTF-8 whatever the terminal's language
    try:
        platform = load_platform(arguments.config, os.environ)
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
    common.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="configuration (config)")
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="for machines: JSON on stdout")
    top = argparse.ArgumentParser(prog="cleantail", description=__doc__, parents=[common])
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
        _topic(add("rollback", commands.rollback, "undo published rounds; what was appended since stays"))
    )
    _read_arguments(_topic(add("read", commands.read, "records as kcat -J lines, in offset order")))
    _latest_arguments(
        _clock(_topic(add("latest", commands.latest, "the current state as kcat -J lines: one record a key")))
    )
    _reader_arguments(add("reader", commands.reader, "positions of readers, for which tombstones wait"), common)
    return top


def _topic(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("topic", metavar="TOPIC")
    return made


def _optional_topic(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("topic", metavar="TOPIC", nargs="?")
    return made


def _clock(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("--now", type=_natural, metavar="MS", help="the clock of every decision, Unix ms")
    return made


def _decisions(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("--partition", type=_natural, metavar="N")
    made.add_argument("--force", action="store_true", help="pass over the ratio, never over the bounds")
    return made


def _approve_argument(made: argparse.ArgumentParser) -> None:
    made.add_argument("--approve", action="store_true", help="publish also what would wait for approval")


def _rollback_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--to", type=_natural, metavar="SNAPSHOT", help="default: before the last published round")
    made.add_argument("--dry-run", action="store_true", help="say what it would do; changes nothing")


def _ingest_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--file", type=Path, action="append", required=True, metavar="F", help=".jsonl or .jsonl.gz")
    made.add_argument("--encoding", choices=["text", "base64"], help="of keys, payloads and header values")


def _release_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("partition", type=_natural, metavar="PARTITION")


def _read_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--partition", type=_natural, metavar="N")
    made.add_argument("--from-offset", type=_natural, default=0, metavar="N")
    made.add_argument("--as-of", metavar="SNAPSHOT", help="an Iceberg snapshot id, or the name of a branch or tag")


def _latest_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("--partition", type=_natural, metavar="N")
    made.add_argument("--as-of", type=int, metavar="SNAPSHOT", help="an Iceberg snapshot id")
    made.add_argument("--positions", type=Path, metavar="F", help="write the offsets to go on from to this JSON file")


def _reader_arguments(made: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = made.add_subparsers(required=True, metavar="ACTION", dest="action")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return _topic(actions.add_parser(name, help=text, description=text, parents=[common]))

    position = add("set", "register a reader, or move its position")
    position.add_argument("name", metavar="NAME")
    position.add_argument("--partition", type=_natural, required=True, metavar="N")
    position.add_argument("--offset", type=_natural, required=True, metavar="N", help="the next offset it will read")
    add("list", "the topic's readers and where they are")
    forgotten = add("remove", "forget a reader: tombstones wait for it no longer")
    forgotten.add_argument("name", metavar="NAME")
    forgotten.add_argument("--partition", type=_natural, metavar="N", help="only in this log")


def _natural(text: str) -> int:
    if not text.isdigit() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 0 to 2^63 - 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
