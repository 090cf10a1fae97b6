"""`cleantail plan TOPIC --set …` and `cleantail plan --diff BASE_DIR`: what another policy would have done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError
from cleantail_cli.command import Invocation


def require_one_kind(topic: str | None, settings: Sequence[str], base_dir: Path | None, narrowed: bool) -> None:
    """Raises CleantailError for arguments that do not go together; `narrowed`: --partition or --force is there."""
    if base_dir and (topic or settings):
        raise CleantailError("--diff compares all topics: it goes without TOPIC and --set")
    if not topic and not base_dir:
        raise CleantailError("plan needs a TOPIC, or --diff BASE_DIR for all")
    if (settings or base_dir) and narrowed:
        raise CleantailError("--set and --diff replay whole topics: they go without --partition and --force")


def compare_topic(call: Invocation, topic: Topic, settings: Sequence[str], now_ms: int) -> int:
    """Compares one topic with itself under other configs, and shows a table."""
    from cleantail.whatif import policy_comparison
    from cleantail_cli.reports.policies import OnePolicy

    with call.output.progress() as progress:
        progress(f"replaying the history of {topic.topic}")
        other = policy_comparison.with_settings(topic, settings)
        compared = policy_comparison.compare(topic, other, call.platform, now_ms, progress.counting)
    call.output.show(OnePolicy(compared))
    return 0


def compare_topics(call: Invocation, base_dir: Path, now_ms: int) -> int:
    """Compares all topics with another configuration and shows Markdown; a broken file makes the exit code 2."""
    from cleantail.whatif import policy_comparison
    from cleantail_cli.reports.policies import AllPolicies

    with call.output.progress() as progress:
        progress("replaying histories")
        compared = policy_comparison.differences(base_dir, call.config, call.platform, now_ms, progress.counting)
    call.output.show(AllPolicies(compared))
    for text in compared.broken:
        call.output.error(text)
    return ConfigError.exit_code if compared.broken else 0
