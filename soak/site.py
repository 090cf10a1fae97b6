"""The site of a soak: a REST catalog, a warehouse on a small separate disk, and machines that share only these two."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
from pyiceberg.catalog import Catalog

from soak.files import Files
from soak.gateway import LOOPBACK, PAUSED, Fault, Gateway
from soak.kafka import Broker
from soak.oracle import open_catalog
from soak.wire import DATABASE, Wire

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "deploy"))
from catalog_services import start_rest  # noqa: E402
from service_processes import NotStarted as NotStarted  # noqa: E402
from service_processes import Processes, free_port, start_postgres  # noqa: E402

COMMAND_WITHIN_S, DAG_WITHIN_S = 600, 1800
"""A command, or a run of a DAG, that takes longer is stuck, which is a finding."""
SECRETS = ("CLEANTAIL_CATALOG_", "CLEANTAIL_S3_")
"""Variables of the environment that a machine gets: the login of a staging platform's catalog and store."""
LOGIN = {"CLEANTAIL_CATALOG_USER": "cleantail", "CLEANTAIL_CATALOG_PASSWORD": "soak"}
PASSWORDS = {"POSTGRES_PASSWORD": "x", "AIRFLOW_DB_PASSWORD": "x", "CLEANTAIL_CATALOG_PASSWORD": "soak"}
ERASURE = {f"CLEANTAIL_{name}_KEY": base64.b64encode(bytes(32)).decode() for name in ("ERASURE", "CERTIFICATE")}
WAREHOUSE, LANDING, NAMESPACE, DISK = "warehouse", "landing", "cleantail_soak", "size=512m,mode=700"
DIED, STUCK = -9, -1
SPARK = {
    "spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.shuffle.partitions": 1, "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
}  # fmt: skip
SMALL = {"master": "local[2]", "conf": SPARK}
PATIENCE = {
    "rest": {"rest.client.socket-timeout-ms": "4000"},
    "postgres": {"jdbc.socketTimeout": "4", "jdbc.prepareThreshold": "0"},
}
"""Catalog -> properties of its clients. Their timeouts are shorter than the gateway's silence. SQL statements are sent
as text."""


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit code, DIED or STUCK, and what it printed."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str
    hit: str | None = None  # the point at which the command's fault happened

    def __str__(self) -> str:
        how = {DIED: "was killed", STUCK: "was stuck"}.get(self.code, f"exit code {self.code}")
        return f"{' '.join(self.argv)}: {how}\n{(self.out + self.err)[-3000:]}"


class Machine:
    """A machine: a home, a configuration, a door to the catalog, and the process that runs commands."""

    def __init__(
        self, name: str, folder: Path, gateway: Gateway | Wire, platform: Mapping[str, Any], login: Mapping[str, str]
    ) -> None:
        self.roots = [ROOT]
        self.name, self.config = name, folder / f"config-{name}"
        self.warehouse, self._login = folder / WAREHOUSE, login
        self.stopped = threading.Event()
        self.door, address = gateway.open(self._act)
        self._process: subprocess.Popen[str] | None = None
        self.move()
        self._undo: list[Any] = []
        catalog = platform["catalog"]
        properties = {**PATIENCE[catalog["type"]], **catalog.get("properties", {})}
        own = {"name": "cleantail", "namespace": NAMESPACE, "uri": address, "properties": properties}
        read = {"sources": [str(folder / LANDING)], "shared_sources": [f"path:{folder / LANDING}/*"]}
        self._platform = {**platform, **read, "catalog": {**catalog, **own}}
        for allow in (False, True):
            for kind in ("topics", "groups"):
                (self.config_of(allow) / kind).mkdir(parents=True)

    def config_of(self, allow_clock: bool) -> Path:
        return self.config.with_name(f"{self.config.name}-clock") if allow_clock else self.config

    def configure(self, name: str, settings: Mapping[str, object], cleaner: object = None, kind: str = "topic") -> None:
        for allow in (False, True):
            platform = {**self._platform, "allow_clock": allow, "cleaner": cleaner or {}}
            (self.config_of(allow) / "defaults.yaml").write_text(json.dumps({"platform": platform}))
            (self.config_of(allow) / f"{kind}s" / f"{name}.yaml").write_text(json.dumps({kind: name, **settings}))

    def forget(self, topic: str) -> None:
        for allow in (False, True):
            for file in self.config_of(allow).glob(f"*/{topic}*.yaml"):
                file.unlink()

    def run(self, argv: Sequence[object], fault: Fault | None = None, label: str | None = None) -> Done:
        """Run a command, with a fault at one of its requests. Then repair the disk. `label`: its name in points."""
        words = tuple(map(str, argv))
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        is_plain = " " in words[0] or words[0] in ("sql", "watch", "clock")
        self.door.begin("" if is_plain else label or words[0], fault)
        of_trials = words[0] == "dag" or (words[0] == "reclaim" and "--now" in words)
        config = [] if is_plain else ["--config", str(self.config_of(of_trials))]
        timer = threading.Timer(DAG_WITHIN_S if words[0] == "dag" else COMMAND_WITHIN_S, self._give_up)
        timer.start()
        self._stuck = False
        try:
            process.stdin.write(json.dumps([*words, *config]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
            self.mend()
            self.door.fault = None
        if line:
            code, out, err = json.loads(line)
            return Done(words, code, out, err, self.door.hit)
        self.kill()
        log = "" if self.door.hit else self.home.with_suffix(".log").read_text(errors="replace")[-2000:]
        return Done(words, STUCK if self._stuck else DIED, "", log, self.door.hit)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLEANTAIL_", "SPARK_", "PYSPARK_"))}
            own = {
                "CLEANTAIL_HOME": str(self.home),
                "AIRFLOW_HOME": str(self.home / "airflow"),
                "CLEANTAIL_JARS": str(jars_of("CLEANTAIL_JARS", "jars")),
                "CLEANTAIL_CONFIG": str(self.config),
                "PYTHONPATH": os.pathsep.join(map(str, (self.roots[0], self.roots[0] / "plugins"))),
            }
            env = {**kept, **ERASURE, **self._login, **own}
            command, place = [sys.executable, "-P", str(ROOT / "soak" / "worker.py")], self.home.parent
            log = self.home.with_suffix(".log").open("ab")
            self._process = subprocess.Popen(
                command, stdin=PIPE, stdout=PIPE, stderr=log, text=True, env=env, cwd=place, start_new_session=True
            )
        return self._process

    def _give_up(self) -> None:
        self._stuck = True
        self.kill()

    def move(self, home: Path | None = None) -> None:
        """End the process. The next command starts one with this home, or with the machine's own."""
        self.kill()
        self.home = home or self.config.with_name(f"home-{self.name}")

    def upgrade(self) -> None:
        """End the process. The next command starts one of the other version if the site has one."""
        self.kill()
        self.roots.append(self.roots.pop(0))

    def _act(self, how: str) -> None:
        """Make the fault that a request at the gateway triggers."""
        if how.startswith("kill"):
            self.kill()
        elif how.startswith(PAUSED):
            self.kill(driver_only=True) if how.startswith("orphan") else self._signal(signal.SIGSTOP)
            self.stopped.set()
        elif how == "full disk":
            self._fill(self.warehouse)
        elif how == "full home":
            self._fill(self.home)
        elif how == "read-only home":
            self._protect()
        else:
            self._damage(*how.split(" "))

    def kill(self, driver_only: bool = False) -> None:
        """Kill the process and its descendants. `driver_only`: do not kill Spark's JVM and its descendants."""
        if self._process is not None:
            for process in self._family():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if not driver_only or "java" not in (process.name(), *(p.name() for p in process.parents())):
                        process.kill()
            self._process.wait()

    def _family(self) -> list[Any]:
        try:
            leader = psutil.Process(self._process.pid if self._process else -1)
            return [leader, *leader.children(recursive=True)]
        except (psutil.NoSuchProcess, ValueError):
            return []

    def _signal(self, number: signal.Signals) -> None:
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def go_on(self) -> None:
        """Let a stopped machine and its request continue."""
        self.stopped.clear()
        self._signal(signal.SIGCONT)
        self.door.released.set()

    def _protect(self) -> None:
        """Mount the home on itself, read-only, until the command ends. Files that are open stay writable."""
        home = str(self.home)
        command = ["mount", "-o", "bind,ro", home, home]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            self._undo.append(lambda: subprocess.run(["umount", "-l", home], check=False))

    def _fill(self, place: Path) -> None:
        if not place.is_mount():
            return
        filler = place / ".filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 10, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        self._undo.append(lambda: filler.unlink(missing_ok=True))

    def _damage(self, how: str, what: str) -> None:
        """Remove all deletion vectors or data files, or cut them to half of their bytes. Not those that are being
        written."""
        aside = self.home.with_name(f"aside-{self.name}")
        aside.mkdir(exist_ok=True)
        pattern = {"vectors": "*.puffin", "data": "*.parquet"}[what]
        for n, file in enumerate(file for file in sorted(self.warehouse.rglob(pattern)) if file.stat().st_size):
            kept = aside / str(n)
            shutil.copy2(file, kept)
            if how == "lost":
                file.unlink(missing_ok=True)
            else:
                os.truncate(file, kept.stat().st_size // 2)
            self._undo.append(lambda kept=kept, file=file: shutil.move(kept, file))

    def mend(self) -> None:
        while self._undo:
            self._undo.pop()()


@dataclass
class Site:
    """The running site. `catalog`: the settings with which the oracle opens the catalog. `is_own`: the soak started the
    catalog and its warehouse. `has_disks`: on disks of their own, so faults of the disk reach them."""

    folder: Path
    catalog: Catalog
    is_own: bool
    has_disks: bool
    is_sql: bool
    machines: list[Machine]
    broker: Broker | None = None
    restart_catalog: Callable[[float], None] = lambda _: None  # after so many seconds without a catalog


@contextlib.contextmanager
def running_site(
    say: Callable[[str], None], machines: int, kafka: bool, sql: bool, platform: Mapping[str, Any] | None,
    versions: Sequence[Path],
) -> Iterator[Site]:  # fmt: skip
    """Start a site, and remove it with all its processes and files. Raises NotStarted and BrokerError.

    `sql`: start a catalog in Postgres instead of a REST server. `platform`: use the REST catalog of this staging
    platform instead. Its tables stay. `versions`: checkouts of other versions, to which an upgrade switches.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cleantail-soak-"))).resolve()
        folder.chmod(0o711)  # the database's user must be able to enter the folder
        (folder / LANDING).mkdir()
        places, disks = [folder / WAREHOUSE, *(folder / f"home-{name}" for name in range(machines))], list[Path]()
        for place in places:
            place.mkdir()
            small = ["mount", "-t", "tmpfs", "-o", DISK, "cleantail-soak", str(place)]
            if subprocess.run(small, capture_output=True, check=False).returncode == 0:  # only for root
                stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
                disks.append(place)
        (folder / "logs").mkdir()
        processes, port = stack.enter_context(Processes(folder / "logs")), free_port()
        login = {k: v for k, v in os.environ.items() if k.startswith(SECRETS)}
        gateway: Gateway | Wire

        def start(after_s: float = 0) -> None:
            with contextlib.redirect_stdout(sys.stderr):
                processes.kill("rest-catalog")
                time.sleep(after_s)
                properties = {"uri": f"jdbc:sqlite:{folder / 'rest.db'}", "warehouse": f"file://{folder / WAREHOUSE}"}
                start_rest(processes, port, jars_of("CLEANTAIL_REST_JARS", "jars-rest"), properties)

        if platform is not None:
            used = platform
        elif sql:
            say("starting Postgres")
            (folder / "postgres").mkdir()
            with contextlib.redirect_stdout(sys.stderr):
                start_postgres(processes, folder / "postgres", port, PASSWORDS)
            login = LOGIN
            address = {"uri": f"postgresql://{LOOPBACK}:{port}/{DATABASE}", "warehouse": f"file:{folder / WAREHOUSE}"}
            used = {"spark": SMALL, "catalog": {"type": "postgres", **address}}
        else:
            say("starting the REST catalog")
            start()
            used = {"spark": SMALL, "catalog": {"type": "rest", "uri": f"http://{LOOPBACK}:{port}"}}
        gateway = Wire(port) if sql else Gateway(used["catalog"]["uri"].rstrip("/"))
        stack.callback(gateway.close)
        made = [Machine(str(n), folder, gateway, used, login) for n in range(machines)]
        for machine in made:
            machine.roots += versions
            stack.callback(machine.kill)
        if disks != places or not Files(disks, places[0], {machine.name: machine.door for machine in made}).is_there:
            say("no faults at files: they need root")
        broker = None
        if kafka:
            say("starting the broker")
            (folder / "broker").mkdir()
            broker = Broker(folder / "broker")
            stack.callback(broker.stop)
        catalog = open_catalog(used["catalog"], login)
        yield Site(folder, catalog, platform is None, platform is None and disks == places, sql, made, broker, start)


def jars_of(variable: str, name: str) -> Path:
    """Return the folder that a variable of the environment names, or the one that `make setup` made."""
    home = Path(os.environ.get("CLEANTAIL_HOME") or ROOT / ".cleantail")
    return Path(os.environ.get(variable) or home / name).absolute()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
