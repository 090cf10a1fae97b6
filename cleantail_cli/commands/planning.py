"""`status` and `plan`: how the logs are, what a run would do and why. Neither changes anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command, directories
from cleantail_cli.commands import what_if
from cleantail_cli.completion import config_names
from cleantail_cli.parameters import FILE, clock

if TYPE_CHECKING:
    from cleantail.lake.runs.run_plan import RunPlan


@command(
    "status",
    parameters.optional_topic,
    parameters.now,
    examples=["cleantail status", "cleantail status customer-cdc --json"],
)
def status(call: Invocation, topic: str | None, now: int | None) -> int:
    """Show the state of every log, from metadata.

    Of one topic, or of all: there one that is broken hides none of the others, and the exit code is 2.
    """
    from cleantail.watch.topic_states import status_of, status_of_all
    from cleantail_cli.reports.status import Status

    now_ms = clock(now)
    if topic:
        call.output.show(Status([status_of(call.topic(topic), call.platform, now_ms)], now_ms))
        return 0
    with call.output.progress() as progress:
        progress("reading metadata")
        readable, broken = status_of_all(call.config, call.platform, now_ms, progress.counting)
    call.output.show(Status(readable, now_ms, broken))
    return ConfigError.exit_code if broken else 0


@command(
    "plan",
    parameters.optional_topic,
    parameters.now,
    parameters.partition,
    parameters.force,
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        shell_complete=config_names,
        help="Compare with this config changed, on the topic's real history; may be repeated.",
    ),
    click.option(
        "--diff",
        "base_dir",
        type=FILE,
        metavar="BASE_DIR",
        shell_complete=directories,
        help="Compare all topics with another configuration.",
    ),
    examples=[
        "cleantail plan customer-cdc",
        "cleantail plan customer-cdc --set min.cleanable.dirty.ratio=0.2",
        "cleantail plan --diff base/config > comment.md",
    ],
)
def plan(
    call: Invocation,
    topic: str | None,
    now: int | None,
    partition: int | None,
    force: bool,
    settings: tuple[str, ...],
    base_dir: Path | None,
) -> int:
    """Show what a run would do and why; changes nothing.

    With --set or --diff it shows what another policy would have done.
    """
    from cleantail.log.task_shares import task_plan
    from cleantail_cli.reports.rounds import Plan

    what_if.require_one_kind(topic, settings, base_dir, partition is not None or force)
    if base_dir is not None:
        return what_if.compare_topics(call, base_dir, clock(now))
    configured = call.topic(str(topic))
    if settings:
        return what_if.compare_topic(call, configured, settings, clock(now))
    planned = evaluated(configured, call.platform, now, force, partition)
    plans = [task_plan(unit, call.platform, configured.config, planned.shared_files) for unit in planned.units]
    call.output.show(Plan(planned, plans))
    return 0


def evaluated(topic: Topic, platform: Platform, now: int | None, force: bool, partition: int | None) -> RunPlan:
    """Evaluates the topic and returns the run's plan.

    The person who calls has looked at what was red, so the pause before the next try, which is the scheduler's, does
    not count.
    """
    from cleantail.lake.runs.evaluate import evaluate_topic

    return evaluate_topic(topic, platform, now_ms=clock(now), force=force, partition=partition, retry_quarantined=True)
