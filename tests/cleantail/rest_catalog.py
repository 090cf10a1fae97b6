"""A REST catalog's door: it answers /v1/config to those who show the right token, and what else is asked by 404."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def rest_catalog(token, credential=None, config_status=200):
    """Serves on a free port of loopback; yields (address, the Authorization headers that were shown)."""
    shown = []

    class Door(BaseHTTPRequestHandler):
        def do_GET(self):
            shown.append(self.headers.get("Authorization"))
            if shown[-1] != f"Bearer {token}":
                self._answer(401, {"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}})
            elif self.path.startswith("/v1/config"):
                self._answer(config_status, {"defaults": {}, "overrides": {}})
            else:
                self._answer(404, {"error": {"message": "none", "type": "NoSuchTableException", "code": 404}})

        def do_HEAD(self):
            self.do_GET()

        def do_POST(self):
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            known = credential is not None and f"client_secret={credential.partition(':')[2]}" in form
            answer = {"access_token": token, "token_type": "bearer", "expires_in": 3600}
            self._answer(200, answer) if known else self._answer(
                401, {"error": "invalid_client", "error_description": "no"}
            )

        def _answer(self, status, document):
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", shown
        server.shutdown()
