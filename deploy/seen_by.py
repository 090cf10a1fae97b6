"""Run a command with SPARK_LOCAL_IP set to the address that another host uses for this one.

    python deploy/seen_by.py spark-master:7077 airflow scheduler

A container on several networks has several addresses, and Spark would give its peers the first one. The kernel returns
the address on the way to the host, without sending a packet. SEEN_BY_SECONDS (60) limits the wait for the host's name.
"""

from __future__ import annotations

import os
import socket
import sys
import time


def address_towards(peer: str) -> str:
    """Return this host's address on the way to `peer`, HOST:PORT. Raises OSError if that host does not exist."""
    host, _, port = peer.rpartition(":")
    family, kind, *_, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as way:
        way.connect(address)
        return str(way.getsockname()[0])


def waited_for(peer: str, seconds: float) -> str:
    """Return the same, and wait for a host whose container may still be starting."""
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
        print(f"deploy/seen_by.py: {peer} cannot be reached: {e}", file=sys.stderr)
        return 1
    os.environ["SPARK_LOCAL_IP"] = address
    return os.execvp(command[0], command)  # replaces this process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
