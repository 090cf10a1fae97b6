"""A proxy with OAuth2 in front of a REST catalog: a client gets a token for its credential, which is valid for a while."""

from __future__ import annotations

import base64
import itertools
import json
import re
import threading
import time
import urllib.parse
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer

from soak.gateway import Relay

COMMIT = re.compile(r"^/v1/(namespaces|namespaces/[^/]+/(tables|views|properties)(/[^/]+)?)$")
"""Paths where a POST changes data."""
SILENCE_S = 200.0
"""Seconds of silence, longer than the tests wait."""
TABLE = re.compile(r"^/v1/namespaces/[^/]+/tables/[^/]+$")


@dataclass
class Fault:
    """The fault of each commit until one of its tries gets through. `deliveries`: how often the catalog gets the commit.
    `status`: the answer in place of the catalog's own (0: a closed connection; None: the last delivery's answer)."""

    deliveries: int
    status: int | None
    wrong: list[str] = field(default_factory=list)
    _passes: dict[str, bytes | None] = field(default_factory=dict)

    def hits(self, path: str, body: bytes) -> bool:
        """A commit that was taken and comes a second time, as an HTTP client sends it, gets through, and so does the
        next try of one that was not taken."""
        if path in self._passes and self._passes[path] in (None, body):
            del self._passes[path]
            return False
        self._passes[path] = body if self.deliveries else None
        self.wrong.append(path)
        return True


FAULTS = {
    "409 after": (1, 409),
    "500 after": (1, 500),
    "503 after": (1, 503),
    "no answer after": (1, 0),
    "delivered twice": (2, None),
    "409 before": (0, 409),
    "500 before": (0, 500),
    "503 before": (0, 503),
    "no answer before": (0, 0),
}
"""Name -> deliveries and status of a Fault."""
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


class Door:
    """The requests, with their tokens."""

    def __init__(self, behind: str, credential: str, lives_s: float) -> None:
        self.behind = behind
        self.client, _, self.secret = credential.partition(":")
        self.lives_s = lives_s
        self.tokens: dict[str, float] = {}
        self.agents: dict[str, set[str]] = {}
        self.refused = 0
        self.delegations: set[str | None] = set()
        self.address = ""
        self.fault: Fault | None = None
        self.fails_every = self.failed = 0
        self.failure = ""
        self._loads = itertools.count()
        self._numbers = itertools.count()

    def issue(self, form: dict[str, str]) -> str | None:
        right = (form.get("client_id"), form.get("client_secret")) == (self.client, self.secret)
        exchanged = form.get("grant_type") == EXCHANGE and self.is_open(form.get("subject_token", ""))
        if not right and not exchanged:
            return None
        token = f"t0ken-{next(self._numbers)}"
        self.tokens[token] = time.monotonic() + self.lives_s
        return token

    def fails(self, path: str) -> bool:
        """Return whether this request gets the `failure`: silence, 500, or half an answer. Each `fails_every`th load of
        a table gets it."""
        is_load = self.fails_every and TABLE.match(path)
        failing = bool(is_load and next(self._loads) % self.fails_every == 0)
        self.failed += failing
        return failing

    def is_open(self, token: str) -> bool:
        return self.tokens.get(token, 0) > time.monotonic()


class _Handler(Relay):
    left_out = Relay.left_out | {"authorization"}

    def _pass(self) -> None:
        door: Door = self.server.door  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        if self.path.endswith("/oauth/tokens"):
            form = {k: v[0] for k, v in urllib.parse.parse_qs((body or b"").decode()).items()}
            kind, _, shown = (self.headers.get("Authorization") or "").partition(" ")
            if kind == "Basic" and "client_id" not in form:
                form["client_id"], _, form["client_secret"] = base64.b64decode(shown).decode().partition(":")
            token = door.issue(form)
            if token is None:
                return self.answer(401, json.dumps({"error": "invalid_client"}).encode())
            answer = {"access_token": token, "token_type": "bearer", "expires_in": door.lives_s}
            return self.answer(
                200,
                json.dumps({**answer, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}).encode(),
            )
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if not door.is_open(token):
            door.refused += 1
            error = {"message": "no", "type": "NotAuthorizedException", "code": 401}
            return self.answer(401, json.dumps({"error": error}).encode())
        agent = (self.headers.get("User-Agent") or "").partition("/")[0]
        door.agents.setdefault(agent, set()).add(token)
        door.delegations.add(self.headers.get("X-Iceberg-Access-Delegation"))
        if self.command == "GET" and door.fails(self.path.partition("?")[0]):
            if door.failure == "500":
                return self.answer_wrongly(500)
            self.close_connection = True
            if door.failure == "half":
                status, text = self.delivered(self.onward(door.behind, body))
                return self.answer(status, text[: len(text) // 2], len(text))
            time.sleep(SILENCE_S)
            return None
        request = self.onward(door.behind, body)
        is_commit = self.command == "POST" and COMMIT.match(self.path.partition("?")[0])
        fault = door.fault if door.fault and is_commit and door.fault.hits(self.path, body or b"") else None
        status, text = 0, b""
        for _ in range(fault.deliveries if fault else 1):
            status, text = self.delivered(request)
        if fault is None or fault.status is None:
            return self.answer(status, text)
        if fault.status == 0:
            self.close_connection = True
            return None
        return self.answer_wrongly(fault.status)

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = _pass


@contextmanager
def door(behind: str, credential: str, lives_s: float = 3600):
    """Yield a proxy in front of the REST catalog at `behind`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.door = made = Door(behind, credential, lives_s)  # type: ignore[attr-defined]
        made.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()
