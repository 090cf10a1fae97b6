"""Read the configuration: config/defaults.yaml (optional), config/topics/<topic>.yaml and config/groups/<group>.yaml.

    platform = load_platform(config_dir)
    topic = find_topic("orders", config_dir)

A topic is read in these steps:

1. Its YAML is merged over the `topic:` of the defaults. Mappings merge key by key, lists replace, and null means the
   default (but `schedule: null` means no schedule).
2. Each value must have its type and be in its range (cleantail.config.topic).
3. The platform must allow the topic's connections and sources (claims). Its group must allow it too (topic_group).
4. No other topic may have its name, its table or its source (claims).

Every error is a ConfigError with file, key, value and the allowed values.

If a topic's file is broken, its alerts go to the channels of the defaults (`default_alerts`). The file names its group,
else the defaults do. If neither can be read, every group counts the topic as its own, so that at least one run reports
the error (`may_run_in`).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from cleantail.codec import FORMAT, FormatNumber
from cleantail.config.alert_channels import Alert
from cleantail.config.catalog import Catalog
from cleantail.config.claims import (
    Claim,
    claim_problems,
    connection_problem,
    name_problem,
    platform_problems,
    source_claims,
    source_problems,
    superseded,
)
from cleantail.config.config_model import Model
from cleantail.config.input_limits import YAML_BYTES, limit_text
from cleantail.config.platform import Platform, PlatformSettings
from cleantail.config.run_schedule import Schedule
from cleantail.config.state_home import HOME_VARIABLE, state_home
from cleantail.config.topic import Layers, Topic, TopicDefaults, default_table
from cleantail.config.topic_group import GroupDefaults, TopicGroup, awaited_assets, group_problems, problems_in_group
from cleantail.config.validation_errors import nearest, require_none, validate
from cleantail.config.yaml_file import merged, read_yaml, without_nulls, yaml_files
from cleantail.errors import ConfigError, Problem, not_allowed

logger = logging.getLogger("cleantail.config")
CONFIG_VARIABLE = "CLEANTAIL_CONFIG"


def config_directory(env: Mapping[str, str] = os.environ) -> Path:
    """Return CLEANTAIL_CONFIG, else `config`: the directory if the command line names no other."""
    return Path(env.get(CONFIG_VARIABLE) or "config")


def load_platform(config_dir: Path, env: Mapping[str, str] = os.environ) -> Platform:
    """Return the platform of `config_dir`, with its CLEANTAIL_HOME (cleantail.config.state_home). Raises
    ConfigError."""
    return read_defaults(config_dir, env).platform


def dag_prefix(config_dir: Path) -> str:
    """Return platform.dag_prefix, even if another key of defaults.yaml is wrong, because rights depend on DAG ids."""
    try:
        return read_defaults(config_dir, {}).file.platform.dag_prefix
    except ConfigError:
        platform = _data_or_nothing(config_dir / "defaults.yaml").get("platform")
    prefix = platform.get("dag_prefix") if isinstance(platform, dict) else None
    return prefix if isinstance(prefix, str) else ""


def load_topic(file: Path, config_dir: Path, env: Mapping[str, str] = os.environ) -> Topic:
    """Return the topic of one file. Raises ConfigError."""
    return _topic(file, read_defaults(config_dir, env))


def load_topics(config_dir: Path, env: Mapping[str, str] = os.environ) -> list[Topic]:
    """Return all topics in the order of their file names. Raises the first ConfigError."""
    topics = []
    for _, topic in scan_topics(config_dir, env):
        if isinstance(topic, ConfigError):
            raise topic
        topics.append(topic)
    return topics


def find_topic(name: str, config_dir: Path, env: Mapping[str, str] = os.environ) -> Topic:
    """Return the topic called `name`. Broken files of other topics do not matter.

    Raises the ConfigError of the file `<name>.yaml`, or of a broken file that names the topic. Without such a file, the
    error lists the topics.
    """
    topic = find_topics([name], config_dir, env)[name]
    if isinstance(topic, ConfigError):
        raise topic
    return topic


def find_topics(
    names: Iterable[str], config_dir: Path, env: Mapping[str, str] = os.environ
) -> dict[str, Topic | ConfigError]:
    """Return name -> topic, or the error that find_topic raises. Reads the files once."""
    topics = {file.stem: topic for file, topic in scan_topics(config_dir, env)}
    broken = {
        error.value: error for error in topics.values() if isinstance(error, ConfigError) and error.key == "topic"
    }
    return {name: topics.get(name) or broken.get(name) or _unknown(name, list(topics), config_dir) for name in names}


def _unknown(name: str, names: list[str], config_dir: Path) -> ConfigError:
    allowed = f"topics: {', '.join(names)}" if names else "there are no topics yet"
    return ConfigError(config_dir / "topics", [Problem("", f"no topic {name}", allowed, name, nearest(name, names))])


def scan_topics(config_dir: Path, env: Mapping[str, str] = os.environ) -> Iterator[tuple[Path, Topic | ConfigError]]:
    """Yield each topic file with its topic, or with its error. A broken file does not hide the others.

    Raises ConfigError only if `config_dir` is not a directory. Names and sources that several files claim are errors
    (cleantail.config.claims).
    """
    _require_directory(config_dir)
    files = yaml_files(config_dir / "topics")
    try:
        defaults = read_defaults(config_dir, env)
    except ConfigError as error:
        yield from ((file, error) for file in files)
        return
    scanned = [(file, _topic_or_error(file, defaults)) for file in files]
    catalog = defaults.file.platform.catalog
    claims = [_claim(file, topic, catalog) for file, topic in scanned]
    without_topic = superseded(claims, catalog)
    of_sources = _source_problems([each for each in scanned if each[0] not in without_topic], defaults)
    problems = {**of_sources, **claim_problems(claims, catalog)}
    for file, topic in scanned:
        problem = problems.get(file)
        yield file, topic if problem is None or isinstance(topic, ConfigError) else ConfigError(file, [problem])


def _source_problems(scanned: list[tuple[Path, Topic | ConfigError]], defaults: ReadDefaults) -> Mapping[Path, Problem]:
    platform = defaults.file.platform
    claims = [
        claim
        for file, topic in scanned
        for claim in source_claims(
            file, topic if isinstance(topic, Topic) else _data_or_nothing(file), platform, defaults.home
        )
    ]
    return source_problems(claims, platform.shared_sources)


def claims_of(config_dir: Path, env: Mapping[str, str] = os.environ) -> list[Claim]:
    """Return the claims of all topic files, even of broken ones. Raises ConfigError if the defaults are broken."""
    defaults = read_defaults(config_dir, env)
    catalog = defaults.file.platform.catalog
    return [_claim(file, _topic_or_error(file, defaults), catalog) for file in yaml_files(config_dir / "topics")]


def _claim(file: Path, topic: Topic | ConfigError, catalog: Catalog) -> Claim:
    """Return the claim of a file, which may be broken.

    If a broken file has the name of its topic, it claims the table that it names. Otherwise it claims the default table
    of the file's name, so that it cannot take the table of the topic that it names.
    """
    if isinstance(topic, Topic):
        source = topic.source.table
        reads = source.name if source is not None and source.in_own_catalog else None
        return Claim.of(file, topic.table, catalog, reads)
    data = _data_or_nothing(file)
    names_itself, table = data.get("topic") == file.stem, data.get("table")
    claimed = table if names_itself and isinstance(table, str) else default_table(catalog.namespace, file.stem)
    return Claim.of(file, claimed, catalog)


def _data_or_nothing(file: Path) -> dict[str, Any]:
    try:
        return read_yaml(file)
    except ConfigError:
        return {}


def _require_directory(config_dir: Path) -> None:
    if not config_dir.is_dir():
        raise ConfigError(
            config_dir, [Problem("", "no such directory", f"give it with --config DIR or {CONFIG_VARIABLE}")]
        )


class DefaultsFile(Model):
    """The whole config/defaults.yaml."""

    format: FormatNumber = Field(default=FORMAT, description="Format of the configuration: this version reads 1.")
    platform: PlatformSettings = Field(default=PlatformSettings(), description="The platform.")
    groups: GroupDefaults = Field(default=GroupDefaults(), description="What all groups of topics share.")
    topic: TopicDefaults = Field(default=TopicDefaults(), description="What all topics share.")


@dataclass(frozen=True)
class ReadDefaults:
    """defaults.yaml as a model, its `topic:` and `groups:` as written, and the folder of the state (CLEANTAIL_HOME)."""

    config_dir: Path
    file: DefaultsFile
    written: dict[str, Any]
    groups: dict[str, Any]
    home: Path
    env: Mapping[str, str]

    @cached_property
    def platform(self) -> Platform:
        """Return the platform. Raises ConfigError if CLEANTAIL_HOME cannot be part of an address."""
        if set("?%#") & set(text := str(self.home)):
            problem = Problem(HOME_VARIABLE, not_allowed(text), "a path without ? % #: it becomes part of addresses")
            raise ConfigError(self.config_dir, [problem])
        settings = {name: getattr(self.file.platform, name) for name in PlatformSettings.model_fields}
        return Platform(**settings, home=self.home, config_dir=Path(os.path.abspath(self.config_dir))).with_env(
            self.env
        )

    @cached_property
    def awaited(self) -> Mapping[str, tuple[str, ...]]:
        """Group -> the assets that it waits for."""
        scanned = scan_group_files(self.config_dir / "groups", self.groups, self.file.platform)
        return {file.stem: awaited_assets(group) for file, group in scanned}


def read_defaults(config_dir: Path, env: Mapping[str, str] = os.environ) -> ReadDefaults:
    """Read defaults.yaml. Raises ConfigError."""
    _require_directory(config_dir)
    file = config_dir / "defaults.yaml"
    data = without_nulls(read_yaml(file)) if file.exists() else {}
    model = validate(DefaultsFile, data, file)
    home = state_home(config_dir, model.platform.state, env)
    return ReadDefaults(config_dir, model, data.get("topic", {}), data.get("groups", {}), home, env)


def _topic_or_error(file: Path, defaults: ReadDefaults) -> Topic | ConfigError:
    try:
        topic = _topic(file, defaults)
    except ConfigError as error:
        return error
    except Exception as error:  # a defect of Cleantail must not hide other topics
        logger.debug("%s", file, exc_info=True)
        fact = f"cannot be read because of a defect of Cleantail: {type(error).__name__}"
        return ConfigError(file, [Problem("", fact, "a topic as in docs/topics.md; please report the defect")])
    problem = name_problem(file, topic, defaults.file.platform.dag_prefix)
    return topic if problem is None else ConfigError(file, [problem])


def _topic(file: Path, defaults: ReadDefaults) -> Topic:
    platform = defaults.file.platform
    max_bytes = platform.limits.yaml_max_bytes
    topic_yaml = without_nulls(read_yaml(file, max_bytes, limit_text(YAML_BYTES)))
    data = merged(defaults.written, topic_yaml)
    # a name gives a default table, so that a missing `topic` is one problem and not two
    name = str(data.get("topic") or "none")
    data.setdefault("table", default_table(platform.catalog.namespace, name))
    topic = validate(Topic, data, file).on(defaults.platform, Layers(topic_yaml, defaults.written))
    require_none(file, [*platform_problems(topic), *problems_in_group(topic, topic_yaml, defaults.awaited)])
    return topic


def scan_group_files(
    folder: Path, defaults: Mapping[str, Any], platform: PlatformSettings
) -> Iterator[tuple[Path, TopicGroup | ConfigError]]:
    """Yield each file with its group over the `groups:` of the defaults. A broken file does not hide the others."""
    files = yaml_files(folder)
    for file in files:
        try:
            if file.suffix != ".yaml" and file.with_suffix(".yaml") in files:
                allowed = f"also the group of {file.stem}.yaml: give this file another name"
                raise ConfigError(file, [Problem("group", not_allowed(file.stem), allowed, file.stem)])
            written = without_nulls(read_yaml(file, platform.limits.yaml_max_bytes, limit_text(YAML_BYTES)))
            group = validate(TopicGroup, merged(dict(defaults), written), file)
            require_none(file, group_problems(file, group, platform.dag_prefix))
            yield file, group
        except ConfigError as error:
            yield file, error


def scan_groups(
    config_dir: Path, env: Mapping[str, str] = os.environ
) -> Iterator[tuple[Path, TopicGroup | ConfigError]]:
    """Yield each file of config/groups with its group, or with its error. Raises ConfigError if the defaults are
    broken."""
    defaults = read_defaults(config_dir, env)
    return scan_group_files(config_dir / "groups", defaults.groups, defaults.file.platform)


def run_schedule_of(topic: Topic, config_dir: Path, env: Mapping[str, str] = os.environ) -> Schedule | None:
    """Return the schedule of a topic's runs, or of its group. Raises ConfigError for a broken group."""
    return topic.schedule if topic.group is None else find_group(topic.group, config_dir, env).schedule


def find_group(name: str, config_dir: Path, env: Mapping[str, str] = os.environ) -> TopicGroup:
    """Return the group called `name`. Raises the ConfigError of its file. Without a file, the error lists the
    groups."""
    groups = {file.stem: group for file, group in scan_groups(config_dir, env)}
    group = groups.get(name)
    if isinstance(group, TopicGroup):
        return group
    if group is not None:
        raise group
    allowed = f"groups: {', '.join(groups)}" if groups else "there are no groups yet"
    problem = Problem("", f"no group {name}", allowed, name, nearest(name, list(groups)))
    raise ConfigError(config_dir / "groups", [problem])


def default_alerts(config_dir: Path, env: Mapping[str, str] = os.environ) -> list[Alert]:
    """Return the `alerts` of defaults.yaml that the platform allows. Empty if the defaults are broken."""
    try:
        defaults = read_defaults(config_dir, env)
        written = {"topic": "defaults", "table": "none.defaults", "alerts": defaults.written.get("alerts", [])}
        topic = validate(Topic, written, config_dir / "defaults.yaml")
    except ConfigError:
        return []
    return [alert for alert in topic.alerts if connection_problem(alert, defaults.file.platform) is None]


_LINE = re.compile(r"^group:[ \t]*[\"']?([A-Za-z0-9._-]+)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)
"""Finds the line that names a group, in a file that is not valid YAML."""
_CHARS = 65_536


def group_of_file(file: Path, config_dir: Path) -> str | None:
    """Return the group that a topic's file names, else the group of the defaults, else None."""
    try:
        data = read_yaml(file)
    except ConfigError:
        if (line := _line_of(file)) is not None:
            return line
        data = {}
    layer = data if "group" in data else _data_or_nothing(config_dir / "defaults.yaml").get("topic")
    group = layer.get("group") if isinstance(layer, dict) else None
    return group if isinstance(group, str) else None


def may_run_in(group: str, file: Path, config_dir: Path) -> bool:
    """Return whether the group may have to run the topic of this file."""
    named = group_of_file(file, config_dir)
    return named == group or (named is None and _is_unreadable(file))


def _is_unreadable(file: Path) -> bool:
    try:
        file.open(encoding="utf-8").close()
    except FileNotFoundError:  # a dangling link, or deleted since the folder was listed
        return file.is_symlink()
    except OSError:
        return True
    return False


def _line_of(file: Path) -> str | None:
    try:
        with file.open(errors="replace", encoding="utf-8") as stream:
            match = _LINE.search(stream.read(_CHARS))
    except OSError:
        return None
    return match and match[1]
