"""All that an upgrade has to do, found without changing anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cleantail.config.platform import Platform
from cleantail.upgrade.changes import By, Change
from cleantail.upgrade.config_files import FileEdit, planned_config
from cleantail.upgrade.state import docs_changes, home_of, jar_changes, place_changes
from cleantail.upgrade.tables import CatalogUpgrade, planned_catalog


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """Says what is to change, in the order of `Area`. `platform` is that of the configuration with its edits, and None
    where it still cannot be read: tables were not looked at then."""

    home: Path
    changes: tuple[Change, ...]
    edits: tuple[FileEdit, ...]
    catalog: CatalogUpgrade
    docs: tuple[str, ...]
    platform: Platform | None

    @property
    def any_to_do(self) -> bool:
        """Returns whether there is something that the command itself changes."""
        return any(change.by is By.UPGRADE for change in self.changes)


def planned(config_dir: Path, env: Mapping[str, str]) -> UpgradePlan:
    """Looks at configuration and state. Raises ConfigError where there is no configuration, or no YAML in it, and
    OutsideError where the catalog is out of reach."""
    home = home_of(config_dir, env)
    config = planned_config(config_dir, home, env)
    docs = tuple(docs_changes(home))
    before = (*config.changes, *place_changes(config_dir, home))
    names = tuple(change.subject for change in docs if change.by is By.UPGRADE)
    if config.platform is None:
        return UpgradePlan(home, (*before, *docs), config.edits, CatalogUpgrade(), names, None)
    jars = tuple(jar_changes(config.platform, env))
    catalog = planned_catalog(config.platform, config.topics)
    changes = (*before, *jars, *catalog.changes, *docs)
    return UpgradePlan(home, changes, config.edits, catalog, names, config.platform)
