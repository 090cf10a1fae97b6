"""Runs a command with SPARK_LOCAL_IP set to the address by which another host sees this one.

    python deploy/seen_by.py spark-master:7077 airflow scheduler

A container on several networks has several addresses, and Spark would tell its peers whichever comes first. No packet
is sent: the kernel is asked for its way there. SEEN_BY_SECONDS (60) is how long the host's name is waited for.
"""

from __future__ import annotations

import os
import socket
import sys
import time


def address_towards(peer: str) -> str:
    """Returns this host's address on the way to `peer`, HOST:PORT. Raises OSError where there is no such host."""
    host, _, port = peer.rpartition(":")
    family, kind, *_, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as way:
        way.connect(address)
        return str(way.getsockname()[0])


def waited_for(peer: str, seconds: float) -> str:
    """Returns the same, and waits for a host whose container may only be starting."""
    until = time.monotonic() + seconds
    while True:
        try:
            return address_towards(peer)
        except OSError:
            if time.monotonic() >= until:
                raise
            time.sleep(1)


def main(argv: list[str]) -> int:
    peer, *command = argv
    try:
        address = waited_for(peer, float(os.environ.get("SEEN_BY_SECONDS", "60")))
    except OSError as e:
        print(f"deploy/seen_by.py: no way to {peer}: {e}", file=sys.stderr)
        return 1
    os.environ["SPARK_LOCAL_IP"] = address
    return os.execvp(command[0], command)  # never comes back


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
