"""The services of docker-compose.yaml as processes on loopback: Postgres, an S3 gateway, Spark standalone.

    with Processes(logs) as processes:
        start_s3(processes, directory, free_port(), secrets)

All started services are stopped when the block ends, in reverse order, also after an error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import healthy

from cleantail.home.driver_process import with_own_python

ROOT = Path(__file__).resolve().parents[1]
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GATEWAY_FOLDER = Path.home() / ".cache" / "cleantail" / "bin"
READY_WITHIN_S = 60
STOPPED_WITHIN_S = 20
LOOPBACK = "127.0.0.1"
POSTGRES_USER = "postgres"
Ready = Callable[[], bool]


class NotStarted(Exception):
    """A service is not installed, or did not start."""


class Processes:
    """The running services, each in its own process group, with its output in `<directory>/<name>.log`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[tuple[str, subprocess.Popen[bytes], signal.Signals]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for name, process, by in reversed(self._running):
            _stop(process, by)
            print(f"stopped {name}", flush=True)

    def kill(self, name: str) -> None:
        """Kill a service. It may be started again."""
        for entry in [entry for entry in self._running if entry[0] == name]:
            _stop(entry[1], signal.SIGKILL)
            self._running.remove(entry)

    def start(
        self,
        name: str,
        command: Sequence[str],
        ready: Ready,
        env: Mapping[str, str],
        ended_by: signal.Signals = signal.SIGTERM,
        **how: Any,
    ) -> None:
        """Start a service and wait until it is ready. Raises NotStarted with the end of its output."""
        log = self.directory / f"{name}.log"
        began = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=dict(env), stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **how
            )
        self._running.append((name, process, ended_by))
        while not ready():
            if process.poll() is not None or time.monotonic() - began > READY_WITHIN_S:
                raise NotStarted(f"{name} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        print(f"started {name} ({time.monotonic() - began:.1f} s)", flush=True)


def _stop(process: subprocess.Popen[bytes], by: signal.Signals) -> None:
    """End the process group, which start_new_session created. Processes that outlive its leader end too."""
    _signal_group(process.pid, by)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOPPED_WITHIN_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def start_postgres(processes: Processes, directory: Path, port: int, env: Mapping[str, str]) -> None:
    """Start a new cluster. The container's own script creates its databases. `env` has the passwords."""
    binaries = _postgres_binaries()
    # Postgres refuses to run as root. It runs as its package's user then, in a directory of that user
    other = {"user": POSTGRES_USER, "group": POSTGRES_USER, "extra_groups": []}
    own: dict[str, Any] = other if os.geteuid() == 0 else {}
    if own:
        shutil.chown(directory, POSTGRES_USER, POSTGRES_USER)
    data = directory / "data"
    with _private_file(directory / "password", env["POSTGRES_PASSWORD"], own) as password:
        initdb = [str(binaries / "initdb"), "-D", str(data), "-U", POSTGRES_USER, "-A", "scram-sha-256"]
        subprocess.run([*initdb, f"--pwfile={password}"], check=True, stdout=subprocess.DEVNULL, cwd=directory, **own)
    settings = {"port": port, "listen_addresses": LOOPBACK, "unix_socket_directories": "", "fsync": "off"}
    command = [str(binaries / "postgres"), "-D", str(data), *(f"--{k}={v}" for k, v in settings.items())]
    asked = [str(binaries / "pg_isready"), f"--host={LOOPBACK}", f"--port={port}", "--quiet"]
    ready = lambda: subprocess.run(asked, check=False).returncode == 0  # noqa: E731
    how = {"cwd": directory, **own}
    # on SIGTERM it would wait until its last client disconnects
    processes.start("postgres", command, ready, {"PATH": os.defpath}, ended_by=signal.SIGINT, **how)
    client = {**env, "PATH": f"{binaries}:{os.defpath}", "POSTGRES_USER": POSTGRES_USER, "PGHOST": LOOPBACK}
    client |= {"PGPORT": str(port), "PGPASSWORD": env["POSTGRES_PASSWORD"]}
    for script in ("create-databases.sh", "set-passwords.sh"):
        subprocess.run(["sh", str(ROOT / "deploy/postgres" / script)], check=True, env=client)


def _postgres_binaries() -> Path:
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    if initdb := shutil.which("initdb"):
        return Path(initdb).parent
    raise NotStarted("there is no Postgres: apt-get install postgresql")


@contextlib.contextmanager
def _private_file(file: Path, text: str, own: Mapping[str, Any]) -> Iterator[Path]:
    file.touch(mode=0o600)
    file.write_text(text)
    if own:
        shutil.chown(file, POSTGRES_USER, POSTGRES_USER)
    yield file
    file.unlink()


def start_s3(processes: Processes, directory: Path, port: int, secrets: Mapping[str, str]) -> None:
    """Start versitygw. Objects are plain files under `directory`, their older versions next to it. It refuses wrong
    credentials."""
    access_key, secret_key = secrets["CLEANTAIL_S3_ACCESS_KEY_ID"], secrets["CLEANTAIL_S3_SECRET_ACCESS_KEY"]
    env = {"PATH": os.defpath, "ROOT_ACCESS_KEY_ID": access_key, "ROOT_SECRET_ACCESS_KEY": secret_key}
    versions = directory.with_name(f"{directory.name}-versions")  # of buckets that keep them
    versions.mkdir(mode=0o700)
    places = ["posix", "--versioning-dir", str(versions), str(directory)]
    command = [_versitygw(), "--port", f"{LOOPBACK}:{port}", "--quiet", *places]
    processes.start("versitygw", command, lambda: listens(port), env)


def _versitygw() -> str:
    """Return the gateway of VERSITYGW or PATH; else build it with Go, once (about a minute)."""
    if program := built_versitygw():
        return program
    if not shutil.which("go"):
        raise NotStarted("there is no S3 server: install Go, or versitygw, and name it in VERSITYGW")
    print("building versitygw ...", flush=True)
    subprocess.run(["go", "install", VERSITYGW], check=True, env={**os.environ, "GOBIN": str(GATEWAY_FOLDER)})
    return str(GATEWAY_FOLDER / "versitygw")


def built_versitygw() -> str | None:
    """Return the gateway if it exists already."""
    here = shutil.which("versitygw") or shutil.which("versitygw", path=str(GATEWAY_FOLDER))
    return os.environ.get("VERSITYGW") or here


def start_spark(processes: Processes, directory: Path, port: int, master_ui: int, env: Mapping[str, str]) -> None:
    """Start a master and two workers, with the commands, options and health checks of docker-compose.yaml."""
    spark = str(Path(sys.executable).parent / "spark-class")
    env = {**with_own_python(env), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_WORKER_DIR": str(directory)}
    master = [spark, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port)]
    alive = _page(master_ui, '"status" : "ALIVE"')
    processes.start("spark-master", [*master, "--webui-port", str(master_ui)], alive, env)
    for number in (1, 2):
        ui = free_port()
        worker = [spark, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--webui-port", str(ui)]
        registered = _page(ui, '"masterwebuiurl" : "http')
        processes.start(f"spark-worker-{number}", [*worker, f"spark://{LOOPBACK}:{port}"], registered, env)


def _page(port: int, expected: str) -> Ready:
    def is_there() -> bool:
        try:
            return healthy.problem(f"http://{LOOPBACK}:{port}/json/", expected) is None
        except healthy.NoAnswer:  # it has just started
            return False

    return is_there
