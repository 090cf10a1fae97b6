"""The files of a configuration as this version takes them: which have to be written anew or renamed, and how.

1. Keys of defaults.yaml that are gone are taken out (gone_keys).
2. A topic's file gets the name of its topic, where no other file has it.
3. The rest is asked of the same rules as always, on a copy with these changes: what they refuse is for a person.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter, ValidationError

from cleantail.config.claims.platform_limits import in_its_sources
from cleantail.config.groups.loading_groups import scan_groups
from cleantail.config.loading import load_platform, scan_topics
from cleantail.config.platform import Platform
from cleantail.config.state_home import HOME_VARIABLE
from cleantail.config.topic import Topic, TopicName
from cleantail.config.yaml_file import read_yaml, yaml_files
from cleantail.errors import CleantailError, ConfigError
from cleantail.upgrade.changes import Area, By, Change
from cleantail.upgrade.gone_keys import gone_in, rewritten

DEFAULTS = "defaults.yaml"
_FOLDERS = ("topics", "groups")
_TOPIC_NAME: TypeAdapter[str] = TypeAdapter(TopicName)


@dataclass(frozen=True, slots=True)
class FileEdit:
    """Says what becomes of a file, by its path in the configuration: its new text, or its new name."""

    file: str
    text: str | None = None
    renamed: str = ""


@dataclass(frozen=True, slots=True)
class ConfigUpgrade:
    """Says what the configuration needs, and the platform and topics that it then says. `platform` is None where it
    still cannot be read."""

    changes: tuple[Change, ...]
    edits: tuple[FileEdit, ...]
    platform: Platform | None
    topics: tuple[Topic, ...]


def planned_config(config_dir: Path, home: Path, env: Mapping[str, str]) -> ConfigUpgrade:
    """Looks at the configuration, whose state is in `home`. Raises ConfigError where there is none."""
    if not config_dir.is_dir():
        load_platform(config_dir, env)
    changes, edits = _edits(config_dir)
    with _copy(config_dir, edits) as copied:
        platform, topics, problems = _loaded(copied, {**env, HOME_VARIABLE: str(home)})
        refused = [_refused(error, copied) for error in problems]
    if platform is not None:
        platform = platform.model_copy(update={"config_dir": Path(os.path.abspath(config_dir))})
    return ConfigUpgrade((*changes, *(change for some in refused for change in some)), edits, platform, topics)


def write(config_dir: Path, edits: tuple[FileEdit, ...], kept: Path) -> None:
    """Makes the edits, each by one rename, after the files as they were are in the folder `kept`. Raises CleantailError
    where a file cannot be written."""
    try:
        for edit in edits:
            file, copy = config_dir / edit.file, kept / edit.file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
            if edit.text is None:
                file.rename(config_dir / edit.renamed)
                continue
            target = file.resolve()  # a link stays one
            half = target.with_name(f".{target.name}.{os.getpid()}")
            half.write_text(edit.text, encoding="utf-8", newline="")
            shutil.copymode(target, half)
            half.replace(target)
    except OSError as e:
        raise CleantailError(f"{e.filename or config_dir} cannot be written: {e.strerror}; see {kept}") from None


def _edits(config_dir: Path) -> tuple[list[Change], tuple[FileEdit, ...]]:
    changes: list[Change] = []
    edits: list[FileEdit] = []
    # 1. keys that are gone
    file = config_dir / DEFAULTS
    text = _text(file)
    for key in gone_in(read_yaml(file)) if text is not None else ():
        new_text = rewritten(text or "", key)
        by = By.PERSON if new_text is None else By.UPGRADE
        changes.append(Change(Area.CONFIGURATION, DEFAULTS, key.text, by))
        text = text if new_text is None else new_text
    if text is not None and text != _text(file):
        edits.append(FileEdit(DEFAULTS, text=text))
    # 2. names of files
    files = yaml_files(config_dir / "topics")
    named = {file: topic for file in files if (topic := _topic_named(file)) not in (None, file.stem)}
    for topic_file, topic in named.items():
        old, new = f"topics/{topic_file.name}", f"topics/{topic}{topic_file.suffix}"
        free = list(named.values()).count(topic) == 1 and topic not in {f.stem.lower() for f in files}
        if free and not topic_file.is_symlink():
            changes.append(Change(Area.CONFIGURATION, old, f"it is called {new}, as its topic is", By.UPGRADE))
            edits.append(FileEdit(old, renamed=new))
    return changes, tuple(edits)


def _text(file: Path) -> str | None:
    """Returns a file's text with the line ends that it has; None where there is no such file."""
    try:
        return file.read_bytes().decode() if file.exists() else None
    except (OSError, UnicodeDecodeError):
        return None


def _topic_named(file: Path) -> str | None:
    """Returns the name that a file gives its topic, where a file can be called so."""
    try:
        topic = _TOPIC_NAME.validate_python(read_yaml(file).get("topic"), strict=True)
    except (ConfigError, ValidationError):
        return None
    return None if topic.startswith(".") else topic  # the name of a hidden file


@contextmanager
def _copy(config_dir: Path, edits: tuple[FileEdit, ...]) -> Iterator[Path]:
    """Gives a copy of the configuration with these edits, for the block."""
    with TemporaryDirectory(prefix="cleantail-upgrade-") as place:
        copied = Path(place) / config_dir.absolute().name
        copied.mkdir()
        if (config_dir / DEFAULTS).exists():
            shutil.copyfile(config_dir / DEFAULTS, copied / DEFAULTS)
        for folder in _FOLDERS:
            (copied / folder).mkdir()
            for file in yaml_files(config_dir / folder):
                if file.is_file():
                    shutil.copyfile(file, copied / folder / file.name)
        for edit in edits:
            if edit.text is not None:
                (copied / edit.file).write_text(edit.text, encoding="utf-8", newline="")
            else:
                (copied / edit.file).rename(copied / edit.renamed)
        yield copied


def _loaded(
    config_dir: Path, env: Mapping[str, str]
) -> tuple[Platform | None, tuple[Topic, ...], tuple[ConfigError, ...]]:
    """Returns the platform, the topics that can be read, and what is wrong with the others and with groups."""
    try:
        platform = load_platform(config_dir, env)
    except ConfigError as error:
        return None, (), (error,)
    scanned = [in_its_sources(file, topic, platform) for file, topic in scan_topics(config_dir, env)]
    topics = tuple(topic for topic in scanned if isinstance(topic, Topic))
    groups = [group for _, group in scan_groups(config_dir, env)]
    return platform, topics, tuple(error for error in (*scanned, *groups) if isinstance(error, ConfigError))


def _refused(error: ConfigError, copied: Path) -> list[Change]:
    """Returns what a file of the copy needs of a person, by its path in the configuration."""
    within = error.file.is_relative_to(copied)
    file = str(error.file.relative_to(copied)) if within else str(error.file)
    problems = [f"line {p.line}: {p}" if p.line else str(p) for p in error.problems]
    return [Change(Area.CONFIGURATION, file, f"this version refuses it: {problem}", By.PERSON) for problem in problems]
