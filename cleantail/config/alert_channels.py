"""`alerts:` of a topic's YAML: the channels that are notified, and the events that they are notified of."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cleantail.config.config_model import Model, allowing, matching


class Event(StrEnum):
    """The word that YAML uses and messages carry."""

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
    Event.CHECK_FAILED: "a check is red, and partitions are held back",
    Event.RUN_FAILED: "a task failed for another reason than a red check, crashed or was lost",
    Event.DEADLINE_MISSED: (
        "dirty records had passed max.compaction.lag.ms when a run began, and it did not clean them, or they had when "
        "the scheduled run before it was to begin"
    ),
    Event.QUARANTINED: "a partition is in quarantine",
    Event.HOLD_CAP: "tombstones went that a registered reader had not read",
    Event.APPROVAL: "a round waits for somebody's approval",
    Event.GAP: (
        "records had gone from Kafka before they were read, a source table was changed, or records came that the table "
        "cannot hold, and ingestion went on behind them; over after a day"
    ),
    Event.RECONCILE: (
        "the broker's cleaner may have removed deletions before they were read, so that deleted keys are alive here; "
        "over when a reconciliation is published"
    ),
    Event.REWRITTEN: (
        "another program took the last round or the last ingestion out of the table's history (a rollback, or CREATE "
        "OR REPLACE TABLE): logs are cleaned from their starts; over after a day"
    ),
    Event.ERASURE: "a tombstone is still there cleantail.erasure.grace.ms after it was due",
}
"""Event -> when it occurs."""


ALERTS = "alerts"
"""The folder of CLEANTAIL_HOME that alerts to files are written into, and nothing else is."""


def _not_empty(receivers: tuple[str, ...]) -> tuple[str, ...]:
    if not receivers:
        raise ValueError("no receivers")
    return receivers


def _some(events: tuple[Event, ...]) -> tuple[Event, ...]:
    if not events:
        raise ValueError("no events")
    return events


def _alert_path(text: str) -> str:
    path = PurePosixPath(text)
    below = len(path.parts) > 1 and path.parts[0] == ALERTS
    if not below or ".." in path.parts or text.endswith("/") or not re.fullmatch(r"[\w./+= -]+", text):
        raise ValueError("not a file below CLEANTAIL_HOME/alerts")
    return text


ConnectionId = Annotated[
    str, matching("[A-Za-z0-9_.-]{1,250}", "the id of an Airflow connection: characters a-z A-Z 0-9 . _ -")
]


MailAddress = Annotated[str, matching(r"[^@\s,;<>]+@[^@\s,;<>]+", "a mail address")]


Endpoint = Annotated[
    str, matching(r"[A-Za-z0-9._~/?=&%-]*", "a path on the connection's host (the host is in the connection)")
]


AlertPath = Annotated[
    str,
    AfterValidator(_alert_path),
    allowing(f"a file below {ALERTS}/ in CLEANTAIL_HOME, without .., as {ALERTS}/orders.jsonl"),
]


class Channel(Model):
    """What all kinds of alerts have: the events that they are sent for, and whether records may be in them."""

    events: Annotated[tuple[Annotated[Event, Field(strict=False)], ...], Field(strict=False), AfterValidator(_some)] = (
        Field(
            default=tuple(Event),
            description="Events to tell of; default all.",
            json_schema_extra={"x-allowed": f"a list of {', '.join(Event)}", "minItems": 1},
        )
    )
    values: bool = Field(
        default=False,
        description="true: a message about a failed check quotes a few of the records, key, value and headers.",
    )

    @property
    def name(self) -> str:
        """Returns a name that tells the channels of a topic apart, also after `events`, their order or `values` has
        changed."""
        settings = self.model_dump_json(exclude={"events", "values"})
        return f"{getattr(self, 'type', '')} {hashlib.sha256(settings.encode()).hexdigest()[:12]}"


class MailAlert(Channel):
    """An alert by mail through an Airflow SMTP connection."""

    type: Literal["mail"]
    to: Annotated[tuple[MailAddress, ...], Field(strict=False), AfterValidator(_not_empty)] = Field(
        description="Receivers.", json_schema_extra={"x-allowed": "a list of mail addresses", "minItems": 1}
    )
    conn_id: ConnectionId = Field(default="smtp_default", description="Airflow connection.")
    sender: MailAddress | None = Field(default=None, alias="from", description="Sender; null is the connection's.")


class WebhookAlert(Channel):
    """An alert as a JSON POST through an Airflow HTTP connection: its URL and secrets stay there."""

    type: Literal["webhook"]
    conn_id: ConnectionId = Field(description="Airflow connection.")
    endpoint: Endpoint = Field(default="", description="Path on the connection's host.")


class SlackAlert(Channel):
    """An alert to a Slack incoming webhook, or what takes the same body, through an Airflow HTTP connection."""

    type: Literal["slack"]
    conn_id: ConnectionId = Field(description="Airflow connection; the webhook's address, with its secret, is there.")
    endpoint: Endpoint = Field(default="", description="Path on the connection's host.")


class AppriseAlert(Channel):
    """An alert to the Apprise URLs of an Airflow connection; they hold secrets, so they are only there."""

    type: Literal["apprise"]
    conn_id: ConnectionId = Field(default="apprise_default", description="Airflow connection.")
    tag: str = Field(default="all", description="Which of the connection's URLs, by their tag.")


class FileAlert(Channel):
    """An alert as a JSON line at the end of a local file, which is its owner's alone."""

    type: Literal["file"]
    path: AlertPath = Field(description="File below alerts/, relative to CLEANTAIL_HOME.")


Alert = Annotated[MailAlert | WebhookAlert | SlackAlert | AppriseAlert | FileAlert, Field(discriminator="type")]
