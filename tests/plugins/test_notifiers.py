"""CleantailAlert through a real HTTP server, a real SMTP server and a real file."""

from __future__ import annotations

import email
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from airflow.sdk.exceptions import AirflowException

from cleantail.config import find_topic
from cleantail_airflow.notifiers import CleantailAlert, mail_body, message_of
from cleantail_airflow.red_check import RedCheck, failures_of
from tests.airflow_environment import BASE_URL
from tests.airflow_site import Recorder, Site, failure, free_port, verdict

HOSTILE = "{{ 7 * 7 }}<script>alert(1)</script>"


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


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    box = Mailbox()
    port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "cleantail@lake.example", "timeout": 5}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    yield box
    controller.stop()


class FakeTask:
    task_id, run_id = "check_quality", "manual__1"
    log_url = f"{BASE_URL}/dags/orders/runs/manual__1/tasks/check_quality"


def red(*rows: dict[str, Any]) -> RedCheck:
    return RedCheck("orders", failures_of("orders", {"verdicts": [verdict(4, *rows)]}))


def alert(site: Site, *channels: dict[str, Any], error: BaseException | None = None) -> None:
    """Tells the channels of the topic's YAML of `error`, as Airflow would after a failed task."""
    site.topic("orders", alerts=list(channels))
    notifier = CleantailAlert(topic=find_topic("orders", site.config), config_dir=str(site.config))
    notifier({"ti": FakeTask(), "exception": error if error is not None else red(failure())})


def connect(monkeypatch: pytest.MonkeyPatch, port: int, **more: Any) -> None:
    connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": port, **more}
    monkeypatch.setenv("AIRFLOW_CONN_OPS_HOOK", json.dumps(connection))


def test_a_webhook_gets_the_failure_as_json(site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, hook.port)
    alert(site, {"type": "webhook", "conn_id": "ops_hook", "endpoint": "services/lake"})
    ((path, posted),) = hook.posts
    assert path == "/services/lake"
    assert posted["topic"] == "orders"
    assert posted["link"] == FakeTask.log_url
    (row,) = posted["failures"]
    assert (row["partition"], row["observed"], row["severity"]) == (4, "3 of 9 records", "critical")
    assert row["expectation"] == "expect_column_values_to_not_be_null"
    assert posted["text"].startswith("[cleantail] orders: check_quality is red, partitions held back: 4\n")


def test_a_mail_gets_the_failure_as_a_table(site: Site, mailbox: Mailbox) -> None:
    alert(site, {"type": "mail", "to": ["ops@lake.example", "dev@lake.example"], "from": "alerts@lake.example"})
    (mail,) = mailbox.mails
    assert mail["Subject"] == "[cleantail] orders: check_quality is red, partitions held back: 4"
    assert (mail["From"], mail["To"]) == ("alerts@lake.example", "ops@lake.example, dev@lake.example")
    (part,) = [part for part in mail.walk() if part.get_content_type() == "text/html"]
    body = part.get_payload(decode=True).decode()  # type: ignore[union-attr]
    for text in ("<td>4</td>", "<td>expect_column_values_to_not_be_null</td>", "3 of 9 records", FakeTask.log_url):
        assert text in body


def test_a_mail_without_a_sender_takes_that_of_the_connection(site: Site, mailbox: Mailbox) -> None:
    alert(site, {"type": "mail", "to": ["ops@lake.example"]})
    assert mailbox.mails[0]["From"] == "cleantail@lake.example"


def test_a_file_gets_one_line_for_each_alert(site: Site) -> None:
    for _ in range(2):
        alert(site, {"type": "file", "path": "alerts/orders.jsonl"})
    lines = (site.home / "alerts" / "orders.jsonl").read_text().splitlines()
    assert [json.loads(line)["topic"] for line in lines] == ["orders", "orders"]


def test_a_broken_channel_does_not_silence_the_others(
    site: Site, hook: Hook, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, hook.port)
    hook.status = 500
    alert(
        site,
        {"type": "webhook", "conn_id": "no_such_connection"},
        {"type": "webhook", "conn_id": "ops_hook"},
        {"type": "mail", "to": ["ops@lake.example"]},
        {"type": "file", "path": "alerts.jsonl"},
    )
    assert len(hook.posts) == 1
    assert len(mailbox.mails) == 1
    assert (site.home / "alerts.jsonl").exists()


def test_a_channel_that_fails_is_logged_without_its_secrets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Recorder()
    monkeypatch.setattr(CleantailAlert, "log", log)
    connect(monkeypatch, free_port(), host="http://127.0.0.1/services/T0/hunter2", login="me", password="hunter3")
    alert(site, {"type": "webhook", "conn_id": "ops_hook"})
    assert log.lines == ["alert by webhook over connection ops_hook failed: ConnectionError"]


def test_the_secret_path_of_a_chat_webhook_is_masked_in_the_log_of_the_task(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    connect(monkeypatch, free_port(), host="http://127.0.0.1/services/T0/hunter2")
    alert(site, {"type": "webhook", "conn_id": "ops_hook"})
    assert redact("Max retries exceeded with url: /services/T0/hunter2/x") == "Max retries exceeded with url: ***/x"


def test_another_failure_than_a_check_is_told_in_its_own_words(site: Site) -> None:
    alert(site, {"type": "file", "path": "alerts.jsonl"}, error=AirflowException("the catalog cannot be reached"))
    told = json.loads((site.home / "alerts.jsonl").read_text())
    assert (told["reason"], told["failures"]) == ("the catalog cannot be reached", [])
    assert told["text"].splitlines()[0] == "[cleantail] orders: check_quality failed"


def test_a_task_that_was_killed_is_told_too() -> None:
    message = message_of("orders", {"ti": FakeTask()})  # type: ignore[typeddict-item]
    assert message.reason == "the task was killed or lost"


def test_observed_data_is_neither_a_template_nor_markup(
    site: Site, hook: Hook, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, hook.port)
    channels = [{"type": "webhook", "conn_id": "ops_hook"}, {"type": "mail", "to": ["ops@lake.example"]}]
    alert(site, *channels, error=red(failure(observed=HOSTILE)))
    assert hook.posts[0][1]["failures"][0]["observed"] == HOSTILE
    body = mail_body(message_of("orders", {"ti": FakeTask(), "exception": red(failure(observed=HOSTILE))}))  # type: ignore[typeddict-item]
    assert "{{ 7 * 7 }}&lt;script&gt;" in body
    assert "<script>" not in body
