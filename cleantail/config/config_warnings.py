"""Warnings of `check-config`: what a topic's YAML may say, and most likely was not meant so. Pure.

1. A config has no effect, since a policy or strategy that it belongs to is not in force.
2. An asset is waited for that no topic updates.
3. Records are read, or were read by the consumer that wrote the files, with `read_uncommitted`: aborted data
   included (semantics.md 3.10).

Only what the topic's file says counts: a config in defaults.yaml is for topics of all kinds, so it may well have no
effect for some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cleantail.config.run_schedule import ASSET_SCHEME, parts_of
from cleantail.config.topic import Topic

_CONFIGS_OF_DELETE = ("retention.ms", "retention.bytes")
_CONFIGS_OF_HEADER = ("compaction.strategy.header", "cleantail.header.occurrence")
_CONFIG_OF_CREATE_TIME = "message.timestamp.after.max.ms"
_UNCOMMITTED_TEXT = (
    "source.isolation: read_uncommitted: records of aborted transactions are ingested too, and may win their keys"
)


def warnings_of(topic: Topic, written: Mapping[str, Any], topics: Collection[str]) -> list[str]:
    """Returns a line for each warning.

    `written` is what the topic's file says, without the defaults; `topics` are the names of all topics.
    """
    configs = written.get("config") or {}
    policy, strategy = ",".join(sorted(topic.config.cleanup_policy)), topic.config.compaction_strategy
    # 1. configs of a policy or strategy that is not in force
    texts = [
        f"config.{name}: has no effect: cleanup.policy is {policy}, without delete"
        for name in _CONFIGS_OF_DELETE
        if name in configs and not topic.deletes
    ]
    texts += [
        f"config.{name}: has no effect: compaction.strategy is {strategy}, not header"
        for name in _CONFIGS_OF_HEADER
        if configs.get(name) and strategy != "header"
    ]
    if _CONFIG_OF_CREATE_TIME in configs and topic.config.message_timestamp_type != "CreateTime":
        texts.append(f"config.{_CONFIG_OF_CREATE_TIME}: has no effect: message.timestamp.type is LogAppendTime")
    # 2. assets that nobody updates
    of_topics = f"{ASSET_SCHEME}://"
    _, assets = parts_of(topic.schedule)
    names = [uri.removeprefix(of_topics) for uri in assets if uri.startswith(of_topics)]
    texts += [
        f"schedule.assets: there is no topic {name}: {ASSET_SCHEME}://{name} is never updated"
        for name in names
        if name not in topics
    ]
    # 3. aborted data
    if (written.get("source") or {}).get("isolation") == "read_uncommitted":
        advice = "" if topic.source.kafka else "; let the consumer that writes the files read committed"
        texts.append(f"{_UNCOMMITTED_TEXT}{advice}")
    return texts
