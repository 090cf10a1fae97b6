"""The embedded Airflow's home: its folder, its settings (config/airflow.env), its keys and its password."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template

from cleantail.config.loading import CONFIG_VARIABLE, load_platform
from cleantail.home.home_folder import make_folder
from cleantail_airflow.installation import ROOT, config_dir

SETTINGS_FILE = ROOT / "config" / "airflow.env"
PASSWORDS = "passwords.json"
USER = "admin"


def airflow_home(env: Mapping[str, str]) -> Path:
    """Return CLEANTAIL_HOME/airflow, the folder of its database, logs and keys."""
    return load_platform(config_dir(env), env).home / "airflow"


def environment(port: int, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to `env` for Airflow's processes. Values of `env` override SETTINGS_FILE. No value is
    a secret."""
    home, config = airflow_home(env), config_dir(env)
    paths = {"CLEANTAIL_ROOT": str(ROOT), "AIRFLOW_HOME": str(home), "CLEANTAIL_PORT": str(port)}
    spark = json.dumps({"conn_type": "spark", "host": load_platform(config, env).spark.master})
    settings = {"AIRFLOW_CONN_SPARK_DEFAULT": spark, **read_settings(SETTINGS_FILE, paths)}
    return {
        **{name: env.get(name, value) for name, value in settings.items()},
        "AIRFLOW_HOME": str(home),
        "CLEANTAIL_HOME": str(home.parent),
        CONFIG_VARIABLE: str(config),
        "PYTHONPATH": _prepended(ROOT, env.get("PYTHONPATH")),
        "PATH": _prepended(Path(sys.executable).parent, env.get("PATH")),
    }


def read_settings(file: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Read lines KEY=VALUE, and fill in ${VARIABLE}. # starts a comment line."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: Template(value).substitute(variables) for name, _, value in pairs}


def make_secrets(home: Path) -> None:
    """Create the keys and the admin's password if they do not exist. Only their owner can read them."""
    make_folder(home.parent, home.name)
    home.chmod(0o700)
    _write_once(home / "jwt_secret", secrets.token_hex(64))
    _write_once(home / "api_secret_key", secrets.token_hex(32))
    _write_once(home / "fernet_key", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
    _write_once(home / PASSWORDS, json.dumps({USER: secrets.token_urlsafe(16)}))


def _write_once(file: Path, text: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def _prepended(path: Path, paths: str | None) -> str:
    """Return the paths with this path first, and without a second copy of it."""
    parts = [part for part in (paths or "").split(os.pathsep) if part and part != str(path)]
    return os.pathsep.join([str(path), *parts])
