"""Certificates: signed reports of erasures, which a person can verify without Cleantail's tables.

1. A certificate is a JSON file in one form only: keys sorted, two spaces, no floats, one line break at the end.
   Verification writes it again from its content, so that any changed byte is noticed, also a space.
2. It is signed (Ed25519) with the platform's key in `CLEANTAIL_CERTIFICATE_KEY`: a PEM text (PKCS8), or 32 random
   bytes in Base64. The public key verifies it.
3. It names the SHA-256 of the topic's certificate before it. A missing certificate breaks the chain.
4. It has counts, names and ids, but no mark of a key, and no key or value outside of the names of files
   (docs/erasure.md).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleantail.codec import FORMAT, require_format
from cleantail.config.alert_channels import ALERTS
from cleantail.config.topic import Topic
from cleantail.erasure.requests import (
    APPROVED,
    CERTIFIED,
    HIDDEN,
    PROVEN,
    REMOVED,
    REWRITTEN,
    TOMBSTONING,
    ErasureEvent,
    ErasureRequest,
    requests_of,
)
from cleantail.erasure.store import newest_certificate
from cleantail.errors import CertificateError, CleantailError
from cleantail.home.driver_process import CERTIFICATE_KEY
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.log.partition_state import ingested_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from cleantail.erasure.store import ErasureStore

_DOMAIN = b"cleantail certificate\n"
"""Precedes the signed text, so that a signature is valid for certificates only."""
_HOW = "make one with: openssl genpkey -algorithm ed25519"
CLAIM = (
    "No object that was listed in the table's store, and no file that the table's metadata could reach, at the time of "
    "the proof, had a record with a key of the request{exception}. This certificate claims nothing about copies "
    "elsewhere: backups, other systems, readers that read before, and what is listed under exclusions."
)
EXCEPTION = ", except what is listed under exclusions"
"""Completes the claim of a certificate that has exclusions."""
FILES_EXCLUSION = (
    "the files that the topic was ingested from: their owner deletes them; and their names, which metadata, evidence "
    "and logs keep"
)
ALERTS_EXCLUSION = "alerts that quote records (values: true): delete them where they were sent"
SHOWN_STEPS = (HIDDEN, REWRITTEN, REMOVED, PROVEN)
PACKAGES = ("cleantail", "cryptography", "pyarrow", "pyiceberg", "pyspark")


def signing_key(env: Mapping[str, str]) -> Ed25519PrivateKey:
    """Return the platform's key. Raises CleantailError if it is missing or not an Ed25519 key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = env.get(CERTIFICATE_KEY, "").strip()
    if not text:
        raise CleantailError(f"{CERTIFICATE_KEY} is not set: certificates are signed with it; {_HOW}")
    try:
        if "PRIVATE KEY" not in text:
            return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text, validate=True))
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, binascii.Error, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise CleantailError(
            f"{CERTIFICATE_KEY} is neither a PEM text of an Ed25519 key without a password, nor 32 bytes in Base64; "
            f"{_HOW}"
        )
    return key


def public_pem(key: Ed25519PrivateKey) -> str:
    """Return the public key, with which others verify certificates."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def issue(
    store: ErasureStore, topic: Topic, request: ErasureRequest, *, now_ms: int, by: str, facts: Mapping[str, Any]
) -> str:
    """Sign and record the certificate of a proven request, and return its text. An existing certificate is returned.

    `facts`: more entries, such as the table and the state of the source, without floats. Raises CleantailError if the
    platform has no key, or if a person has ended the request."""
    key = signing_key(topic.platform.env)
    table = load_table(kept_catalog(topic.platform), topic)
    of_files = dict(facts.get("source") or {}).get("kind") == "files"
    of_files = of_files or (table is not None and bool(ingested_files(table.properties)))
    quotes = any(alert.values for alert in topic.alerts)
    home = topic.platform.home
    # files of former channels count
    files = [file for file in sorted((home / ALERTS).rglob("*")) if file.is_file() and _quotes(file, topic.topic)]
    others = [FILES_EXCLUSION] * of_files + [ALERTS_EXCLUSION] * quotes
    others += [f"{f.relative_to(home)} in CLEANTAIL_HOME may quote records of the topic: delete it" for f in files]
    before = list[str]()

    def certified(events: Sequence[ErasureEvent]) -> ErasureEvent | None:
        current = next(r for r in requests_of(events) if r.id == request.id)
        if (event := current.first(CERTIFIED)) and event.certificate:
            before.append(event.certificate)
            return None
        if not current.is_open:
            raise CleantailError(f"request {request.id} is {current.state}: it gets no certificate")
        content = _content(current, now_ms, newest_certificate(events), others)
        text = signed(key, {**content, **facts})
        return ErasureEvent(topic.topic, request.id, CERTIFIED, now_ms, by, {}, text)

    issued = store.append_after(topic.topic, certified)  # otherwise two certificates could follow the same one
    return before[-1] if issued is None else str(issued.certificate)


def _quotes(file: Path, topic: str) -> bool:
    """Return whether an alert of the file quotes records of the topic. True if the file cannot be read as alerts."""
    try:
        with file.open("rb") as lines:
            alerts = (json.loads(line) for line in lines)
            return any(alert["topic"] == topic and any(f["examples"] for f in alert["failures"]) for alert in alerts)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _content(request: ErasureRequest, now_ms: int, earlier: str | None, others: Sequence[str]) -> dict[str, Any]:
    number = 1 if earlier is None else int(json.loads(earlier)["certificate"]["number"]) + 1
    steps = {event: _step(request.last(event)) for event in SHOWN_STEPS}
    proven = request.last(PROVEN)
    excluded = {*others, *request.excluded, *(proven.details.get("exclusions", ()) if proven else ())}
    return {
        "format": FORMAT,
        "number": number,
        "previous": None if earlier is None else hashlib.sha256(earlier.encode()).hexdigest(),
        "issued_at": _time(now_ms),
        "topic": request.topic,
        "claim": CLAIM.format(exception=EXCEPTION if excluded else ""),
        "request": {
            "id": request.id,
            "requested_at": _time(request.requested_ms),
            "requested_by": request.requested_by,
            "approval": _step(request.last(APPROVED)),
            "deadline": _time(request.deadline_ms),
            "keys": request.keys,
            "keys_digest": request.asked["set"],
        },
        "steps": steps,
        "tombstones": [_step(event) for event in request.events if event.event == TOMBSTONING],
        "exclusions": sorted(excluded),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _step(event: ErasureEvent | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return {"at": _time(event.at_ms), "by": event.by, **{k: v for k, v in event.details.items() if k != "exclusions"}}


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def signed(key: Ed25519PrivateKey, content: Mapping[str, Any]) -> str:
    """Return the text of a certificate with this content. Raises ValueError if it has a float."""
    content = {**content, "public_key": _name_of(key.public_key())}
    if _has_float(content):
        raise ValueError("a certificate has no floats: their text is not always the same")
    return _text(content, key.sign(_signed_bytes(content)))


def verified(data: bytes, public_key: bytes, where: str = "the certificate") -> Mapping[str, Any]:
    """Return the content of a certificate if it is exactly what the owner of the key has signed.

    `public_key`: PEM. `where`: the file, for a message. Raises CertificateError if a byte was changed, or if another
    key signed it. Raises CleantailError for an invalid public key, and TableError for an unknown format."""
    from cryptography.exceptions import InvalidSignature

    key = _public_key(public_key)
    try:
        whole = json.loads(data.decode(), parse_float=_no_float, parse_constant=_no_float)
        content, signature = whole["certificate"], base64.b64decode(whole["signature"], validate=True)
        name = content["public_key"]
        unchanged = _text(content, signature).encode() == data
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CertificateError("it is not a certificate: its text is not what Cleantail writes") from None
    if not unchanged:
        raise CertificateError("it was changed: its text is not as it was written")
    if name != _name_of(key):
        raise CertificateError(
            f"it names public key {name!s:.80}, and the given one is {_name_of(key)}: it was signed with another key, "
            "or changed"
        )
    try:
        key.verify(signature, _signed_bytes(content))
    except InvalidSignature:
        raise CertificateError("it was changed: its signature does not match its content") from None
    require_format(where, "format", content.get("format"))
    found: Mapping[str, Any] = content
    return found


def require_chain(texts: Sequence[bytes], contents: Sequence[Mapping[str, Any]]) -> None:
    """Raise CertificateError unless each verified certificate follows the one before it."""
    for text, before, content in zip(texts, contents, contents[1:], strict=False):
        if content["topic"] != before["topic"]:
            topics = f"number {content['number']} is of topic {content['topic']}, but number {before['number']} is of"
            raise CertificateError(f"{topics} topic {before['topic']}: a chain has the certificates of one topic")
        if content["previous"] != hashlib.sha256(text).hexdigest():
            raise CertificateError(
                f"number {content['number']} of topic {content['topic']} does not follow number {before['number']}: "
                "one between them is missing, or their order is wrong"
            )


def _public_key(pem: bytes) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise CleantailError("--public-key is not a PEM file with an Ed25519 public key")
    return key


def _name_of(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def _signed_bytes(content: Mapping[str, Any]) -> bytes:
    return _DOMAIN + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _text(content: Mapping[str, Any], signature: bytes) -> str:
    whole = {"certificate": content, "signature": base64.b64encode(signature).decode()}
    return json.dumps(whole, sort_keys=True, indent=2) + "\n"


def _has_float(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_float, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_float, value))
    return isinstance(value, float)


def _no_float(text: str) -> float:
    raise ValueError("a float")


_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}"
    "table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}"
    "th,td{border:1px solid #bbb;padding:.3rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
    "th{width:14rem;font-weight:600}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;padding:1rem}"
)
_SECTIONS = {
    "request": "The request",
    "steps": "What was done",
    "source": "The source",
    "tombstones": "Tombstones in Kafka",
    "versions": "Versions",
}


def page(text: str) -> str:
    """Return a certificate as one HTML page without scripts, with the JSON file to verify in it."""
    content = json.loads(text)["certificate"]
    encoded = base64.b64encode(text.encode()).decode()
    rest = {k: v for k, v in content.items() if k not in (*_SECTIONS, "claim", "exclusions")}
    parts = [f"<h2>{title}</h2>{_table(content[name])}" for name, title in _SECTIONS.items() if content.get(name)]
    excluded = "".join(f"<li>{escape(str(name))}</li>" for name in content["exclusions"])
    title = f"Certificate of erasure, topic {escape(content['topic'])}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{escape(content['claim'])}</p>\n"
        f"<h2>Exclusions</h2>{f'<ul>{excluded}</ul>' if excluded else '<p>None.</p>'}\n{''.join(parts)}\n"
        f"<h2>The certificate</h2>{_table(rest)}\n"
        f'<p>This page is a copy for people. The signed file is <a download="certificate.json" '
        f'href="data:application/json;base64,{encoded}">certificate.json</a>. Verify it with '
        f"<code>cleantail certificate verify certificate.json --public-key FILE</code>.</p>\n"
        f"<pre>{escape(text)}</pre>\n</body></html>\n"
    )


def _table(value: Any) -> str:
    if isinstance(value, Mapping):
        rows = "".join(f"<tr><th>{escape(str(k))}</th><td>{_table(v)}</td></tr>" for k, v in value.items())
        return f"<table>{rows}</table>"
    if isinstance(value, list):
        return "<br>".join(_table(entry) for entry in value) or "none"
    return escape("none" if value is None else str(value))
