"""Topic configs as a Kafka broker describes them, and the topic YAML that says the same. Pure.

`parse_described` reads what `kafka-configs.sh --describe --entity-type topics [--all]` prints, of Kafka 2.5 and later
(a line a config) and of those before (all on one line).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.errors import BadLineError

SET_ON_TOPIC = "DYNAMIC_TOPIC_CONFIG"
"""Kafka's name of the source of a config that is set on the topic."""
KAFKA_DEFAULT = "DEFAULT_CONFIG"
"""Kafka's name of the source of a config that is set nowhere."""
KAFKA_POLICY = "delete"
"""The cleanup.policy of a topic where neither topic nor broker sets one."""
CARRIED_OVER = frozenset(
    field.alias
    for field in KafkaConfigs.model_fields.values()
    if field.alias and not field.alias.startswith(("cleantail.", "compaction."))
)
"""Configs that topics have in Kafka and in Cleantail, under the same name and with the same meaning."""

_HEADER = re.compile(r"^(?:Dynamic configs|All configs|Configs) for topic '?([^'\s]+)'? are:?\s*(.*)$")
_OTHER_ENTITY = re.compile(r"configs for (?:the default )?(\w+)", re.IGNORECASE)
_NAME = re.compile(r"\s+([^=\s]+)=")
_SENSITIVE = {" sensitive=true synonyms={": "true", " sensitive=false synonyms={": "false"}
_INLINE = re.compile(r",(?=[a-z][a-z.]*=)")
_NOISE = re.compile(r"^(\[\d{4}-|SLF4J|log4j|WARN|OpenJDK|Picked up)|^\s*$")

_REASONS = (
    (r"compression\.", "data files are Parquet, compressed with zstd"),
    (r"(leader|follower)\.replication|min\.insync|unclean\.leader|replica", "an archive has no replicas of its own"),
    (r"(local|remote)\.|errors\.deadletterqueue", "about tiered storage; the archive is the table"),
    (r"max\.message|message\.|internal\.", "the broker judges records by it when they are produced"),
    (
        r"flush\.|preallocate|index\.|segment\.|file\.",
        "about files on a broker's disk; segments of an archive are virtual",
    ),
    (r"redpanda\.|confluent\.", "of one vendor's brokers"),
)


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """Describes one config: its value, None where the broker hides it, and where it comes from in Kafka's words."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """Describes a topic's configs by name: those that are set on it, or all that are in force."""

    topic: str
    configs: Mapping[str, DescribedConfig]

    @property
    def policy(self) -> str:
        """Returns the cleanup.policy in force, Kafka's default where the description has none."""
        config = self.configs.get("cleanup.policy")
        return (config.value or KAFKA_POLICY) if config else KAFKA_POLICY

    @property
    def compacts(self) -> bool:
        return "compact" in self.policy.split(",")


def parse_described(lines: Iterable[str], file: str) -> list[DescribedTopic]:
    """Returns the topics of a description, in its order. Raises BadLineError for a line that is no part of one."""
    topics: dict[str, dict[str, DescribedConfig]] = {}
    current: dict[str, DescribedConfig] | None = None
    for number, line in enumerate(lines, start=1):
        header, config = _HEADER.match(line), _config_of(line)
        if header:
            current = topics.setdefault(header[1], {})
            current |= {d.name: d for d in _inline(header[2])}
        elif config and current is not None:
            current[config.name] = config
        elif not _NOISE.match(line):
            raise BadLineError(file, number, _not_described(line))
    return [DescribedTopic(name, configs) for name, configs in topics.items()]


def _config_of(line: str) -> DescribedConfig | None:
    """Returns the config of a line as `  segment.ms=60000 sensitive=false synonyms={…}`, None for any other line.

    The line is split at its last mark, since a value may hold one, and without an expression that would try every mark
    against every end.
    """
    name, text = _NAME.match(line), line.rstrip()
    at, mark = max((text.rfind(mark), mark) for mark in _SENSITIVE)
    if name is None or at < name.end() or not text.endswith("}") or len(text) <= at + len(mark):
        return None
    return _described(name[1], text[name.end() : at], _SENSITIVE[mark], text[at + len(mark) : -1])


def _described(name: str, value: str, sensitive: str, synonyms: str) -> DescribedConfig:
    """Returns one config. The first synonym is the one in force; a default that no broker config stands for has
    none."""
    source = synonyms.partition(":")[0] or KAFKA_DEFAULT
    return DescribedConfig(name, None if sensitive == "true" or value == "null" else value, source)


def _inline(text: str) -> Iterable[DescribedConfig]:
    for pair in _INLINE.split(text.strip()) if text.strip() else []:
        name, _, value = pair.partition("=")
        yield DescribedConfig(name.strip(), value, SET_ON_TOPIC)


def _not_described(line: str) -> str:
    other = _OTHER_ENTITY.search(line)
    if other and other[1] != "topic":
        return f"describes a {other[1]}, not a topic: ask with --entity-type topics"
    return "not a line that kafka-configs --describe --entity-type topics prints"


@dataclass(frozen=True, slots=True)
class CarriedConfigs:
    """Says what goes into a topic's YAML, and (name, value, reason) of what does not."""

    configs: Mapping[str, int | float | str]
    left_out: tuple[tuple[str, str, str], ...]


def carried_over(described: DescribedTopic, defaults: KafkaConfigs) -> CarriedConfigs:
    """Returns the configs to write into a topic's YAML. `defaults` are those in force if none were written.

    1. What is set on the topic is written.
    2. What its broker sets is written where it differs from `defaults`; Kafka's own defaults are not.
    3. cleanup.policy is written whenever it differs, since the two defaults do.
    4. What has no counterpart here is left out, each with the reason.
    """
    configs: dict[str, int | float | str] = {}
    left_out = []
    for config in sorted(described.configs.values(), key=lambda c: c.name):
        if config.value is None:
            left_out += (
                [(config.name, "(hidden)", "the broker does not show it")] if config.source == SET_ON_TOPIC else []
            )
        elif config.name in CARRIED_OVER:
            if _is_carried_over(config, defaults):
                configs[config.name] = _typed(config.value)
        elif config.source == SET_ON_TOPIC:
            left_out.append((config.name, config.value, _reason(config.name)))
    if "cleanup.policy" not in configs and _policies(described.policy) != defaults.cleanup_policy:
        configs["cleanup.policy"] = described.policy
    return CarriedConfigs(configs, tuple(left_out))


def _is_carried_over(config: DescribedConfig, defaults: KafkaConfigs) -> bool:
    if config.source == SET_ON_TOPIC:
        return True
    if config.source == KAFKA_DEFAULT or config.name == "cleanup.policy":
        return False
    differs: bool = _typed(config.value or "") != getattr(defaults, config.name.replace(".", "_"))
    return differs


def _policies(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _typed(value: str) -> int | float | str:
    """Returns the number that Kafka writes as text: a whole one stays whole, 0.5 stays 0.5. Other texts stay texts."""
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?\d*\.\d+(E-?\d+)?|-?\d+\.", value) else value


def _reason(name: str) -> str:
    return next((why for pattern, why in _REASONS if re.match(pattern, name)), "Cleantail has no such config")
