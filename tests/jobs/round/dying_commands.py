"""Commands that die at a point: each in a process of its own, which shares one warm Spark session with the others.

    python -m tests.jobs.round.dying_commands CONFIG

Reads a JSON object from each line of its input: `argv` of a command, `at` (die at this point, counted from 1; null for
none) and `out`, a folder for what the command prints and the names of the points that it has passed. Answers with the
exit code. A command is forked, and dies by os._exit: no handler and no `finally` runs.

Points are before and after each commit of Spark and of PyIceberg, before each bulk of files that the JVM deletes, after
its first half, and before each file below the home that Python deletes or renames.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyspark import accumulators
from pyspark.sql import SparkSession

from cleantail.config.loading import load_platform
from cleantail_cli import main
from spark_jobs.iceberg import commits, file_removal
from spark_jobs.iceberg import tables as spark_tables
from spark_jobs.iceberg.session import make_active, start_session
from spark_jobs.quality.gx_validation import imported
from spark_jobs.round import staged_rewrites

DIED = 86
"""Exit code of a command that has reached its point."""
FILE_EVENTS = {"os.remove", "os.rename", "shutil.rmtree"}


class Points:
    """The points that a command passes. `at`: the one at which it dies, from 1."""

    def __init__(self, at: int | None, file: Path) -> None:
        self._at, self._file, self._lock, self._passed = at, file, Lock(), list[str]()

    def reach(self, name: str) -> None:
        with self._lock:
            self._passed.append(name)
            self._file.write_text("\n".join(self._passed))
            if len(self._passed) == self._at:
                os._exit(DIED)

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        self.reach(f"before {name}")
        yield
        self.reach(f"after {name}")


def install(points: Points, home: Path) -> None:
    """Let this process pass the points."""

    def around(owner: Any, attribute: str, name: Callable[..., str]) -> None:
        real = getattr(owner, attribute)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            with points.around(name(*arguments)):
                return real(*arguments, **named)

        setattr(owner, attribute, wrapped)

    # 1. Spark's commits, and PyIceberg's
    check, retries = commits.before_commit, commits.COMMITS

    def before_commit(iceberg: Any, metadata: Any) -> None:
        check(iceberg, metadata)
        points.reach(f"before Spark commits {_short(iceberg.name())}")

    class Committing:
        def run(self, once: Callable[[], Any]) -> Any:
            result = retries.run(once)
            points.reach("after Spark has committed")
            return result

    commits.before_commit, commits.COMMITS = before_commit, Committing()  # type: ignore[assignment]
    for module in (spark_tables, staged_rewrites):
        around(module, "write_onto", lambda _, branch, __: f"write onto a branch {branch[:3]}")
    around(SqlCatalog, "commit_table", lambda _, table, *__: f"commit of {_short('.'.join(table.name()))}")
    around(SqlCatalog, "create_table", lambda _, name, *__: f"creation of {name}")
    # 2. files
    remove = file_removal._delete

    def delete(spark: Any, table: Any, files: Any, location: str) -> None:
        chosen = list(files)
        points.reach(f"before {len(chosen)} files of {_short(table.name())} go")
        remove(spark, table, chosen[: len(chosen) // 2], location)
        points.reach(f"after half of them are gone from {_short(table.name())}")
        remove(spark, table, chosen[len(chosen) // 2 :], location)

    file_removal._delete = delete

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILE_EVENTS and str(arguments[0]).startswith(str(home)):
            points.reach(f"before {event} of {Path(str(arguments[0])).relative_to(home)}")

    sys.addaudithook(hook)


def _short(name: object) -> str:
    return str(name).rpartition(".")[2].strip("`")


def run(argv: list[str], at: int | None, out: Path, home: Path) -> int:
    """Run the command in a child, and return its exit code."""
    out.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(out / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        install(Points(at, out / "points"), home)
        code = main(argv)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


@contextmanager
def new_connection(session: SparkSession) -> Iterator[None]:
    """Connect this thread to the JVM again. Close the connection at the end, after the JVM has ended the last call.

    A command can die in one thread while another one waits for the JVM. On a shared connection, the next command would
    read the answer to that call as the answer to its own.
    """
    jvm: Any = session._jvm
    connection = jvm._gateway_client._create_new_connection()
    make_active(session)
    yield
    connection.socket.shutdown(socket.SHUT_WR)
    with suppress(ConnectionResetError):  # how the JVM closes it
        connection.stream.read()
    connection.close()


class Uncounted(dict[int, Any]):
    """Accumulators of forked commands. Spark sends their updates to this process, which has none of them."""

    def __missing__(self, _: int) -> Any:
        return self

    def __iadd__(self, _: Any) -> Any:
        return self


def serve(config: Path) -> None:
    platform = load_platform(config)
    session = start_session(platform, "dying commands")
    accumulators._accumulatorRegistry = Uncounted()
    imported()
    print(json.dumps({"code": 0}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        with new_connection(session):
            code = run([*asked["argv"], "--config", str(config)], asked["at"], Path(asked["out"]), platform.home)
        print(json.dumps({"code": code}), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
