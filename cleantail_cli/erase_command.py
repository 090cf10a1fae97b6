"""`erase`: remove every record of some keys from a topic's tables, and prove it by a certificate."""

from __future__ import annotations

import base64
import getpass
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, HeldError, OutsideError
from cleantail.human import counted, instant
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import spark_session
from cleantail_cli.output import Page
from cleantail_cli.parameters import clock
from cleantail_cli.round_commands import tell_waiting

if TYPE_CHECKING:
    from cleantail.erasure.erased_keys import ErasedKeys
    from cleantail.erasure.requests import ErasureRequest
    from cleantail.erasure.store import ErasureStore
    from cleantail_cli.long_work import Progress
    from spark_jobs.round.erase import Erased

DAY_MS = 86_400_000
Note = Callable[[str, Mapping[str, Any]], None]
"""Records an event of a request: its name, and its details."""
BOM = b"\xef\xbb\xbf"
"""What some editors write at the beginning of a file in UTF-8."""


@dataclass(frozen=True)
class Choice:
    """Who runs the command, and what they chose."""

    user: str
    tombstone: bool
    approve: bool


NO_APPROVAL = "no approval is required"


@command(
    "erase",
    parameters.topic,
    click.option(
        "--keys",
        metavar="FILE",
        help="File with a key on each line; - reads standard input. Without it, the open requests go on.",
    ),
    click.option(
        "--encoding", type=click.Choice(["text", "base64"]), default="text", help="Encoding of keys (default: text)."
    ),
    click.option("--deadline-days", type=click.IntRange(min=1), metavar="N", help="Days until the keys must be gone."),
    click.option("--requested-by", metavar="NAME", help="Who requests it, for the certificate (default: you)."),
    click.option(
        "--exclude",
        multiple=True,
        metavar="NAME",
        help="Branch or tag of another owner that keeps its files, or `source`. The certificate names it.",
    ),
    click.option("--request", "request_id", metavar="ID", help="Only this request, as `cleantail erasures` lists it."),
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
    """Erase keys from a topic's tables, and certify it.

    A round removes every record of the keys, also tombstones and records of the active segment. Then the files that had
    them are rewritten, and removed with their snapshots. A scan by another engine proves that none is left. From then
    on, ingestion leaves records of these keys out.

    Keys are never arguments: other users of this machine can see those. Only marks of keys are stored, which need
    CLEANTAIL_ERASURE_KEY. The certificate is signed with CLEANTAIL_CERTIFICATE_KEY.

    If the source still has the keys, nothing is erased. Choose --tombstone, so that Kafka deletes them too, or
    --exclude source.

    With --keys, only their request is worked on. Without, all open requests of the topic go on, also interrupted ones.
    --exclude, --tombstone and --approve are for one request. The exit code is 1 if keys of a request are not gone, and
    5 if one waits for approval.
    """
    from cleantail.erasure.certificate import signing_key
    from cleantail.erasure.erased_keys import ErasureSecret
    from cleantail.erasure.proof import require_engine
    from cleantail.erasure.request_files import take_requests
    from cleantail.erasure.requests import EXCLUDED, ErasureEvent, default_deadline_ms
    from cleantail.erasure.store import ErasureStore
    from cleantail.lake.catalogs import require_usable

    configured, user = call.topic(topic), getpass.getuser()
    require_engine()
    ErasureSecret.from_environ(call.platform.env)  # before keys are read, and before Spark starts
    signing_key(call.platform.env)
    require_usable(configured)
    require_known(configured, exclude)
    store = ErasureStore(call.platform)
    if keys is not None and request_id is not None:
        raise CleantailError("--keys makes a request, and --request names one: name one of the two")
    problems: list[str] = []
    taken: list[ErasureRequest] = []
    if keys is not None:
        now_ms = clock(None)
        time_ms = deadline_days * DAY_MS if deadline_days else default_deadline_ms(configured.config)
        request_id = store.request(
            configured.topic,
            read_keys(keys, encoding),
            by=requested_by or user,
            now_ms=now_ms,
            deadline_ms=now_ms + time_ms,
            tombstone=tombstone,
        ).id
    else:
        taken, problems = take_requests(store, configured, clock(None))
    open_requests = [request for request in store.requests(configured.topic) if request.is_open]
    chosen = [request for request in open_requests if request_id in (None, request.id)]
    if not chosen:
        missing = f"open request {request_id}" if request_id else "open request"
        problems.append(f"topic {configured.topic} has no {missing}; name keys by --keys FILE")
        raise CleantailError("; ".join(problems))
    # a request that a program has just left is not the one that the person has seen
    if (len(chosen) > 1 or (taken and request_id is None)) and (exclude or tombstone or approve):
        raise CleantailError(
            "--exclude, --tombstone and --approve are for one request, and several are open, or one was left as a file "
            f"just now: name one by --request: {', '.join(request.id for request in chosen)}"
        )
    for request in chosen:
        if more := sorted({*exclude} - {*request.excluded}):
            details = {"exclude": more}
            store.append(ErasureEvent(request.topic, request.id, EXCLUDED, clock(None), user, details))
    with call.output.progress() as progress:
        results = _erased(configured, store, chosen, progress, Choice(user, tombstone, approve))
    call.output.show(ErasedTopic(configured, tuple(results), tuple(problems)))
    rounds = [result.erased.waiting for result in results if result.erased.waiting]
    if tell_waiting(configured, rounds, call.output, "erase") or any(result.waits for result in results):
        return HeldError.exit_code
    return 0 if not problems and all(result.certificate for result in results) else 1


def require_known(topic: Topic, exclude: Sequence[str]) -> None:
    """Raise CleantailError for a name to exclude that the topic's tables do not have: a certificate would list it."""
    from cleantail.lake.catalogs import kept_catalog, load_table, side_tables

    tables = [load_table(kept_catalog(topic.platform), topic), *side_tables(topic).values()] if exclude else []
    known = {"source", "versions"}.union(*(table.metadata.refs for table in tables if table is not None))
    if unknown := sorted({*exclude} - (known - {"main"})):
        raise CleantailError(
            f"--exclude {unknown[0]}: no table of topic {topic.topic} has a branch or tag of this name. Allowed are "
            f"these: {', '.join(sorted(known - {'main'}))}"
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
        raise CleantailError(f"--keys {source} has a line that is not base64, which --encoding names") from None


@dataclass(frozen=True)
class Result:
    """The end of a run of one request. `waits`: for a person's approval. `certificate`: its text, if it has one."""

    request: ErasureRequest
    erased: Erased
    certificate: str | None = None
    waits: bool = False


def _erased(
    topic: Topic,
    store: ErasureStore,
    requests: Sequence[ErasureRequest],
    progress: Progress,
    choice: Choice,
) -> list[Result]:
    from cleantail.erasure.requests import APPROVED
    from cleantail.home.home_folder import exclusive
    from cleantail.rounds.approval import APPROVE, require_approver
    from spark_jobs.quality.gx_validation import preload
    from spark_jobs.round.erase import Erased

    if topic.publish == APPROVE and choice.approve:
        require_approver(topic, "an erasure", choice.user)
    asks = topic.publish == APPROVE and not choice.approve
    waiting = [request for request in requests if asks and request.first(APPROVED) is None]
    results = [Result(request, Erased(), waits=True) for request in waiting]
    if len(waiting) == len(requests):
        return results
    preload()
    with (
        exclusive(topic.platform.home, f"round-{topic.topic}"),
        spark_session(topic.platform, f"cleantail erase {topic.topic}", progress) as spark,
    ):
        results += [_one(spark, topic, store, r.id, progress, choice) for r in requests if r not in waiting]
    return results


def _one(spark: Any, topic: Topic, store: ErasureStore, request_id: str, progress: Progress, choice: Choice) -> Result:
    """Take one request to its end. A run before may have done a part of it, or all.

    An error that a person can mend ends this request only, and is recorded as its reason."""
    from cleantail.erasure.requests import CERTIFIED, FAILED, ErasureEvent
    from spark_jobs.round.erase import Erased

    def note(event: str, details: Mapping[str, Any]) -> None:
        store.append(ErasureEvent(topic.topic, request_id, event, clock(None), choice.user, details))

    request = next(r for r in store.requests(topic.topic) if r.id == request_id)
    if not request.is_open:  # another process was faster
        certified = request.first(CERTIFIED)
        return Result(request, Erased(), certified.certificate if certified else None)
    try:
        result = _worked_on(spark, topic, store, request, progress, choice, note)
    except OutsideError:
        raise
    except CleantailError as error:
        result = Result(request, Erased(problems=(str(error),)))
    if result.erased.problems:
        note(FAILED, {"reason": "; ".join(result.erased.problems)})
    return result


def _worked_on(
    spark: Any,
    topic: Topic,
    store: ErasureStore,
    request: ErasureRequest,
    progress: Progress,
    choice: Choice,
    note: Note,
) -> Result:
    from cleantail.erasure.certificate import issue
    from cleantail.erasure.requests import APPROVED, PROVEN, ErasureEvent
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.round.erase import Erased, erase_keys
    from spark_jobs.round.intake.denylist import note_denylist
    from spark_jobs.round.run import Run

    table = TopicTable.of(spark, topic)
    keys = store.erased_keys(topic.topic, request.id)
    assert keys is not None, "a request has keys"
    if request.first(APPROVED) is None:
        by = choice.user if choice.approve else NO_APPROVAL
        store.append(ErasureEvent(topic.topic, request.id, APPROVED, clock(None), by))
    if table.exists():
        note_denylist(table)
    if request.state != PROVEN:
        progress("reading the source")
        source, exclusions = _source(spark, request, topic, keys, note, choice)
        if source is None:
            return Result(request, Erased(problems=exclusions))
        before = {event.event: event.details for event in request.events}
        run = Run(table, progress, choice.user if choice.approve else None)
        erased = erase_keys(run, keys, note, before, request.excluded)
        if erased.proven is None:
            return Result(request, erased)
        excluded = [*erased.proven["exclusions"], *exclusions]
        note(PROVEN, {**erased.proven, "source": source, "exclusions": excluded})
        request = next(r for r in store.requests(topic.topic) if r.id == request.id)
    proven = request.last(PROVEN)
    assert proven is not None, "it was recorded above, or by an earlier run"
    facts = {"table": topic.table, "source": proven.details["source"]}
    certificate = issue(store, topic, request, now_ms=clock(None), by=choice.user, facts=facts)
    return Result(request, Erased(proven=proven.details), certificate)


def _source(
    spark: Any,
    request: ErasureRequest,
    topic: Topic,
    keys: ErasedKeys,
    note: Note,
    choice: Choice,
) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """Return what the source has of the keys, and what the certificate excludes. None, and why, if nobody has chosen
    what to do with the keys in the source."""
    from cleantail.erasure.requests import TOMBSTONED
    from cleantail.kafka.client_settings import settings_of_environment
    from spark_jobs.round.erased_source import SOURCE_EXCLUSION, source_state, write_tombstones

    kafka = topic.source.kafka
    settings = settings_of_environment(kafka, topic.platform.env) if kafka is not None else None
    state = source_state(spark.sparkContext, topic, settings, keys)
    deletes = settings is not None and (choice.tombstone or bool(request.asked.get("tombstone")))
    if deletes and settings is not None and state.alive:
        note(TOMBSTONED, write_tombstones(topic, settings, state.alive))
    if not deletes and state.problem and SOURCE_EXCLUSION not in request.excluded:
        ways = f"--exclude {SOURCE_EXCLUSION} names it in the certificate"
        ways += ", and --tombstone deletes them there" if settings is not None else ""
        return None, (f"{state.problem}; {ways}",)
    return state.facts, (state.problem,) if state.problem else ()


@dataclass(frozen=True)
class ErasedTopic:
    """Answer of `erase`: what was found and removed for each request, and its certificate."""

    topic: Topic
    results: tuple[Result, ...]
    problems: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic.topic,
            "requests": [
                {
                    "id": result.request.id,
                    "waits": result.waits,
                    "proven": result.erased.proven,
                    "problems": list(result.erased.problems),
                    "certificate": result.certificate,
                }
                for result in self.results
            ],
            "problems": list(self.problems),
        }

    def tell(self, page: Page) -> None:
        name = self.topic.topic
        for result in self.results:
            request, erased = result.request, result.erased
            page.line(f"{name}: request {request.id}: {counted(request.keys, 'key')}")
            page.line(f"  requested by {request.requested_by}, deadline {instant(request.deadline_ms)} UTC")
            for table, facts in (erased.proven or {}).get("tables", {}).items():
                objects, records = counted(facts["objects"], "object"), counted(facts["records"], "record")
                page.line(f"  {table}: none of these keys in {objects} and {records}, snapshot {facts['snapshot']}")
            found = (erased.proven or {}).get("keys_found", request.keys)
            if found < request.keys:
                page.warning(
                    f"{found} of {counted(request.keys, 'key')} had records, the others were never found: check their "
                    "spelling and --encoding (docs/erasure.md, The bytes of a key)"
                )
            for problem in erased.problems:
                page.note(f"not proven: {problem}")
            if result.waits:
                page.note("it waits for approval (publish: approve); nothing was erased")
                page.note(f"cleantail erase {name} --request {request.id} --approve approves it and goes on")
            if result.certificate:
                page.line(f"  certified: cleantail certificate show {request.id} prints it")
        for problem in self.problems:
            page.note(problem)
