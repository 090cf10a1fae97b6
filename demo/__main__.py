"""`python -m demo`: see the package."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import NoReturn

from confluent_kafka import KafkaException
from rich.console import Console

import demo
from cleantail.config.loading import load_platform
from cleantail.errors import CleantailError
from demo.airflow_api import AirflowApi
from demo.erasure import erase_a_key
from demo.home import CONFIG, DemoError, Home, free_port
from demo.inputs import IN_KAFKA, SENSORS, Expected, make_inputs
from demo.kafka_broker import KafkaBroker
from demo.kafka_topic import KafkaTopic
from demo.proof import prove
from demo.rounds import Scheduler
from demo.summary import all_holds, print_locations, print_summary
from demo.topic_runs import run_topics
from differential.broker import BrokerError
from differential.kafka_client import KafkaClient

PIPE_WIDTH = 150
HOW_TO_STOP = "to stop both: .venv/bin/python -m demo down"


def main(argv: list[str]) -> int:
    arguments = _parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    signal.signal(signal.SIGTERM, _end)
    home = Home.of(os.environ)
    try:
        if arguments.command in ("up", "down"):
            console.print(switch(home, arguments.command), markup=False, soft_wrap=True)
            return 0
        return _demonstrate(console, home, arguments.repository, arguments.keep)
    except (DemoError, BrokerError, CleantailError, KafkaException, OSError) as error:
        console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=demo.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=["run", "up", "down"], default="run")
    named = os.environ.get("DEMO_REPO")
    parser.add_argument(
        "--repository",
        type=Path,
        default=Path(named).expanduser() if named else None,
        metavar="PATH",
        help="git repository for the topic of file histories (also DEMO_REPO=PATH)",
    )
    parser.add_argument("--keep", action="store_true", help="keep Airflow and Kafka running at the end")
    return parser.parse_args(argv)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def switch(home: Home, command: str) -> str:
    """Start or stop Airflow and the broker with the runs and the topic of the last demonstration. Returns the
    text to print."""
    if not (home.path / "airflow").is_dir():
        raise DemoError(f"there is no demonstration in {home.path}: run `make demo` first")
    if command == "down":
        return home.airflow("down").strip() + ("\nKafka is down" if home.broker.down() else "\nKafka was not running")
    broker = home.broker
    if not broker.has_data:
        raise DemoError(f"{broker.folder} has no data of a Kafka broker: run `make demo` first")
    try:
        broker.up()
        said = home.start_airflow(free_port(), broker).splitlines()[-2]
    except BaseException:
        broker.down()
        raise
    return f"{said}\nKafka is up: {broker.address}\n{HOW_TO_STOP}"


def _demonstrate(console: Console, home: Home, repository: Path | None, keep: bool) -> int:
    """Make the inputs and a fresh home, run, prove and print. Returns the exit code."""
    started = time.monotonic()
    inputs = make_inputs(repository, int(time.time() * 1000))
    home.make_afresh()
    for topic_input in (expected.input for expected in inputs):
        console.print(
            f"{topic_input.topic:<18}{len(topic_input.records):>7,} records  {topic_input.origin}", markup=False
        )
    holds = _with_airflow(console, home, inputs, keep, started)
    verdict = "all claims are true" if holds else "[bold red]a claim is NOT true[/bold red]"
    console.print(f"\n{verdict} ({time.monotonic() - started:.0f} s)")
    return 0 if holds else 1


def _with_airflow(console: Console, home: Home, inputs: list[Expected], keep: bool, started: float) -> bool:
    """Run the demonstration. Stop Airflow and the broker at the end, also after an error. With --keep they continue
    after a success."""
    kept = False
    try:
        holds = _run(console, home, inputs, started)
        kept = keep
    finally:
        if not kept:
            _stop(console, home)
    if kept:
        console.print(f"\nAirflow and Kafka keep running; {HOW_TO_STOP}")
    return holds


def _stop(console: Console, home: Home) -> None:
    """Stop Airflow and the broker. A second Ctrl-C does not interrupt this."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    console.print("stopping Airflow and Kafka ...", style="dim")
    with ThreadPoolExecutor(1) as beside:
        airflow = beside.submit(home.airflow, "down")
        try:
            home.broker.down()  # in this thread, because it sets signal handlers
        finally:
            airflow.result()


def _run(console: Console, home: Home, inputs: list[Expected], started: float) -> bool:
    platform = load_platform(CONFIG, {"CLEANTAIL_HOME": str(home.path)})
    console.print("starting Airflow and Kafka ...", style="dim")
    broker, port = home.broker, free_port()
    with ThreadPoolExecutor(1) as beside:
        sent = beside.submit(_start_kafka, broker, inputs)
        home.start_airflow(port, broker)
        kafka = sent.result()
    scheduler = Scheduler(AirflowApi(port, home.password), console, started)
    scheduler.say(f"Kafka is up: {broker.address}, with the first transactions of {kafka.topic}")
    scheduler.say(f"Airflow is up: http://127.0.0.1:{port}  user: admin  password: in {home.passwords}")
    results = run_topics(scheduler, home, platform, inputs, kafka)
    now_ms = int(time.time() * 1000)
    proofs = [prove(topic, platform, now_ms) for topic in results]
    scheduler.say(f"erasing a key of {SENSORS} and writing its certificate")
    erasure = erase_a_key(home, platform, SENSORS)
    print_summary(console, proofs, erasure)
    print_locations(console, home, broker, [proof.topic for proof in proofs])
    return all_holds(proofs) and all(erasure.claims.values())


def _start_kafka(broker: KafkaBroker, inputs: Sequence[Expected]) -> KafkaTopic:
    """Start the broker and send the first batch of its topic. Raises BrokerError."""
    broker.up()
    [expected] = [each for each in inputs if each.input.topic == IN_KAFKA]
    topic = KafkaTopic(expected, KafkaClient(broker.address))
    topic.create()
    topic.send(0)
    return topic


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
