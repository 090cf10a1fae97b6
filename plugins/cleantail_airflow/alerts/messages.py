"""Writes the sentences of a message: its subject about all incidents, and a line for each. It needs no Airflow."""

from __future__ import annotations

import html
import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode

from cleantail.config.alert_channels import Alert, Event
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.human import counted, instant
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.shown_records import ShownRecord, read_shown, snapshot_shown
from cleantail.watch.incidents import Incident, Notification
from cleantail_airflow.outcomes.failures import Failure

NAMES_SHOWN = 20
"""A subject line names so many partitions, tasks or readers."""


def headline(notification: Notification) -> str:
    """Says `check failed, partitions 2, 4 held back`, and `over: …` only where nothing of the event is left."""
    if not (notification.begun or notification.still):
        return f"over: {_what(notification.event, notification.ended, ('no longer held back', 'waited'))}"
    open_now = _what(notification.event, [*notification.begun, *notification.still], ("held back", "waits"))
    if not notification.ended:
        return open_now
    over = f"over for {_names(notification.event, notification.ended)}"
    return f"{open_now}; {over}" if notification.begun else f"{over}, still open: {open_now}"


def _what(event: Event, incidents: Sequence[Incident], verbs: tuple[str, str]) -> str:
    names, (held_back, waits) = _names(event, incidents), verbs
    return {
        Event.CHECK_FAILED: f"check failed, {names} {held_back}",
        Event.RUN_FAILED: f"{names} failed",
        Event.DEADLINE_MISSED: f"deadline missed, {names}",
        Event.QUARANTINED: f"{names} {held_back}",
        Event.HOLD_CAP: f"tombstones went before {names} had read them",
        Event.ERASURE: f"erasure overdue, {names}",
        Event.GAP: _missed(incidents, names),
        Event.REWRITTEN: "another engine rewrote the history of the table: its logs are cleaned from their starts",
        Event.RECONCILE: f"deletions may be missing, a reconciliation is needed, {names}",
        Event.APPROVAL: f"a round {waits} for approval (Airflow: Browse, Required Actions)",
    }[event]


def _missed(incidents: Sequence[Incident], names: str) -> str:
    """Says what was passed over: records of partitions, or what a source table has changed."""
    if all(i.condition.partition is None for i in incidents):
        return "the source table was changed, or its snapshots had gone before they were read"
    return f"records of the source are missing, {names}"


def _names(event: Event, incidents: Sequence[Incident]) -> str:
    """Names what the incidents are about: `partitions 0, 1`, `compact, publish`, `1 reader (partition 3)`."""
    partitions = sorted({i.condition.partition for i in incidents if i.condition.partition is not None})
    logs = f"partition{'' if len(partitions) == 1 else 's'} {_listed(list(map(str, partitions)))}"
    if event is Event.HOLD_CAP:
        return f"{len(incidents)} reader{'' if len(incidents) == 1 else 's'} ({logs})"
    if event is Event.RUN_FAILED:
        return _listed([i.condition.subject.removeprefix("task ") for i in incidents])
    if event is Event.GAP and not partitions:
        return "the source table"
    return logs if partitions else counted(len(incidents), "round")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def subjects_of(incidents: Sequence[Incident]) -> tuple[str, ...]:
    """Returns the subjects of all incidents, for machines."""
    return tuple(sorted(i.condition.subject for i in incidents))


def line(incident: Incident) -> str:
    """Says what is wrong, or what no longer is and from when to when it was."""
    if incident.over_ms is None:
        return incident.condition.text
    return f"{_end(incident)} (it was from {instant(incident.since_ms)} to {instant(incident.over_ms)} UTC)"


def _end(incident: Incident) -> str:
    condition = incident.condition
    return {
        Event.CHECK_FAILED: f"partition {condition.partition} is not held back any more",
        Event.RUN_FAILED: f"{condition.subject} does not fail any more",
        Event.DEADLINE_MISSED: f"partition {condition.partition} is not overdue any more",
        Event.QUARANTINED: f"partition {condition.partition} is not held back any more",
        Event.HOLD_CAP: f"{condition.subject} is not behind any more, or not registered",
        Event.ERASURE: f"partition {condition.partition} has no overdue tombstone any more",
        Event.GAP: f"{condition.subject} was read on without another gap for a day",
        Event.REWRITTEN: "no other engine rewrote the history of the table for a day",
        Event.RECONCILE: f"partition {condition.partition} needs no reconciliation any more",
        Event.APPROVAL: "the round does not wait any more",
    }[condition.event]


LINES_SHOWN = 50
FAILURES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Place:
    """Is the place in the UI that messages lead to: the run that sent them, and the topic's page.

    `base` is the UI's address. `dag_id` is the topic's own id, by which its page is known: not that of the run's DAG,
    which may be a group's. Links to runs and tasks come from the task that saw what they are about.
    """

    base: str
    topic: str
    dag_id: str
    run_id: str
    at: str

    def page(self, partition: int | None = None) -> str:
        """Returns the address of the topic's page, at the log of the partition."""
        anchor = "" if partition is None else f"#log-{partition}"
        return f"{self.base}/cleantail/topics/{self.dag_id}{anchor}"

    def records(self, round_name: str, kind: str) -> str:
        """Returns the address of the page with the records that a round would remove, or that failed its checks."""
        return f"{self.page()}/records?{urlencode({'round': round_name, 'kind': kind})}"

    @property
    def data_docs(self) -> str:
        """Returns the address of the index of the topic's Data Docs."""
        return f"{self.base}/cleantail/topics/{self.dag_id}/docs/index.html"


@dataclass(frozen=True, slots=True)
class Message:
    """Says what all channels are told about one event of a topic.

    `incident` is the same in all messages about the event, for pagers: `state` is open as long as any of `open` is
    left. `over` is what ended since the last message. Only the run that saw the `failures` has them.
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
    def body(self) -> str:
        """Returns all but the subject; a pager that reads texts finds its incident in the line above the links."""
        about = f"incident {self.incident}: {self.state}"
        return "\n".join([self.reason, *map(str, self.failures), about, *dict.fromkeys([self.link, self.page])])

    @property
    def text(self) -> str:
        return f"{self.subject}\n{self.body}"

    def as_json(self) -> dict[str, Any]:
        """Returns the message as JSON: `text` is what chat webhooks show, the rest is for machines."""
        return {"text": plain_text(self.text), **asdict(self)}


def message_of(notification: Notification, failures: Iterable[Failure], place: Place) -> Message:
    """Makes the message that tells it; its link leads to what is news."""
    first = notification.incidents[0].condition
    link = first.link or place.page(first.partition)
    return Message(
        topic=place.topic,
        event=notification.event.value,
        state=notification.said.value,
        headline=headline(notification),
        reason=_reason(notification),
        task=link.partition("/tasks/")[2].partition("/")[0].partition("?")[0],
        link=link,
        page=place.page(first.partition),
        run_id=place.run_id,
        at=place.at,
        incident=f"cleantail/{place.topic}/{notification.event.value}",
        open=subjects_of([*notification.begun, *notification.still]),
        over=subjects_of(notification.ended),
        failures=_failures_shown(notification, failures),
    )


def _failures_shown(notification: Notification, failures: Iterable[Failure]) -> tuple[Failure, ...]:
    if notification.event is not Event.CHECK_FAILED:
        return ()
    partitions = {i.condition.partition for i in notification.begun}
    return tuple(f for f in failures if f.partition in partitions)[:FAILURES_SHOWN]


def _reason(notification: Notification) -> str:
    """Lists the news first, and what lasts where something is over."""
    incidents: list[Incident] = [
        *notification.begun,
        *notification.ended,
        *(notification.still if notification.ended else ()),
    ]
    more = len(incidents) - LINES_SHOWN
    lines = [line(incident) for incident in incidents[:LINES_SHOWN]]
    return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])


def mail_body(message: Message) -> str:
    """Writes the message as HTML, every value escaped."""
    columns = ["partition", "expectation", "severity", "observed", "detail"]
    columns += ["examples"] if any(failure.examples for failure in message.failures) else []
    rows = [[_cell(getattr(failure, column)) for column in columns] for failure in message.failures]
    reason = f"<pre>{html.escape(message.reason)}</pre>{_html_table([columns, *rows]) if rows else ''}"
    names = {message.link: "Task log in Airflow"} | {message.page: "Topic in Airflow"}
    links = "".join(f'<p><a href="{html.escape(url, quote=True)}">{name}</a></p>' for url, name in names.items())
    about = f"<p>{html.escape(f'incident {message.incident}: {message.state}')}</p>"
    return f"<h3>{html.escape(message.subject)}</h3>{reason}{about}{links}"


def _cell(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, tuple) else str(value)


_MARKUP = re.compile(r"([@＠]|\](?=[(\[:]))")
"""It matches where a mention begins (@all), and where a Markdown link goes on."""
_ANGLE = re.compile(r"<(?=\S)")
"""It matches where a mention or a link in angle brackets begins (<users/all>, <!here>, <http://…|log in>)."""
_BREAK = "\u200b"
"""A character that takes no space, and ends whatever has begun."""


def plain_text(text: str) -> str:
    """Returns a text that looks the same, in which no chat finds a mention of everybody or a link."""
    return _ANGLE.sub(f"<{_BREAK}", _MARKUP.sub(rf"\1{_BREAK}", text))


def slack_text(message: Message) -> str:
    """Returns the text for Slack, whose three escapes keep what the data held from being a link or a mention."""
    text = _MARKUP.sub(rf"\1{_BREAK}", message.text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _html_table(rows: list[list[str]]) -> str:
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f'<table border="1" cellpadding="4">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'


EXAMPLES_SHOWN = 5
"""A message shows so many records of each failed expectation."""
RecordPosition = tuple[int, int, int]
"""(snapshot, partition, offset)."""

logger = logging.getLogger(__name__)


def asks_for_values(topic: Topic, alert: Alert, event: Event) -> bool:
    """Returns whether the channel is to have values of records in its message about the event.

    A channel may stand in the YAML twice, for other events, and only one of the two entries may ask for values.
    """
    return any(a.values for a in topic.alerts if a.name == alert.name and event in a.events)


def with_values(message: Message, topic: Topic, platform: Platform) -> Message:
    """Adds examples of the records that failed to the message; where they cannot be read it goes out without them."""
    if not any(failure.offsets for failure in message.failures):
        return message
    try:
        records = _read(message.failures, topic, platform)
    except Exception as e:  # whatever the catalog's driver raises: the message is more than its examples
        logger.warning("the records for the alert cannot be read: %s", type(e).__name__)
        return message
    failures = tuple(replace(f, examples=_examples(f, records)) for f in message.failures)
    return replace(message, failures=failures)


def _read(failures: Iterable[Failure], topic: Topic, platform: Platform) -> dict[RecordPosition, ShownRecord]:
    """Reads each log once per snapshot; a snapshot that no branch leads to any more is left out."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
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
