"""Older versions of objects, delete markers and unfinished uploads of an S3 bucket, which keep deleted data.

Cleantail's clients cannot list them, so this module signs the two requests (AWS Signature Version 4). A store without
versions answers with the objects themselves, each as its newest version.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree

if TYPE_CHECKING:
    from pyiceberg.table import Table

TIMEOUT_S = 60
LOGIN = ("s3.access-key-id", "s3.secret-access-key")
PAGES = {
    "versions": (("KeyMarker", "key-marker"), ("VersionIdMarker", "version-id-marker")),
    "uploads": (("KeyMarker", "key-marker"), ("UploadIdMarker", "upload-id-marker")),
}
"""Listing -> markers: (`Next` and this name in the answer, parameter of the next request)."""
ANSWERS = {"versions": "ListVersionsResult", "uploads": "ListMultipartUploadsResult"}


@dataclass(frozen=True, slots=True)
class ObjectVersions:
    """Numbers of entries that a bucket keeps below a table's location next to current objects. `unseen`: why the
    numbers are unknown."""

    older: int = 0
    delete_markers: int = 0
    uploads: int = 0
    unseen: str = ""

    @property
    def problem(self) -> str:
        """Return a text about entries that may still have erased keys. Empty without such entries."""
        if self.unseen or not (self.older or self.uploads):
            return self.unseen
        return (
            f"the bucket keeps {self.older} older versions and {self.uploads} unfinished uploads below the location: "
            "delete them, also those of deleted objects, or let a lifecycle rule of the bucket delete them"
        )


def object_versions(table: Table) -> ObjectVersions | None:
    """Count the bucket's entries below the table's location. None for local files, which have no older versions."""
    location = urlsplit(table.location())
    if location.scheme in ("", "file"):
        return None
    if location.scheme not in ("s3", "s3a", "s3n"):
        kept = "older versions, soft-deleted objects and snapshots"
        return ObjectVersions(unseen=f"{kept} of the store ({location.scheme}): Cleantail cannot list them there")
    properties = {name: str(value) for name, value in table.io.properties.items() if value is not None}
    if not all(properties.get(name) for name in LOGIN):
        return ObjectVersions(unseen="older versions in the bucket: its login has no access key to list them with")
    prefix = location.path.strip("/") + "/"
    try:
        versions = list(_listed(properties, location.netloc, prefix, "versions"))
        uploads = list(_listed(properties, location.netloc, prefix, "uploads"))
    except HTTPError as e:
        return ObjectVersions(unseen=f"older versions in the bucket: the store answered {e.code} to their listing")
    except (URLError, OSError, ElementTree.ParseError) as e:
        return ObjectVersions(unseen=f"older versions in the bucket: they cannot be listed ({type(e).__name__})")
    kinds = [(_local(entry.tag), _text(entry, "IsLatest") == "true") for entry in versions]
    return ObjectVersions(
        older=sum(kind == "Version" and not latest for kind, latest in kinds),
        delete_markers=sum(kind == "DeleteMarker" for kind, _ in kinds),
        uploads=sum(_local(entry.tag) == "Upload" for entry in uploads),
    )


def _listed(properties: Mapping[str, str], bucket: str, prefix: str, what: str) -> Iterator[Any]:
    """Yield the entries of a listing, page by page."""
    markers = dict[str, str]()
    while True:
        page = ElementTree.fromstring(_get(properties, bucket, {what: "", "prefix": prefix, **markers}))
        if _local(page.tag) != ANSWERS[what]:  # a store that ignores the parameter lists the objects
            raise ElementTree.ParseError(f"no {ANSWERS[what]}")
        yield from page
        if _text(page, "IsTruncated") != "true":
            return
        markers = {parameter: _text(page, f"Next{name}") for name, parameter in PAGES[what]}


def _get(properties: Mapping[str, str], bucket: str, parameters: Mapping[str, str]) -> bytes:
    region = properties.get("s3.region") or "us-east-1"
    endpoint = urlsplit(properties.get("s3.endpoint") or f"https://s3.{region}.amazonaws.com")
    query = "&".join(f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in sorted(parameters.items()))
    path = f"{endpoint.path.rstrip('/')}/{quote(bucket)}"
    headers = _signed_headers(properties, endpoint.netloc, path, query, region, datetime.now(UTC))
    request = Request(f"{endpoint.scheme}://{endpoint.netloc}{path}?{query}", headers=headers)
    with urlopen(request, timeout=TIMEOUT_S) as answer:
        return bytes(answer.read())


def _signed_headers(
    properties: Mapping[str, str], host: str, path: str, query: str, region: str, now: datetime
) -> dict[str, str]:
    empty, moment, day = hashlib.sha256(b"").hexdigest(), now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": moment}
    if token := properties.get("s3.session-token"):
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    whole = hashlib.sha256(f"GET\n{path}\n{query}\n{listed}\n{names}\n{empty}".encode()).hexdigest()
    scope = f"{day}/{region}/s3/aws4_request"
    key = f"AWS4{properties[LOGIN[1]]}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{whole}".encode(), "sha256").hex()
    credential = f"{properties[LOGIN[0]]}/{scope}"
    authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": authorization}


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _text(element: Any, name: str) -> str:
    return next((child.text or "" for child in element if _local(child.tag) == name), "")
