"""Create topic YAML from the configs of a Kafka cluster, from running brokers or from a printed description.

`parse_described` reads the output of `kafka-configs.sh --describe --entity-type topics [--all]`. Kafka 2.5 and later
print one config a line, earlier versions all on one line. `describe` queries the brokers with confluent-kafka.

1. Each named topic gets a file. Without names, every compacted topic that is not internal gets one.
2. An existing file is not changed without `force`, even if it was created during the import. A topic whose file has
   another name keeps that file.
3. `carried_over` selects the configs to write. A config that cannot be carried over becomes a comment with the reason.
4. A config that has no effect under the topic's policy becomes such a comment too.
5. Two topics whose names would map to one table get tables of their own.
6. Every file is validated like the configuration before the first is written. Either all are written or none.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cleantail.config.catalog import Catalog
from cleantail.config.claims import Claim, name_problem, problem_of_new
from cleantail.config.kafka_configs import KafkaConfigs, why_brokers_only
from cleantail.config.loading import claims_of, load_topic
from cleantail.config.settings_in_force import CONFIGS_OF_DELETE, without_effect
from cleantail.config.topic import Topic, default_table
from cleantail.config.topic_source import ADDRESS, ADDRESS_PATTERN
from cleantail.errors import BadLineError, CleantailError, ConfigError, OutsideError
from cleantail.kafka.broker_clients import Administrator, passes, without_values
from cleantail.kafka.client_settings import refuse_java_settings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

SET_ON_TOPIC = "DYNAMIC_TOPIC_CONFIG"
"""Kafka's name for the source of a config on the topic."""
KAFKA_DEFAULT = "DEFAULT_CONFIG"
"""Kafka's name for the source of a config that no one has set."""
KAFKA_POLICY = "delete"
"""The cleanup.policy of a topic if neither topic nor broker sets one."""
NO_LIMIT = -1
KEPT_FOREVER: Mapping[str, int | str] = {
    "cleanup.policy": "delete",
    "retention.ms": NO_LIMIT,
    "retention.bytes": NO_LIMIT,
}
"""The configs that mean the same as an empty cleanup.policy."""
CARRIED_OVER = frozenset(
    field.alias
    for field in KafkaConfigs.model_fields.values()
    if field.alias and not field.alias.startswith(("cleantail.", "compaction."))
)
"""Configs that have the same name and meaning in Kafka and in Cleantail."""

_HEADER = re.compile(r"^(Dynamic configs|All configs|Configs) for topic '?([^'\s]+)'? are:?\s*(.*)$")
_SET_ON_TOPIC = "Dynamic configs"
"""Head of a list that has only configs set on the topic, regardless of the synonyms in its lines."""
_OTHER_ENTITY = re.compile(r"configs for (?:the default )?(\w+)", re.IGNORECASE)
_NAME = re.compile(r"\s+([^=\s]+)=")
_SENSITIVE = {" sensitive=true synonyms={": True, " sensitive=false synonyms={": False}
_INLINE = re.compile(r",(?=[a-z][a-z.]*=)")
_NOISE = re.compile(r"^(\[\d{4}-|SLF4J|log4j|WARN|OpenJDK|Picked up)|^\s*$")


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One config: its value, None if the broker hides it, and its source in Kafka's terms."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic's configs by name: either only configs set on the topic, or all configs in force."""

    topic: str
    configs: Mapping[str, DescribedConfig]

    @property
    def policy(self) -> str:
        """Return the cleanup.policy in force, which may be empty. Kafka's default if the description lacks it."""
        config = self.configs.get("cleanup.policy")
        return KAFKA_POLICY if config is None or config.value is None else config.value

    @property
    def compacts(self) -> bool:
        return "compact" in self.policy.split(",")


def parse_described(lines: Iterable[str], file: str) -> list[DescribedTopic]:
    """Return the topics of a description, in its order. Raises BadLineError for a line that is not part of a
    description."""
    topics: dict[str, dict[str, DescribedConfig]] = {}
    current: dict[str, DescribedConfig] | None = None
    set_on_topic = False
    for number, line in enumerate(lines, start=1):
        header, config = _HEADER.match(line), _config_of(line)
        if header:
            set_on_topic = header[1] == _SET_ON_TOPIC
            current = topics.setdefault(header[2], {})
            current |= {d.name: d for d in _inline(header[3])}
        elif config and current is not None:
            current[config.name] = replace(config, source=SET_ON_TOPIC) if set_on_topic else config
        elif not _NOISE.match(line):
            raise BadLineError(file, number, _not_described(line))
    return [DescribedTopic(name, configs) for name, configs in topics.items()]


def _config_of(line: str) -> DescribedConfig | None:
    """Return the config of a line like `  segment.ms=60000 sensitive=false synonyms={…}`, None for any other line.

    Splits the line at its last `sensitive=`, because a value may contain this text. A regular expression would take
    quadratic time.
    """
    name, text = _NAME.match(line), line.rstrip()
    at, mark = max((text.rfind(mark), mark) for mark in _SENSITIVE)
    if name is None or at < name.end() or not text.endswith("}") or len(text) <= at + len(mark):
        return None
    value, synonyms = text[name.end() : at], text[at + len(mark) : -1]
    # the first synonym is in force; a default without a broker config has none
    source = synonyms.partition(":")[0] or KAFKA_DEFAULT
    return DescribedConfig(name[1], None if _SENSITIVE[mark] or value == "null" else value, source)


def _inline(text: str) -> Iterable[DescribedConfig]:
    for pair in _INLINE.split(text.strip()) if text.strip() else []:
        name, _, value = pair.partition("=")
        yield DescribedConfig(name.strip(), value, SET_ON_TOPIC)


def _not_described(line: str) -> str:
    other = _OTHER_ENTITY.search(line)
    if other and other[1] != "topic":
        return f"describes a {other[1]}, not a topic: use --entity-type topics"
    return "not a line that kafka-configs --describe --entity-type topics prints"


@dataclass(frozen=True, slots=True)
class CarriedConfigs:
    """The configs for a topic's YAML, and (name, value, reason) of each that is left out."""

    configs: Mapping[str, int | float | str]
    left_out: tuple[tuple[str, str, str], ...]


def carried_over(described: DescribedTopic, defaults: KafkaConfigs) -> CarriedConfigs:
    """Return the configs to write into a topic's YAML. `defaults`: the configs in force without the YAML's.

    1. Configs that are set on the topic are written.
    2. Configs of the broker are written if they differ from `defaults` and have an effect under the topic's policy.
       Kafka's own defaults are not written.
    3. cleanup.policy is written whenever it differs, because Kafka's default and Cleantail's differ. An empty policy,
       as Kafka 4.2 and later allow, is written as KEPT_FOREVER.
    4. Any negative retention.bytes means no limit in Kafka, and is written as -1.
    5. Configs without a counterpart in Cleantail are left out, each with the reason.
    """
    policies = frozenset(name.strip() for name in described.policy.split(",") if name.strip())
    configs: dict[str, int | float | str] = {}
    left_out = []
    for config in sorted(described.configs.values(), key=lambda c: c.name):
        if config.value is None:
            left_out += (
                [(config.name, "(hidden)", "the broker does not show it")] if config.source == SET_ON_TOPIC else []
            )
        elif config.name in CARRIED_OVER:
            if _is_carried_over(config, defaults, policies):
                configs[config.name] = _typed(config.value)
        elif config.source == SET_ON_TOPIC:
            left_out.append((config.name, config.value, why_brokers_only(config.name)))
    if isinstance(limit := configs.get("retention.bytes"), int):
        configs["retention.bytes"] = max(limit, NO_LIMIT)
    if not policies:
        configs.update(KEPT_FOREVER)
        left_out.append(("cleanup.policy", "", "written as delete without limits, which removes no record either"))
    elif "cleanup.policy" not in configs and policies != defaults.cleanup_policy:
        configs["cleanup.policy"] = described.policy
    return CarriedConfigs(configs, tuple(left_out))


def _is_carried_over(config: DescribedConfig, defaults: KafkaConfigs, policies: frozenset[str]) -> bool:
    if config.source == SET_ON_TOPIC:
        return True
    if config.source == KAFKA_DEFAULT or config.name == "cleanup.policy":
        return False
    if config.name in CONFIGS_OF_DELETE and "delete" not in policies:
        return False
    differs: bool = _typed(config.value or "") != getattr(defaults, config.name.replace(".", "_"))
    return differs


def _typed(value: str) -> int | float | str:
    """Convert a number that Kafka writes as text to int or float. Other texts stay unchanged."""
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?\d*\.\d+(E-?\d+)?|-?\d+\.", value) else value


ANSWER_TIMEOUT_S = 15


def describe(bootstrap_server: str, command_config: Path | None, names: Sequence[str]) -> list[DescribedTopic]:
    """Return the named topics, or all, with every config in force.

    Raises OutsideError if the cluster does not answer.
    """
    if not re.fullmatch(f"{ADDRESS_PATTERN}(?:,{ADDRESS_PATTERN})*", bootstrap_server):
        raise CleantailError("--bootstrap-server is not host:port, nor several with commas between them")
    settings = client_settings(bootstrap_server, command_config)
    try:
        admin = Administrator(settings, ANSWER_TIMEOUT_S)
    except ImportError:
        raise CleantailError(
            "reading a live broker needs confluent-kafka: pip install confluent-kafka, or give the output of "
            "kafka-configs --describe --entity-type topics --all as a file"
        ) from None

    def ask() -> list[DescribedTopic]:
        present = admin.topics()
        if missing := sorted(set(names) - present):
            raise CleantailError(f"{bootstrap_server} has no topic {missing[0]}")
        entries = admin.config_entries(sorted(names or present))
        return [DescribedTopic(name, {c.name: _config(c) for c in entries[name].values()}) for name in sorted(entries)]

    def problem(error: KafkaError) -> CleantailError | None:
        said = f"{bootstrap_server}: {without_values(error.str(), settings)}; nothing was written"
        return None if passes(error) else OutsideError(said)

    silent = f"{bootstrap_server}: the brokers do not answer"
    return admin.answer(ask, problem, lambda why: OutsideError(f"{silent}: {why}; nothing was written"))


def client_settings(bootstrap_server: str, command_config: Path | None) -> dict[str, str]:
    """Return librdkafka's settings: the address, and settings of a file in the format of kafka-configs. Errors show no
    value."""
    lines: list[str] = []
    if command_config:
        try:
            lines = [line.strip() for line in command_config.read_text(encoding="utf-8").splitlines()]
        except OSError as e:
            raise CleantailError(f"{command_config}: {e.strerror}") from None
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", "!"))]
    settings = {name.strip(): value.strip() for name, _, value in pairs}
    refuse_java_settings(settings, command_config)
    return {
        "log_level": "2",
        "socket.timeout.ms": str(ANSWER_TIMEOUT_S * 1000),
        **settings,
        "bootstrap.servers": bootstrap_server,
    }


def _config(entry: Any) -> DescribedConfig:
    from confluent_kafka.admin import ConfigSource

    return DescribedConfig(entry.name, None if entry.is_sensitive else entry.value, ConfigSource(entry.source).name)


WRITTEN = "written"
EXISTS = "exists"
NOT_COMPACTED = "not compacted"
INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ImportedTopic:
    """The result for one topic. `notes` are the configs that were left out, each with the reason. `brokers`: the
    source in the file, None if unknown."""

    topic: str
    status: str
    file: str
    notes: tuple[str, ...] = ()
    brokers: str | None = None


def import_topics(
    described: Sequence[DescribedTopic],
    names: Sequence[str],
    config_dir: Path,
    catalog: Catalog,
    force: bool,
    brokers: str | None = None,
) -> list[ImportedTopic]:
    """Write one file for each topic into `config_dir`/topics, and return the result for each topic.

    `brokers`: the source of the topics, if it is known.
    An existing file is not changed without `force`. Without `names`, topics that are internal or not compacted are only
    reported. Raises ConfigError if a config cannot be carried over, CleantailError if a name is not in `described`. In
    both cases no file was written.
    """
    # 1. find the existing files
    described_names = [topic.topic for topic in described]
    missing = sorted(set(names) - set(described_names))
    if missing:
        raise CleantailError(
            f"topic {missing[0]} is not described; described are: {', '.join(described_names) or 'none'}"
        )
    (config_dir / "topics").mkdir(parents=True, exist_ok=True)
    claims = claims_of(config_dir)
    owners = {claim.topic: claim.file for claim in claims}
    # 2. make and validate every file
    imported, texts = [], {}
    for topic in described:
        if names and topic.topic not in names:
            continue
        file = owners.get(topic.topic, config_dir / "topics" / f"{topic.topic}.yaml")
        status = _status(topic, bool(names), file, force)
        notes: tuple[str, ...] = ()
        if status == WRITTEN:
            table = None if topic.topic in owners else _free_table(catalog, file, claims)
            texts[file], notes = _validated_yaml(topic, file, config_dir, table, brokers)
        imported.append(ImportedTopic(topic.topic, status, file.name, notes, brokers))
    # 3. no errors: write the files
    met = set()
    for file, text in texts.items():
        try:
            write_file(file, text, new=not force)
        except FileExistsError:
            met.add(file.name)
    return [replace(one, status=EXISTS) if one.file in met else one for one in imported]


def _status(topic: DescribedTopic, named: bool, file: Path, force: bool) -> str:
    """Return WRITTEN, or why the topic is not written."""
    if not named and topic.topic.startswith("__"):
        return INTERNAL
    if not named and not topic.compacts:
        return NOT_COMPACTED
    return EXISTS if file.exists() and not force else WRITTEN


def _free_table(catalog: Catalog, file: Path, claims: list[Claim]) -> str | None:
    """Return the table to name in the file, None if the default is free. For example, `a-b` and `a_b` share a
    default."""
    default = default_table(catalog.namespace, file.stem)
    table, number = default, 2
    while problem := problem_of_new(Claim.of(file, table, catalog), claims, catalog):
        if problem.key != "table":
            raise ConfigError(file, [problem])
        table, number = f"{default}_{number}", number + 1
    claims.append(Claim.of(file, table, catalog))
    return table if table != default else None


NO_SOURCE = f"# No source is known. To read the topic from Kafka: source: {{kafka: {{{ADDRESS}: host:9092}}}}\n"


def _validated_yaml(
    topic: DescribedTopic, file: Path, config_dir: Path, table: str | None, brokers: str | None
) -> tuple[str, tuple[str, ...]]:
    """Return the file's text and notes. Raises ConfigError, naming the file, if the configuration would reject it."""
    carried = carried_over(topic, _load({"topic": topic.topic}, file, config_dir).config)
    notes = tuple(f"{name}={_plain(value)}: {why}" for name, value, why in carried.left_out)
    data: dict[str, object] = {"topic": topic.topic}
    data |= {"table": table} if table else {}
    data |= {"source": {"kafka": {ADDRESS: brokers}}} if brokers else {}
    data["config"] = dict(carried.configs)
    idle = without_effect(_load(data, file, config_dir).config, carried.configs)
    notes += tuple(f"{name}={carried.configs[name]}: {why}" for name, why in idle.items())
    data["config"] = {name: value for name, value in carried.configs.items() if name not in idle}
    comments = "".join(f"# {note}\n" for note in notes)
    head = "# yaml-language-server: $schema=../topic.schema.json\n"
    above = f"# Not carried over from Kafka:\n{comments}" if comments else ""
    above += "" if brokers else NO_SOURCE
    written = {key: value for key, value in data.items() if value}
    return head + above + yaml.safe_dump(written, sort_keys=False, allow_unicode=True), notes


def _load(data: Mapping[str, object], file: Path, config_dir: Path) -> Topic:
    return validated(yaml.safe_dump(dict(data)), file, config_dir)


def validated(text: str, file: Path, config_dir: Path) -> Topic:
    """Return the topic that `file` would define. Raises ConfigError as if the file existed."""
    with tempfile.TemporaryDirectory() as directory:
        written = Path(directory) / file.name
        written.write_text(text, encoding="utf-8")
        try:
            topic = load_topic(written, config_dir)
            if problem := name_problem(written, topic, topic.platform.dag_prefix):
                raise ConfigError(written, [problem])
            return topic
        except ConfigError as e:
            if e.file != written:
                raise
            raise ConfigError(file, [replace(p, line=None) for p in e.problems]) from None


def _plain(value: str) -> str:
    """Return a value as one printable line, for a comment."""
    return value if value.isprintable() else value.encode("unicode_escape").decode("ascii")


def write_file(file: Path, text: str, new: bool = False) -> None:
    """Write the file atomically, even if the disk is full.

    `new`: raise FileExistsError if another process created the file meanwhile, and leave that file unchanged.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        if not new:
            part.replace(file)
            return
        try:
            file.hardlink_to(part)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            with file.open("x", encoding="utf-8") as made:
                made.write(text)
    finally:
        part.unlink(missing_ok=True)
