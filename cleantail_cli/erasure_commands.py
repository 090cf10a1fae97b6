"""`erasures` and `certificate`: list requests to erase keys, lift their denylist, and show and verify certificates."""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleantail.config.loading import scan_topics
from cleantail.config.topic import Topic
from cleantail.erasure.requests import FAILED, ErasureRequest
from cleantail.errors import CertificateError, CleantailError
from cleantail.human import counted, instant
from cleantail_cli import parameters
from cleantail_cli.command import Group, Invocation, command
from cleantail_cli.output import ConsoleOutput
from cleantail_cli.parameters import FILE, clock

if TYPE_CHECKING:
    from cleantail.erasure.store import ErasureStore


@command(
    "erasures",
    parameters.optional_topic,
    click.option("--lift", metavar="REQUEST", help="Let the keys of this request into the table again."),
    click.option("--reject", metavar="REQUEST", help="End this request; only possible before its records are removed."),
    parameters.now,
    examples=["cleantail erasures", "cleantail erasures customer-cdc", "cleantail erasures --lift 20261129-5f0c2a91"],
)
def erasures(call: Invocation, topic: str | None, lift: str | None, reject: str | None, now: int | None) -> int:
    """List requests to erase keys, with their state and deadline.

    From its approval on, a request keeps its keys out of the table, so that a replay does not bring them back. --lift
    ends this for one request, and ends the request if it is open. It restores no records. --reject ends a request with
    wrong keys, as long as none of its records was removed. The exit code is 1 if a request is overdue.
    """
    from cleantail.erasure.request_files import files_without_topic
    from cleantail.erasure.requests import HIDDEN, LIFTED, PUBLISHING, REJECTED
    from cleantail.erasure.store import ErasureStore

    configured = call.topic(topic).topic if topic is not None else None
    store, now_ms = ErasureStore(call.platform), clock(now)

    def lifted(request: ErasureRequest) -> str:
        if not request.denies:
            why = "it was already lifted" if request.is_lifted else f"it is {request.state}"
            raise CleantailError(f"request {lift} of topic {request.topic} keeps no key out of the table: {why}")
        return LIFTED

    def rejected(request: ErasureRequest) -> str:
        if not request.is_open or request.first(PUBLISHING) or request.first(HIDDEN):
            why = "its records may have been removed" if request.is_open else f"it is {request.state}"
            raise CleantailError(f"request {reject} of topic {request.topic} cannot be rejected: {why}")
        return REJECTED

    for name, event_of in ((lift, lifted), (reject, rejected)):
        if name is not None:
            _end(store, _request(store.requests(configured), name), event_of)
    report = Erasures(store.requests(configured), now_ms)
    call.output.show(report)
    if configured is None:
        known = [topic.topic for _, topic in scan_topics(call.config) if isinstance(topic, Topic)]
        for file in files_without_topic(call.platform.home, known):
            call.output.warning(f"{file} is not read: the configuration has no valid topic {file.parent.name}")
    return 1 if any(request.is_overdue(now_ms) for request in report.requests) else 0


def _end(store: ErasureStore, request: ErasureRequest, event_of: Callable[[ErasureRequest], str]) -> None:
    """Record the event that is right for the request's newest state. A run that erases may record others meanwhile."""
    from cleantail.erasure.requests import ErasureEvent, requests_of

    def made(events: Sequence[ErasureEvent]) -> ErasureEvent:
        event = event_of(_request(requests_of(events), request.id))
        return ErasureEvent(request.topic, request.id, event, int(time.time() * 1000), getpass.getuser())

    store.append_after(request.topic, made)


def _request(requests: Sequence[ErasureRequest], name: str) -> ErasureRequest:
    found = next((request for request in requests if request.id == name), None)
    if found is None:
        raise CleantailError(f"there is no request {name}: `cleantail erasures` lists them")
    return found


@dataclass(frozen=True)
class Erasures:
    """Answer of `erasures`: requests, oldest first."""

    requests: Sequence[ErasureRequest]
    now_ms: int

    def document(self) -> dict[str, Any]:
        return {"requests": [self._row(request) for request in self.requests]}

    def _row(self, request: ErasureRequest) -> dict[str, Any]:
        failed = request.last(FAILED) if request.state == FAILED else None
        return {
            "topic": request.topic,
            "request": request.id,
            "state": request.state,
            "reason": failed.details.get("reason") if failed else None,
            "keys": request.keys,
            "requested_by": request.requested_by,
            "requested_ms": request.requested_ms,
            "deadline_ms": request.deadline_ms,
            "overdue": request.is_overdue(self.now_ms),
            "denied": request.denies,
        }

    def print_on(self, page: ConsoleOutput) -> None:
        if not self.requests:
            page.line("there are no requests to erase keys")
            return
        rows = [
            (
                request.topic,
                request.id,
                request.state,
                request.keys,
                request.requested_by,
                instant(request.deadline_ms)[:10] if request.is_open else "-",
                "yes" if request.denies else "no",
            )
            for request in self.requests
        ]
        page.table(("topic", "request", "state", "keys", "by", "deadline", "kept out"), rows)
        for request in self.requests:
            if request.state == FAILED and (failed := request.last(FAILED)):
                page.error(f"{request.topic}, {request.id}: {failed.details.get('reason', 'failed')}")
            if request.is_overdue(self.now_ms):
                page.warning(
                    f"{request.topic}, {request.id}: the deadline has passed; continue with `cleantail erase "
                    f"{request.topic}`"
                )


@click.group(
    "certificate",
    cls=Group,
    examples=[
        "cleantail certificate show 20261129-5f0c2a91 > certificate.json",
        "cleantail certificate verify certificate.json --public-key cleantail.pem",
    ],
)
def certificate() -> None:
    """Print and verify certificates of erasures."""


@command(
    "show",
    click.argument("request", metavar="REQUEST", help="The request's id; `cleantail erasures` lists the ids."),
    click.option("--html", is_flag=True, help="Print an HTML page for people; it contains the file."),
    examples=[
        "cleantail certificate show 20261129-5f0c2a91 > certificate.json",
        "cleantail certificate show 20261129-5f0c2a91 --html > certificate.html",
    ],
)
def show_certificate(call: Invocation, request: str, html: bool) -> int:
    """Print the certificate of a request, byte for byte as it was signed."""
    from cleantail.erasure.certificate import page
    from cleantail.erasure.requests import CERTIFIED
    from cleantail.erasure.store import ErasureStore

    found = _request(ErasureStore(call.platform).requests(), request)
    certified = found.first(CERTIFIED)
    if certified is None or certified.certificate is None:
        raise CleantailError(f"request {request} has no certificate: it is {found.state}")
    sys.stdout.write(page(certified.certificate) if html else certified.certificate)
    return 0


@command(
    "verify",
    click.argument(
        "files", nargs=-1, required=True, type=FILE, metavar="FILE...", help="Certificates, in the order of the chain."
    ),
    click.option("--public-key", required=True, type=FILE, metavar="PEM", help="The signer's public key."),
    examples=["cleantail certificate verify certificate.json --public-key cleantail.pem"],
    configured=False,
    checked=False,
)
def verify_certificate(call: Invocation, files: tuple[Path, ...], public_key: Path) -> int:
    """Verify certificates with the public key alone, without a configuration or a network.

    The exit code is 1 if a byte of a certificate was changed, or if another key signed it. It is also 1 if a
    certificate does not follow the one before it.
    """
    from cleantail.erasure.certificate import require_chain, verified

    pem, texts, contents = _read(public_key), [_read(file) for file in files], list[Mapping[str, Any]]()
    for file, text in zip(files, texts, strict=True):
        try:
            contents.append(verified(text, pem, str(file)))
        except CertificateError as e:
            raise CertificateError(f"{file} is not a valid certificate: {e}") from None
    require_chain(texts, contents)
    call.output.show(Verified(contents))
    return 0


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as e:
        raise CleantailError(f"{file} cannot be read: {e.strerror}") from None


@dataclass(frozen=True)
class Verified:
    """Answer of `certificate verify`."""

    contents: Sequence[Mapping[str, Any]]

    def document(self) -> dict[str, Any]:
        return {"ok": True, "certificates": list(self.contents)}

    def print_on(self, page: ConsoleOutput) -> None:
        if (first := self.contents[0]["number"]) > 1:
            page.note(f"not checked: the topic's certificates before number {first}, because they were not given")
        for content in self.contents:
            request = content["request"]
            page.line(
                f"valid: certificate {content['number']} of topic {content['topic']}, issued {content['issued_at']}, "
                f"for request {request['id']} of {counted(request['keys'], 'key')}"
            )
            for name in content["exclusions"]:
                page.line(f"excluded: {name}")
            page.paragraph(content["claim"])


@command(
    "public-key",
    examples=["cleantail certificate public-key > cleantail.pem"],
    configured=False,
    checked=False,
)
def public_key(call: Invocation) -> int:
    """Print the public key of CLEANTAIL_CERTIFICATE_KEY, with which others verify certificates."""
    from cleantail.erasure.certificate import public_pem, signing_key

    sys.stdout.write(public_pem(signing_key(call.platform.env)))
    return 0


for _command in (show_certificate, verify_certificate, public_key):
    certificate.add_command(_command)
