"""The gateway between machines and a REST catalog: it names each request by its point, and causes faults there.

A request that changes something and has no name is reported, because each commit of the product must have a point.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"
OBJECT = re.compile(
    r"^/v1/(?:.+/)?namespaces/(?P<namespace>[^/]+)(/(?P<kind>tables|views|properties)(/(?P<name>[^/]+))?)?$"
)
SILENCE_S = 6.0  # seconds without an answer, after which the gateway closes the connection
LATE_S = 1.5
AWAY_S = 20.0  # seconds during which the catalog does not answer after the fault `away`

ANSWERS: dict[str, tuple[int, int | None]] = {
    f"{what} {when}": (int(when == "after"), answer)
    for when in ("before", "after")
    for what, answer in {**{str(n): n for n in (409, 429, 500, 502, 503, 504)}, "closed": 0, "silent": -1}.items()
} | {"twice": (2, None), "half": (1, None), "late": (0, 503), "away": (0, 503), "away after": (1, 503)}
"""Fault -> how often the catalog gets the request at once, and the answer (0: the connection is closed, -1: no answer,
None: the catalog's last). A request that is `late` is delivered after its answer."""
PROCESS = ("kill before", "kill after", "orphan before", "orphan after", "stop before", "stop after")
"""Faults of the machine that sent the request: all of it is killed, only its driver is killed, or it is stopped."""
PAUSED = ("orphan", "stop")  # the request or its answer continues after the act's `meanwhile`
FIRST_FAULT = "closed before"
"""The fault of a soak's first request at each point, unless the history has another one there: points may be rare. At a
commit it is `closed after`, and at a file `slow`."""
DISK = ("full disk", "full home", "read-only home", "lost vectors", "cut vectors", "lost data", "cut data")
"""Faults of the disk from this request on, until the command ends."""
FILE_FAULTS = ("slow", "refused", "kill before", "orphan before", "stop before", *DISK)
"""Faults at a file (soak.files): it opens late, or not at all, or a fault of the machine or the disk happens there."""


@dataclass(frozen=True)
class Fault:
    """A fault at the n-th request of a kind (`publish`) in one command."""

    kind: str
    how: str
    nth: int = 1


@dataclass
class Door:
    """One machine's way to the catalog. `act` is called with each fault that is not an answer. `command` is empty
    while another engine works. `seen` and `hits` are those of all doors."""

    behind: str
    act: Callable[[str], None]
    command: str = ""
    fault: Fault | None = None
    hit: str | None = None
    seen: Counter[str] = field(default_factory=Counter)
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)
    away_until: float = 0
    released: threading.Event = field(default_factory=threading.Event)
    _count: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, command: str, fault: Fault | None) -> None:
        self.command, self.fault, self.hit, self.away_until = command, fault, None, 0
        self.released.clear()
        self._count.clear()

    def fault_of(self, kind: str, first: str = FIRST_FAULT) -> Fault | None:
        point = f"{self.command}: {kind}"
        with self._lock:
            if not self.command:
                return None
            self.seen[point] += 1
            self._count[kind] += 1
            fault = self.fault
            if fault is None or self.hit or fault.kind != kind or self._count[kind] != fault.nth:
                if self.seen[point] > 1:
                    return None
                self.hits[point, first] += 1
                return Fault(kind, first)
            self.hit = point
            self.hits[point, fault.how] += 1
            return fault


def kind_of(method: str, path: str, body: bytes) -> str | None:
    """Return the purpose of a request. None for logins, settings, reports, and reads of anything but a table."""
    plain = path.partition("?")[0]
    if plain.endswith(("/metrics", "/oauth/tokens", "/config")):
        return None
    found = OBJECT.match(plain)
    if method in ("GET", "HEAD"):
        return "load" if found and found["kind"] == "tables" and found["name"] else None
    if method == "POST" and plain.endswith("/namespaces"):
        return "create namespace"
    if not found:
        return f"unknown: {method} {plain}"
    kind, name = found["kind"], found["name"] or ""
    document: dict[str, Any] = json.loads(body) if body else {}
    if method == "DELETE":
        return f"drop {kind}"
    if kind == "properties":
        noted = [*document.get("updates", {}), *document.get("removals", [])]
        return "note " + (noted[0].split(".")[1] if noted else "nothing")
    if kind == "views":
        return "view"
    if not name:
        return "create " + table_kind(document.get("name", ""))
    side = table_kind(name)
    return _commit_kind(document.get("updates", []), side)


def table_kind(name: str) -> str:
    if name in ("cleantail_evidence", "cleantail_erasures", "cleantail_erased_keys"):
        return "evidence" if name == "cleantail_evidence" else "erasures"
    return "side table" if name.endswith(("_deleted_versions", "_keyless", "_unholdable")) else "table"


def _commit_kind(updates: list[dict[str, Any]], table: str) -> str:
    """Return the kind of a commit, by its updates. A rollback also appends again what came after the undone rounds."""
    actions = {update["action"] for update in updates}
    snapshots = [update["snapshot"]["summary"] for update in updates if update["action"] == "add-snapshot"]
    refs = {update["ref-name"] for update in updates if update["action"] == "set-snapshot-ref"}
    if table != "table":
        return table if snapshots else f"{table} upkeep"
    if "assign-uuid" in actions:
        return "create table"
    if snapshots:
        ours = [each.get("cleantail.operation") for each in snapshots]
        last = "rollback" if "rollback" in ours else ours[-1]
        if refs and refs.isdisjoint({"main"}):
            return "stage"
        if last in ("compact", "expire", "reconcile", "erase"):
            return "publish"
        return str(last or {"append": "append", "replace": "rewrite"}.get(snapshots[-1]["operation"], "change"))
    if "remove-snapshots" in actions:
        return "expire snapshots"
    if "set-snapshot-ref" in actions:
        return "set branch"
    if "remove-snapshot-ref" in actions:
        return "drop branch"
    return "schema" if actions - {"set-properties", "remove-properties"} else "properties"


class Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # without it the body, a second write, waits 40 ms for an acknowledgement
    left_out = frozenset({"host", "content-length", "accept-encoding", "connection"})  # headers

    def onward(self, behind: str, body: bytes | None) -> urllib.request.Request:
        headers = {k: v for k, v in self.headers.items() if k.lower() not in self.left_out}
        return urllib.request.Request(f"{behind}{self.path}", body or None, headers, method=self.command)

    @staticmethod
    def delivered(request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def answer(self, status: int, text: bytes, length: int | None = None) -> None:
        """Send a response. `length`: the value of Content-Length, if it differs from the text's."""
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(text) if length is None else length))
            self.end_headers()
            if self.command != "HEAD" and status != 204:
                self.wfile.write(text)
        except OSError:  # the client was killed
            self.close_connection = True

    def answer_wrongly(self, status: int) -> None:
        error = {"message": "a gateway answers", "type": "Gateway", "code": status}
        self.answer(status, json.dumps({"error": error}).encode())

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""


class _Handler(Relay):
    def _pass(self) -> None:
        door: Door = self.server.door  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = kind_of(self.command, self.path, body)
        if kind and kind.startswith("unknown"):
            door.unknown.add(f"{door.command}: {kind}")
        if time.monotonic() < door.away_until:
            return self.answer_wrongly(503)
        fault = door.fault_of(kind, FIRST_FAULT if kind == "load" else "closed after") if kind else None
        request = self.onward(door.behind, body)
        if fault is None:
            return self.answer(*self.delivered(request))
        if fault.how in ANSWERS:
            return self._disturb(door, fault.how, request)
        after = fault.how.endswith(" after")
        answer = self.delivered(request) if after else None
        door.act(fault.how)
        if fault.how.startswith(PAUSED):
            door.released.wait()
        if fault.how == "kill before":
            self.close_connection = True
            return None
        return self.answer(*(answer or self.delivered(request)))

    def _disturb(self, door: Door, how: str, request: urllib.request.Request) -> None:
        deliveries, status = ANSWERS[how]
        answer = (0, b"")
        for _ in range(deliveries):
            answer = self.delivered(request)
        if how.startswith("away"):
            door.away_until = time.monotonic() + AWAY_S
        if how == "late":
            threading.Timer(LATE_S, self.delivered, [request]).start()
        self.close_connection = how == "half" or status in (0, -1)
        if how == "half":
            return self.answer(answer[0], answer[1][: len(answer[1]) // 2], len(answer[1]))
        if status is None:
            return self.answer(*answer)
        if status <= 0:
            return time.sleep(SILENCE_S if status < 0 else 0)
        return self.answer_wrongly(status)

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = _pass


class Gateway:
    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.doors: list[Door] = []
        self._servers: list[ThreadingHTTPServer] = []

    def open(self, act: Callable[[str], None]) -> tuple[Door, str]:
        server = ThreadingHTTPServer((LOOPBACK, 0), _Handler)
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client was killed
        door = server.door = Door(self.behind, act)  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.doors.append(door)
        self._servers.append(server)
        return door, f"http://{LOOPBACK}:{server.server_port}"

    def close(self) -> None:
        for door in self.doors:
            door.released.set()
        for server in self._servers:
            server.shutdown()
