"""Start and stop the embedded Airflow, or print its environment.

    bin/cleantail-airflow up --port 8080     # start, wait until healthy, print the UI's address
    bin/cleantail-airflow down               # stop it and everything it started
    eval "$(bin/cleantail-airflow env)"      # for airflow's own commands in this shell
    bin/cleantail-airflow run                # in the foreground

CLEANTAIL_CONFIG names the configuration (default: config). State is in CLEANTAIL_HOME/airflow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psutil  # comes with Airflow

from cleantail.errors import CleantailError
from cleantail.home.home_folder import holds_within, open_to_others
from cleantail_airflow.installation import ROOT
from embedded_airflow import components
from embedded_airflow.home import PASSWORDS, USER, airflow_home, environment, make_secrets

DEFAULT_PORT = 8080
HEALTHY_WITHIN_S = 600
"""Includes the migration of Airflow's database to a newer version."""
TASKS_STOPPED_WITHIN_S = 20
STOPPED_WITHIN_S = 45
REST_STOPPED_WITHIN_S = 5
# Log servers are left out: they bind every interface, and the UI reads the logs of this machine from the disk.
LISTENERS = (("api-server",), ("triggerer", "--skip-serve-logs"), ("dag-processor",))
SCHEDULER = ("scheduler", "--skip-serve-logs")
NEEDED = ("metadatabase", "scheduler", "dag_processor")
STATE = "up.json"
KEPT_DAYS = 30
MOST_BYTES = 50 << 20
"""Size of `airflow.log`, the log of Airflow's own processes, above which it is emptied."""
DAY_S = 86_400


def up(home: Path, port: int) -> None:
    """Start Airflow in a session of its own. Raises CleantailError if it does not become healthy."""
    if noted := running(home):
        _say(home, noted["port"], "is already running")
        return
    _refuse_taken(port)
    make_secrets(home)
    if warning := open_to_others(home.parent):
        print(f"warning: {warning}", file=sys.stderr)
    env = {**os.environ, **environment(port, os.environ)}
    (home / "airflow.log").unlink(missing_ok=True)
    with (home / "airflow.log").open("a", encoding="utf-8") as log:  # appended to, so that a user can empty it
        command = [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), "run", "--port", str(port)]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    note = {"pid": process.pid, "port": port, "started": psutil.Process(process.pid).create_time()}
    (home / STATE).write_text(json.dumps(note), encoding="utf-8")
    print("starting Airflow ...", flush=True)
    if not wait_until_healthy(process, port):
        down(home)
        raise CleantailError(f"Airflow did not become healthy; the end of {home / 'airflow.log'}:\n{_tail(home)}")
    _say(home, port, "is up")


def _say(home: Path, port: int, state: str) -> None:
    print(f"Airflow {state}: http://127.0.0.1:{port}  user: {USER}  password: in {home / PASSWORDS}")
    print(f"log: {home / 'airflow.log'}  to stop it: make down")


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CleantailError(
                f"port {port}: {error.strerror}; choose another port with --port, or with make up PORT=8081"
            ) from None


def wait_until_healthy(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until scheduler and DAG processor are healthy. Return False if the process ends before, or after
    HEALTHY_WITHIN_S."""

    def known() -> bool:
        return process.poll() is not None or _is_healthy(_health(port))

    return holds_within(known, every_s=0.5, within_s=HEALTHY_WITHIN_S) and process.poll() is None


def _is_healthy(health: Mapping[str, Any]) -> bool:
    return all(health.get(name, {}).get("status") == "healthy" for name in NEEDED)


def _health(port: int) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/monitor/health", timeout=5) as answer:
            health: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return {}
    return health


def _tail(home: Path) -> str:
    return "\n".join((home / "airflow.log").read_text(errors="replace", encoding="utf-8").splitlines()[-15:])


def running(home: Path) -> dict[str, Any] | None:
    """Return the note that `up` wrote. None if its process has ended, even if another process now has its number."""
    try:
        noted: dict[str, Any] = json.loads((home / STATE).read_text(encoding="utf-8"))
        process = psutil.Process(noted["pid"])
        same = process.create_time() == noted["started"] and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        return None
    return noted if same else None


def down(home: Path) -> None:
    """Stop the processes that `up` started, with all of their children. Spark applications have process groups of their
    own."""
    noted = running(home)
    if noted is None:
        print("Airflow is not running")
        return
    leader = psutil.Process(noted["pid"])
    family = [leader, *leader.children(recursive=True)]
    leader.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOPPED_WITHIN_S)
    _send(alive, signal.SIGKILL)
    (home / STATE).unlink(missing_ok=True)
    print("Airflow has stopped")


def run(port: int) -> int:
    """Prepare Airflow's database, and run all components in the foreground. If one of them ends, stop the others."""
    components.find_title()
    make_secrets(airflow_home(os.environ))
    os.environ.update(environment(port, os.environ))
    signal.signal(signal.SIGTERM, _leave)
    processes: list[psutil.Process] = []
    try:
        components.preload()
        if not _prepare_database():
            print("Airflow's database could not be prepared", file=sys.stderr, flush=True)
            return 1
        for command in LISTENERS:
            processes.append(components.start(*command))
        components.preload_for_tasks()  # while the components start
        _wait_for_api(processes[0], port)
        processes.append(components.start(*SCHEDULER))
        tidied_s = 0.0
        while not any(map(components.has_ended, processes)):
            if time.time() - tidied_s > DAY_S:
                tidied_s = time.time()
                delete_old_logs(airflow_home(os.environ), tidied_s)
            time.sleep(0.5)
        print("a component has ended; stopping the others", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        stop(processes)


def delete_old_logs(home: Path, now_s: float) -> int:
    """Delete logs that have not changed for KEPT_DAYS, and folders that are empty then. Return the number of files.

    Airflow itself deletes none. The folder `logs` has a file for each try of each task, and files of the DAG processor.
    Runs stay in Airflow's database (docs/operations.md). Follows no link.
    """
    deleted = 0
    for folder, _, names in os.walk(home / "logs", topdown=False):
        unchanged = Path(folder).stat().st_mtime < now_s - DAY_S  # otherwise a task may be about to write to it
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_mtime < now_s - KEPT_DAYS * DAY_S:
                    path.unlink()
                    deleted += 1
        if unchanged and Path(folder) != home / "logs":
            with contextlib.suppress(OSError):  # the folder is not empty
                Path(folder).rmdir()
    with contextlib.suppress(FileNotFoundError):
        if (home / "airflow.log").stat().st_size > MOST_BYTES:
            os.truncate(home / "airflow.log", 0)
    return deleted


def _prepare_database() -> bool:
    """Create or migrate Airflow's tables, and return whether that succeeded. A signal to this process does not
    interrupt a migration: some databases would be left half migrated."""
    migration = components.start("db", "migrate")
    try:
        return bool(migration.wait() == 0)
    finally:
        migration.wait()


def _wait_for_api(server: psutil.Process, port: int) -> None:
    """Wait for the API server. Every task reports to it, so a task that starts earlier fails."""
    holds_within(lambda: components.has_ended(server) or bool(_health(port)), every_s=0.2, within_s=inf)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def stop(processes: list[psutil.Process]) -> None:
    """Stop scheduler and tasks first, while tasks can still report that they were stopped. Then stop the listeners."""
    listening, scheduling = processes[: len(LISTENERS)], processes[len(LISTENERS) :]
    late = [*_stopped(scheduling, TASKS_STOPPED_WITHIN_S), *_stopped(listening, REST_STOPPED_WITHIN_S)]
    _send(late, signal.SIGKILL)


def _stopped(processes: list[psutil.Process], within_s: float) -> list[psutil.Process]:
    """Send SIGTERM to the processes and their children. Return those that did not end."""
    alive = [process for process in processes if process.is_running()]
    family = [member for process in alive for member in (*process.children(recursive=True), process)]
    _send(family, signal.SIGTERM)
    late: list[psutil.Process] = psutil.wait_procs(family, timeout=within_s)[1]
    return late


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:  # also raised if another process has its number now
            continue


def show_environment(port: int) -> None:
    """Print the environment as a shell reads it."""
    for name, value in environment(port, os.environ).items():
        print(f"export {name}={shlex.quote(value)}")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="cleantail-airflow", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["up", "down", "env", "run"])
    parser.add_argument("--port", type=int, help=f"of the UI on 127.0.0.1; default {DEFAULT_PORT}")
    options = parser.parse_args(argv)
    try:
        home = airflow_home(os.environ)
        port = options.port or (running(home) or {}).get("port", DEFAULT_PORT)
        if options.command == "run":
            return run(port)
        actions = {"up": lambda: up(home, port), "down": lambda: down(home), "env": lambda: show_environment(port)}
        actions[options.command]()
    except CleantailError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0
