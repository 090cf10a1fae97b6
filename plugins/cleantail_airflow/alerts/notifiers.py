"""Sends one message through one channel, by Airflow's own notifiers over Airflow's connections.

The notifiers are called with finished texts, never as callbacks whose fields Airflow would render as templates. All of
them raise when the message did not arrive.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook, Context
from airflow.sdk.log import mask_secret

from cleantail.config.alert_channels import Alert, AppriseAlert, FileAlert, MailAlert, SlackAlert, WebhookAlert
from cleantail.config.claims import connection_problem
from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.home.home_folder import append_line
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
