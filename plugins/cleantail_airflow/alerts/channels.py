"""Send messages to channels, and store in a book of incidents which channel has received which message.

Airflow's own notifiers send the messages over Airflow's connections, as finished texts. They are never callbacks,
because Airflow renders the fields of callbacks as templates. Every notifier raises if the message did not arrive.

The book of a topic is the Airflow Variable `cleantail.incidents.TOPIC`. The book is not in the table: the catalog
itself may be unreachable, and each commit would make rounds start over. Nor is it in a file: workers need not share a
disk.

A task holds the lock `alerts-TOPIC` below CLEANTAIL_HOME while it checks, sends and writes the book. So two tasks of a
topic take turns. If workers share no CLEANTAIL_HOME, the lock protects one machine only. Messages that two tasks then
send at the same time are marked as unsure in the book, and the next task sends them again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook, Context, Variable
from airflow.sdk.log import mask_secret

from cleantail.config.alert_channels import Alert, AppriseAlert, FileAlert, MailAlert, SlackAlert, WebhookAlert
from cleantail.config.claims import connection_problem
from cleantail.config.platform import Platform
from cleantail.errors import CleantailError, TableError
from cleantail.home.home_folder import append_line, exclusive
from cleantail.watch.incidents import (
    Book,
    Listener,
    Notification,
    after_sending,
    before_sending,
    book_as_json,
    due_notifications,
    parse_book,
    without_answer,
    without_settled,
)
from cleantail_airflow.airflow_exceptions import AirflowException
from cleantail_airflow.alerts.messages import Message, mail_body, plain_text, slack_text

if TYPE_CHECKING:
    from airflow.providers.http.notifications.http import HttpNotifier
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier


WEBHOOK_TIMEOUT_S = 30


def deliver(alert: Alert, message: Message, context: Context, platform: Platform) -> None:
    """Send the message. Raises the errors of the channel's library.

    Raises CleantailError if platform.alert_connections does not list the connection.
    """
    if problem := connection_problem(alert, platform):
        raise CleantailError(f"{channel_label(alert)} is not allowed: {problem}")
    if isinstance(alert, MailAlert):
        _mail(alert, message).notify(context)
    elif isinstance(alert, SlackAlert):
        _webhook(alert, {"text": slack_text(message)}).notify(context)
    elif isinstance(alert, WebhookAlert):
        _webhook(alert, message.as_json()).notify(context)
    elif isinstance(alert, AppriseAlert):
        _apprise(alert, message)
    else:
        append_line(platform.home, alert.path, json.dumps(message.as_json()))


def channel_label(alert: Alert) -> str:
    """Return the channel's name for logs and messages, without its address."""
    return f"file {alert.path}" if isinstance(alert, FileAlert) else f"{alert.type} over connection {alert.conn_id}"


def _mail(alert: MailAlert, message: Message) -> SmtpNotifier:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    return SmtpNotifier(
        smtp_conn_id=alert.conn_id,
        from_email=alert.sender,
        to=list(alert.to),
        subject=message.subject,
        html_content=mail_body(message),
    )


def _webhook(alert: WebhookAlert | SlackAlert, body: dict[str, Any]) -> HttpNotifier:
    from airflow.providers.http.notifications.http import HttpNotifier

    # chat services put their secret into the path: keep it out of the logs of failed requests
    path = urlsplit(BaseHook.get_connection(alert.conn_id).host or "").path
    if len(path) > 1:
        mask_secret(path)
    return HttpNotifier(
        http_conn_id=alert.conn_id,
        endpoint=alert.endpoint,
        json=body,
        extra_options={"timeout": WEBHOOK_TIMEOUT_S},
    )


def _apprise(alert: AppriseAlert, message: Message) -> None:
    """Call Apprise directly: the notifier of Airflow's provider does not report whether the message arrived."""
    import apprise
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    hook = AppriseHook(alert.conn_id)
    services = apprise.Apprise()
    hook.set_config_from_conn(hook.get_connection(alert.conn_id), services)
    if not services.notify(
        title=plain_text(message.subject), body=plain_text(message.body), body_format="text", tag=alert.tag
    ):
        raise AirflowException(
            f"connection {alert.conn_id} has no service with tag {alert.tag}, or a service refused the message. "
            "Check the services and tags of the connection"
        )


PREFIX = "cleantail.incidents."
LOCK_WAIT_S = 300.0
"""Maximum wait for the lock: the time that several unreachable channels take."""
_NAME_CHARS = 250
"""Airflow's maximum length of a variable's name."""
_DESCRIPTION = "Open incidents and notified channels of the topic, by Cleantail. Delete it to be notified again."

logger = logging.getLogger(__name__)


def variable_name(name: str, prefix: str = PREFIX) -> str:
    """Return the name of the variable of a topic or group. A name that is too long is replaced by its hash."""
    if len(prefix + name) <= _NAME_CHARS:
        return prefix + name
    return prefix + hashlib.sha256(name.encode()).hexdigest()


def load_book(topic: str) -> Book:
    """Return the topic's incidents. Returns an empty book if the variable is missing or cannot be parsed."""
    text = Variable.get(variable_name(topic), default=None)
    try:
        return parse_book(text) if text else Book()
    except TableError as e:
        logger.warning(
            "variable %s cannot be parsed, open incidents are sent again: %s",
            variable_name(topic),
            e,
        )
        return Book()


class BookStore:
    """Keeps the book of one topic in an Airflow Variable. Load it again before each change, so that no outdated book is
    written."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def load(self) -> Book:
        return load_book(self.topic)

    def save(self, book: Book) -> None:
        """Write the book if it has changed. A book without incidents is kept: it has the time of the last check."""
        if book_as_json(book) != book_as_json(self.load()):
            Variable.set(variable_name(self.topic), book_as_json(book), description=_DESCRIPTION)


@contextmanager
def locked_book(topic: str, home: Path) -> Iterator[BookStore]:
    """Lock the topic's book until the block ends.

    Raises CleantailError if another task holds the lock for LOCK_WAIT_S seconds.
    """
    with exclusive(home, f"alerts-{topic}", LOCK_WAIT_S):
        yield BookStore(topic)


def send_to_channels(
    alerts: Sequence[Alert],
    platform: Platform,
    book_store: BookStore,
    message: Callable[[Alert, Notification], Message],
    context: Context,
) -> list[str]:
    """Send every channel the messages of the book that it has not received. Returns the channels that failed.

    `message` makes the text for a channel. If the task dies at any point, the next task finds the unsent messages in
    the book.
    """
    channels, unreached = _channels(alerts), list[str]()
    for alert, listener in channels:
        for notification in due_notifications(book_store.load(), listener):
            # 1. Record in the book that this message is being sent.
            by = uuid.uuid4().hex
            book_store.save(before_sending(book_store.load(), listener, notification, by))
            # 2. Send the message. After a failure this channel gets no more messages from this task.
            if not _delivered(alert, message(alert, notification), context, platform):
                unreached.append(channel_label(alert))
                book_store.save(without_answer(book_store.load(), listener, notification, by))
                break
            # 3. Record in the book that the message was sent.
            book_store.save(after_sending(book_store.load(), listener, notification, by))
    book_store.save(without_settled(book_store.load(), [listener for _, listener in channels]))
    return list(dict.fromkeys(unreached))


def _channels(alerts: Sequence[Alert]) -> list[tuple[Alert, Listener]]:
    """Join the entries of a channel that the YAML lists twice, for different events."""
    by_name = {alert.name: alert for alert in alerts}
    events = {name: {e for alert in alerts if alert.name == name for e in alert.events} for name in by_name}
    return [(alert, Listener(name, frozenset(events[name]))) for name, alert in by_name.items()]


def _delivered(alert: Alert, message: Message, context: Context, platform: Platform) -> bool:
    try:
        deliver(alert, message, context, platform)
    except Exception as error:  # libraries raise any type; the next channel must still be notified
        logger.error("alert by %s failed: %s", channel_label(alert), type(error).__name__)
        return False
    logger.info("alert sent by %s: %s", channel_label(alert), message.subject)
    return True
