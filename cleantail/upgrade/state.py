"""Says what earlier versions have left outside of the catalog: the place of the state, jars, Data Docs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from cleantail.config.platform import Platform
from cleantail.config.state_home import state_home
from cleantail.config.yaml_file import read_yaml
from cleantail.errors import CleantailError
from cleantail.home.data_docs import of_earlier_version
from cleantail.lake.catalog_settings import jars_directory
from cleantail.lake.jars.jar_list import AGAIN, on_class_path
from cleantail.upgrade.changes import Area, By, Change
from cleantail.upgrade.tables import DATABASE

BESIDE = ".cleantail"
"""Where version 0.1.0 has the state unless CLEANTAIL_HOME says otherwise: beside the configuration."""


def home_of(config_dir: Path, env: Mapping[str, str]) -> Path:
    """Returns where the state is, also where something else in defaults.yaml is wrong. Raises ConfigError where the
    file is no YAML."""
    file = config_dir / "defaults.yaml"
    platform = read_yaml(file).get("platform") if file.exists() else None
    named = platform.get("state") if isinstance(platform, dict) else None
    return state_home(config_dir, named if isinstance(named, str) else None, env)


def place_changes(config_dir: Path, home: Path) -> Iterator[Change]:
    """Yields what is to be done where an earlier version's state lies beside the configuration and another place,
    without any, is named now: runs would begin anew there."""
    beside = Path(os.path.abspath(config_dir)).parent / BESIDE
    if beside != home and (beside / DATABASE).is_file() and not (home / DATABASE).exists():
        text = (
            f"an earlier version has its state there, and this configuration uses {home}, where there is none: name "
            f"{beside} in CLEANTAIL_HOME or platform.state, or register the tables in the new catalog"
        )
        yield Change(Area.STATE, str(beside), text, By.PERSON)


def jar_changes(platform: Platform, env: Mapping[str, str]) -> Iterator[Change]:
    """Yields what is to be done where the jars are not those that this version lists."""
    if platform.spark.jars_of_cluster:
        return
    directory = jars_directory(platform, env)
    try:
        if not on_class_path(directory):
            yield Change(Area.JARS, str(directory), f"it has none of the jars that are listed: {AGAIN}", By.PERSON)
    except CleantailError as e:
        yield Change(Area.JARS, str(directory), str(e), By.PERSON)


def docs_changes(home: Path) -> Iterator[Change]:
    """Yields the topics whose Data Docs an earlier version has written. Where Great Expectations is not installed,
    which reads the results, the topic's next check sees to it."""
    text = "their pages are made anew from the results that are kept, without what the data held"
    by = By.UPGRADE if find_spec("great_expectations") else By.ITSELF
    for topic in of_earlier_version(home):
        yield Change(Area.DATA_DOCS, topic, text, by)
