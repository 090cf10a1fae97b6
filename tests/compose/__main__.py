"""docker-compose.yaml, run for real: `make test-compose`. About 30 minutes on 2 cores; leaves nothing behind.

The working tree is copied, and the copy differs in this: the topic sensor-readings is in a group, both topics that are
run are due at once, no DAG has a schedule, and stand-in images have no digest. The commands are those of the header of
docker-compose.yaml and of docs/operations.md (blocks below `<!-- compose: NAME -->`), run as they stand. With an engine
of its own (engine.py) the image is built before, since that engine has no way out while it runs containers.

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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from demo.airflow_api import AirflowApi
from tests.compose.engine import ROOT, Engine, Failed, run, until

TOPIC, GROUPED, GROUP = "repository-files", "sensor-readings", "sensors"
DUE = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.01}
KEYS = 40
UP_S, HEAL_S, RUN_S = 600, 420, 900
GUIDE, FILE = ((ROOT / name).read_text() for name in ("docs/operations.md", "docker-compose.yaml"))
BLOCKS = dict(re.findall(r"<!-- compose: ([a-z-]+) -->\n *```sh\n(.*?)```", GUIDE, re.DOTALL))
HEADER = re.findall(r"^#     (\S.*?)(?: +# .*)?$", FILE.replace("\\\n#", ""), re.MULTILINE)
IMAGE = yaml.safe_load(FILE)["services"]["airflow-scheduler"]["image"]
UP = "docker compose up --build --detach --wait"
BEGAN = time.monotonic()


def say(text: str) -> None:
    seconds = time.monotonic() - BEGAN
    print(f"{int(seconds) // 60:3}:{int(seconds) % 60:02}  {text}", flush=True)


class Platform:
    """Is the platform in containers, as an operator sees it: by `docker compose`, and by Airflow's API."""

    def __init__(self, engine: Engine, checkout: Path) -> None:
        self.engine, self.checkout = engine, checkout
        self.expected: dict[str, dict[str, str]] = {TOPIC: {}, GROUPED: {}}
        self.round = 0

    # --- commands

    def shell(self, script: str, stdin: str | None = None, timeout: float = UP_S) -> str:
        return run(["bash", "-euc", script], cwd=self.checkout, env=self.engine.env, stdin=stdin, timeout=timeout)

    def documented(self, name: str) -> str:
        """Runs a block of docs/operations.md."""
        began = time.monotonic()
        output = self.shell(BLOCKS.pop(name), timeout=2 * UP_S)
        say(f"docs/operations.md, {name}: {time.monotonic() - began:.0f} s")
        return output

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
        """Puts the next value of each key into the topic, by the header's command."""
        self.round += 1
        command = next(c for c in HEADER if "kafka-console-producer" in c).replace(TOPIC, topic)
        lines = {f"key-{n}": f"{topic} {self.round}" for n in range(records)}
        self.shell(command, "".join(f"{key}={value}\n" for key, value in lines.items()))
        self.expected[topic] |= lines

    def compare(self) -> None:
        """Compares what the tables say is the latest value of each key with what was put in."""
        for topic, expected in self.expected.items():
            printed = self.shell(f"docker compose run --rm --no-deps cleantail latest {topic}", timeout=300)
            rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
            if {row["key"]: row["payload"] for row in rows} != expected:
                raise Failed(f"{topic}: {len(rows)} rows, not the {len(expected)} expected, such as {rows[:2]}")

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
        """Returns an answer of the API, or None while it is away."""
        try:
            return ask()
        except (OSError, urllib.error.HTTPError, KeyError):
            return None

    def states(self, dag: str, run_id: str) -> dict[str, str]:
        found = self.answers(lambda: self.api().tasks(dag, run_id)) or []
        return {task["task_id"]: f"{task['state']}" for task in found}

    def ended(self, dag: str, run_id: str) -> None:
        """Waits for the end of the run, and raises Failed unless it published."""
        state = ""

        def is_over() -> bool:
            nonlocal state
            state = (self.answers(lambda: self.api().run(dag, run_id)) or {}).get("state", "")
            return state in ("success", "failed")

        seconds = until(RUN_S, is_over, f"the end of {dag}", every=3)
        states = self.states(dag, run_id)
        if state != "success" or states.get("publish") != "success":
            raise Failed(f"{dag}: {state}, {states}\n{self.last_words(dag, run_id)}")
        tries = {
            task["task_id"]: task["try_number"] for task in self.api().tasks(dag, run_id) if task["try_number"] > 1
        }
        say(f"  {dag}: success {seconds:.0f} s later" + (f", tried again: {tries}" if tries else ""))

    def last_words(self, dag: str, run_id: str) -> str:
        red = [t for t in self.api().tasks(dag, run_id) if t["state"] in ("failed", "up_for_retry")]
        return "\n".join(line for task in red[:2] for line in self.api().log(task)[-25:])

    def run_dag(self, dag: str, topic: str) -> None:
        self.produce(topic)
        self.ended(dag, self.trigger(dag))

    # --- faults

    def container(self, service: str) -> dict[str, Any]:
        name = self.shell(f"docker compose ps --all --quiet {service}").split()[0]
        found: dict[str, Any] = json.loads(self.engine.docker("inspect", name))[0]
        return found

    def kill(self, service: str) -> None:
        """Kills a container's first process, as a crash does, and waits until the engine has healed it."""
        before = self.container(service)
        pid = str(before["State"]["Pid"])
        self.engine.docker("run", "--rm", "--pid", "host", "--user", "0", "--network", "none", IMAGE, "kill", "-9", pid)

        def is_healed() -> bool:
            now = json.loads(self.engine.docker("inspect", before["Id"]))[0]["State"]
            is_new = now["StartedAt"] != before["State"]["StartedAt"]
            return bool(is_new and now["Health"]["Status"] == "healthy")

        seconds = until(HEAL_S, is_healed, f"{service} is healthy again", every=3)
        say(f"  killed {service}: healthy again after {seconds:.0f} s")

    def heals(self, dag: str, topic: str, kills: dict[str, list[str]]) -> None:
        """Runs a DAG, and kills containers one after the other while its tasks run. Compares the result."""
        self.produce(topic)
        run_id = self.trigger(dag)
        for station, services in kills.items():
            until(RUN_S, lambda: self.states(dag, run_id).get(station) == "running", f"{station} runs", every=1)  # noqa: B023
            time.sleep(6)  # spark-submit has begun
            say(f"{dag}: {station} runs")
            for service in services:
                if self.states(dag, run_id).get(station) == "success":  # the kill before took longer than the task
                    self.ended(dag, run_id)
                    self.produce(topic)
                    run_id = self.trigger(dag)
                    until(RUN_S, lambda: self.states(dag, run_id).get(station) == "running", f"{station} runs", every=1)  # noqa: B023
                    time.sleep(6)
                self.kill(service)
        self.ended(dag, run_id)
        self.compare()


def checkout_of(work: Path, stand_ins: list[str]) -> Path:
    """Copies what git has, and what it would add, and changes the copy as the module's text says."""
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
    for file in (checkout / "docker-compose.yaml", checkout / "deploy/Dockerfile"):
        text = file.read_text()
        for image in stand_ins:
            text = re.sub(rf"{re.escape(image)}@sha256:\w+", image, text)
        file.write_text(text)
    return checkout


def check(engine: Engine, platform: Platform, parts: list[str]) -> None:
    platform.up()
    platform.shell("docker compose run --rm cleantail status", timeout=300)
    say(f"memory, idle: {memory(engine)}")
    secrets_in_image(engine, platform)
    with ThreadPoolExecutor(2) as both:  # the two Spark applications that the workers have room for
        for done in [both.submit(platform.run_dag, *of) for of in ((TOPIC, TOPIC), (GROUP, GROUPED))]:
            done.result()
    platform.compare()
    say("a topic's own DAG and a group's ran to publish; `cleantail latest` prints what was put into Kafka")
    for part in parts:
        PARTS[part](engine, platform)


def faults(_: Engine, platform: Platform) -> None:
    """Kills each container in turn while a task runs, and at last all of them in good order."""
    platform.heals(TOPIC, TOPIC, {"ingest": ["kafka"], "compact": ["spark-worker"], "check_quality": ["rustfs"]})
    airflow = [f"airflow-{name}" for name in ("dag-processor", "triggerer", "apiserver", "scheduler")]
    platform.heals(GROUP, GROUPED, {"run_pack": ["spark-master", "postgres", *airflow]})
    began = time.monotonic()
    platform.shell("docker compose down")
    platform.up()
    platform.compare()
    say(f"down and up: the same data, {time.monotonic() - began:.0f} s")


def operations(_: Engine, platform: Platform) -> None:
    """Runs the commands of docs/operations.md, each in its situation."""
    platform.documented("look")
    # a new image, while a task runs
    platform.produce(GROUPED)
    run_id = platform.trigger(GROUP)
    until(RUN_S, lambda: platform.states(GROUP, run_id).get("run_pack") == "running", "run_pack runs", every=1)
    old = platform.container("airflow-scheduler")["Image"]
    with (platform.checkout / "deploy/Dockerfile").open("a") as dockerfile:  # a version that differs
        dockerfile.write("LABEL version=another\n")
    platform.documented("upgrade")
    if platform.container("airflow-scheduler")["Image"] == old:
        raise Failed("the scheduler still runs the old image")
    platform.ended(GROUP, run_id)
    platform.compare()
    # what is done after the backup is not there after the restore
    platform.documented("backup")
    kept = {topic: dict(values) for topic, values in platform.expected.items()}
    platform.run_dag(TOPIC, TOPIC)
    platform.expected = kept
    (platform.checkout / ".env").unlink()  # as on another machine
    shutil.rmtree(platform.checkout / ".cleantail")
    platform.documented("restore")
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


PARTS: dict[str, Callable[[Engine, Platform], None]] = {"faults": faults, "operations": operations}


def memory(engine: Engine) -> str:
    lines = engine.docker("stats", "--no-stream", "--format", "{{.MemUsage}}").splitlines()
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "B": 1}
    used = [re.match(r"([\d.]+)([KMG]?i?B)", line) for line in lines]
    total = sum(float(m[1]) * units.get(m[2], 0) for m in used if m)
    return f"{total / 2**30:.1f} GiB in {len(lines)} containers"


def secrets_in_image(engine: Engine, platform: Platform) -> None:
    """Searches all layers of the image, and its history, for each secret of .env, and for a text that must be there."""
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
    engine.pull_or_replace(ROOT / "deploy/Dockerfile", ROOT / "docker-compose.yaml")
    say(f"stand-ins, made by recipes of tests/compose/engine.py: {', '.join(engine.stand_ins) or 'none'}")
    checkout = checkout_of(work, engine.stand_ins)
    platform = Platform(engine, checkout)
    platform.shell("python3 deploy/make_env.py")
    began = time.monotonic()
    engine.build(IMAGE, checkout / "deploy/Dockerfile", checkout)
    size = int(engine.docker("image", "inspect", "--format", "{{.Size}}", IMAGE))
    say(f"the image is built: {time.monotonic() - began:.0f} s, {size / 1e9:.2f} GB")
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
