"""Write .env for docker compose (.env.example with a random secret in every empty line), and create the landing folder.

    python3 deploy/make_env.py

Never overwrites: the databases keep the passwords that they were made with. Needs nothing but Python.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    (ROOT / ".cleantail").mkdir(mode=0o700, exist_ok=True)
    (ROOT / ".cleantail" / "landing").mkdir(exist_ok=True)  # as this user: the daemon would create it as root
    try:
        descriptor = os.open(ROOT / ".env", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(f"{ROOT / '.env'} is there already; nothing was changed", file=sys.stderr)
        return 1
    with os.fdopen(descriptor, "w") as stream:
        stream.write(filled((ROOT / ".env.example").read_text()))
    print(f"wrote {ROOT / '.env'}; the password of the Airflow user admin is in it")
    return 0


def filled(example: str) -> str:
    """Returns the example with a value in every `NAME=` line."""
    return "".join(_filled_line(line) + "\n" for line in example.splitlines())


def _filled_line(line: str) -> str:
    name, equals, value = line.partition("=")
    return line if line.startswith("#") or not equals or value else f"{name}={_secret(name)}"


def _secret(name: str) -> str:
    """Returns a random secret. It has letters and digits only, for secrets become parts of addresses; Airflow's Fernet
    key has a form of its own."""
    if name == "AIRFLOW_FERNET_KEY":
        return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return secrets.token_hex(64 if name == "AIRFLOW_JWT_SECRET" else 20)


if __name__ == "__main__":
    sys.exit(main())
