"""Sends one message through one channel, by Airflow's own notifiers over Airflow's connections.

The notifiers are called with finished texts, never as callbacks whose fields Airflow would render as templates. All of
them raise when the message did not arrive.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
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
    """Sends the message, or raises whatever the channel's library raises.

    Raises CleantailError for a connection that platform.alert_connections does not list.
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
    """Returns the words for the channel in logs and messages, without its address."""
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
    """Makes the notifier that posts the body as JSON; Slack's incoming webhooks take `{"text": …}`."""
    from airflow.providers.http.notifications.http import HttpNotifier

    _mask_path(alert.conn_id)
    return HttpNotifier(
        http_conn_id=alert.conn_id,
        endpoint=alert.endpoint,
        json=body,
        extra_options={"timeout": WEBHOOK_TIMEOUT_S},
    )


def _mask_path(conn_id: str) -> None:
    """Keeps the path of the address out of the logs of failed requests: chat services put their secret into it."""
    path = urlsplit(BaseHook.get_connection(conn_id).host or "").path
    if len(path) > 1:
        mask_secret(path)


def _apprise(alert: AppriseAlert, message: Message) -> None:
    """Sends it by Apprise itself, over the hook's connection: the provider's notifier does not say what arrived."""
    import apprise
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    hook = AppriseHook(alert.conn_id)
    services = apprise.Apprise()
    hook.set_config_from_conn(hook.get_connection(alert.conn_id), services)
    if not services.notify(
        title=plain_text(message.subject), body=plain_text(message.body), body_format="text", tag=alert.tag
    ):
        raise AirflowException(f"no service of connection {alert.conn_id} with tag {alert.tag}, or one did not take it")


PREFIX = "cleantail.incidents."
LOCK_WAIT_S = 300.0
"""A task waits for the lock as long as a few channels take that do not answer."""
_NAME_CHARS = 250
"""Airflow's longest name of a variable."""
_DESCRIPTION = "What is wrong with the topic and who was told. Kept by Cleantail; delete it to have it told anew."

logger = logging.getLogger(__name__)


class BookStore(Protocol):
    """Loads and saves a topic's book. It is loaded anew for each change, so that nothing out of date is written."""

    def load(self) -> Book: ...

    def save(self, book: Book) -> None: ...


def variable_name(topic: str) -> str:
    """Returns the variable's name; a topic's name that is too long for it is replaced by its hash."""
    if len(PREFIX + topic) <= _NAME_CHARS:
        return PREFIX + topic
    return PREFIX + hashlib.sha256(topic.encode()).hexdigest()


def load_book(topic: str) -> Book:
    """Reads the topic's incidents: none where the variable is missing, or holds no book that can be read."""
    text = Variable.get(variable_name(topic), default=None)
    try:
        return parse_book(text) if text else Book()
    except TableError as e:
        logger.warning("variable %s cannot be read, what is open is told anew: %s", variable_name(topic), e)
        return Book()


class VariableBookStore:
    """Keeps the book of one topic in an Airflow Variable."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def load(self) -> Book:
        return load_book(self.topic)

    def save(self, book: Book) -> None:
        """Writes the book if it has changed. Without incidents the variable stays: it says when all was looked at."""
        if book_as_json(book) != book_as_json(self.load()):
            Variable.set(variable_name(self.topic), book_as_json(book), description=_DESCRIPTION)


@contextmanager
def locked_book(topic: str, home: Path) -> Iterator[BookStore]:
    """Locks the topic's book for this task until the block ends.

    Raises CleantailError where another task holds the lock for LOCK_WAIT_S seconds.
    """
    with exclusive(home, f"alerts-{topic}", LOCK_WAIT_S):
        yield VariableBookStore(topic)


def tell_channels(
    alerts: Sequence[Alert],
    platform: Platform,
    book_store: BookStore,
    message: Callable[[Alert, Notification], Message],
    context: Context,
) -> list[str]:
    """Brings every channel up to date with the book, with the messages that `message` makes. Returns the channels that
    could not be reached.

    Whenever the task dies, and whatever a channel had heard by then, the next task that tells knows from the book what
    it has to tell again.
    """
    channels, unreached = _channels(alerts), list[str]()
    for alert, listener in channels:
        for notification in due_notifications(book_store.load(), listener):
            # 1. The book says what is being told, before a message goes out.
            by = uuid.uuid4().hex
            book_store.save(before_sending(book_store.load(), listener, notification, by))
            # 2. The message goes out; one that is not taken ends what this channel is told.
            if not _delivered(alert, message(alert, notification), context, platform):
                unreached.append(channel_label(alert))
                book_store.save(without_answer(book_store.load(), listener, notification, by))
                break
            # 3. The book says what the channel has been told.
            book_store.save(after_sending(book_store.load(), listener, notification, by))
    book_store.save(without_settled(book_store.load(), [listener for _, listener in channels]))
    return list(dict.fromkeys(unreached))


def _channels(alerts: Sequence[Alert]) -> list[tuple[Alert, Listener]]:
    """Joins the entries of a channel that stands in the YAML twice, for other events."""
    by_name = {alert.name: alert for alert in alerts}
    events = {name: {e for alert in alerts if alert.name == name for e in alert.events} for name in by_name}
    return [(alert, Listener(name, frozenset(events[name]))) for name, alert in by_name.items()]


def _delivered(alert: Alert, message: Message, context: Context, platform: Platform) -> bool:
    """Sends the message. Returns False where the channel did not take it."""
    try:
        deliver(alert, message, context, platform)
    except Exception as error:  # whatever a library raises must not silence the next channel
        logger.error("alert by %s failed: %s", channel_label(alert), type(error).__name__)
        return False
    logger.info("alert sent by %s: %s", channel_label(alert), message.subject)
    return True
