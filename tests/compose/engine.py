"""A container engine, and stand-ins for images that no registry in reach has.

If `docker info` answers, that engine is used, with the images that it has or can pull. Otherwise this module installs
Docker's engine by Debian's packages and starts it twice on one data root: on the host's network to build, and in a
network namespace of its own to run. All bridges, rules and published ports of the second one exist in there only.

An image that cannot be pulled is replaced by one that a recipe below makes from Debian's packages, Maven's jars or a Go
module. `stand_ins` names them, and the report has that list. Every image that is made here has a name below OWN and
LABEL. So the end deletes these images, those that it pulled, and no other.
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
from service_processes import VERSITYGW  # noqa: E402

COMPOSE = "github.com/docker/compose/v5/cmd@v5.0.2"
MAVEN = "https://repo1.maven.org/maven2"
TOOLS = ["org/apache/kafka/kafka-tools/4.3.1/kafka-tools-4.3.1.jar"]
SCALA = "org/scala-lang/scala-library/{0}/scala-library-{0}.jar"
NAMESPACE = "cleantail-compose"
OWN, LABEL = "cleantail-test/", "cleantail.test"
PLACES = ["/etc/docker", "/opt/containerd", "/run/containerd", "/run/docker", "/run/netns", "/var/lib/containerd"]
"""What the packages and the engine make outside of the work folder."""
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
"""Settings of apt-get: no question, and no service is started."""

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
STOPSIGNAL SIGINT
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
        self.names: dict[str, str] = {}
        """Image of the files -> the image that is used: itself, or a stand-in."""
        self.env = {**os.environ, "DOCKER_BUILDKIT": "0"}  # what BuildKit caches has no label
        self.is_own = not shutil.which("docker") or _quiet(["docker", "info"]) != 0
        self._pulled: list[str] = []
        self._packages: set[str] = set()
        self._places = [place for place in PLACES if not Path(place).exists()]
        self._has_group = _has_group()
        self._programs = ThreadPoolExecutor(1)
        self._compose: Future[Path] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def stand_ins(self) -> list[str]:
        return sorted(image.partition("@")[0] for image, used in self.names.items() if image != used)

    def __enter__(self) -> Engine:
        try:
            if self.is_own:
                self._install()
                self._start([])
            elif _quiet(["docker", "compose", "version"]):
                raise Failed("an engine answers `docker info`, but it has no `docker compose`")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._programs.shutdown(cancel_futures=True)
        if self.is_own:
            self._stop()
            _quiet(["ip", "netns", "del", NAMESPACE])
            _quiet(["umount", str(self.work / "exec/netns/default")])  # dockerd leaves it mounted
            for group in Path("/sys/fs/cgroup").glob("*/docker"):
                with contextlib.suppress(OSError):
                    group.rmdir()
        else:
            for image in self._pulled:
                _quiet(["docker", "image", "rm", re.sub(r":[^:@]+@", "@", image)])
            _quiet(["docker", "image", "prune", "--all", "--force", "--filter", f"label={LABEL}"])
        if not self.keep:
            shutil.rmtree(self.work / "data", ignore_errors=True)
            self._remove_packages()

    def docker(self, *command: str, **more: Any) -> str:
        return run(["docker", *command], env=self.env, **more)

    def base(self, dockerfile: Path) -> None:
        """Provides the image that the Dockerfile and the stand-ins begin with."""
        self._provide(re.findall(r"^FROM (\S+)", dockerfile.read_text(), re.MULTILINE)[0])

    def others(self, compose: Path) -> None:
        """Provides the images that docker-compose.yaml names and does not build."""
        services = yaml.safe_load(compose.read_text())["services"].values()
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._provide, sorted({s["image"] for s in services if "build" not in s})))

    def _provide(self, pinned: str) -> None:
        """Pulls an image, or makes a stand-in of a name of its own."""
        image = pinned.partition("@")[0]
        if self._has(pinned):
            self.names[pinned] = pinned
            return
        if not self._is_here(OWN + image):
            self.say(f"{image}: not to be had, a stand-in is made")
            recipes = {
                "python": self._base,
                "postgres": self._postgres,
                "apache/kafka": self._kafka,
                "rustfs/rustfs": self._store,
            }
            base = next(iter(self.names.values()), "")  # what base() provided
            recipes[image.partition(":")[0]](OWN + image, base)
        self.names[pinned] = OWN + image

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
        if self._compose is not None:
            self._compose.result()

    def _has(self, image: str) -> bool:
        if self._is_here(image):
            return True
        with contextlib.suppress(Failed):
            self.docker("pull", "--quiet", image, timeout=600)
            self._pulled.append(image)
            return True
        return False

    def _is_here(self, image: str) -> bool:
        return not _quiet(["docker", "image", "inspect", image], self.env)

    # --- the engine

    def _install(self) -> None:
        if not shutil.which("go"):
            raise Failed("no engine answers `docker info`; to install one this needs Go")
        plugin = self.work / "docker" / "cli-plugins" / "docker-compose"
        plugin.parent.mkdir(parents=True, exist_ok=True)
        if not plugin.exists():  # built meanwhile: the first use is in enter_namespace
            self._compose = self._programs.submit(lambda: _go(COMPOSE, self.work / "go").rename(plugin))
        self._add_packages(["docker.io", "iptables", "iproute2"])
        self.env |= {
            "DOCKER_HOST": f"unix://{self.work}/docker.sock",
            "DOCKER_CONFIG": str(self.work / "docker"),
        }

    def _add_packages(self, packages: list[str]) -> None:
        """Installs packages until the end. What apt-get fetches stays in the work folder."""
        if os.geteuid() or not shutil.which("apt-get"):
            raise Failed(f"{' '.join(packages)}: to install them this needs root, and Debian's apt-get")
        before = _installed()
        if not (missing := [p for p in packages if p not in before]):
            return
        self.say(f"packages are installed until the end: {' '.join(missing)}")
        places = [f"Dir::State::Lists={self.work}/apt/lists", f"Dir::Cache={self.work}/apt/cache"]
        for place in places:
            Path(place.partition("=")[2]).mkdir(parents=True, exist_ok=True)
        options = [word for place in places for word in ("-o", place)]
        quiet = {**self.env, **QUIET}
        try:
            run(["apt-get", *options, "update", "-q"], env=quiet)
            run(["apt-get", *options, "install", "-y", "-q", "--no-install-recommends", *missing], env=quiet)
        finally:
            self._packages |= _installed() - before

    def _remove_packages(self) -> None:
        if self._packages:
            run(["apt-get", "purge", "-y", "-q", *sorted(self._packages)], env={**self.env, **QUIET})
        if not self.is_own:
            return
        for place in self._places:
            _quiet(["umount", place])
            shutil.rmtree(place, ignore_errors=True)
        if not self._has_group and _has_group():
            _quiet(["groupdel", "docker"])

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
        for name, content in {"Dockerfile": labelled(dockerfile.format(base=base), image), **files}.items():
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
        self._add_packages(["debootstrap"])
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


def labelled(dockerfile: str, name: str) -> str:
    """Returns the Dockerfile with the label that the end deletes images by, before any step that makes a layer.

    The value is the image's name. Two images of one base would else share the layer of the label, and builds at once
    make it twice: then a later build finds the other one, and none of its own layers.
    """
    return re.sub(r"^(FROM .*)$", rf"\1\nLABEL {LABEL}={name}", dockerfile, count=1, flags=re.MULTILINE)


def run(command: list[str], *, timeout: float = 1800, stdin: str | None = None, **more: Any) -> str:
    """Runs a command and returns its standard output. Raises Failed with the end of both outputs."""
    try:
        done = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=timeout, **more)
    except FileNotFoundError as error:
        raise Failed(f"{' '.join(command)[:200]}: {error.filename} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)[:200]}: has not ended after {timeout:.0f} s") from None
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
    """Returns the exit code; 127 if the program is not there."""
    try:
        return subprocess.run(command, capture_output=True, env=env).returncode
    except FileNotFoundError:
        return 127


def _installed() -> set[str]:
    lines = run(["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}${Package}\n"]).splitlines()
    return {line[3:] for line in lines if line.startswith("ii")}


def _has_group() -> bool:
    return "docker" in [group.gr_name for group in grp.getgrall()]


def _go(module: str, into: Path) -> Path:
    """Builds a Go program and returns its file. All that Go fetches and compiles is below `into`."""
    into.mkdir(exist_ok=True)
    places = {"GOBIN": into, "GOPATH": into / "path", "GOMODCACHE": into / "modules", "GOCACHE": into / "cache"}
    run(
        ["go", "install", module],
        env={**os.environ, "GOFLAGS": "-modcacherw", **{n: str(p) for n, p in places.items()}},
    )
    return into / module.partition("@")[0].rpartition("/")[2]
