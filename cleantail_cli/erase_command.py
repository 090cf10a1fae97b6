"""`erase`: remove every record of some keys from a topic's tables, and prove it by a certificate."""

from __future__ import annotations

import base64
import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleantail.config.topic import Topic
from cleantail.erasure.request_files import take_requests
from cleantail.erasure.requests import (
    APPROVED,
    EXCLUDED,
    ErasureEvent,
    ErasureRequest,
    default_deadline_ms,
    requests_of,
)
from cleantail.errors import CleantailError, HeldError
from cleantail.human import counted, instant
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import spark_session
from cleantail_cli.output import ConsoleOutput
from cleantail_cli.parameters import clock
from cleantail_cli.round_commands import report_waiting

if TYPE_CHECKING:
    from cleantail.erasure.store import ErasureStore
    from cleantail_cli.long_work import Progress
    from spark_jobs.round.erasure_steps import Choice, RequestEnd

DAY_MS = 86_400_000
BOM = b"\xef\xbb\xbf"
"""What some editors write at the beginning of a file in UTF-8."""


@command(
    "erase",
    parameters.topic,
    click.option(
        "--keys",
        metavar="FILE",
        help="File with a key on each line; - reads standard input. Default: continue the open requests.",
    ),
    click.option(
        "--encoding", type=click.Choice(["text", "base64"]), default="text", help="Encoding of keys (default: text)."
    ),
    click.option("--deadline-days", type=click.IntRange(min=1), metavar="N", help="Days until the keys must be gone."),
    click.option("--requested-by", metavar="NAME", help="Requester, for the certificate (default: you)."),
    click.option(
        "--exclude",
        multiple=True,
        metavar="NAME",
        help="Branch or tag that keeps its files, `source` or `versions`. The certificate names it.",
    ),
    click.option("--request", "request_id", metavar="ID", help="Only this request; `cleantail erasures` lists ids."),
    click.option("--tombstone", is_flag=True, help="Write tombstones to the source topic for keys that it still has."),
    click.option("--approve", is_flag=True, help="Approve the request, if the topic's rounds wait for approval."),
    examples=["cleantail erase customer-cdc --keys keys.txt", "cleantail erase customer-cdc"],
)
def erase(
    call: Invocation,
    topic: str,
    keys: str | None,
    encoding: str,
    deadline_days: int | None,
    requested_by: str | None,
    exclude: Sequence[str],
    request_id: str | None,
    tombstone: bool,
    approve: bool,
) -> int:
    """Erase keys from a topic's tables, and certify the erasure.

    A round removes every record of the keys, also tombstones and records of the active segment. Then the files that had
    them are rewritten, and removed with their snapshots. A scan by another engine proves that no record is left. From
    then on, ingestion leaves records of these keys out.

    Keys are never arguments, because other users of this machine can see arguments. Only marks of keys are stored,
    which need CLEANTAIL_ERASURE_KEY. The certificate is signed with CLEANTAIL_CERTIFICATE_KEY.

    If the source still has the keys, nothing is erased. Choose --tombstone, so that Kafka deletes them too, or
    --exclude source.

    With --keys, the command makes or continues the request of these keys. Without --keys, it continues all open
    requests of the topic. --exclude, --tombstone and --approve apply to one request only. The exit code is 1 if keys of
    a request are not gone, and 5 if a request waits for approval.
    """
    from cleantail.erasure.store import ErasureStore
    from spark_jobs.round.erasure_steps import Choice

    configured, user = call.topic(topic), getpass.getuser()
    if keys is not None and request_id is not None:
        raise CleantailError(
            "--keys and --request exclude each other: --keys makes a request, and --request names an existing one"
        )
    require_ready(configured, exclude)
    store, taken, problems = ErasureStore(call.platform), list[ErasureRequest](), list[str]()
    if keys is not None:
        now_ms = clock(None)
        request = store.request(
            configured.topic,
            read_keys(keys, encoding),
            by=requested_by or user,
            now_ms=now_ms,
            deadline_ms=now_ms + (deadline_days * DAY_MS if deadline_days else default_deadline_ms(configured.config)),
            tombstone=tombstone,
        )
        chosen = [request]  # another process may end it from now on
    else:
        taken, problems = take_requests(store, configured, clock(None))
        chosen = chosen_requests(store, configured, request_id, problems)
    if exclude or tombstone or approve:
        require_one(chosen, bool(taken) and request_id is None)
    if exclude:
        store.append_after(configured.topic, partial(_excluded, chosen[0].id, exclude, user))
    with call.output.progress() as progress:
        ends = run_requests(configured, store, chosen, progress, Choice(user, tombstone, approve))
    call.output.show(ErasedTopic(configured, tuple(ends), tuple(problems)))
    rounds = [end.erased.waiting for end in ends if end.erased.waiting]
    if report_waiting(configured, rounds, call.output, "erase") or any(end.waits for end in ends):
        return HeldError.exit_code
    return 0 if not problems and all(end.certificate for end in ends) else 1


def _excluded(
    request_id: str, exclude: Sequence[str], user: str, events: Sequence[ErasureEvent]
) -> ErasureEvent | None:
    """Return the event that excludes the names. None if the request has them, or has ended."""
    request = next(request for request in requests_of(events) if request.id == request_id)
    more = sorted({*exclude} - {*request.excluded})
    if not more or not request.is_open:
        return None
    return ErasureEvent(request.topic, request.id, EXCLUDED, clock(None), user, {"exclude": more})


def require_ready(topic: Topic, exclude: Sequence[str]) -> None:
    """Raise CleantailError if an erasure could not end. Called before keys are read, and before Spark starts."""
    from cleantail.erasure.certificate import signing_key
    from cleantail.erasure.erased_keys import ErasureSecret
    from cleantail.erasure.proof import require_engine
    from cleantail.lake.catalogs import require_usable

    require_engine()
    ErasureSecret.from_environ(topic.platform.env)
    signing_key(topic.platform.env)
    require_usable(topic)
    if not exclude:
        return
    from cleantail.erasure.request_files import excludable

    known = excludable(topic)
    if unknown := sorted({*exclude} - known):  # a certificate would list it
        raise CleantailError(
            f"--exclude {unknown[0]}: no table of topic {topic.topic} has a branch or tag of this name. Allowed are "
            f"these: {', '.join(sorted(known))}"
        )


def chosen_requests(
    store: ErasureStore, topic: Topic, request_id: str | None, problems: Sequence[str]
) -> list[ErasureRequest]:
    """Return the open requests of the topic, or the one of this id. Raises CleantailError, with the problems of request
    files, if no open request fits."""
    still_open = (request for request in store.requests(topic.topic) if request.is_open)
    if chosen := [request for request in still_open if request_id in (None, request.id)]:
        return chosen
    missing = f"open request {request_id}" if request_id else "open request"
    none = f"topic {topic.topic} has no {missing}. `cleantail erasures` lists requests; --keys FILE makes one"
    raise CleantailError("; ".join([*problems, none]))


def require_one(chosen: Sequence[ErasureRequest], is_new: bool) -> None:
    """Raise CleantailError if a person's choice for one request would apply to others too. `is_new`: a program has just
    left a request as a file, which the person may not have seen."""
    if len(chosen) > 1 or is_new:
        raise CleantailError(
            "--exclude, --tombstone and --approve apply to one request only. Several are open, or a new one has just "
            f"come from a file. Name one with --request: {', '.join(request.id for request in chosen)}"
        )


def read_keys(source: str, encoding: str) -> list[bytes]:
    """Return the keys in a file, or on standard input if `source` is `-`. Raises CleantailError."""
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as e:
        raise CleantailError(f"--keys {source} cannot be read: {e.strerror}") from None
    content = content.removeprefix(BOM)
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    lines = [line for line in lines if line]
    if encoding == "text":
        return lines
    try:
        return [base64.b64decode(line, validate=True) for line in lines]
    except ValueError:
        raise CleantailError(f"--keys {source} has a line that is not base64, as --encoding base64 requires") from None


def run_requests(
    topic: Topic, store: ErasureStore, requests: Sequence[ErasureRequest], progress: Progress, choice: Choice
) -> list[RequestEnd]:
    """Take the requests to their ends, those that wait for approval first: Spark does not start for them alone."""
    from cleantail.home.home_folder import exclusive
    from cleantail.rounds.approval import APPROVE, require_approver
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.gx_validation import preload
    from spark_jobs.round.erase import Erased
    from spark_jobs.round.erasure_steps import RequestEnd, RequestRun

    if topic.publish == APPROVE and choice.approve:
        require_approver(topic, "an erasure", choice.user)
    asks = topic.publish == APPROVE and not choice.approve
    waiting = [request for request in requests if asks and request.first(APPROVED) is None]
    ends = [RequestEnd(request, Erased(), waits=True) for request in waiting]
    if len(waiting) == len(requests):
        return ends
    preload()
    with (
        exclusive(topic.platform.home, f"round-{topic.topic}"),
        spark_session(topic.platform, f"cleantail erase {topic.topic}", progress) as spark,
    ):
        table = TopicTable.of(spark, topic)
        ends += [RequestRun(table, store, r.id, choice, progress).run() for r in requests if r not in waiting]
    return ends


@dataclass(frozen=True)
class ErasedTopic:
    """Answer of `erase`: what was found and removed for each request, and its certificate."""

    topic: Topic
    ends: tuple[RequestEnd, ...]
    problems: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic.topic,
            "requests": [
                {
                    "id": end.request.id,
                    "waits": end.waits,
                    "proven": end.erased.proven,
                    "problems": list(end.erased.problems),
                    "certificate": end.certificate,
                }
                for end in self.ends
            ],
            "problems": list(self.problems),
        }

    def print_on(self, page: ConsoleOutput) -> None:
        name = self.topic.topic
        for end in self.ends:
            request, erased = end.request, end.erased
            page.line(f"{name}: request {request.id}: {counted(request.keys, 'key')}")
            page.line(f"  requested by {request.requested_by}, deadline {instant(request.deadline_ms)} UTC")
            for table, facts in (erased.proven or {}).get("tables", {}).items():
                objects, records = counted(facts["objects"], "object"), counted(facts["records"], "record")
                page.line(f"  {table}: none of these keys in {objects} and {records}, snapshot {facts['snapshot']}")
            found = (erased.proven or {}).get("keys_found", request.keys)
            if found < request.keys:
                page.warning(
                    f"{found} of {counted(request.keys, 'key')} had records. No record had the others: check their "
                    "spelling and --encoding (docs/erasure.md, The bytes of a key)"
                )
            for problem in erased.problems:
                page.note(f"not proven: {problem}")
            if end.waits:
                page.note(f"request {request.id} waits for approval (publish: approve); nothing was erased")
                page.note(f"cleantail erase {name} --request {request.id} --approve approves and continues it")
            if end.certificate:
                page.line(f"  certified: cleantail certificate show {request.id} prints it")
        for problem in self.problems:
            page.note(problem)
