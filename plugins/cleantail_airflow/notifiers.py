"""Who hears of a failed task: the channels of the topic's YAML, through Airflow's own notifiers.

The message may hold values that a check observed in the data, so nothing of it is ever a template: this notifier has
no template fields, and the notifiers it uses are called with finished texts.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook, BaseNotifier, Context
from airflow.sdk.log import mask_secret

from cleantail.approval import held_message
from cleantail.approval_text import count_lines
from cleantail.config import Alert, FileAlert, MailAlert, Topic, WebhookAlert, load_platform
from cleantail_airflow.red_check import Failure, RedCheck

if TYPE_CHECKING:
    from airflow.providers.http.notifications.http import HttpNotifier
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

WEBHOOK_TIMEOUT_S = 30
_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Message:
    """What happened, once for all channels. `failures` is empty where a task failed for another reason than a check."""

    topic: str
    task: str
    run_id: str
    at: str
    link: str
    reason: str
    failures: tuple[Failure, ...]
    headline: str = ""

    @property
    def subject(self) -> str:
        if self.headline:
            return f"[cleantail] {self.topic}: {self.headline}"
        partitions = ", ".join(map(str, sorted({f.partition for f in self.failures})))
        what = f"{self.task} is red, partitions held back: {partitions}" if partitions else f"{self.task} failed"
        return f"[cleantail] {self.topic}: {what}"

    @property
    def text(self) -> str:
        return "\n".join([self.subject, *(map(str, self.failures) if self.failures else [self.reason]), self.link])

    def as_json(self) -> dict[str, Any]:
        """`text` alone is what chat webhooks show; the rest is for machines."""
        return {"text": self.text, **asdict(self)}


class CleantailAlert(BaseNotifier):
    """on_failure_callback of a topic's tasks: one message through every channel, whatever happens to the others."""

    template_fields: Sequence[str] = ()

    def __init__(self, *, topic: Topic, config_dir: str) -> None:
        super().__init__()
        self.topic = topic
        self.config_dir = config_dir

    def notify(self, context: Context) -> None:
        self.send(message_of(self.topic.topic, context), context)

    def send(self, message: Message, context: Context) -> None:
        """Through every channel."""
        for alert in self.topic.alerts:
            try:
                self._send(alert, message, context)
            except Exception as error:  # noqa: BLE001  # whatever a library raises must not silence the next channel
                self.log.error("alert by %s failed: %s", _channel(alert), type(error).__name__)
            else:
                self.log.info("alert sent by %s", _channel(alert))

    def _send(self, alert: Alert, message: Message, context: Context) -> None:
        if isinstance(alert, MailAlert):
            _mail(alert, message).notify(context)
        elif isinstance(alert, WebhookAlert):
            _webhook(alert, message).notify(context)
        else:
            home = load_platform(Path(self.config_dir), os.environ).home
            _append(home / alert.path, json.dumps(message.as_json()))


def message_of(topic: str, context: Context) -> Message:
    """The failed task of `context` in words; a task that was killed has no exception."""
    ti, error = context["ti"], context.get("exception")
    reason = str(error)[:_REASON_CHARS] if error else "the task was killed or lost"
    return Message(
        topic=topic,
        task=ti.task_id,
        run_id=ti.run_id,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        link=ti.log_url,
        reason=reason.partition("\n")[0] if isinstance(error, RedCheck) else reason,
        failures=error.failures if isinstance(error, RedCheck) else (),
    )


def readers_left_behind(topic: str, context: Context, readers: Sequence[Mapping[str, Any]]) -> Message:
    """Tombstones have gone that these readers had not read: the cap of their hold was reached (semantics.md 3.9)."""
    ti = context["ti"]
    where = [f"reader {r['name']} is at offset {r['offset']} of partition {r['partition']}" for r in readers]
    return Message(
        topic=topic,
        task=ti.task_id,
        run_id=ti.run_id,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        link=ti.log_url,
        reason="\n".join(["cleantail.readers.hold.cap.ms has passed; load the state anew (cleantail latest)", *where]),
        failures=(),
        headline=f"tombstones went before {len({r['name'] for r in readers})} readers had read them",
    )


def round_waits(topic: str, context: Context, checked: Mapping[str, Any]) -> Message:
    """A round waits for approval; the sample is shown where the answer is given, behind Airflow's login."""
    ti = context["ti"]
    return Message(
        topic=topic,
        task=ti.task_id,
        run_id=ti.run_id,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        link=ti.log_url,
        reason="\n".join([held_message(topic, checked["holds"]), *count_lines(checked)]),
        failures=(),
        headline="a round waits for approval (Airflow: Browse, Required Actions)",
    )


def _mail(alert: MailAlert, message: Message) -> SmtpNotifier:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    return SmtpNotifier(
        smtp_conn_id=alert.conn_id,
        from_email=alert.sender,
        to=list(alert.to),
        subject=message.subject,
        html_content=mail_body(message),
    )


def _webhook(alert: WebhookAlert, message: Message) -> HttpNotifier:
    from airflow.providers.http.notifications.http import HttpNotifier

    _mask_path(alert.conn_id)
    return HttpNotifier(
        http_conn_id=alert.conn_id,
        endpoint=alert.endpoint,
        json=message.as_json(),
        extra_options={"timeout": WEBHOOK_TIMEOUT_S},
    )


def _mask_path(conn_id: str) -> None:
    """Chat services put the secret into the path of the address, which a failed request would log."""
    path = urlsplit(BaseHook.get_connection(conn_id).host or "").path
    if len(path) > 1:
        mask_secret(path)


def mail_body(message: Message) -> str:
    """The message as HTML; every value escaped."""
    columns = ("partition", "expectation", "severity", "observed", "detail")
    rows = [[str(getattr(failure, column)) for column in columns] for failure in message.failures]
    table = _html_table([list(columns), *rows]) if rows else f"<pre>{html.escape(message.reason)}</pre>"
    link = html.escape(message.link, quote=True)
    return f'<h3>{html.escape(message.subject)}</h3>{table}<p><a href="{link}">Task log in Airflow</a></p>'


def _html_table(rows: list[list[str]]) -> str:
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f'<table border="1" cellpadding="4">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'


def _append(file: Path, line: str) -> None:
    """One write at the end of the file, so that lines of parallel tasks do not mix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab", buffering=0) as stream:
        stream.write(f"{line}\n".encode())


def _channel(alert: Alert) -> str:
    return f"file {alert.path}" if isinstance(alert, FileAlert) else f"{alert.type} over connection {alert.conn_id}"
