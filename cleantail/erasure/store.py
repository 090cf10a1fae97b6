"""The two Iceberg tables of erasures, next to the evidence: events of requests, and marks of keys.

1. The first request creates the tables. If they do not exist, no topic has erased keys. This check takes one request to
   the catalog.
2. A property of the first table names each topic that ever had a denylist. For other topics no row is read.
3. Rows are only appended. A lifted request is an event: its marks stay, and are ignored.
4. Marks are appended before the event of their request. After a crash in between, no event refers to the marks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cleantail.config.platform import Platform
from cleantail.config.topic_table import ERASED_KEYS, ERASURES
from cleantail.erasure.erased_keys import MARK_BYTES, ErasedKeys, ErasureSecret
from cleantail.erasure.requests import (
    APPROVED,
    CERTIFIED,
    DETAILS_JSON,
    REQUESTED,
    ErasureEvent,
    ErasureRequest,
    requests_of,
)
from cleantail.errors import CleantailError, TableError
from cleantail.lake.catalogs import kept_catalog, load_any
from cleantail.lake.manifest_entries import named_if_damaged
from cleantail.lake.own_namespace import property_name
from cleantail.lake.own_tables import append_to, commit_once, own_table, stage_rows
from cleantail.retries import settled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction

PROPERTY_DENIED = "cleantail.denied."
"""Prefix of a property of the events' table: a topic has a denylist. A hash of the topic follows."""
EVENTS_COLUMNS = {
    "topic": "string",
    "request": "string",
    "event": "string",
    "at_ms": "int64",
    "by": "string",
    "details": "string",
    "certificate": "string",
}
KEYS_COLUMNS = {
    "topic": "string",
    "request": "string",
    "number": "int32",
    "tags": "binary",
    "marks": "binary",
}
"""A row has PORTION_KEYS keys of a request, in the order of their tags: a million rows would take five times as long to
read. `number`: the portion's place. `tags`: sealed, 8 bytes each. `marks`: 32 bytes each."""
SECRET, STORED = "secret", "stored"
"""The detail of a request that names the secret which marked its keys, and so shows whether the secret changed."""
PORTION_KEYS = 100_000
MOST_KEYS = 1_000_000
"""Maximum number of keys of one request: their tags are sealed, and read, together."""


class ErasureStore:
    """The requests and the erased keys of a platform's topics."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def request(
        self,
        topic: str,
        keys: Iterable[bytes],
        *,
        by: str,
        now_ms: int,
        deadline_ms: int,
        exclude: Sequence[str] = (),
        **asked: Any,
    ) -> ErasureRequest:
        """Record a request. A repeated command makes no second request. If the same person has an open one of the same
        keys and options, with a deadline that is not later, return that one.

        `deadline_ms`: the time of the deadline, Unix ms. `asked`: other details, counts and names only. Raises
        CleantailError if there is no key, or more than MOST_KEYS."""
        unique = sorted(set(keys))
        if not unique:
            raise CleantailError("no key is named: nothing was requested")
        if len(unique) > MOST_KEYS:
            raise CleantailError(f"too many keys for one request: {len(unique)}, at most {MOST_KEYS}")
        import numpy as np
        import pyarrow as pa

        secret = ErasureSecret.from_environ(self._platform.env)
        column = pa.array(unique, pa.binary())
        tags = secret.tags(topic, column)
        order = np.argsort(tags, kind="stable")  # so that readers need not sort them
        marks, tags = secret.marks(topic, column.take(pa.array(order))), tags[order]
        digest = secret.digest(topic, marks)
        same = {"set": digest, "exclude": sorted(exclude), **asked}
        for known in self.requests(topic):
            by_same = known.requested_by == by and same.items() <= known.asked.items()
            if known.is_open and by_same and known.deadline_ms <= deadline_ms:
                return known
        name = f"{time.strftime('%Y%m%d', time.gmtime(now_ms / 1000))}-{os.urandom(4).hex()}"
        sealed, starts = secret.sealed(topic, name, tags), range(0, len(marks), PORTION_KEYS)
        rows = {
            "topic": [topic] * len(starts),
            "request": [name] * len(starts),
            "number": pa.array(range(len(starts)), pa.int32()),
            "tags": [sealed[at : at + PORTION_KEYS].tobytes() for at in starts],
            "marks": [b"".join(marks[at : at + PORTION_KEYS]) for at in starts],
        }
        schema = _schema(KEYS_COLUMNS)
        table = own_table(self._platform, ERASED_KEYS, schema, self._load(ERASED_KEYS))
        append_to(table, pa.table(rows, schema))
        details = {"keys": len(marks), "deadline_ms": deadline_ms, "exclude": sorted(exclude), "set": digest, **asked}
        details[SECRET] = secret.name
        details[STORED] = secret.stored_digest(topic, name, sealed, b"".join(marks))
        event = ErasureEvent(topic, name, REQUESTED, now_ms, by, details)
        self.append(event)
        return ErasureRequest(topic, name, (event,))

    def append(self, event: ErasureEvent) -> None:
        """Record an event. APPROVED puts the request's keys on the topic's denylist, LIFTED takes them off."""
        table = self._events_table()
        if event.event == APPROVED:
            _note_denylist(table, event.topic)  # before the event: a crash in between only costs needless reads
        append_to(table, _as_rows(event))

    def append_after(
        self, topic: str, made: Callable[[Sequence[ErasureEvent]], ErasureEvent | None]
    ) -> ErasureEvent | None:
        """Record the event that `made` returns for the topic's events, if it returns one. If another event came
        meanwhile, call `made` again. An error of `made` is raised, and nothing is recorded."""
        table = self._events_table()

        def stage(transaction: Transaction) -> tuple[ErasureEvent | None]:
            event = made(events_in(table, topic))
            if event is not None:
                stage_rows(transaction, table, _as_rows(event))
            return (event,)

        [event] = commit_once(table, stage)
        return event

    def _events_table(self) -> Table:
        return own_table(self._platform, ERASURES, _schema(EVENTS_COLUMNS), self._load(ERASURES))

    def events(self, topic: str | None = None) -> list[ErasureEvent]:
        """Return the events of a topic, or of all, in any order."""
        table = self._load(ERASURES)
        return events_in(table, topic) if table is not None else []

    def requests(self, topic: str | None = None) -> list[ErasureRequest]:
        """Return the requests of a topic, or of all, oldest first."""
        return requests_of(self.events(topic))

    def denied(self, topic: str, *, noted: bool = False) -> tuple[ErasureRequest, ...]:
        """Return the requests that make up the topic's denylist, oldest first.

        `noted`: the topic's table has PROPERTY_DENYLIST, so a request was approved. Raises TableError if no approved
        request is known then: the events are lost. Raises CleantailError if the secret is missing, or is not the one
        that made their marks."""
        events = self._load(ERASURES)
        if not noted and (events is None or _denied(topic) not in events.properties):
            return ()
        requests = requests_of(events_in(events, topic)) if events is not None else []
        if noted and not any(request.first(APPROVED) for request in requests):
            raise TableError(
                f"table {ERASURES} has no approved request of topic {topic}, and the topic's table has a denylist: it "
                f"is unknown which keys were erased. Restore table {ERASURES}, or request these keys again"
            )
        denied = tuple(request for request in requests if request.denies)
        if denied:
            secret = ErasureSecret.from_environ(self._platform.env)
            for request in denied:
                _require_secret(secret, request)
        return denied

    def keys_of(self, requests: Sequence[ErasureRequest]) -> ErasedKeys:
        """Return the keys of some requests of one topic, in any state. A request's keys never change.

        Raises CleantailError if the secret is missing, or is not the one that made the marks. Raises TableError if the
        stored keys are not those that were requested."""
        import numpy as np
        import pyarrow.compute as pc

        topic, table = requests[0].topic, self._load(ERASED_KEYS)
        if table is None:
            raise TableError(f"table {ERASED_KEYS} is missing: it has the keys of request {requests[0].id}")
        secret = ErasureSecret.from_environ(self._platform.env)
        # all requests in one scan: a scan for each would plan the whole table each time
        ids = [request.id for request in requests]
        of_topic = _rows(table, {"topic": [topic], "request": ids}, ("request", "number", "tags", "marks"))
        tags, marks = [], []
        for request in requests:
            _require_secret(secret, request)
            rows = of_topic.filter(pc.equal(of_topic["request"], request.id)).sort_by("number")
            sealed = np.frombuffer(b"".join(portion.as_buffer() for portion in rows["tags"]), "<u8")
            of_request = b"".join(portion.as_buffer() for portion in rows["marks"])
            if request.asked.get(STORED) != secret.stored_digest(topic, request.id, sealed, of_request):
                raise TableError(
                    f"table {ERASED_KEYS} has other keys of request {request.id} of topic {topic} than requested, so "
                    f"nothing can be proven with them. Roll that table back, or lift the request and make it again"
                )
            tags.append(secret.sealed(topic, request.id, sealed))
            marks.append(np.frombuffer(of_request, np.uint8).reshape(-1, MARK_BYTES))
        return ErasedKeys(topic, secret.keys_of(topic), np.concatenate(tags), np.concatenate(marks))

    def _load(self, name: str) -> Table | None:
        full_name = f"{self._platform.catalog.namespace}.{name}"
        return load_any(kept_catalog(self._platform), full_name, self._platform)


def events_in(table: Table, topic: str | None = None) -> list[ErasureEvent]:
    """Return the events of a topic, or of all, from the loaded table, in any order."""
    rows = _rows(table, {"topic": [topic]} if topic is not None else {}, tuple(EVENTS_COLUMNS)).to_pylist()
    where = f"column details of {ERASURES}"
    return [ErasureEvent(**row | {"details": DETAILS_JSON.value(row["details"], where)}) for row in rows]


def newest_certificate(events: Iterable[ErasureEvent]) -> str | None:
    """Return the text of the certificate with the highest number. Times do not decide: clocks of machines differ."""
    texts = [e.certificate for e in events if e.event == CERTIFIED and e.certificate]
    return max(texts, key=lambda text: int(json.loads(text)["certificate"]["number"]), default=None)


def _require_secret(secret: ErasureSecret, request: ErasureRequest) -> None:
    if request.asked[SECRET] != secret.name:
        raise CleantailError(
            f"CLEANTAIL_ERASURE_KEY is not the secret with which the keys of request {request.id} of topic "
            f"{request.topic} were marked: set that one. Records cannot be compared with these keys without it"
        )


def _as_rows(event: ErasureEvent) -> pa.Table:
    import pyarrow as pa

    row = asdict(event) | {"details": DETAILS_JSON.text(dict(event.details))}
    return pa.Table.from_pylist([row], _schema(EVENTS_COLUMNS))


def _note_denylist(table: Table, topic: str) -> None:
    """Set the topic's property. The property stays: removing it could race with another approval."""

    def change() -> None:
        table.refresh()
        if _denied(topic) not in table.properties:
            with table.transaction() as transaction:
                transaction.set_properties({_denied(topic): json.dumps(topic)})

    settled(change)


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns.items()])


def _denied(topic: str) -> str:
    return property_name(PROPERTY_DENIED, topic)


def _rows(table: Table, values: Mapping[str, Sequence[str]], columns: Sequence[str] = ("*",)) -> pa.Table:
    """Return the rows that have one of the values in each of the named columns. Raises TableError if a file of the
    table is damaged."""
    from pyiceberg.expressions import AlwaysTrue, And, In

    condition: BooleanExpression = AlwaysTrue()
    for name, allowed in values.items():
        condition = And(condition, In(name, allowed))
    with named_if_damaged(table, f"a file of snapshot {table.metadata.current_snapshot_id}"):
        return table.scan(row_filter=condition, selected_fields=tuple(columns)).to_arrow()
