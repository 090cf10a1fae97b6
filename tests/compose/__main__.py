"""Run docker-compose.yaml on a real engine: `make test-compose`. Takes about 30 minutes on 2 cores. Leaves nothing behind.

The working tree is copied, and the copy differs in this: the topic sensor-readings is in a group, both topics that are
run are due at once, no DAG has a schedule, and the images that are made here have names of their own (engine.py). The
commands are those of the header of docker-compose.yaml and of docs/operations.md (blocks below `<!-- compose: NAME -->`),
run as they stand but for the image's name. With an engine of its own the image is built before, since that engine has no
way out while it runs containers.

    python -m tests.compose                       # --keep DIR keeps the engine's images there for the next run
    python -m tests.compose --only operations
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from demo.airflow_api import AirflowApi
from tests.compose.engine import OWN, ROOT, Engine, Failed, labelled, run, until

TOPIC, GROUPED, GROUP = "repository-files", "sensor-readings", "sensors"
DUE = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.01}
KEYS = 40
UP_S, HEAL_S, RUN_S = 600, 420, 900
OUTAGE, WATCHED_S = "outage", 30
"""WATCHED_SECONDS in this test: seconds without Postgres after which the watch ends the scheduler."""
GUIDE, FILE = ((ROOT / name).read_text() for name in ("docs/operations.md", "docker-compose.yaml"))
BLOCKS = dict(re.findall(r"<!-- compose: ([a-z-]+) -->\n *```sh\n(.*?)```", GUIDE, re.DOTALL))
HEADER = re.findall(r"^#     (\S.*?)(?: +# .*)?$", FILE.replace("\\\n#", ""), re.MULTILINE)
BUILT = yaml.safe_load(FILE)["services"]["airflow-scheduler"]["image"]
IMAGE = OWN + BUILT
AIRFLOW = [f"airflow-{name}" for name in ("dag-processor", "triggerer", "apiserver", "scheduler")]
UP = "docker compose up --build --detach --wait"
BEGAN = time.monotonic()


def say(text: str) -> None:
    seconds = time.monotonic() - BEGAN
    print(f"{int(seconds) // 60:3}:{int(seconds) % 60:02}  {text}", flush=True)


class Platform:
    """The platform in containers, through the tools of an operator: `docker compose` and Airflow's API."""

    def __init__(self, engine: Engine, checkout: Path) -> None:
        self.engine, self.checkout = engine, checkout
        self.expected: dict[str, dict[str, str]] = {TOPIC: {}, GROUPED: {}}
        self.round = 0

    # --- commands

    def shell(self, script: str, stdin: str | None = None, timeout: float = UP_S) -> str:
        env = {**self.engine.env, "WATCHED_SECONDS": str(WATCHED_S)}
        return run(["bash", "-euc", script], cwd=self.checkout, env=env, stdin=stdin, timeout=timeout)

    def documented(self, name: str, before_last: Callable[[], object] | None = None) -> None:
        """Run a block of docs/operations.md, and another function before its last line."""
        block = BLOCKS.pop(name).replace(BUILT, IMAGE).rstrip()
        first, _, last = block.rpartition("\n")
        began = time.monotonic()
        if before_last is None:
            self.shell(block, timeout=2 * UP_S)
        else:
            self.shell(first, timeout=2 * UP_S)
            before_last()
            self.shell(last, timeout=2 * UP_S)
        say(f"docs/operations.md, {name}: {time.monotonic() - began:.0f} s")

    def up(self) -> None:
        assert UP in HEADER, "the header has another command"
        began = time.monotonic()
        self.shell(UP.replace(" --build", "") if self.engine.is_own else UP)
        say(f"docker compose up --detach --wait: exit 0, {time.monotonic() - began:.0f} s")

    def secrets(self) -> dict[str, str]:
        lines = (self.checkout / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]\w+=.", line))

    # --- records and tables

    def produce(self, topic: str, records: int = KEYS) -> None:
        """Write the next value of each key into the topic, by the header's command."""
        self.round += 1
        command = next(c for c in HEADER if "kafka-console-producer" in c).replace(TOPIC, topic)
        lines = {f"key-{n}": f"{topic} {self.round}" for n in range(records)}
        self.shell(command, "".join(f"{key}={value}\n" for key, value in lines.items()))
        self.expected[topic] |= lines

    def compare(self) -> None:
        """Compare the latest value of each key in the tables with the written values."""
        with ThreadPoolExecutor() as pool:
            for topic, found in zip(self.expected, pool.map(self.latest, self.expected), strict=True):
                if found != self.expected[topic]:
                    some = sorted(found.items() ^ self.expected[topic].items())[:2]
                    raise Failed(f"{topic}: {len(found)} keys; found, or expected and not found: {some}")

    def latest(self, topic: str) -> dict[str, str]:
        printed = self.shell(f"docker compose run --rm --no-deps cleantail latest {topic}", timeout=300)
        rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        return {row["key"]: row["payload"] for row in rows}

    # --- DAGs

    def api(self) -> AirflowApi:
        return AirflowApi(8080, self.secrets()["AIRFLOW_PASSWORD_ADMIN"])

    def trigger(self, dag: str) -> str:
        run_id = f"test-{self.round}-{int(time.time())}"
        until(180, lambda: self.answers(lambda: self.started(dag, run_id)), f"Airflow starts {dag}")
        return run_id

    def started(self, dag: str, run_id: str) -> bool:
        self.api().trigger(dag, run_id)
        return True

    def answers(self, ask: Callable[[], Any]) -> Any:
        """Return an answer of the API, or None while it cannot be reached."""
        try:
            return ask()
        except (OSError, urllib.error.HTTPError, KeyError):
            return None

    def states(self, dag: str, run_id: str) -> dict[str, str]:
        found = self.answers(lambda: self.api().tasks(dag, run_id)) or []
        return {task["task_id"]: f"{task['state']}" for task in found}

    def ended(self, dag: str, run_id: str) -> None:
        """Wait for the end of the run. Raises Failed unless it published."""
        state = ""

        def is_over() -> bool:
            nonlocal state
            state = (self.answers(lambda: self.api().run(dag, run_id)) or {}).get("state", "")
            return state in ("success", "failed")

        seconds = until(RUN_S, is_over, f"the end of {dag}", every=3)
        states = self.states(dag, run_id)
        if state != "success" or states.get("publish") != "success":
            raise Failed(f"{dag}: {state}, {states}\n{self.last_messages(dag, run_id)}")
        tries = {
            task["task_id"]: task["try_number"] for task in self.api().tasks(dag, run_id) if task["try_number"] > 1
        }
        say(f"  {dag}: success {seconds:.0f} s later" + (f", tried again: {tries}" if tries else ""))

    def last_messages(self, dag: str, run_id: str) -> str:
        red = [t for t in self.api().tasks(dag, run_id) if t["state"] in ("failed", "up_for_retry")]
        return "\n".join(line for task in red[:2] for line in self.api().log(task)[-25:])

    def run_dag(self, dag: str, topic: str) -> None:
        self.produce(topic)
        self.ended(dag, self.trigger(dag))

    def reaches(self, dag: str, run_id: str, station: str) -> bool:
        """Wait until the station runs. Returns False if it has ended."""
        state = ""

        def has_begun() -> bool:
            nonlocal state
            state = self.states(dag, run_id).get(station, "")
            return state in ("running", "success", "failed")

        until(RUN_S, has_begun, f"{station} of {dag} runs", every=1)
        if state == "running":
            say(f"{dag}: {station} runs")
            time.sleep(4)  # spark-submit has begun
        return state == "running"

    # --- faults

    def container(self, service: str) -> dict[str, Any]:
        """Return the engine's description of the service's container. Of several workers, that of one with an executor."""
        ids = self.shell(f"docker compose ps --all --quiet {service}").split()
        found: list[dict[str, Any]] = json.loads(self.engine.docker("inspect", *ids))
        busy = self.executors() if len(ids) > 1 else {}
        return next((one for one in found if addresses(one) & set(busy)), found[0])

    def executors(self) -> dict[str, int]:
        """Return worker address -> cores of executors of a running application, as reported by Spark's master."""
        try:
            with urllib.request.urlopen("http://127.0.0.1:8081/json/", timeout=10) as page:
                state = json.load(page)
        except OSError:
            return {}
        if not any(app["state"] == "RUNNING" for app in state["activeapps"]):
            return {}
        return {w["host"]: w["coresused"] for w in state["workers"] if w["state"] == "ALIVE" and w["coresused"]}

    def kill(self, service: str) -> None:
        """Kill a container's first process, as a crash does. Wait until the engine has started it again."""
        seen = ""
        if service.startswith("spark-"):
            until(RUN_S, lambda: bool(self.executors()), f"an executor, so that {service} can be killed", every=0.5)
            time.sleep(2)
            seen = f", while executors used {sum(self.executors().values())} cores"
        before = self.container(service)
        if service == "spark-worker" and not addresses(before) & set(self.executors()):
            raise Failed("no worker has an executor")
        pid = str(before["State"]["Pid"])
        self.engine.docker("run", "--rm", "--pid", "host", "--user", "0", "--network", "none", IMAGE, "kill", "-9", pid)
        say(f"  killed {service}{seen}: healthy again after {self.is_back(before):.0f} s")

    def is_healthy(self, service: str) -> bool:
        return bool(self.container(service)["State"]["Health"]["Status"] == "healthy")

    def is_back(self, before: dict[str, Any]) -> float:
        """Wait until the container has started again and is healthy."""

        def is_healed() -> bool:
            now = json.loads(self.engine.docker("inspect", before["Id"]))[0]["State"]
            is_new = now["StartedAt"] != before["State"]["StartedAt"]
            return bool(is_new and now["Health"]["Status"] == "healthy")

        return until(HEAL_S, is_healed, f"{before['Name']} is healthy again")

    def outage(self) -> None:
        """Freeze Postgres until the watch ends the scheduler, whose page no longer reports it as healthy."""
        scheduler, postgres = self.container("airflow-scheduler"), self.container("postgres")
        line = f"docker logs --since 10m {scheduler['Id']} 2>&1 | grep 'deploy/watched.py: .* is ended' || true"
        self.engine.docker("pause", postgres["Id"])
        try:
            seconds = until(HEAL_S, lambda: bool(self.shell(line)), "the watch ends the scheduler")
        finally:
            self.engine.docker("unpause", postgres["Id"])
        say(f"  postgres is frozen: after {seconds:.0f} s {self.shell(line).strip()}")
        seconds = self.is_back(scheduler)
        seconds += until(HEAL_S, lambda: all(map(self.is_healthy, AIRFLOW)), "all of Airflow is healthy")
        say(f"  postgres goes on: all of Airflow is healthy after {seconds:.0f} s")

    def heals(self, dag: str, topic: str, kills: dict[str, list[str]]) -> None:
        """Run a DAG, and kill containers one after the other while its tasks run. Compare the result. OUTAGE among the
        services is the time without Postgres."""
        self.produce(topic)
        run_id = self.trigger(dag)
        for station, services in kills.items():
            for service in services:
                while not self.reaches(dag, run_id, station):  # the last kill took longer than the task
                    self.ended(dag, run_id)
                    self.produce(topic)
                    run_id = self.trigger(dag)
                if service == OUTAGE:
                    self.outage()
                else:
                    self.kill(service)
        self.ended(dag, run_id)
        self.compare()


def addresses(container: dict[str, Any]) -> set[str]:
    return {network["IPAddress"] for network in container["NetworkSettings"]["Networks"].values()}


def checkout_of(work: Path) -> Path:
    """Copy the files that git has or would add, and change the copy as the module's docstring describes."""
    checkout = work / "checkout"
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    for file in (checkout / "deploy/config/topics").iterdir():
        topic = yaml.safe_load(file.read_text()) | {"schedule": None}
        if topic["topic"] in (TOPIC, GROUPED):
            topic["config"] |= DUE
        if topic["topic"] == GROUPED:
            topic = {name: value for name, value in topic.items() if name != "schedule"} | {"group": GROUP}
            topic["config"].pop("retention.ms", None)
        file.write_text(yaml.safe_dump(topic))
    (checkout / "deploy/config/groups").mkdir()
    (checkout / f"deploy/config/groups/{GROUP}.yaml").write_text(f"group: {GROUP}\nschedule: null\n")
    return checkout


def use(names: dict[str, str], file: Path) -> None:
    """Write the used images into a file of the copy, and a label for images of this test into the Dockerfile."""
    text = file.read_text()
    for image, used in names.items():
        text = text.replace(image, used)
    file.write_text(labelled(text, IMAGE))


def check(engine: Engine, platform: Platform, parts: list[str]) -> None:
    platform.up()
    platform.shell("docker compose run --rm cleantail status", timeout=300)
    say(f"memory, idle: {memory(engine)}")
    with ThreadPoolExecutor(3) as pool:  # the workers have room for two Spark applications
        first = [pool.submit(platform.run_dag, *of) for of in ((TOPIC, TOPIC), (GROUP, GROUPED))]
        first.append(pool.submit(secrets_in_image, engine, platform))
        for done in first:
            done.result()
    platform.compare()
    say("a topic's own DAG and a group's ran to publish; `cleantail latest` prints what was put into Kafka")
    for part in parts:
        PARTS[part](engine, platform)


def faults(_: Engine, platform: Platform) -> None:
    """Kill each container in turn while a task runs. At the end stop all of them cleanly."""
    platform.heals(TOPIC, TOPIC, {"ingest": ["kafka"], "compact": ["spark-worker"], "check_quality": ["rustfs"]})
    platform.heals(GROUP, GROUPED, {"run_pack": [OUTAGE, "postgres", "spark-master", *AIRFLOW]})
    began = time.monotonic()
    platform.shell("docker compose down")
    platform.up()
    platform.compare()
    say(f"down and up: the same data, {time.monotonic() - began:.0f} s")


def operations(_: Engine, platform: Platform) -> None:
    """Run the commands of docs/operations.md, each in its situation."""
    platform.documented("look")
    platform.documented("clean")
    upgrade(platform)
    # changes after the backup are missing after the restore
    platform.documented("backup")
    kept = {topic: dict(values) for topic, values in platform.expected.items()}
    platform.produce(TOPIC)
    run_id = platform.trigger(TOPIC)
    until(RUN_S, lambda: platform.states(TOPIC, run_id).get("ingest") == "success", "the end of ingest", every=1)
    platform.compare()
    platform.expected = kept
    (platform.checkout / ".env").unlink()  # as on another machine
    shutil.rmtree(platform.checkout / ".cleantail")
    platform.documented("restore")
    if platform.answers(lambda: platform.api().run(TOPIC, run_id)):
        raise Failed("Airflow has a run that began after the backup")
    platform.compare()
    before = platform.secrets()
    platform.documented("rotate")
    after = platform.secrets()
    assert len(before) == len(after) and not {*before.values()} & {*after.values()}, "a secret is the old one"
    platform.run_dag(TOPIC, TOPIC)
    platform.compare()
    try:
        AirflowApi(8080, before["AIRFLOW_PASSWORD_ADMIN"])
        raise Failed("the old password of admin still opens the UI")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error
    if BLOCKS:
        raise Failed(f"commands of docs/operations.md that nobody ran: {sorted(BLOCKS)}")


def upgrade(platform: Platform) -> None:
    """Change the code, build it, and replace the containers while a task runs."""
    code = platform.checkout / "cleantail/__init__.py"
    code.write_text(code.read_text() + '\nBUILD = "another"\n')
    run_id = ""

    def begin() -> None:
        nonlocal run_id
        platform.produce(GROUPED)
        run_id = platform.trigger(GROUP)
        platform.reaches(GROUP, run_id, "run_pack")

    platform.documented("upgrade", before_last=begin)
    for service in ["spark-master", "spark-worker", *AIRFLOW]:
        read = "import cleantail; print(cleantail.BUILD)"
        if platform.shell(f"docker compose exec -T {service} python -c '{read}'").strip() != "another":
            raise Failed(f"{service} does not run the new code")
    say("  all of our containers run the new code")
    platform.ended(GROUP, run_id)
    platform.compare()


PARTS: dict[str, Callable[[Engine, Platform], None]] = {"faults": faults, "operations": operations}


def memory(engine: Engine) -> str:
    lines = engine.docker("stats", "--no-stream", "--format", "{{.MemUsage}}").splitlines()
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "B": 1}
    used = [re.match(r"([\d.]+)([KMG]?i?B)", line) for line in lines]
    total = sum(float(m[1]) * units.get(m[2], 0) for m in used if m)
    return f"{total / 2**30:.1f} GiB in {len(lines)} containers"


def secrets_in_image(engine: Engine, platform: Platform) -> None:
    """Search all layers of the image, and its history, for each secret of .env, and for a text that must exist."""
    patterns, known = platform.checkout / ".patterns", "cleantail.executors.lost.ms"
    patterns.write_text("".join(f"{text}\n" for text in (known, *platform.secrets().values())))
    search = (
        f"set -o pipefail; docker save {IMAGE} | tar --extract --to-command 'gzip --decompress --stdout --force' "
        f"| grep --text --only-matching --fixed-strings --file '{patterns}' | sort --unique"
    )
    found = run(["bash", "-c", search], env=engine.env).split()
    patterns.unlink()
    if found != [known]:
        raise Failed(
            f"{len(set(found) - {known})} secrets of .env are in the image; {known} was found: {known in found}"
        )
    say("no secret of .env is in a layer or in the history of the image")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the engine's images here")
    parser.add_argument("--only", choices=PARTS, help="one of the two parts that follow the first DAGs")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = arguments.keep or Path(tempfile.mkdtemp(prefix="cleantail-compose-"))
    work.mkdir(exist_ok=True)
    commit = run(["git", "describe", "--always", "--dirty"], cwd=ROOT).strip()
    say(f"commit {commit}, {os.cpu_count()} cores")
    try:
        with Engine(work, say, keep=bool(arguments.keep)) as engine:
            scenario(engine, work, [arguments.only] if arguments.only else list(PARTS))
    except Failed as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work / "checkout", ignore_errors=True)
        if not arguments.keep:
            shutil.rmtree(work, ignore_errors=True)
    say("OK, and everything that was started is gone")
    return 0


def scenario(engine: Engine, work: Path, parts: list[str]) -> None:
    of_platform = ["--quiet", "--filter", "label=com.docker.compose.project=cleantail"]
    if engine.docker("ps", "--all", *of_platform).strip() or engine.docker("volume", "ls", *of_platform).strip():
        raise Failed(
            "this engine has containers or volumes of a platform named cleantail. The test would delete its data"
        )
    engine.base(ROOT / "deploy/Dockerfile")
    checkout = checkout_of(work)
    platform = Platform(engine, checkout)
    platform.shell("python3 deploy/make_env.py")
    use(engine.names, checkout / "deploy/Dockerfile")
    with ThreadPoolExecutor() as pool:
        others = pool.submit(engine.others, ROOT / "docker-compose.yaml")
        began = time.monotonic()
        engine.build(IMAGE, checkout / "deploy/Dockerfile", checkout)
        size = int(engine.docker("image", "inspect", "--format", "{{.Size}}", IMAGE))
        say(f"the image is built: {time.monotonic() - began:.0f} s, {size / 1e9:.2f} GB")
        others.result()
    use({**engine.names, f"image: {BUILT}": f"image: {IMAGE}"}, checkout / "docker-compose.yaml")
    say(f"stand-ins, made by recipes of tests/compose/engine.py: {', '.join(engine.stand_ins) or 'none'}")
    engine.enter_namespace()
    try:
        check(engine, platform, parts)
    except Failed:
        print(
            platform.shell("docker compose ps --all; docker compose logs --tail 4 2>&1 | cut -c -300 | grep -v ^kafka"),
            file=sys.stderr,
        )
        raise
    finally:
        platform.shell("docker compose --profile tools down --volumes --remove-orphans --timeout 5")


if __name__ == "__main__":
    sys.exit(main())
