"""The gateway between machines and a SQL catalog. It speaks Postgres' protocol, and counts the statements that commit.

Clients send a commit as `UPDATE iceberg_tables`. Faults are lost connections, silence, and those of the machine and the
disk. Wrong answers do not occur, because a SQL catalog has no gateway of its own that could give them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from soak import histories
from soak.gateway import AWAY_S, DISK, LOOPBACK, PAUSED, PROCESS, SILENCE_S, Door

STATEMENTS = {
    b"UPDATE iceberg_tables": "commit",
    b"INSERT INTO iceberg_tables": "create table",
    b"iceberg_namespace_prop": "note",
}
REPLY_WITHIN_S = 10.0
DATABASE = "iceberg"
FAULTS = ("closed before", "closed after", "silent before", "silent after", "away", *PROCESS, *DISK, "slow", "refused")
POINTS = {command: {"note": 1} if command == "reader" else {"commit": 4} for command in histories.POINTS}
"""As in soak.histories. Here a commit has a number instead of a name."""
FIRST = ("ingest: create table", "ingest: commit")


class Wire:
    def __init__(self, port: int) -> None:
        self._port = port
        self.doors: list[Door] = []
        self._listening: list[socket.socket] = []

    def open(self, act: Callable[[str], None]) -> tuple[Door, str]:
        listening = socket.create_server((LOOPBACK, 0))
        door = Door("", act)
        self.doors.append(door)
        self._listening.append(listening)
        threading.Thread(target=self._accept, args=(listening, door), daemon=True).start()
        return door, f"postgresql://{LOOPBACK}:{listening.getsockname()[1]}/{DATABASE}"

    def close(self) -> None:
        for door in self.doors:
            door.released.set()
        for listening in self._listening:
            listening.close()

    def _accept(self, listening: socket.socket, door: Door) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                if time.monotonic() < door.away_until:
                    client.close()
                else:
                    _Connection(client, socket.create_connection((LOOPBACK, self._port)), door)


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket, door: Door) -> None:
        self.client, self.server, self.door = client, server, door
        self.held: list[bytes] | None = None
        self.replied = threading.Event()
        for pump in (self._requests, self._replies):
            threading.Thread(target=self._until_closed, args=(pump,), daemon=True).start()

    def _until_closed(self, pump: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            pump()
        self._close()

    def _close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _requests(self) -> None:
        while data := self.client.recv(1 << 16):
            kind = next((kind for text, kind in STATEMENTS.items() if text in data and b"SELECT" not in data), None)
            fault = self.door.fault_of(kind) if kind else None
            if fault is None:
                self.server.sendall(data)
            elif not self._disturbed(fault.how, data):
                return

    def _replies(self) -> None:
        while data := self.server.recv(1 << 16):
            if self.held is None:
                self.client.sendall(data)
            else:
                self.held.append(data)
                self.replied.set()

    def _disturbed(self, how: str, data: bytes) -> bool:
        """Make the fault at this request, and return whether the connection continues."""
        is_after = how.endswith(" after")
        if is_after:
            self.held = []
            self.server.sendall(data)
            self.replied.wait(REPLY_WITHIN_S)
        if how == "away":
            self.door.away_until = time.monotonic() + AWAY_S
        if how.startswith("silent"):
            time.sleep(SILENCE_S)
        if how.startswith(("closed", "silent", "away")):
            return False
        self.door.act(how)
        if how.startswith(PAUSED):
            self.door.released.wait()
        if how.startswith("kill"):
            return is_after
        if is_after:
            self.client.sendall(b"".join(self.held or ()))
            self.held = None
        else:
            self.server.sendall(data)
        return True
