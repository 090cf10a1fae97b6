"""deploy/watched.py ends a process that reports a problem for minutes, and no other."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
sys.path.insert(0, str(DEPLOY))

from healthy import NoAnswer, problem  # noqa: E402
from watched import ENDED, Watch, looked, watch  # noqa: E402

HEALTHY = (
    '{"scheduler": {"status": "healthy"}, "triggerer": {"status": "unhealthy"}, "dag_processor": {"status": null}}'
)


@pytest.mark.parametrize(
    ("answers", "ended_at"),
    [
        pytest.param([(0, None), (10, None), (1000, None)], None, id="always healthy"),
        pytest.param([(0, None), (10, "503"), (180, "503"), (200, "503")], 200, id="ill for longer than allowed"),
        pytest.param([(0, None), (10, "503"), (180, None), (200, "503"), (370, "503")], None, id="well in between"),
        pytest.param([(0, "refused"), (590, "refused"), (600, "refused")], 600, id="never came up"),
        pytest.param([(0, "refused"), (590, "refused"), (599, None), (700, None)], None, id="slow start"),
    ],
)
def test_a_process_that_is_ill_for_longer_than_allowed_is_ended(answers: list[Any], ended_at: float | None) -> None:
    decided = Watch(allowed_s=180, start_s=600, began_s=0)
    reasons = {now: decided.reason(wrong, now) for now, wrong in answers}
    assert [now for now, reason in reasons.items() if reason] == ([ended_at] if ended_at else [])


@pytest.fixture
def page() -> Iterator[Any]:
    class Page(BaseHTTPRequestHandler):
        answer = (200, HEALTHY)

        def do_GET(self) -> None:
            status, text = Page.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    Page.url = f"http://127.0.0.1:{server.server_port}/health"  # type: ignore[attr-defined]
    yield Page
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("expected", "wrong"),
    [
        ("scheduler", None),
        ("triggerer", "triggerer is unhealthy"),
        ("dag_processor", "dag_processor is None"),
        ("absent", "no 'absent' in it"),
        ("", None),
    ],
)
def test_a_component_must_be_healthy_and_a_text_must_be_there(page: Any, expected: str, wrong: str | None) -> None:
    assert problem(page.url, expected) == wrong


def test_an_error_status_is_a_problem_and_silence_of_another_container_is_none(page: Any) -> None:
    page.answer = (503, "")
    assert looked(page.url, "") == "status 503"
    with pytest.raises(NoAnswer):
        problem("http://127.0.0.1:9/health")
    assert looked("http://127.0.0.1:9/health", "") is not None
    assert looked("http://localhost:9/health", "") is None
    assert looked(page.url.replace("127.0.0.1", "localhost"), "") is None
    page.answer = (404, "")
    assert looked(page.url.replace("127.0.0.1", "localhost"), "") == "status 404"


@pytest.mark.parametrize("broken", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_a_server_that_is_killed_in_the_middle_of_its_answer_did_not_answer(broken: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(broken)

        Thread(target=answer, daemon=True).start()
        url = f"http://{{}}:{server.getsockname()[1]}/health"
        assert looked(url.format("localhost"), "scheduler") is None
        assert looked(url.format("127.0.0.1"), "scheduler")


def test_an_ill_process_ends_with_all_that_it_started(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watched.POLL_S", 0.1)
    monkeypatch.setattr("watched.GRACE_S", 0.5)
    pid = tmp_path / "pid"
    stubborn = f"trap '' TERM; sleep 300 & echo $! > {pid}; wait; sleep 300"
    page.answer = (503, "")
    assert watch(["sh", "-c", stubborn], lambda: looked(page.url, ""), allowed_s=0.3, start_s=0.6) == ENDED
    time.sleep(0.1)
    status = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("exit 0", 0)])
def test_the_exit_code_of_a_process_that_ends_by_itself_is_handed_on(page: Any, script: str, code: int) -> None:
    done = subprocess.run([sys.executable, str(DEPLOY / "watched.py"), page.url, "scheduler", "sh", "-c", script])
    assert done.returncode == code
