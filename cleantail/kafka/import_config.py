"""Topic YAML from what a Kafka cluster says of its topics.

1. A topic that is named gets a file. Without names that is every topic that is compacted and not internal.
2. A file that is there stays as it is, unless `force`, also one that was made meanwhile; who has it under another name
   keeps that one.
3. Which configs it has broker_configs.carried_over says. One that cannot be carried over becomes a comment that says
   why.
4. Two topics whose names would make one table get tables of their own.
5. Every file is validated as the configuration would be before the first one is written: all of them, or none.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from cleantail.config.catalog import Catalog
from cleantail.config.claims import Claim, problem_of_new
from cleantail.config.loading import claims_of, load_topic
from cleantail.config.topic import Topic, default_table
from cleantail.errors import CleantailError, ConfigError
from cleantail.kafka.import_config import DescribedTopic, carried_over

WRITTEN = "written"
EXISTS = "exists"
NOT_COMPACTED = "not compacted"
INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ImportedTopic:
    """Says what became of one topic. `notes` are the configs that were left out, each with why."""

    topic: str
    status: str
    file: str
    notes: tuple[str, ...] = ()


def import_topics(
    described: Sequence[DescribedTopic], names: Sequence[str], config_dir: Path, catalog: Catalog, force: bool
) -> list[ImportedTopic]:
    """Writes one file for each topic into `config_dir`/topics, and returns what became of each.

    An existing file is left as it is unless `force`. Without `names`, topics that are internal or not compacted are
    only reported. Raises ConfigError when a config cannot be carried over, CleantailError when a name is not described;
    then nothing was written.
    """
    # 1. what there is already
    _require_described(names, described)
    (config_dir / "topics").mkdir(parents=True, exist_ok=True)
    claims = claims_of(config_dir, os.environ)
    owners = {claim.topic: claim.file for claim in claims}
    # 2. every file is made and validated
    imported, texts = [], {}
    for topic in described:
        if names and topic.topic not in names:
            continue
        file = owners.get(topic.topic, config_dir / "topics" / f"{topic.topic}.yaml")
        status = _status(topic, bool(names), file, force)
        notes: tuple[str, ...] = ()
        if status == WRITTEN:
            table = None if topic.topic in owners else _free_table(catalog, file, claims)
            texts[file], notes = _validated_yaml(topic, file, config_dir, table)
        imported.append(ImportedTopic(topic.topic, status, file.name, notes))
    # 3. nothing was wrong: the files are written
    met = set()
    for file, text in texts.items():
        try:
            write_file(file, text, new=not force)
        except FileExistsError:
            met.add(file.name)
    return [replace(one, status=EXISTS) if one.file in met else one for one in imported]


def _require_described(names: Sequence[str], described: Sequence[DescribedTopic]) -> None:
    described_names = [topic.topic for topic in described]
    missing = sorted(set(names) - set(described_names))
    if missing:
        raise CleantailError(
            f"topic {missing[0]} is not described; described are: {', '.join(described_names) or 'none'}"
        )


def _status(topic: DescribedTopic, named: bool, file: Path, force: bool) -> str:
    """Returns what becomes of a topic: WRITTEN, or why it is not written."""
    if not named and topic.topic.startswith("__"):
        return INTERNAL
    if not named and not topic.compacts:
        return NOT_COMPACTED
    return EXISTS if file.exists() and not force else WRITTEN


def _free_table(catalog: Catalog, file: Path, claims: list[Claim]) -> str | None:
    """Returns the table to name in the file, None where the default one is free: `a-b` and `a_b` would share one."""
    default = default_table(catalog.namespace, file.stem)
    table, number = default, 2
    while problem := problem_of_new(Claim.of(file, table, catalog), claims, catalog):
        if problem.key != "table":
            raise ConfigError(file, [problem])
        table, number = f"{default}_{number}", number + 1
    claims.append(Claim.of(file, table, catalog))
    return table if table != default else None


def _validated_yaml(
    topic: DescribedTopic, file: Path, config_dir: Path, table: str | None
) -> tuple[str, tuple[str, ...]]:
    """Returns the file's text and notes. Raises ConfigError, naming the file, for what the configuration would
    refuse."""
    carried = carried_over(topic, _load({"topic": topic.topic}, file, config_dir).config)
    notes = tuple(f"{name}={_plain(value)}: {why}" for name, value, why in carried.left_out)
    data: dict[str, object] = {"topic": topic.topic}
    data |= {"table": table} if table else {}
    data |= {"config": dict(carried.configs)} if carried.configs else {}
    _load(data, file, config_dir)
    comments = "".join(f"# {note}\n" for note in notes)
    head = "# yaml-language-server: $schema=../topic.schema.json\n"
    above = f"# Not carried over from Kafka:\n{comments}" if comments else ""
    return head + above + yaml.safe_dump(data, sort_keys=False, allow_unicode=True), notes


def _load(data: Mapping[str, object], file: Path, config_dir: Path) -> Topic:
    return validated(yaml.safe_dump(dict(data)), file, config_dir)


def validated(text: str, file: Path, config_dir: Path) -> Topic:
    """Returns the topic that `file` would be. Raises ConfigError as if it were."""
    with tempfile.TemporaryDirectory() as directory:
        written = Path(directory) / "topic.yaml"
        written.write_text(text, encoding="utf-8")
        try:
            return load_topic(written, config_dir, os.environ)
        except ConfigError as e:
            if e.file != written:
                raise
            raise ConfigError(file, [replace(p, line=None) for p in e.problems]) from None


def _plain(value: str) -> str:
    """Returns a value as one printable line: it becomes a comment."""
    return value if value.isprintable() else value.encode("unicode_escape").decode("ascii")


def write_file(file: Path, text: str, new: bool = False) -> None:
    """Writes all of a file or nothing, also where the disk fills. `new`: raises FileExistsError where somebody has made
    the file meanwhile, which then stays as it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        if new:
            _link(part, file)
        else:
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _link(part: Path, file: Path) -> None:
    """Gives a file its name if nothing has that."""
    try:
        file.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with file.open("x", encoding="utf-8") as made:
            made.write(part.read_text(encoding="utf-8"))
