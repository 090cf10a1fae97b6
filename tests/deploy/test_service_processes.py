"""Services that deploy/check_services.py starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.airflow_site import free_port

sys.path.append(str(Path(__file__).resolve().parents[2] / "deploy"))
from service_processes import LOOPBACK, Processes, _page  # noqa: E402

LATE_PAGE = """
import http.server, json, sys, time
time.sleep(1)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status" : "ALIVE"}')
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Page).serve_forever()
"""


def test_a_service_whose_page_does_not_answer_yet_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    ready = _page(port, '"status" : "ALIVE"')
    with Processes(tmp_path) as processes:
        processes.start("late", [sys.executable, "-c", LATE_PAGE, LOOPBACK, str(port)], ready, os.environ)
        assert ready()
