"""A container engine, and stand-ins for images that no registry in reach has.

If `docker info` answers, that engine is used, with the images that it has or can pull. Otherwise this module installs
Docker's engine by Debian's packages and starts it twice on one data root: on the host's network to build, and in a
network namespace of its own to run. All bridges, rules and published ports of the second one exist in there only.

An image that cannot be pulled is replaced by one that a recipe below makes from Debian's packages, Maven's jars or a Go
module, under the name that the files ask for. `stand_ins` names them, and the report has that list.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
from service_processes import VERSITYGW  # noqa: E402

COMPOSE = "github.com/docker/compose/v5/cmd@v5.0.2"
PACKAGES = ["docker.io", "iptables", "debootstrap", "iproute2"]
MAVEN = "https://repo1.maven.org/maven2"
TOOLS = ["org/apache/kafka/kafka-tools/4.3.1/kafka-tools-4.3.1.jar"]
SCALA = "org/scala-lang/scala-library/{0}/scala-library-{0}.jar"
NAMESPACE = "cleantail-compose"

BASE = """\
FROM scratch
ADD base.tar /
COPY certificates/ /usr/local/share/ca-certificates/
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv \\
    && update-ca-certificates && ln -s /usr/bin/python3.11 /usr/local/bin/python && ln -s python /usr/local/bin/python3
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt
CMD ["python3"]
"""
POSTGRES = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends postgresql
COPY entrypoint /usr/local/bin/
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data POSTGRES_USER=postgres
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["entrypoint"]
"""
POSTGRES_ENTRYPOINT = """\
#!/bin/sh
set -eu
if [ "$(id -u)" = 0 ]; then
  install -d -m 700 -o postgres -g postgres "$PGDATA"
  chown -R postgres "$PGDATA"
  exec setpriv --reuid postgres --regid postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --encoding=UTF8 --locale=C.UTF-8 --username=postgres --pwfile=/dev/stdin --auth-local=trust --auth-host=scram-sha-256 <<E
$POSTGRES_PASSWORD
E
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  pg_ctl start --wait -o '-c listen_addresses='
  for script in /docker-entrypoint-initdb.d/*.sh; do sh "$script"; done
  pg_ctl stop --wait
fi
exec postgres -c 'listen_addresses=*' -c unix_socket_directories=/var/run/postgresql
"""
KAFKA = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless
RUN useradd --uid 1000 --create-home appuser \\
    && install -d -o appuser /opt/kafka/config /etc/kafka/secrets /mnt/shared/config /var/lib/kafka/data /etc/kafka/docker
COPY libs/ /opt/kafka/libs/
COPY bin/ /opt/kafka/bin/
RUN touch /etc/kafka/docker/server.properties /etc/kafka/docker/log4j2.yaml /etc/kafka/docker/tools-log4j2.yaml \\
    && touch /opt/kafka/config/server.properties && chown -R appuser /opt/kafka/config
USER appuser
VOLUME /etc/kafka/secrets /mnt/shared/config /var/lib/kafka/data
CMD ["/opt/kafka/bin/run"]
"""
JAVA = """#!/bin/sh
exec java ${{KAFKA_HEAP_OPTS:--Xmx256m}} -cp '/opt/kafka/libs/*' {} "$@"
"""
KAFKA_COMMANDS = {
    "setup": "kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker "
    "--mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config",
    "broker": "kafka.Kafka /opt/kafka/config/server.properties",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
KAFKA_RUN = """\
#!/bin/sh
/opt/kafka/bin/setup > /tmp/setup 2>&1 || grep -q 'already formatted' /tmp/setup || { cat /tmp/setup; exit 1; }
exec /opt/kafka/bin/broker
"""
STORE = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends curl
COPY versitygw entrypoint /usr/local/bin/
RUN useradd --uid 10001 rustfs && install -d -o rustfs /data
USER rustfs
VOLUME /data
ENTRYPOINT ["entrypoint"]
"""
STORE_ENTRYPOINT = """\
#!/bin/sh
export ROOT_ACCESS_KEY_ID=$RUSTFS_ACCESS_KEY ROOT_SECRET_ACCESS_KEY=$RUSTFS_SECRET_KEY
exec versitygw --port "$RUSTFS_ADDRESS" --health /health --quiet posix "$RUSTFS_VOLUMES"
"""


class Failed(Exception):
    """Something came out otherwise than it should."""


class Engine:
    """Runs `docker` commands, on the engine that is there or on one of its own. Ends and deletes the latter."""

    def __init__(self, work: Path, say: Callable[[str], None], keep: bool) -> None:
        self.work, self.say, self.keep = work, say, keep
        self.stand_ins: list[str] = []
        self._installed: list[str] = []
        self.env = dict(os.environ)
        self.is_own = not shutil.which("docker") or _quiet(["docker", "info"]) != 0
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Engine:
        try:
            if self.is_own:
                self._install()
                self._start([])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.is_own:
            self._stop()
            _quiet(["ip", "netns", "del", NAMESPACE])
            _quiet(["umount", str(self.work / "exec/netns/default")])  # dockerd leaves it mounted
            for group in Path("/sys/fs/cgroup").glob("*/docker"):
                with contextlib.suppress(OSError):
                    group.rmdir()
            if not self.keep:
                shutil.rmtree(self.work / "data", ignore_errors=True)
                if self._installed:
                    run(["apt-get", "purge", "-y", "-q", "--autoremove", *self._installed])

    def docker(self, *command: str, **more: Any) -> str:
        return run(["docker", *command], env=self.env, **more)

    def pull_or_replace(self, dockerfile: Path, compose: Path) -> None:
        """Pulls the images that the files name, or makes stand-ins under the same names."""
        base = re.findall(r"^FROM (\S+)", dockerfile.read_text(), re.MULTILINE)[0]
        services = yaml.safe_load(compose.read_text())["services"].values()
        recipes = {
            "python": self._base,
            "postgres": self._postgres,
            "apache/kafka": self._kafka,
            "rustfs/rustfs": self._store,
        }

        def pull_or_make(pinned: str) -> None:
            image = pinned.partition("@")[0]  # an image that is made here has no digest
            if self._has(pinned):
                return
            self.stand_ins.append(image)
            if not self._is_here(image):
                self.say(f"{image}: not to be had, a stand-in is made")
                recipes[image.partition(":")[0]](image, base.partition("@")[0])

        pull_or_make(base)  # the other recipes begin with it
        with ThreadPoolExecutor() as pool:
            list(pool.map(pull_or_make, sorted({s["image"] for s in services if "build" not in s})))

    def build(self, image: str, dockerfile: Path, context: Path) -> None:
        network = ["--network", "host"] if self.is_own else []
        self.docker("build", *network, "--file", str(dockerfile), "--tag", image, str(context))

    def enter_namespace(self) -> None:
        """Starts the engine again where it may publish ports and make bridges, and moves this process in there."""
        if not self.is_own:
            return
        self._stop()
        run(["ip", "netns", "add", NAMESPACE])
        run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"])
        with open(f"/run/netns/{NAMESPACE}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                raise Failed(f"setns: {os.strerror(ctypes.get_errno())}")
        self._start(["--iptables=true"])

    def _has(self, image: str) -> bool:
        if self._is_here(image):
            return True
        with contextlib.suppress(Failed):
            self.docker("pull", "--quiet", image, timeout=600)
            return True
        return False

    def _is_here(self, image: str) -> bool:
        return not _quiet(["docker", "image", "inspect", image], self.env)

    # --- the engine

    def _install(self) -> None:
        if os.geteuid() or not shutil.which("apt-get") or not shutil.which("go"):
            raise Failed("no engine answers `docker info`; to install one this needs root, Debian's apt-get, and Go")
        if missing := [p for p in PACKAGES if _quiet(["dpkg", "--status", p])]:
            self.say(f"packages are installed until the end: {' '.join(missing)}")
            quiet = {**self.env, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
            self._installed = missing
            run(["apt-get", "update", "-q"], env=quiet)
            run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing], env=quiet)
        plugins = self.work / "docker" / "cli-plugins"
        if not plugins.exists():
            plugins.mkdir(parents=True)
            _go(COMPOSE, self.work / "go").rename(plugins / "docker-compose")
        self.env |= {
            "DOCKER_HOST": f"unix://{self.work}/docker.sock",
            "DOCKER_CONFIG": str(self.work / "docker"),
            "DOCKER_BUILDKIT": "0",  # buildx is no package of Debian
        }

    def _start(self, options: Sequence[str]) -> None:
        places = [
            "--data-root",
            f"{self.work}/data",
            "--exec-root",
            f"{self.work}/exec",
            "--pidfile",
            f"{self.work}/pid",
        ]
        network = list(options) or ["--bridge", "none", "--iptables=false"]
        with open(self.work / "dockerd.log", "ab") as log:
            self._daemon = subprocess.Popen(
                ["dockerd", *places, "--host", self.env["DOCKER_HOST"], *network],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            until(60, lambda: not _quiet(["docker", "info"], self.env), "dockerd answers")
        except Failed as error:
            raise Failed(f"{error}\n{(self.work / 'dockerd.log').read_text()[-2000:]}") from None

    def _stop(self) -> None:
        if self._daemon is not None:
            self._daemon.send_signal(signal.SIGTERM)
            try:
                self._daemon.wait(timeout=120)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
            self._daemon = None

    # --- stand-ins

    def _build(self, image: str, base: str, dockerfile: str, files: dict[str, str | Path]) -> None:
        context = Path(tempfile.mkdtemp(dir=self.work))
        for name, content in {"Dockerfile": dockerfile.format(base=base), **files}.items():
            (context / name).parent.mkdir(exist_ok=True)
            if isinstance(content, str):
                (context / name).write_text(content)
                (context / name).chmod(0o755)
            elif content.is_dir():
                shutil.copytree(content, context / name, dirs_exist_ok=True)
            else:
                shutil.move(content, context / name)
        self.docker("build", "--network", "host", "--tag", image, str(context))
        shutil.rmtree(context)

    def _base(self, image: str, base: str) -> None:
        tree, tar = self.work / "base", self.work / "base.tar"
        run(["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(tree)], timeout=900)
        run(["tar", "--create", "--file", str(tar), "--directory", str(tree), "."])
        shutil.rmtree(tree)
        self._build(image, base, BASE, {"base.tar": tar, "certificates": Path("/usr/local/share/ca-certificates")})

    def _postgres(self, image: str, base: str) -> None:
        self._build(image, base, POSTGRES, {"entrypoint": POSTGRES_ENTRYPOINT})

    def _kafka(self, image: str, base: str) -> None:
        jars = Path(os.environ.get("CLEANTAIL_HOME", ROOT / ".cleantail")) / "jars-kafka"
        reflect = next(jars.glob("*scala-reflect-*.jar")).stem.rpartition("-")[2]
        more: dict[str, str | Path] = {}
        for path in [*TOOLS, SCALA.format(reflect)]:
            more[f"libs/{Path(path).name}"] = self.work / Path(path).name
            urllib.request.urlretrieve(f"{MAVEN}/{path}", self.work / Path(path).name)
        commands = {f"bin/{name}": JAVA.format(command) for name, command in KAFKA_COMMANDS.items()}
        commands["bin/run"] = KAFKA_RUN
        self._build(image, base, KAFKA, {"libs": jars, **more, **commands})

    def _store(self, image: str, base: str) -> None:
        program = _go(VERSITYGW, self.work / "go")
        self._build(image, base, STORE, {"versitygw": program, "entrypoint": STORE_ENTRYPOINT})


def run(command: list[str], *, timeout: float = 1800, stdin: str | None = None, **more: Any) -> str:
    """Runs a command and returns its standard output. Raises Failed with the end of both outputs."""
    done = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=timeout, **more)
    if done.returncode:
        raise Failed(f"{' '.join(command)[:200]}: exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
    return str(done.stdout)


def until(seconds: float, is_so: Callable[[], bool], what: str, every: float = 2) -> float:
    """Waits until something is so, and returns after how many seconds it was."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise Failed(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)
    return time.monotonic() - began


def _quiet(command: list[str], env: dict[str, str] | None = None) -> int:
    return subprocess.run(command, capture_output=True, env=env).returncode


def _go(module: str, into: Path) -> Path:
    """Builds a Go program and returns its file."""
    into.mkdir(exist_ok=True)
    run(
        ["go", "install", module],
        env={**os.environ, "GOBIN": str(into), "GOFLAGS": "-modcacherw", "GOMODCACHE": str(into / "modules")},
    )
    return into / module.partition("@")[0].rpartition("/")[2]
