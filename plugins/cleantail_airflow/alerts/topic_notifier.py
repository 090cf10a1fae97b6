"""A notifier for other DAGs, such as DAGs that run after a compaction. It notifies the channels of a topic's alerts.

on_failure_callback=TopicNotifier(topic="orders", config="/etc/cleantail/config", text="the report has failed")
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import Context
from airflow.sdk.bases.notifier import BaseNotifier

from cleantail.config.alert_channels import Event
from cleantail.config.loading import find_topic
from cleantail_airflow.alerts.alerting import origin_of
from cleantail_airflow.alerts.channels import channel_label, deliver
from cleantail_airflow.alerts.messages import Message


class TopicNotifier(BaseNotifier):
    """Notifies every channel of the topic, even if another channel fails.

    No field is a template, so that channels get the text of the DAG's author unchanged.
    """

    template_fields = ()

    def __init__(self, *, topic: str, config: str | os.PathLike[str], text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.config = str(config)
        self.text = text

    def notify(self, context: Context) -> None:
        """Send the text with a link. Raises ConfigError if the configuration has no such topic."""
        folder = Path(self.config).absolute()
        topic = find_topic(self.topic, folder)
        place = origin_of(topic, context)
        task = context["ti"].task_id
        message = Message(
            topic=topic.topic,
            event=Event.RUN_FAILED.value,
            state="open",  # never resolved, because no later call reports the end of the failure
            headline=f"{context['ti'].dag_id}: {task}",
            reason=self.text,
            task=task,
            link=place.page(),
            page=place.page(),
            run_id=place.run_id,
            at=place.at,
            incident=f"{context['ti'].dag_id}/{place.run_id}/{task}",
        )
        for alert in topic.alerts:
            try:
                deliver(alert, message, context, topic.platform)
            except Exception as error:  # libraries raise any type; the next channel must still be notified
                self.log.error("%s was not notified: %s", channel_label(alert), type(error).__name__)
