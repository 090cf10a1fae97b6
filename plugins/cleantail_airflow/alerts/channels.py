"""Brings the channels up to date with a book of incidents, whoever's it is: a topic's or a group's."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence

from airflow.sdk import Context

from cleantail.config.alert_channels import Alert
from cleantail.config.platform import Platform
from cleantail.watch.incidents import (
    Listener,
    Notification,
    after_sending,
    before_sending,
    due_notifications,
    without_answer,
    without_settled,
)
from cleantail_airflow.alerts.incident_book import BookStore
from cleantail_airflow.alerts.messages import Message
from cleantail_airflow.alerts.notifiers import channel_label, deliver

logger = logging.getLogger(__name__)


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
