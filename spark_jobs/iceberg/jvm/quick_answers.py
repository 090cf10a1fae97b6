"""Acknowledge each answer of the JVM at once.

The JVM writes an answer in portions of 8 KiB. Its socket delays a small portion until the previous one is acknowledged
(Nagle's algorithm). Linux acknowledges 40 ms later, because it waits for the next command to do so. Examples of such
long answers are the properties of a table with fifty rounds, or the descriptions of about ten files.

So before each read the socket gets the option TCP_QUICKACK, which lasts until the next command is sent. On a system
without this option, connections stay as Py4J creates them.
"""

from __future__ import annotations

import io
import socket
from typing import Any

QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


def acknowledge_at_once(client: Any) -> None:
    """Make the connections of a gateway's client acknowledge at once: this thread's present connection, and all later
    connections."""
    if "_create_new_connection" in vars(client):
        return  # done by an earlier call
    create = client._create_new_connection

    def create_acknowledging() -> Any:
        connection = create()
        acknowledge(connection)
        return connection

    client._create_new_connection = create_acknowledging
    if (connection := client.get_thread_connection()) is not None:
        acknowledge(connection)


def acknowledge(connection: Any) -> None:
    """Make one connection acknowledge at once. No answer may be in transit."""
    if QUICK_ACK is not None and not isinstance(connection.stream.raw, _Acknowledging):
        connection.stream = io.BufferedReader(_Acknowledging(connection.stream.detach(), connection.socket))


class _Acknowledging(io.RawIOBase):
    """Reads from a socket, and sets the option before each read."""

    def __init__(self, received: io.RawIOBase, connected: socket.socket) -> None:
        self._received, self._connected = received, connected

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        assert QUICK_ACK is not None
        self._connected.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return self._received.readinto(buffer)

    def close(self) -> None:
        super().close()
        self._received.close()
