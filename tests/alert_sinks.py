"""Where alerts arrive in tests: a real web server and a real SMTP server, in this process."""

from __future__ import annotations

import email
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from tests.airflow_site import free_port


@dataclass
class Hook:
    """A web server that keeps what is posted and answers `status`."""

    server: ThreadingHTTPServer
    posts: list[tuple[str, Any]] = field(default_factory=list)
    status: int = 200

    @property
    def port(self) -> int:
        return self.server.server_address[1]


@pytest.fixture
def hook() -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.posts.append((self.path, json.loads(body)))
            self.send_response(made.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    made = Hook(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[Mail] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 OK"


@contextmanager
def mail_server() -> Iterator[tuple[Mailbox, dict[str, Any]]]:
    """The mailbox of a server, and Airflow's connection to it."""
    box = Mailbox()
    port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "cleantail@lake.example", "timeout": 5}
    yield box, {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
    controller.stop()


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    with mail_server() as (box, connection):
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        yield box
