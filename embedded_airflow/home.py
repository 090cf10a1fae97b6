"""What the embedded Airflow is made of: its folder, its settings (config/airflow.env), its keys and password."""

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
from cleantail.home.private_files import make_folder
from cleantail_airflow.installation import ROOT, config_dir

SETTINGS_FILE = ROOT / "config" / "airflow.env"
PASSWORDS = "passwords.json"
USER = "admin"


def airflow_home(env: Mapping[str, str]) -> Path:
    """CLEANTAIL_HOME/airflow: database, logs, keys."""
    return load_platform(config_dir(env), env).home / "airflow"


def environment(port: int, env: Mapping[str, str]) -> dict[str, str]:
    """What Airflow's processes see besides `env`; what `env` sets wins over the file. Holds no secret."""
    home, config = airflow_home(env), config_dir(env)
    places = {"CLEANTAIL_ROOT": str(ROOT), "AIRFLOW_HOME": str(home), "CLEANTAIL_PORT": str(port)}
    spark = json.dumps({"conn_type": "spark", "host": load_platform(config, env).spark.master})
    settings = {"AIRFLOW_CONN_SPARK_DEFAULT": spark, **read_settings(SETTINGS_FILE, places)}
    return {
        **{name: env.get(name, value) for name, value in settings.items()},
        "AIRFLOW_HOME": str(home),
        "CLEANTAIL_HOME": str(home.parent),
        CONFIG_VARIABLE: str(config),
        "PYTHONPATH": _first(ROOT, env.get("PYTHONPATH")),
        "PATH": _first(Path(sys.executable).parent, env.get("PATH")),
    }


def read_settings(file: Path, places: Mapping[str, str]) -> dict[str, str]:
    """Lines KEY=VALUE with ${PLACE} filled in; # starts a comment line."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: Template(value).substitute(places) for name, _, value in pairs}


def make_secrets(home: Path) -> None:
    """Keys and the admin's password, once; only their owner can read them."""
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
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)


def _first(path: Path, rest: str | None) -> str:
    parts = [part for part in (rest or "").split(os.pathsep) if part and part != str(path)]
    return os.pathsep.join([str(path), *parts])
