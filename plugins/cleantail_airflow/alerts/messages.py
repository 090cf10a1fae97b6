"""The message about all incidents of one event of a topic: its subject, one line for each incident, its links.

Names of others and values of records are never used as a template or as markup. A channel gets values of records only
if the topic's YAML has `values: true`. The values are read from the table when the message is sent, and stored nowhere.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode

from cleantail.config.alert_channels import Alert, Event
from cleantail.config.topic import Topic
from cleantail.human import counted, instant
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.shown_records import ShownRecord, read_shown, snapshot_shown
from cleantail.watch.alarms import DUE_SOON
from cleantail.watch.incidents import Incident, Notification
from cleantail_airflow.outcomes.failures import Failure

NAMES_SHOWN = 20
"""Maximum number of partitions, tasks or readers in a subject."""
LINES_SHOWN = 50
FAILURES_SHOWN = 50
EXAMPLES_SHOWN = 5
"""Maximum number of records that a message shows of each failed expectation."""
RecordPosition = tuple[int, int, int]
"""(snapshot, partition, offset)."""

logger = logging.getLogger(__name__)


def headline(notification: Notification, run_id: str) -> str:
    """Return `check failed, partitions 2, 4 blocked`, or `resolved: …` if no incident of the event is open.

    A task that failed in another run than `run_id` is named as such.
    """
    if not (notification.begun or notification.still):
        return f"resolved: {_ended(notification.event, notification.ended)}"
    open_now = _open(notification, run_id)
    if not notification.ended:
        return open_now
    resolved = f"resolved for {_names(notification.event, notification.ended)}"
    if notification.begun:
        return f"{open_now}; {resolved}"
    return f"{resolved}, still open: {_what(notification.event, notification.still, _OPEN_VERBS)}"


_OPEN_VERBS = ("blocked", "waits")


def _open(notification: Notification, run_id: str) -> str:
    """Return the open problems as text. Failed tasks of other runs come after those of this run."""
    event, incidents = notification.event, [*notification.begun, *notification.still]
    earlier = [i for i in incidents if event is Event.RUN_FAILED and i.condition.run_id not in ("", run_id)]
    of_this_run = [incident for incident in incidents if incident not in earlier]
    of_earlier = f"still open from an earlier run: {_names(event, earlier)}" if earlier else ""
    return "; ".join(filter(None, [_what(event, of_this_run, _OPEN_VERBS) if of_this_run else "", of_earlier]))


def _ended(event: Event, incidents: Sequence[Incident]) -> str:
    """Return `the round was approved by Anna` if the outcome is known, else the problem that has ended."""
    outcomes = {incident.outcome for incident in incidents}
    outcome = outcomes.pop() if len(outcomes) == 1 and len(incidents) == 1 else ""
    return f"the round was {outcome}" if outcome else _what(event, incidents, ("no longer blocked", "waited"))


def _what(event: Event, incidents: Sequence[Incident], verbs: tuple[str, str]) -> str:
    names, (blocked, waits) = _names(event, incidents), verbs
    are_soon = all(incident.condition.occurrence == DUE_SOON for incident in incidents)
    return {
        Event.CHECK_FAILED: f"check failed, {names} {blocked}",
        Event.RUN_FAILED: f"{names} failed",
        Event.DEADLINE_MISSED: f"deadline missed, {names}",
        Event.QUARANTINED: f"{names} {blocked}",
        Event.HOLD_CAP: f"tombstones were deleted before {names} had read them",
        Event.ERASURE: f"erasure {'due soon' if are_soon else 'overdue'}, {names}",
        Event.GAP: _missed(incidents, names),
        Event.REWRITTEN: "another engine rewrote the history of the table: its logs are cleaned from their starts",
        Event.RECONCILE: f"deletions may be missing, a reconciliation is needed, {names}",
        Event.APPROVAL: f"a round {waits} for approval (Airflow: Browse, Required Actions)",
    }[event]


def _missed(incidents: Sequence[Incident], names: str) -> str:
    if all(i.condition.partition is None for i in incidents):
        return "the source table was changed, or its snapshots were deleted before they were read"
    return f"records of the source are missing, {names}"


def _names(event: Event, incidents: Sequence[Incident]) -> str:
    """Return `partitions 0, 1`, `compact, publish` or `1 reader (partition 3)`."""
    partitions = sorted({i.condition.partition for i in incidents if i.condition.partition is not None})
    logs = f"partition{'' if len(partitions) == 1 else 's'} {_listed(list(map(str, partitions)))}"
    if event is Event.HOLD_CAP:
        return f"{len(incidents)} reader{'' if len(incidents) == 1 else 's'} ({logs})"
    if event is Event.RUN_FAILED:
        return _listed([i.condition.subject.removeprefix("task ") for i in incidents])
    if event is Event.GAP and not partitions:
        return "the source table"
    if event is Event.ERASURE:
        requests = sum(i.condition.partition is None for i in incidents)
        return ", ".join([*([logs] if partitions else []), *([counted(requests, "request")] if requests else [])])
    return logs if partitions else counted(len(incidents), "round")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _subjects(incidents: Sequence[Incident]) -> tuple[str, ...]:
    return tuple(sorted(i.condition.subject for i in incidents))


def _line(incident: Incident) -> str:
    if incident.over_ms is None:
        return incident.condition.text
    return f"{_end(incident)} (from {instant(incident.since_ms)} to {instant(incident.over_ms)} UTC)"


def _end(incident: Incident) -> str:
    condition = incident.condition
    if condition.event is Event.ERASURE and condition.partition is None:
        return f"{condition.subject} to erase keys has ended, or is no longer near its deadline"
    return {
        Event.CHECK_FAILED: f"partition {condition.partition} is no longer blocked",
        Event.RUN_FAILED: f"{condition.subject} succeeds again",
        Event.DEADLINE_MISSED: f"partition {condition.partition} is no longer overdue",
        Event.QUARANTINED: f"partition {condition.partition} is no longer blocked",
        Event.HOLD_CAP: f"{condition.subject} is no longer behind, or no longer registered",
        Event.ERASURE: f"partition {condition.partition} no longer has overdue tombstones",
        Event.GAP: f"{condition.subject} had no gap for a day",
        Event.REWRITTEN: "no other engine has rewritten the history of the table for a day",
        Event.RECONCILE: f"partition {condition.partition} no longer needs a reconciliation",
        Event.APPROVAL: f"the round was {incident.outcome}" if incident.outcome else "the round no longer waits",
    }[condition.event]


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """The topic's page in the UI, and the run that sends the message.

    `base` is the address of the UI. `dag_id` is the topic's own id, also if the DAG of a group runs the topic.
    """

    base: str
    topic: str
    dag_id: str
    run_id: str
    at: str

    def page(self, partition: int | None = None) -> str:
        """Return the address of the topic's page, at the partition's log if one is given."""
        anchor = "" if partition is None else f"#log-{partition}"
        return f"{self.base}/cleantail/topics/{self.dag_id}{anchor}"

    def records(self, round_name: str, kind: str) -> str:
        """Return the address of the page that shows the records of a round."""
        return f"{self.page()}/records?{urlencode({'round': round_name, 'kind': kind})}"

    @property
    def data_docs(self) -> str:
        return f"{self.base}/cleantail/topics/{self.dag_id}/docs/index.html"


@dataclass(frozen=True, slots=True)
class Message:
    """The message that every channel gets about one event of a topic.

    `incident` is the same in all messages about the event, so that a pager can match them. `state` is open while any
    subject of `open` is left. `over` has the subjects that ended since the last message. Only messages of the run with
    the `failures` contain them.
    """

    topic: str
    event: str
    state: str
    headline: str
    reason: str
    task: str
    link: str
    page: str
    run_id: str
    at: str
    incident: str
    open: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def subject(self) -> str:
        return f"[cleantail] {self.topic}: {self.headline}"

    @property
    def about(self) -> str:
        return f"incident {self.incident}: {'open' if self.open else 'resolved'}"

    @property
    def body(self) -> str:
        """Return the text without the subject. The line above the links names the incident, for pagers."""
        return "\n".join([self.reason, *map(str, self.failures), self.about, *dict.fromkeys([self.link, self.page])])

    @property
    def text(self) -> str:
        return f"{self.subject}\n{self.body}"

    def as_json(self) -> dict[str, Any]:
        """Return the message as JSON. Chat services show `text`; programs read the other fields."""
        return {"text": plain_text(self.text), **asdict(self)}


def message_of(notification: Notification, failures: Iterable[Failure], place: MessageOrigin) -> Message:
    first = notification.incidents[0].condition
    link = first.link or place.page(first.partition)
    return Message(
        topic=place.topic,
        event=notification.event.value,
        state=notification.said.value,
        headline=headline(notification, place.run_id),
        reason=_reason(notification),
        task=link.partition("/tasks/")[2].partition("/")[0].partition("?")[0],
        link=link,
        page=place.page(first.partition),
        run_id=place.run_id,
        at=place.at,
        incident=f"cleantail/{place.topic}/{notification.event.value}",
        open=_subjects([*notification.begun, *notification.still]),
        over=_subjects(notification.ended),
        failures=_failures_shown(notification, failures),
    )


def _failures_shown(notification: Notification, failures: Iterable[Failure]) -> tuple[Failure, ...]:
    if notification.event is not Event.CHECK_FAILED:
        return ()
    partitions = {i.condition.partition for i in notification.begun}
    return tuple(f for f in failures if f.partition in partitions)[:FAILURES_SHOWN]


def _reason(notification: Notification) -> str:
    """List new and ended incidents. If some have ended, list also those that are still open."""
    incidents: list[Incident] = [
        *notification.begun,
        *notification.ended,
        *(notification.still if notification.ended else ()),
    ]
    more = len(incidents) - LINES_SHOWN
    lines = [_line(incident) for incident in incidents[:LINES_SHOWN]]
    return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])


def mail_body(message: Message) -> str:
    """Return the message as HTML. Every value is escaped."""
    columns = ["partition", "expectation", "severity", "observed", "detail"]
    columns += ["examples"] if any(failure.examples for failure in message.failures) else []
    rows = [[_cell(getattr(failure, column)) for column in columns] for failure in message.failures]
    reason = f"<pre>{html.escape(message.reason)}</pre>{_html_table([columns, *rows]) if rows else ''}"
    names = {message.link: "Task log in Airflow"} | {message.page: "Topic in Airflow"}
    links = "".join(f'<p><a href="{html.escape(url, quote=True)}">{name}</a></p>' for url, name in names.items())
    about = f"<p>{html.escape(message.about)}</p>"
    return f"<h3>{html.escape(message.subject)}</h3>{reason}{about}{links}"


def _cell(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, tuple) else str(value)


_MARKUP = re.compile(r"([@＠]|\](?=[(\[:]))")
"""Matches the start of a mention (@all), and the middle of a Markdown link."""
_ANGLE = re.compile(r"<(?=\S)")
"""Matches the start of a mention or link in angle brackets (<users/all>, <!here>, <http://…|log in>)."""
_BREAK = "\u200b"
"""Zero-width space: ends a mention or a link, and is not visible."""


def plain_text(text: str) -> str:
    """Return a text that looks the same and contains no mention and no link for a chat service."""
    return _ANGLE.sub(f"<{_BREAK}", _MARKUP.sub(rf"\1{_BREAK}", text))


def slack_text(message: Message) -> str:
    """Return the text for Slack. Slack's three escapes keep data from becoming a link or a mention."""
    text = _MARKUP.sub(rf"\1{_BREAK}", message.text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _html_table(rows: list[list[str]]) -> str:
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f'<table border="1" cellpadding="4">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'


def may_have_values(topic: Topic, alert: Alert, event: Event) -> bool:
    """Return whether the channel's message about the event may contain values of records.

    The YAML may list a channel twice, for different events. Only one of the two entries may have `values: true`.
    """
    return any(a.values for a in topic.alerts if a.name == alert.name and event in a.events)


def with_values(message: Message, topic: Topic) -> Message:
    """Return the message with examples of the failed records, or without them if they cannot be read."""
    if not any(failure.offsets for failure in message.failures):
        return message
    try:
        records = _read(message.failures, topic)
    except Exception as e:  # catalog drivers raise any type; the message goes out without examples
        logger.warning("the alert shows no records, because they cannot be read: %s", type(e).__name__)
        return message
    failures = tuple(replace(f, examples=_examples(f, records)) for f in message.failures)
    return replace(message, failures=failures)


def _read(failures: Iterable[Failure], topic: Topic) -> dict[RecordPosition, ShownRecord]:
    """Read each log once per snapshot. Skip snapshots that no branch contains."""
    table = load_table(open_catalog(topic.platform), topic)
    if table is None:
        return {}
    offsets: dict[tuple[int, int], set[int]] = {}
    for f in failures:
        offsets.setdefault((f.snapshot_id, f.partition), set()).update(f.offsets[:EXAMPLES_SHOWN])
    records: dict[RecordPosition, ShownRecord] = {}
    for (snapshot_id, partition), failed_offsets in offsets.items():
        if snapshot_shown(table, snapshot_id, False):
            failed = read_shown(table, partition, failed_offsets, snapshot_id)
            records |= {(snapshot_id, partition, record.offset): record for record in failed}
    return records


def _examples(failure: Failure, records: dict[RecordPosition, ShownRecord]) -> tuple[str, ...]:
    positions = [(failure.snapshot_id, failure.partition, offset) for offset in failure.offsets[:EXAMPLES_SHOWN]]
    return tuple(str(records[position]) for position in positions if position in records)
