"""The task that continues requests to erase keys. It starts `cleantail erase` for each topic with such requests.

Keys are never in a param, an XCom or a log: requests come from the command line, or as files
(cleantail.erasure.request_files). The result has only ids of requests.

The task also sends the alerts of these topics' deadlines. If a topic's own DAG is paused, no other task sends them. The
task sends them before it erases, and again after each topic, because that topic's alerts may be over.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context

from cleantail.config.alert_channels import Event
from cleantail.config.loading import find_topic, load_platform, scan_topics
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.driver_process import CERTIFICATE_KEY, of_driver, with_own_python
from cleantail.watch.alarms import erasure_alarms
from cleantail.watch.incidents import Condition
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException
from cleantail_airflow.alerts.alerting import EarlyConditions, notify_now
from cleantail_airflow.catalog_login import with_login
from cleantail_airflow.installation import spark_environment
from cleantail_airflow.kafka_connection import client_settings

TOPIC = "topic"
"""The param: the topic whose requests are continued. Null: all topics with open requests."""


class EraseOperator(BaseOperator):
    """Runs `cleantail erase` for the topic of the param, or for every topic with an open request or a request file.

    Skipped if there is no such topic. A topic that fails does not stop the others. The task fails at its end, and names
    each topic with a request that is not certified, also those whose files are missing or broken."""

    template_fields: Sequence[str] = ()

    def __init__(self, *, config_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_dir = config_dir
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> dict[str, list[str]]:
        named = context["params"].get(TOPIC)
        try:
            topics, unknown = _topics(Path(self.config_dir), named)
        except CleantailError as e:
            raise AirflowFailException(str(e)) from None
        if not topics and not unknown:
            raise AirflowSkipException("no request to erase keys is open")
        certified, failed = dict[str, list[str]](), [f"{name} (no valid topic)" for name in unknown]
        for topic in topics:
            _notify(topic, context)
        for topic in topics:
            try:
                code, certified[topic.topic] = self._erase(topic)
            except (CleantailError, OSError) as e:
                self.log.error("%s: %s", topic.topic, e)
                failed.append(f"{topic.topic} (not started)")
                continue
            _notify(topic, context)
            if code:
                failed.append(f"{topic.topic} (exit code {code})")
        if failed:
            raise AirflowFailException(f"not every request is certified: {', '.join(failed)}; the log has the reasons")
        return certified

    def _erase(self, topic: Topic) -> tuple[int, list[str]]:
        """Return the exit code of the command, and the ids of the certified requests. Logs why other requests are not
        certified, and the command's other output."""
        command = [sys.executable, "-m", "cleantail_cli", "erase", topic.topic, "--json", "--config", self.config_dir]
        self._process = subprocess.Popen(
            command, env=_environment(topic), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
        )
        assert self._process.stdout is not None
        requests: list[str] = []
        for line in self._process.stdout:
            document = _document(line)
            if document is None:
                self.log.info("%s: %s", topic.topic, line.rstrip())
            else:
                requests += [str(row["id"]) for row in document.get("requests", ()) if row.get("certificate")]
                for problem in _problems(document):
                    self.log.error("%s: %s", topic.topic, problem)
        return self._process.wait(), requests

    def on_kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


def _notify(topic: Topic, context: Context) -> None:
    def deadlines() -> list[Condition]:
        from cleantail.erasure.store import ErasureStore

        return erasure_alarms(ErasureStore(topic.platform).requests(topic.topic), int(time.time() * 1000))

    def is_deadline(condition: Condition) -> bool:
        # a condition about an overdue tombstone has the same event, but also a partition
        return condition.event is Event.ERASURE and condition.partition is None

    notify_now(topic, context, EarlyConditions(deadlines, is_deadline))


def _document(line: str) -> dict[str, Any] | None:
    """Return the JSON answer of the command if this line is the answer. It has whole certificates, so do not log it."""
    try:
        document = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _problems(document: dict[str, Any]) -> list[str]:
    """Return the reasons that the command's answer names, of requests and of files without a valid request."""
    of_requests = [f"request {r['id']}: {reason}" for r in document.get("requests", ()) for reason in r["problems"]]
    waiting = [f"request {r['id']} waits for approval" for r in document.get("requests", ()) if r["waits"]]
    return [*of_requests, *waiting, *document.get("problems", ())]


def _topics(config_dir: Path, named: str | None) -> tuple[list[Topic], list[str]]:
    """Return the topics with an open request or a request file, and the names of such topics that have no valid file.
    `named`: only this topic. Raises CleantailError if they cannot be read."""
    from cleantail.erasure.request_files import files_without_topic, waiting_files
    from cleantail.erasure.store import ErasureStore

    if named is not None:
        topics = [find_topic(named, config_dir)]
    else:
        topics = [topic for _, topic in scan_topics(config_dir) if isinstance(topic, Topic)]
    platform = load_platform(config_dir)
    with_login(platform)
    still_open = {request.topic for request in ErasureStore(platform).requests() if request.is_open}
    with_work = [topic for topic in topics if topic.topic in still_open or waiting_files(topic)]
    if named is not None:
        return with_work, []
    known = {topic.topic for topic in topics}
    left = {file.parent.name for file in files_without_topic(platform.home, known)}
    return with_work, sorted((still_open - known) | left)


def _environment(topic: Topic) -> dict[str, str]:
    """Return the environment of the command: that of a driver, the key that signs, and the login of the brokers."""
    own = topic.platform.env
    env = with_own_python({**of_driver(own), **spark_environment(own)})
    if key := own.get(CERTIFICATE_KEY):
        env[CERTIFICATE_KEY] = key
    kafka = topic.source.kafka
    if kafka is not None and kafka.connection is not None:
        extra = dict(client_settings(topic))
        env[f"AIRFLOW_CONN_{kafka.connection.upper()}"] = json.dumps({"conn_type": "kafka", "extra": extra})
    elif kafka is not None:
        env |= {name: value for name, value in own.items() if name.startswith("CLEANTAIL_KAFKA_")}
    return env
