"""Take one request to erase keys from its approval to its certificate. Each step is recorded as an event.

1. The request is approved, which puts its keys on the topic's denylist. Ingestions that began before are refused.
2. The source is read. If it has the keys, the run ends, unless a person chose to write tombstones or to exclude it.
3. The keys are erased from the tables, and their absence is proven (spark_jobs.round.erase).
4. New records of the source are read, with the tombstones of step 2. So the certificate has the source's state at the
   proof.
5. The certificate is signed.

An earlier run may have done some of the steps. Recorded steps are not repeated, but the tables are read again. If a
person rejects or lifts the request meanwhile, no further step is recorded, and the run ends before its next change.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleantail.erasure.certificate import issue
from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.erasure.requests import (
    APPROVED,
    CERTIFIED,
    FAILED,
    PROVEN,
    TOMBSTONING,
    ErasureEvent,
    ErasureRequest,
    requests_of,
)
from cleantail.erasure.store import ErasureStore
from cleantail.errors import CleantailError, OutsideError
from cleantail.home.stdin_copies import delete_dead
from cleantail.kafka.client_settings import settings_of_environment
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.erase import Erased, erase_keys
from spark_jobs.round.erased_source import SOURCE_EXCLUSION, SourceState, source_state, write_tombstones
from spark_jobs.round.intake.denylist import note_denylist
from spark_jobs.round.run import Progress, Run

NO_APPROVAL = "no approval is required"


@dataclass(frozen=True, slots=True)
class Choice:
    """The user who runs the command, and their options."""

    user: str
    tombstone: bool
    approve: bool


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The end of a run of one request. `waits`: for a person's approval. `certificate`: its text, if it has one."""

    request: ErasureRequest
    erased: Erased
    certificate: str | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class RequestRun:
    table: TopicTable
    store: ErasureStore
    request_id: str
    choice: Choice
    progress: Progress

    def run(self) -> RequestEnd:
        """Take the request to its end. An error that a person can fix ends this request only, and is recorded as the
        reason. Raises OutsideError."""
        request = self._request()
        if not request.is_open:  # another process was faster
            certified = request.first(CERTIFIED)
            return RequestEnd(request, Erased(), certified.certificate if certified else None)
        try:
            end = self._end_of(request)
        except OutsideError:
            raise
        except CleantailError as error:
            end = RequestEnd(request, Erased(problems=(str(error),)))
        if end.erased.problems:
            self._record(FAILED, {"reason": "; ".join(end.erased.problems)})
        return end

    def _request(self) -> ErasureRequest:
        return next(r for r in self.store.requests(self.table.topic.topic) if r.id == self.request_id)

    def _note(self, event: str, details: Mapping[str, Any]) -> None:
        """Record an event. Raises CleantailError, with nothing recorded, if a person has ended the request."""
        self._require_open(self._record(event, details))

    def _require_open(self, request: ErasureRequest) -> None:
        if not request.is_open:
            raise CleantailError(f"request {self.request_id} is {request.state}: nothing more is erased for it")

    def _record(self, event: str, details: Mapping[str, Any]) -> ErasureRequest:
        """Record an event if the request is open. Return the request as it was before."""
        found = list[ErasureRequest]()

        def made(events: Sequence[ErasureEvent]) -> ErasureEvent | None:
            found[:] = (request for request in requests_of(events) if request.id == self.request_id)
            return self._event(event, self.choice.user, details) if found[0].is_open else None

        self.store.append_after(self.table.topic.topic, made)
        return found[0]

    def _event(self, event: str, by: str, details: Mapping[str, Any]) -> ErasureEvent:
        return ErasureEvent(self.table.topic.topic, self.request_id, event, int(time.time() * 1000), by, details)

    def _end_of(self, request: ErasureRequest) -> RequestEnd:
        keys = self.store.keys_of([request])
        self._approve(request)
        if request.state != PROVEN:
            erased = self._proven(request, keys)
            if erased.proven is None:
                return RequestEnd(request, erased)
        return self._certified()

    def _approve(self, request: ErasureRequest) -> None:
        if request.first(APPROVED) is None:
            self.store.append(self._event(APPROVED, self.choice.user if self.choice.approve else NO_APPROVAL, {}))
        if self.table.exists():
            note_denylist(self.table)

    def _proven(self, request: ErasureRequest, keys: ErasedKeys) -> Erased:
        source = self._source(request, keys)
        if problem := self._of_source(request, source):
            return Erased(problems=(problem,))
        delete_dead(self.table.platform.home)
        before = {event.event: event.details for event in request.events}
        run = Run(self.table, self.progress, self.choice.user if self.choice.approve else None)
        erased = erase_keys(run, keys, self._note, before, request.excluded)
        if erased.proven is None:
            return erased
        source = self._source(request, keys, source)
        if problem := self._of_source(request, source):
            return Erased(problems=(problem,))
        excluded = [*erased.proven["exclusions"], *([source.problem] if source.problem else ())]
        self._note(PROVEN, {**erased.proven, "source": source.facts, "exclusions": excluded})
        return erased

    def _source(self, request: ErasureRequest, keys: ErasedKeys, before: SourceState | None = None) -> SourceState:
        """Return the state of the keys at the source. The first call of a run also writes the tombstones that the
        source lacks."""
        self.progress("reading the source")
        topic, context = self.table.topic, self.table.spark.sparkContext
        kafka = topic.source.kafka
        settings = settings_of_environment(kafka, topic.platform.env) if kafka is not None else None
        state = source_state(context, topic, settings, keys, before)
        if before is None and settings is not None and state.alive and self._writes_tombstones(request):
            partitions = sorted({partition for partition, _ in state.alive})
            self._note(TOMBSTONING, {"alive": len(state.alive), "partitions": partitions})  # before the writes
            write_tombstones(topic, settings, state.alive)
        return state

    def _writes_tombstones(self, request: ErasureRequest) -> bool:
        return self.table.topic.source.kafka is not None and (
            self.choice.tombstone or bool(request.asked.get("tombstone"))
        )

    def _of_source(self, request: ErasureRequest, state: SourceState) -> str:
        """Return why the source prevents a proof. Empty if it has none of the keys, or if a person has chosen what to
        do with them."""
        if not state.problem or SOURCE_EXCLUSION in request.excluded or self._writes_tombstones(request):
            return ""
        ways = f"--exclude {SOURCE_EXCLUSION} accepts this, and the certificate names it"
        ways += "; --tombstone deletes the keys there" if self.table.topic.source.kafka is not None else ""
        return f"{state.problem}; {ways}"

    def _certified(self) -> RequestEnd:
        request, topic = self._request(), self.table.topic
        proven = request.last(PROVEN)
        assert proven is not None, "it was recorded by this run, or by an earlier one"
        facts = {"table": topic.table, "source": proven.details["source"]}
        now_ms = int(time.time() * 1000)
        certificate = issue(self.store, topic, request, now_ms=now_ms, by=self.choice.user, facts=facts)
        return RequestEnd(request, Erased(proven=proven.details), certificate)
