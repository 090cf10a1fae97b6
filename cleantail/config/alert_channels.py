"""`alerts:` of a topic's YAML: the channels that are notified, and the events that they receive."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cleantail.config.config_model import ConnectionId, Model, allowing, matching


class Event(StrEnum):
    """The name of an event in YAML and in messages."""

    CHECK_FAILED = "check_failed"
    RUN_FAILED = "run_failed"
    DEADLINE_MISSED = "deadline_missed"
    QUARANTINED = "partition_quarantined"
    HOLD_CAP = "hold_cap_reached"
    ERASURE = "erasure_overdue"
    APPROVAL = "approval_waits"
    GAP = "source_gap"
    RECONCILE = "reconcile_needed"
    REWRITTEN = "history_rewritten"


MEANING = {
    Event.CHECK_FAILED: "a check failed, and partitions are blocked",
    Event.RUN_FAILED: "a task failed for another reason than a failed check, crashed or was lost",
    Event.DEADLINE_MISSED: (
        "dirty records had passed max.compaction.lag.ms when a run began, and the run did not clean them. Or they had "
        "passed it already when the previous scheduled run was due"
    ),
    Event.QUARANTINED: "a partition is blocked",
    Event.HOLD_CAP: "a round removed tombstones that a registered reader had not read",
    Event.APPROVAL: "a round waits for a person's approval",
    Event.GAP: (
        "Kafka deleted records before they were read, a source table was changed, or the table cannot hold a record; "
        "ingestion continued after it. The incident ends after a day"
    ),
    Event.RECONCILE: (
        "Kafka's log cleaner may have removed deletions before they were read. Deleted keys are then alive in the "
        "table. The incident ends when a reconciliation is published"
    ),
    Event.REWRITTEN: (
        "another program removed the last round or the last ingestion from the table's history (a rollback, or CREATE "
        "OR REPLACE TABLE). Logs are then cleaned from their starts. The incident ends after a day"
    ),
    Event.ERASURE: (
        "a tombstone was not removed within cleantail.erasure.grace.ms after it was due. Or the deadline of a request "
        "to erase keys is near, or has passed"
    ),
}
"""Event -> when it occurs."""


ALERTS = "alerts"
"""The folder of CLEANTAIL_HOME for alerts to files. It holds nothing else."""


def _not_empty(entries: tuple[str, ...]) -> tuple[str, ...]:
    if not entries:
        raise ValueError("empty")
    return entries


def _alert_path(text: str) -> str:
    path = PurePosixPath(text)
    below = len(path.parts) > 1 and path.parts[0] == ALERTS
    if not below or ".." in path.parts or text.endswith("/") or not re.fullmatch(r"[\w./+= -]+", text):
        raise ValueError("not a file below CLEANTAIL_HOME/alerts")
    return text


MailAddress = Annotated[str, matching(r"[^@\s,;<>]+@[^@\s,;<>]+", "a mail address")]
Endpoint = Annotated[
    str, matching(r"[A-Za-z0-9._~/?=&%-]*", "a path on the connection's host (the host is in the connection)")
]
AlertPath = Annotated[
    str,
    AfterValidator(_alert_path),
    allowing(f"a file below {ALERTS}/ in CLEANTAIL_HOME, without .., such as {ALERTS}/orders.jsonl"),
]


class Channel(Model):
    """Settings of all kinds of alerts: the events that are sent, and whether messages may contain records."""

    events: Annotated[
        tuple[Annotated[Event, Field(strict=False)], ...], Field(strict=False), AfterValidator(_not_empty)
    ] = Field(
        default=tuple(Event),
        description="Events that are sent; default all.",
        json_schema_extra={"x-allowed": f"a list of {', '.join(Event)}", "minItems": 1},
    )
    values: bool = Field(
        default=False,
        description="true: a message about a failed check quotes a few of the records with key, value and headers.",
    )

    @property
    def name(self) -> str:
        """A name that identifies the channel among a topic's channels. It does not depend on `events` and `values`."""
        settings = self.model_dump_json(exclude={"events", "values"})
        return f"{getattr(self, 'type', '')} {hashlib.sha256(settings.encode()).hexdigest()[:12]}"


class MailAlert(Channel):
    """An alert by mail through an Airflow SMTP connection."""

    type: Literal["mail"]
    to: Annotated[tuple[MailAddress, ...], Field(strict=False), AfterValidator(_not_empty)] = Field(
        description="Receivers.", json_schema_extra={"x-allowed": "a list of mail addresses", "minItems": 1}
    )
    conn_id: ConnectionId = Field(default="smtp_default", description="Airflow connection.")
    sender: MailAddress | None = Field(default=None, alias="from", description="Sender. null: that of the connection.")


class WebhookAlert(Channel):
    """An alert as a JSON POST through an Airflow HTTP connection, which holds the URL and secrets."""

    type: Literal["webhook"]
    conn_id: ConnectionId = Field(description="Airflow connection.")
    endpoint: Endpoint = Field(default="", description="Path on the connection's host.")


class SlackAlert(Channel):
    """An alert to a Slack incoming webhook, or a compatible one, through an Airflow HTTP connection."""

    type: Literal["slack"]
    conn_id: ConnectionId = Field(description="Airflow connection that holds the webhook's address with its secret.")
    endpoint: Endpoint = Field(default="", description="Path on the connection's host.")


class AppriseAlert(Channel):
    """An alert to the Apprise URLs of an Airflow connection, which holds them because they contain secrets."""

    type: Literal["apprise"]
    conn_id: ConnectionId = Field(default="apprise_default", description="Airflow connection.")
    tag: str = Field(default="all", description="Tag of the connection's URLs to use.")


class FileAlert(Channel):
    """An alert as a JSON line at the end of a local file that only its owner can read."""

    type: Literal["file"]
    path: AlertPath = Field(description="File below alerts/, relative to CLEANTAIL_HOME.")


Alert = Annotated[MailAlert | WebhookAlert | SlackAlert | AppriseAlert | FileAlert, Field(discriminator="type")]
