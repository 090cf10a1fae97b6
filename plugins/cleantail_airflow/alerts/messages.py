"""Makes one message of all incidents of one event: what began, what is over and what lasts. It needs no Airflow.

A message may hold names that others chose, and what records hold where the topic's YAML asks for it (`values: true`),
so nothing of it is ever a template or markup.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from cleantail.config.alert_channels import Event
from cleantail.watch.incidents import Incident, Notification
from cleantail_airflow.alerts.headlines import headline, line, subjects_of
from cleantail_airflow.alerts.red_check import Failure

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
