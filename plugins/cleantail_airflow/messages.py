"""What is said of incidents: one message for all that began, or ended, of one event at a time. Without Airflow.

A message may hold values that a check observed in the data, so nothing of it is ever a template or markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from cleantail.approval import held_message
from cleantail.approval_text import count_lines
from cleantail.events import Event
from cleantail.incidents import Incident
from cleantail.words import instant
from cleantail_airflow.red_check import Failure

LINES_SHOWN = 50
FAILURES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages lead to: the run that they were sent from, and the topic's page. `base` is the UI's address."""

    base: str
    topic: str
    run_id: str
    at: str

    def page(self, partition: int | None = None) -> str:
        """The topic's page, at the log of the partition."""
        anchor = "" if partition is None else f"#log-{partition}"
        return f"{self.base}/cleantail/topics/{self.topic}{anchor}"

    @property
    def data_docs(self) -> str:
        """The index of the topic's Data Docs."""
        return f"{self.base}/cleantail/topics/{self.topic}/docs/index.html"


@dataclass(frozen=True, slots=True)
class Message:
    """What happened, once for all channels. `failures`, with what was observed, only in the run that saw them."""

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
    failures: tuple[Failure, ...] = ()

    @property
    def subject(self) -> str:
        return f"[cleantail] {self.topic}: {self.headline}"

    @property
    def body(self) -> str:
        """Everything but the subject."""
        return "\n".join([self.reason, *map(str, self.failures), *dict.fromkeys([self.link, self.page])])

    @property
    def text(self) -> str:
        return f"{self.subject}\n{self.body}"

    def as_json(self) -> dict[str, Any]:
        """`text` is what chat webhooks show; the rest is for machines."""
        return {"text": self.text, **asdict(self)}


def round_waits(checked: Mapping[str, Any], place: Place, link: str) -> Message:
    """A round waits for approval; the sample is shown where the answer is given, behind Airflow's login."""
    return Message(
        topic=place.topic,
        event=Event.APPROVAL.value,
        state="open",
        headline="a round waits for approval (Airflow: Browse, Required Actions)",
        reason="\n".join([held_message(place.topic, checked["holds"]), *count_lines(checked)]),
        task=link.partition("/tasks/")[2].partition("/")[0].partition("?")[0],
        link=link,
        page=place.page(),
        run_id=place.run_id,
        at=place.at,
    )


def messages_of(
    incidents: Sequence[Incident], failures: Iterable[Failure], place: Place
) -> list[tuple[Message, list[Incident]]]:
    """One message an event and state (all begin, or all have ended), with the incidents that it tells of. Ends come
    first: the last message about a partition says how it is now."""
    found = list(failures)

    def kind(incident: Incident) -> tuple[bool, Event]:
        return incident.over_ms is None, incident.condition.event

    return [
        (_message(event, not begun, told := list(members), found, place), told)
        for (begun, event), members in groupby(sorted(incidents, key=kind), kind)
    ]


def _message(event: Event, over: bool, told: list[Incident], failures: list[Failure], place: Place) -> Message:
    partitions = {i.condition.partition for i in told}
    seen = [f for f in failures if f.partition in partitions] if event is Event.CHECK_FAILED and not over else []
    first = told[0].condition
    return Message(
        topic=place.topic,
        event=event.value,
        state="over" if over else "open",
        headline=f"over: {_headline(event, told)}" if over else _headline(event, told),
        reason=_reason(told),
        task=first.link.partition("/tasks/")[2].partition("/")[0].partition("?")[0],
        link=first.link or place.page(first.partition),
        page=place.page(first.partition),
        run_id=place.run_id,
        at=place.at,
        failures=tuple(seen[:FAILURES_SHOWN]),
    )


def _headline(event: Event, told: list[Incident]) -> str:
    subjects = [i.condition.subject for i in told]
    partitions = ", ".join(map(str, sorted({i.condition.partition for i in told if i.condition.partition is not None})))
    return {
        Event.CHECK_FAILED: f"check failed, partitions held back: {partitions}",
        Event.RUN_FAILED: f"{', '.join(s.removeprefix('task ') for s in subjects)} failed",
        Event.DEADLINE_MISSED: f"deadline missed, partitions: {partitions}",
        Event.QUARANTINED: f"held back until their next try, partitions: {partitions}",
        Event.HOLD_CAP: f"tombstones went before {len(subjects)} readers had read them, partitions: {partitions}",
        Event.ERASURE: f"erasure overdue, partitions: {partitions}",
    }[event]


def _reason(told: list[Incident]) -> str:
    lines = [_line(incident) for incident in told[:LINES_SHOWN]]
    more = [f"and {len(told) - LINES_SHOWN} more"] if len(told) > LINES_SHOWN else []
    return "\n".join([*lines, *more])


def _line(incident: Incident) -> str:
    if incident.over_ms is None:
        return incident.condition.text
    return f"{incident.condition.text} (told {instant(incident.since_ms)}, over {instant(incident.over_ms)} UTC)"


def mail_body(message: Message) -> str:
    """The message as HTML; every value escaped."""
    columns = ("partition", "expectation", "severity", "observed", "detail")
    rows = [[str(getattr(failure, column)) for column in columns] for failure in message.failures]
    said = f"<pre>{html.escape(message.reason)}</pre>{_html_table([list(columns), *rows]) if rows else ''}"
    names = {message.link: "Task log in Airflow"} | {message.page: "Topic in Airflow"}
    links = "".join(f'<p><a href="{html.escape(url, quote=True)}">{name}</a></p>' for url, name in names.items())
    return f"<h3>{html.escape(message.subject)}</h3>{said}{links}"


def slack_text(message: Message) -> str:
    """Slack's three escapes: what the data held is neither a link nor a mention of everybody."""
    return message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _html_table(rows: list[list[str]]) -> str:
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f'<table border="1" cellpadding="4">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'
