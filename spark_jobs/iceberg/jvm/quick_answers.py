"""Has each answer of the JVM acknowledged at once.

The JVM writes an answer in portions of 8 KiB, and its socket holds a small one back until the portion before it is
acknowledged (Nagle's algorithm). Linux acknowledges 40 ms later, since it expects that the next command will do so. The
properties of a table of fifty rounds are an answer of that length, and so are the descriptions of some ten files.

Before each read the socket is therefore asked to acknowledge at once (TCP_QUICKACK), which holds until the next command
is sent. Where a system has no such option, connections are as Py4J makes them.
"""

from __future__ import annotations

import io
import socket
from typing import Any

QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


def acknowledge_at_once(client: Any) -> None:
    """Has every connection of a gateway's client acknowledge at once: that of this thread, and those that it makes from
    now on, one for each thread."""
    if "_create_new_connection" in vars(client):
        return  # by an earlier call
    create = client._create_new_connection

    def create_acknowledging() -> Any:
        connection = create()
        acknowledge(connection)
        return connection

    client._create_new_connection = create_acknowledging
    if (connection := client.get_thread_connection()) is not None:
        acknowledge(connection)


def acknowledge(connection: Any) -> None:
    """Has one connection acknowledge at once what is read from it. Nothing may be on its way."""
    if QUICK_ACK is not None and not isinstance(connection.stream.raw, _Acknowledging):
        connection.stream = io.BufferedReader(_Acknowledging(connection.stream.detach(), connection.socket))


class _Acknowledging(io.RawIOBase):
    """Reads what a socket receives."""

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
