"""Says where the jars lie: in one folder for all homes of a user, unless something else is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cleantail.config.state_home import INSTALLED_IN
from cleantail.lake.jars.jar_list import spark_version

JARS_VARIABLE = "CLEANTAIL_JARS"
"""Directory of the Spark jars; without it `jars` under CLEANTAIL_HOME, in a checkout those that `make setup` fetched,
else the cache."""
CHECKOUT_JARS = INSTALLED_IN / ".cleantail" / "jars"


def jars_directory(home: Path, env: Mapping[str, str]) -> Path:
    """Returns CLEANTAIL_JARS, else `jars` under the home, else those of the checkout, else the cache."""
    if env.get(JARS_VARIABLE):
        return Path(env[JARS_VARIABLE])
    there = (folder for folder in (home / "jars", CHECKOUT_JARS) if folder.is_dir())
    return next(there, cache_directory(env, spark_version()))


def cache_directory(env: Mapping[str, str], spark: str) -> Path:
    """Returns the folder that the XDG Base Directory Specification gives to what can be fetched again, by the version
    of Spark."""
    named = Path(env.get("XDG_CACHE_HOME") or "")
    caches = named if named.is_absolute() else Path.home() / ".cache"
    return caches / "cleantail" / "jars" / f"spark-{spark}"
