"""Erase a key from a topic, and verify the certificate as its receiver does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from cleantail.config.platform import Platform
from demo.home import CONFIG, DemoError, Home
from demo.tables import live_records


@dataclass(frozen=True, slots=True)
class Erasure:
    """The result of an erasure. `claims`: text of the demonstration about the erasure -> whether it is true."""

    topic: str
    request: str
    claims: dict[str, bool]


def erase_a_key(home: Home, platform: Platform, topic: str) -> Erasure:
    """Erase the key of the topic's last record, and verify the certificate. Raises DemoError."""
    before = live_records(platform, topic)
    key = next(record.key for record in reversed(before) if record.key and b"\n" not in record.key)
    _cleantail(home, "erase", topic, "--keys", "-", stdin=key)
    [request] = json.loads(_cleantail(home, "erasures", topic, "--json"))["requests"]
    text = _cleantail(home, "certificate", "show", request["request"])
    folder = home.path / "certificates"
    folder.mkdir(exist_ok=True)
    file, changed, pem = folder / f"{topic}.json", folder / "changed.json", folder / "public-key.pem"
    file.write_text(text)
    changed.write_text(text.replace('"number": 1', '"number": 2'))
    pem.write_text(_cleantail(home, "certificate", "public-key"))
    verify = ("certificate", "verify", "--public-key", str(pem))
    after = live_records(platform, topic)
    others = [record for record in before if record.key != key]
    return Erasure(
        topic,
        request["request"],
        {
            "the request is certified": request["state"] == "certified",
            "no record of the key is left, and all other records are": set(after) == set(others),
            "the certificate does not contain the key": key.decode(errors="replace") not in text,
            "the public key alone is enough to verify the certificate": _code(home, *verify, str(file)) == 0,
            "a certificate with one changed byte is refused": _code(home, *verify, str(changed)) == 1,
        },
    )


def _cleantail(home: Home, *arguments: str, stdin: bytes = b"") -> str:
    """Return the output of the command. Raises DemoError if it failed."""
    done = _run(home, arguments, stdin)
    if done.returncode:
        raise DemoError(f"cleantail {arguments[0]} failed:\n{done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def _code(home: Home, *arguments: str) -> int:
    return _run(home, arguments, b"").returncode


def _run(home: Home, arguments: tuple[str, ...], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "cleantail_cli", *arguments, "--config", str(CONFIG)]
    return subprocess.run(command, input=stdin, env=home.environment(), capture_output=True, check=False)
