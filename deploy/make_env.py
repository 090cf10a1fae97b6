"""Write .env for docker compose (.env.example with a random secret in every empty line), and create the landing folder.

    python3 deploy/make_env.py
    python3 deploy/make_env.py --again AIRFLOW_JWT_SECRET CLEANTAIL_SPARK_SECRET

Without --again an existing .env is not changed, because the databases keep their passwords. --again gives the named
secrets new values; docs/operations.md describes the next steps. Needs only Python.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str]) -> int:
    if argv:
        return replace_secrets(argv[1:]) if argv[0] == "--again" and argv[1:] else _usage()
    (ROOT / ".cleantail").mkdir(mode=0o700, exist_ok=True)
    (ROOT / ".cleantail" / "landing").mkdir(exist_ok=True)  # as this user: the daemon would create it as root
    try:
        descriptor = os.open(ROOT / ".env", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(f"{ROOT / '.env'} exists already; nothing was changed", file=sys.stderr)
        return 1
    with os.fdopen(descriptor, "w") as stream:
        stream.write(filled((ROOT / ".env.example").read_text()))
    print(f"wrote {ROOT / '.env'}; the password of the Airflow user admin is in it")
    return 0


def _usage() -> int:
    print(__doc__, file=sys.stderr)
    return 2


def replace_secrets(names: list[str]) -> int:
    """Write .env with new values of the named secrets, or leave it unchanged. Return the exit code."""
    file, new = ROOT / ".env", ROOT / ".env.new"
    text = file.read_text()
    if unknown := [name for name in names if f"\n{name}=" not in f"\n{text}"]:
        print(f"{file} has no {', '.join(unknown)}; nothing was changed", file=sys.stderr)
        return 2
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write("".join(_replaced_line(line, names) + "\n" for line in text.splitlines()))
    new.replace(file)
    print(f"{', '.join(names)}: new in {file}")
    return 0


def _replaced_line(line: str, names: list[str]) -> str:
    """Return the line, with a new secret if it is one of the named. Airflow encrypts with the first Fernet key of a
    list and decrypts with all. So all old keys stay behind the new one."""
    name, _, old = line.partition("=")
    if name not in names:
        return line
    kept = f",{old}" if name == "AIRFLOW_FERNET_KEY" else ""
    return f"{name}={_secret(name)}{kept}"


def filled(example: str) -> str:
    """Return the example with a value in every `NAME=` line."""
    return "".join(_filled_line(line) + "\n" for line in example.splitlines())


def _filled_line(line: str) -> str:
    name, equals, value = line.partition("=")
    return line if line.startswith("#") or not equals or value else f"{name}={_secret(name)}"


def _secret(name: str) -> str:
    """Return a random secret of letters and digits only, because secrets become parts of addresses. Airflow's Fernet
    key has its own format."""
    if name == "AIRFLOW_FERNET_KEY":
        return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return secrets.token_hex(64 if name == "AIRFLOW_JWT_SECRET" else 20)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
