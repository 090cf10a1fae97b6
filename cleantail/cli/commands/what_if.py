"""`cleantail plan TOPIC --set …` and `cleantail plan --diff BASE_DIR`: what another policy would have done."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from cleantail.config import Platform, Topic
from cleantail.errors import CleantailError, ConfigError


def add_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--set", dest="settings", action="append", metavar="NAME=VALUE", help="compare with this config changed"
    )
    made.add_argument("--diff", type=Path, metavar="BASE_DIR", help="compare all topics with another configuration")


def wanted(arguments: argparse.Namespace) -> bool:
    """Whether the plan is one of policies. Raises CleantailError for arguments that do not go together."""
    what_if = arguments.settings or arguments.diff
    if arguments.diff and (arguments.topic or arguments.settings):
        raise CleantailError("--diff compares all topics: it goes without TOPIC and --set")
    if not arguments.topic and not arguments.diff:
        raise CleantailError("plan needs a TOPIC, or --diff BASE_DIR for all")
    if what_if and (arguments.partition is not None or arguments.force):
        raise CleantailError("--set and --diff replay whole topics: they go without --partition and --force")
    return bool(what_if)


def run(arguments: argparse.Namespace, topic: Topic | None, platform: Platform, now_ms: int) -> int:
    """One topic as a table, all of them as Markdown: then a file that is broken makes the exit code 2."""
    from cleantail import policies
    from cleantail.cli.reports import policies as policies_report

    if topic is not None:
        found = policies.compare(topic, policies.with_settings(topic, arguments.settings), platform, now_ms)
        if arguments.json:
            print(json.dumps(policies_report.as_json(found)))
        else:
            policies_report.print_comparison(found)
        return 0
    all_topics = policies.differences(arguments.diff, arguments.config, platform, now_ms)
    if arguments.json:
        print(json.dumps(policies_report.difference_json(all_topics)))
    else:
        sys.stdout.write(policies_report.markdown(all_topics))
    for text in all_topics.broken:
        print(f"error: {text}", file=sys.stderr)
    return ConfigError.exit_code if all_topics.broken else 0
