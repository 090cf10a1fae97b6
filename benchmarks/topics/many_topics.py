"""Many topics in one configuration: the cost of parsing, evaluating and showing them, compared with one topic."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.dataset import fill
from benchmarks.harness.fresh_process import in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import NOW_MS, TOPIC_CONFIG, Shape
from benchmarks.topics.commands import cleantail, timed

PARTITIONS = 6
TINY = Shape(24, 0.5, first_clean=True, partitions=PARTITIONS)
NOTES = (
    "Each figure is of a fresh process from start to end, with its imports, except for the parse alone.",
    "plan is of the topic with the last file by name.",
    "Pages are requested from Airflow's own API server, with its login and database, without a network. The server "
    "begins to read metadata when the menu's icon is requested, right before the first page.",
)


def run(options: Options) -> Table:
    # 1. the topics, and a configuration of one of them
    lake = replace(options.lake, directory=options.lake.directory / f"many_{options.topics}")
    names = [f"topic_{number:04d}" for number in range(options.topics)]
    in_fresh_process(make_topics, lake, names)
    config_of_one = _config_of_one(lake, names[-1])
    # 2. each work with all and with one
    rows = []
    for name, work in _works(lake, names[-1]):
        say(f"{name}, {options.topics} topics and one")
        rows.append(_row(name, options, work, config_of_one))
    # 3. the table
    many = f"{options.topics} topics, s"
    columns = (
        Column("work", "text"),
        Column("1 topic, s"),
        Column(many),
        Column("fastest to slowest", "text"),
        Column("to 1 topic", "ratio"),
        Column("each topic more, s"),
    )
    title = f"{options.topics} topics of {PARTITIONS} partitions in one configuration"
    return Table("many_topics", title, columns, tuple(rows), (*NOTES, options.text))


def make_topics(lake: Lake, names: list[str]) -> None:
    """Make a table with a few records in every partition for each topic that has none."""
    for number, name in enumerate(names):
        lake.write_topic(name, TOPIC_CONFIG)
        table = lake.table(name)
        if not table.exists():
            say(f"making topic {number + 1} of {len(names)}")
            table.ensure()
            fill(table, TINY, 0, TINY.per_log)


def _config_of_one(lake: Lake, name: str) -> Path:
    """Return a configuration with one topic of the same lake."""
    config = lake.directory / "config-of-one"
    (config / "topics").mkdir(parents=True, exist_ok=True)
    shutil.copy(lake.config / "defaults.yaml", config)
    shutil.copy(lake.config / "topics" / f"{name}.yaml", config / "topics")
    return config


def _works(lake: Lake, name: str) -> Iterator[tuple[str, Callable[[Path], float]]]:
    """Yield the name of each work, and a function that returns its seconds for a configuration."""
    clock = ("--now", str(NOW_MS))
    yield "cleantail check-config", lambda config: cleantail(lake, "check-config", config=config)
    yield "cleantail plan TOPIC", lambda config: cleantail(lake, "plan", name, *clock, config=config)
    yield "cleantail status", lambda config: cleantail(lake, "status", *clock, config=config)
    yield "DAG parse, a fresh process", lambda config: _parse(lake, config)[0]
    yield "DAG parse, the parse alone", lambda config: _parse(lake, config)[1]
    yield "page of all topics, the first of a server", lambda config: _pages(lake, config)["first"]
    yield "page of all topics, all metadata read", lambda config: _pages(lake, config)["complete"]
    yield "page of all topics, again", lambda config: _pages(lake, config)["all topics"]
    yield "page of one topic, again", lambda config: _pages(lake, config)["one topic"]


def _parse(lake: Lake, config: Path) -> tuple[float, float]:
    """Return the seconds of the process, and the seconds of the parse in it."""
    result, home = lake.directory / "parse.json", lake.directory / "airflow"
    home.mkdir(exist_ok=True)
    environment = {"CLEANTAIL_CONFIG": str(config), "AIRFLOW_HOME": str(home)}
    seconds = timed(lake, ["-m", "benchmarks.topics.dag_parse", str(result)], environment)
    return seconds, json.loads(result.read_text())["seconds"]


def _pages(lake: Lake, config: Path) -> dict[str, float]:
    """Return the seconds of the pages in a fresh process."""
    result, home = lake.directory / "pages.json", lake.directory / f"airflow-of-{config.name}"
    home.mkdir(exist_ok=True)
    environment = {"CLEANTAIL_CONFIG": str(config), "AIRFLOW_HOME": str(home)}
    timed(lake, ["-m", "benchmarks.topics.page_load", str(result)], environment)
    seconds: dict[str, float] = json.loads(result.read_text())
    return seconds


def _row(name: str, options: Options, work: Callable[[Path], float], config_of_one: Path) -> tuple[Value, ...]:
    """Return the row of one work. Measures both configurations in turn, so that other load on the machine
    affects both."""
    many = options.lake.directory / f"many_{options.topics}" / "config"
    pairs = [(work(config_of_one), work(many)) for _ in range(options.repetitions + 1)]
    one_topic, all_of_them = Times.of(a for a, _ in pairs), Times.of(b for _, b in pairs)
    seconds_a_topic = (all_of_them.warm - one_topic.warm) / max(options.topics - 1, 1)
    return (
        name,
        one_topic.warm,
        all_of_them.warm,
        all_of_them.spread,
        ratio(all_of_them.warm, one_topic.warm),
        seconds_a_topic,
    )
