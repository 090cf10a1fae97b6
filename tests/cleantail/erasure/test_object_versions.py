"""What a bucket keeps of deleted objects, asked of a server that answers as S3 does."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from cleantail.erasure.object_versions import object_versions

NAMES = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
FIRST = (
    f"<ListVersionsResult {NAMES}><IsTruncated>true</IsTruncated><NextKeyMarker>w/t/b</NextKeyMarker>"
    "<NextVersionIdMarker>7</NextVersionIdMarker>"
    "<Version><Key>w/t/a</Key><IsLatest>true</IsLatest></Version>"
    "<Version><Key>w/t/a</Key><IsLatest>false</IsLatest></Version></ListVersionsResult>"
)
SECOND = (
    f"<ListVersionsResult {NAMES}><IsTruncated>false</IsTruncated>"
    "<DeleteMarker><Key>w/t/c</Key><IsLatest>true</IsLatest></DeleteMarker>"
    "<Version><Key>w/t/c</Key><IsLatest>false</IsLatest></Version></ListVersionsResult>"
)
UPLOADS = f"<ListMultipartUploadsResult {NAMES}><Upload><Key>w/t/d</Key></Upload></ListMultipartUploadsResult>"


@pytest.fixture
def bucket():
    """A server with answers by listing, the requests that came, and a table in it."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            asked.append((self.path, dict(self.headers)))
            query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            text = UPLOADS if "uploads" in query else SECOND if "key-marker" in query else FIRST
            self.send_response(server.status)  # type: ignore[attr-defined]
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.status = 200  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    properties = {
        "s3.endpoint": f"http://127.0.0.1:{server.server_port}", "s3.access-key-id": "id", "s3.secret-access-key": "se",
    }  # fmt: skip
    table = SimpleNamespace(location=lambda: "s3://lake/w/t", io=SimpleNamespace(properties=properties))
    yield SimpleNamespace(server=server, asked=asked, table=table, properties=properties)
    server.shutdown()
    server.server_close()


def test_older_versions_delete_markers_and_uploads_are_counted_over_all_pages(bucket):
    found = object_versions(bucket.table)
    assert (found.older, found.delete_markers, found.uploads, found.unseen) == (2, 1, 1, "")
    assert "2 older versions and 1 unfinished uploads" in found.problem
    paths = [path for path, _ in bucket.asked]
    assert paths[0] == "/lake?prefix=w%2Ft%2F&versions="
    assert "key-marker=w%2Ft%2Fb" in paths[1] and "version-id-marker=7" in paths[1]
    assert all("Signature=" in headers["Authorization"] for _, headers in bucket.asked)
    assert all(part != "se" for _, headers in bucket.asked for part in headers.values())


def test_a_store_that_lists_objects_in_place_of_versions_has_not_shown_its_older_versions(bucket, monkeypatch):
    objects = f"<ListBucketResult {NAMES}><Contents><Key>w/t/a</Key></Contents></ListBucketResult>"
    monkeypatch.setitem(globals(), "FIRST", objects)
    assert object_versions(bucket.table).unseen == "older versions in the bucket: they cannot be listed (ParseError)"


def test_a_store_that_refuses_the_listing_or_a_login_without_a_key_is_named(bucket):
    bucket.server.status = 403
    assert "answered 403" in object_versions(bucket.table).problem
    del bucket.properties["s3.secret-access-key"]
    assert "no access key" in object_versions(bucket.table).problem


def test_other_stores_have_no_versions_to_list():
    assert object_versions(SimpleNamespace(location=lambda: "file:///w/t", io=None)) is None


@pytest.mark.parametrize("location", ["gs://lake/w/t", "abfss://lake@a.dfs.core.windows.net/w/t", "hdfs://name/w/t"])
def test_a_store_that_is_not_asked_for_older_versions_is_no_store_without_them(location):
    found = object_versions(SimpleNamespace(location=lambda: location))
    assert found.problem.startswith("older versions, soft-deleted objects") and "cannot list" in found.problem


@pytest.mark.parametrize("location", ["/data/w/t", "file:///data/w/t"])
def test_local_files_have_no_older_versions(location):
    assert object_versions(SimpleNamespace(location=lambda: location)) is None
