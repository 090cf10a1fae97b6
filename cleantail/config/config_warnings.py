"""Warnings of `check-config`: what a topic's YAML says that is right as configuration, and likely not what was meant.
Pure.

1. A config has no effect, since a policy or strategy that it belongs to is not in force.
2. An asset is waited for that no topic updates.
3. The files hold what a consumer with `read_uncommitted` saw, aborted data included (semantics.md 3.10).

Only what the topic's own file says counts, since defaults.yaml is for topics of all kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cleantail.config.run_schedule import ASSET_SCHEME, parts_of
from cleantail.config.topic import Topic

_OF_DELETE = ("retention.ms", "retention.bytes")
_OF_HEADER = ("compaction.strategy.header", "cleantail.header.occurrence")
_OF_CREATE_TIME = "message.timestamp.after.max.ms"
_UNCOMMITTED = (
    "source.isolation: read_uncommitted: records of aborted transactions are ingested too, and may win their keys; let "
    "the consumer that writes the files read committed"
)


def warnings_of(topic: Topic, written: Mapping[str, Any], topics: Collection[str]) -> list[str]:
    """Returns a line for each warning. `written` is the topic's file as it is, `topics` are the names of all topics."""
    configs = written.get("config") or {}
    policy, strategy = ",".join(sorted(topic.config.cleanup_policy)), topic.config.compaction_strategy
    # 1. configs of a policy or strategy that is not in force
    texts = [
        f"config.{name}: has no effect: cleanup.policy is {policy}, without delete"
        for name in _OF_DELETE
        if name in configs and not topic.deletes
    ]
    texts += [
        f"config.{name}: has no effect: compaction.strategy is {strategy}, not header"
        for name in _OF_HEADER
        if configs.get(name) and strategy != "header"
    ]
    if _OF_CREATE_TIME in configs and topic.config.message_timestamp_type != "CreateTime":
        texts.append(f"config.{_OF_CREATE_TIME}: has no effect: message.timestamp.type is LogAppendTime")
    # 2. assets that nobody updates
    ours = f"{ASSET_SCHEME}://"
    names = [uri.removeprefix(ours) for uri in parts_of(topic.schedule)[1] if uri.startswith(ours)]
    texts += [
        f"schedule.assets: there is no topic {name}: {ASSET_SCHEME}://{name} is never updated"
        for name in names
        if name not in topics
    ]
    # 3. aborted data in the files
    if (written.get("source") or {}).get("isolation") == "read_uncommitted":
        texts.append(_UNCOMMITTED)
    return texts
