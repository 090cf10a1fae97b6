"""Folder of the state (CLEANTAIL_HOME): catalog, tables, locks, Data Docs and sent alerts.

The state is in the first of these that is set or exists:

1. CLEANTAIL_HOME of the environment.
2. `platform.state` of defaults.yaml, an absolute path, so that all processes of a platform agree without a variable.
3. `.cleantail` next to the configuration, in a checkout of the repository, or if that folder exists.
4. `$XDG_DATA_HOME/cleantail/NAME`, one folder for each configuration, because users may not be allowed to write next to
   the configuration.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "CLEANTAIL_HOME"
INSTALLED_IN = Path(__file__).resolve().parents[2]
"""Folder of the packages: a checkout of the repository, or site-packages."""
_NEIGHBOUR = ".cleantail"
_NAME_CHARS = 40


def in_checkout() -> bool:
    """Return whether these packages are in a checkout, with its configuration next to them."""
    return (INSTALLED_IN / "config" / "topics").is_dir() and (INSTALLED_IN / "pyproject.toml").is_file()


def state_home(config_dir: Path, named: str | None, env: Mapping[str, str]) -> Path:
    """Return the absolute path of the state of a configuration; `named` is `platform.state`."""
    config = Path(os.path.abspath(config_dir))
    if chosen := env.get(HOME_VARIABLE) or named:
        return Path(os.path.abspath(chosen))
    neighbour = config.parent / _NEIGHBOUR
    if neighbour.is_dir() or (config.parent == INSTALLED_IN and in_checkout()):
        return neighbour
    return _data_folder(env) / "cleantail" / _name_of(config)


def _data_folder(env: Mapping[str, str]) -> Path:
    """Return the user's data folder by the XDG Base Directory Specification."""
    named = Path(env.get("XDG_DATA_HOME") or "")
    return named if named.is_absolute() else Path.home() / ".local" / "share"


def _name_of(config: Path) -> str:
    """Return a readable, unique name for the state of a configuration."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(config)).strip("-")
    if len(name) > _NAME_CHARS:
        name = name[-_NAME_CHARS:].partition("-")[2]
    return f"{name}-{hashlib.sha256(os.fsencode(config)).hexdigest()[:8]}"
