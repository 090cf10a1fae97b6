"""Prepare Airflow: migrate its database, write the users' passwords.

    python deploy/init_airflow.py

It runs before every start and may be repeated. Users and the password file are those of Airflow's own settings
(simple_auth_manager_users, simple_auth_manager_passwords_file); user `admin` takes its password from
AIRFLOW_PASSWORD_ADMIN, and so on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def main() -> int:
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True)
    users = _users()
    file = _passwords_file()
    write_passwords(file, {user: _password(user, os.environ) for user in users})
    print(f"Airflow is ready; passwords of {', '.join(users)} are in {file}")
    return 0


def _users() -> list[str]:
    from airflow.configuration import conf

    return [user.partition(":")[0].strip() for user in conf.getlist("core", "simple_auth_manager_users")]


def _passwords_file() -> Path:
    from airflow.configuration import conf

    return Path(conf.get("core", "simple_auth_manager_passwords_file"))


def _password(user: str, env: Mapping[str, str]) -> str:
    name = f"AIRFLOW_PASSWORD_{user.upper()}"
    if not env.get(name):
        raise SystemExit(f"{name} is not set: it is the password of the Airflow user {user}")
    return env[name]


def write_passwords(file: Path, passwords: Mapping[str, str]) -> None:
    """Write all passwords or none, readable only by their owner."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        json.dump(passwords, stream)
    new.replace(file)


if __name__ == "__main__":
    sys.exit(main())
