"""REST catalogs on a free port of loopback: what all of them have, and one that is only a door.

The door answers /v1/config to those who show the right token, and what else is asked by 404.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JsonHandler(BaseHTTPRequestHandler):
    """Answers by JSON, and logs nothing."""

    def answer(self, status, document):
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, status, kind):
        """Answers by Iceberg's document of an error, of the type `kind`."""
        self.answer(status, {"error": {"message": "no", "type": kind, "code": status}})

    def log_message(self, *_):
        pass


@contextmanager
def served(handler):
    """Yields the server of a handler, and its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def rest_catalog(token, credential=None, config_status=200):
    """Yields the door's address, and the Authorization headers that were shown."""
    shown = []

    class Door(JsonHandler):
        def do_GET(self):
            shown.append(self.headers.get("Authorization"))
            if shown[-1] != f"Bearer {token}":
                self.refuse(401, "NotAuthorizedException")
            elif self.path.startswith("/v1/config"):
                self.answer(config_status, {"defaults": {}, "overrides": {}})
            else:
                self.refuse(404, "NoSuchTableException")

        def do_HEAD(self):
            self.do_GET()

        def do_POST(self):
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if credential is not None and f"client_secret={credential.partition(':')[2]}" in form:
                self.answer(200, {"access_token": token, "token_type": "bearer", "expires_in": 3600})
            else:
                self.answer(401, {"error": "invalid_client", "error_description": "no"})

    with served(Door) as (_, address):
        yield address, shown
