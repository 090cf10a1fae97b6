"""Says where the state is: catalog, tables, locks, Data Docs and what alerts have told, in one folder (CLEANTAIL_HOME).

The first of these that says something:

1. CLEANTAIL_HOME of the environment.
2. `platform.state` of defaults.yaml, an absolute path, so that every process of a platform agrees without a variable.
3. `.cleantail` beside the configuration, in a checkout of the repository and where that folder is there already.
4. A folder of the user's own data, one for each configuration: `$XDG_DATA_HOME/cleantail/NAME`. The configuration may
   lie where only an administrator writes, so nothing is written beside it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "CLEANTAIL_HOME"
INSTALLED_IN = Path(__file__).resolve().parents[2]
"""The folder of the packages: a checkout of the repository, or site-packages."""
_BESIDE = ".cleantail"
_NAME_CHARS = 40


def in_checkout() -> bool:
    """Returns whether these packages are those of a checkout, with its configuration beside them."""
    return (INSTALLED_IN / "config" / "topics").is_dir() and (INSTALLED_IN / "pyproject.toml").is_file()


def state_home(config_dir: Path, named: str | None, env: Mapping[str, str]) -> Path:
    """Returns the absolute path of the state of a configuration; `named` is `platform.state`."""
    config = Path(os.path.abspath(config_dir))
    if chosen := env.get(HOME_VARIABLE) or named:
        return Path(os.path.abspath(chosen))
    beside = config.parent / _BESIDE
    if beside.is_dir() or (config.parent == INSTALLED_IN and in_checkout()):
        return beside
    return _data_folder(env) / "cleantail" / _name_of(config)


def _data_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder that the XDG Base Directory Specification gives to the user's data."""
    named = Path(env.get("XDG_DATA_HOME") or "")
    return named if named.is_absolute() else Path.home() / ".local" / "share"


def _name_of(config: Path) -> str:
    """Returns a name for the state that tells people of which configuration it is, and no two have the same."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(config)).strip("-")
    if len(name) > _NAME_CHARS:
        name = name[-_NAME_CHARS:].partition("-")[2]
    return f"{name}-{hashlib.sha256(os.fsencode(config)).hexdigest()[:8]}"
