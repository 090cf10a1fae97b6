"""Examine an installation from within Airflow.

The checks of `cleantail doctor` run with Airflow's connections. More checks need Airflow: of alert channels, the plugin
in the API server, the pool, and the DAGs.

This module runs as the task of the DAG `cleantail_doctor`, on a worker. `cleantail doctor` also starts it as a process,
which reads connections as Airflow's servers do:

    python -m cleantail_airflow.tasks.doctor_task CONFIG [--send-test]

A task may not read Airflow's database. So only the command examines pool and DAGs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from airflow.configuration import conf
from airflow.sdk import BaseHook, BaseOperator, Context

from cleantail.config.alert_channels import Alert, FileAlert
from cleantail.config.claims import connection_problem
from cleantail.config.loading import default_alerts, load_platform, scan_topics
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.doctor import UNKNOWN, WRONG, Access, Finding, NotExaminedError, checked, examine, exit_code_of
from cleantail.errors import CleantailError, ConfigError, OutsideError
from cleantail.home.driver_process import TOKEN_VARIABLE
from cleantail.human import counted, instant
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException, AirflowNotFoundException
from cleantail_airflow.alerts.channels import channel_label, deliver
from cleantail_airflow.alerts.messages import Message
from cleantail_airflow.catalog_login import with_login
from cleantail_airflow.installation import PREFIX
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.tasks.spark_job import spark_connection
from cleantail_airflow.tasks.spark_pool import POOL

SPARK_CONNECTION = "spark_default"
SEND_TEST = "send_test"
ANSWERED_WITHIN_S = 15
MARK = "\0"
"""Precedes the result on stdout, among the lines that Airflow may print."""


class DoctorOperator(BaseOperator):
    """Run all checks, log each, return them as XCom, and fail if something is wrong."""

    template_fields: Sequence[str] = ()

    def __init__(self, *, config_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_dir = config_dir

    def execute(self, context: Context) -> list[dict[str, Any]]:
        send_test = bool(context["params"].get(SEND_TEST))
        findings = []
        for finding in examine_all(Path(self.config_dir), context, send_test):
            log = self.log.error if finding.state == WRONG else self.log.info
            log("%s: %s: %s", finding.state, finding.label, finding.text)
            if finding.next_step:
                self.log.info("next: %s", finding.next_step)
            findings.append(finding)
        result = [finding.as_json() for finding in findings]
        if exit_code_of(findings):
            context["ti"].xcom_push("return_value", result)
            wrong = [finding.label for finding in findings if finding.state == WRONG]
            raise AirflowFailException(f"something is wrong: {', '.join(wrong)}. The log has the next steps")
        return result


def examine_all(config_dir: Path, context: Context | None, send_test: bool) -> Iterator[Finding]:
    """Yield the findings of every check. `context`: of the task; None in a process with Airflow's database."""
    yield from examine(config_dir, os.environ, Access(with_login, client_settings, _master))
    yield from _channels(config_dir, context, send_test)
    step = "restart the API server after the installation, or set [api] base_url to the address of the UI"
    yield checked("plugin", "", step, _answer_of_page, _page_without_login, context)
    step = f"set {TOKEN_VARIABLE} in the API server's environment, and the same token in the scraper's"
    yield checked("metrics token", "", step, _answer_of_page, _page_with_token, context)
    if context is not None:
        text = "a task may not read Airflow's database: `cleantail doctor` examines pool and DAGs"
        yield Finding("dags", "", UNKNOWN, text)
        return
    step = "restart the scheduler: it makes the pool when it starts with the plugin"
    yield checked("pool", POOL, step, _pool)
    yield from _dags(config_dir)


def _master(_: Platform) -> str:
    try:
        return str(spark_connection(SPARK_CONNECTION).host or "")
    except AirflowException as e:
        raise CleantailError(str(e)) from None


# ---- alert channels


def _channels(config_dir: Path, context: Context | None, send_test: bool) -> Iterator[Finding]:
    """Yield a finding for each channel of the topics and of the defaults. Equal channels are examined once."""
    try:
        platform = load_platform(config_dir)
        topics = [topic for _, topic in scan_topics(config_dir) if isinstance(topic, Topic)]
    except ConfigError:
        return  # the configuration has a finding of its own
    alerts = {alert.name: (alert, topic.topic) for topic in reversed(topics) for alert in topic.alerts}
    alerts = {alert.name: (alert, "defaults") for alert in default_alerts(config_dir)} | alerts
    for alert, topic in alerts.values():
        step = "make or correct the Airflow connection, and list it in platform.alert_connections"
        yield checked("alerts", topic, step, _channel, alert, topic, platform, context, send_test)
    if not alerts:
        text = "no topic has alerts: a failed run shows on the page and in Airflow only (docs/alerts.md)"
        yield Finding("alerts", "", UNKNOWN, text)


def _channel(alert: Alert, topic: str, platform: Platform, context: Context | None, send_test: bool) -> str:
    label = channel_label(alert)
    if problem := connection_problem(alert, platform):
        raise CleantailError(f"{label}: it needs {problem}")
    if not isinstance(alert, FileAlert):
        try:
            BaseHook.get_connection(alert.conn_id)
        except AirflowNotFoundException:
            raise CleantailError(f"Airflow has no connection {alert.conn_id}") from None
    if not send_test:
        return f"{label} exists; `--send-test` sends a message"
    try:
        deliver(alert, _test_message(topic), context or Context(), platform)
    except CleantailError:
        raise
    except Exception as e:  # libraries raise any type, and their texts may have an address with a secret
        raise OutsideError(f"{label}: the test message was not taken ({type(e).__name__})") from None
    return f"{label} took the test message"


def _test_message(topic: str) -> Message:
    base = _base_url()
    return Message(
        topic=topic,
        event="test",
        state="test",
        headline="a test message",
        reason="cleantail doctor sends this message. Nothing is wrong with the topic.",
        task="",
        link=f"{base}{PREFIX}/topics",
        page=f"{base}{PREFIX}/topics",
        run_id="",
        at=f"{instant(int(time.time() * 1000)).replace(' ', 'T')}+00:00",
        incident=f"cleantail/{topic}/test",
    )


# ---- API server, pool and DAGs


def _base_url() -> str:
    url = conf.get("api", "base_url", fallback="") or f"http://localhost:{conf.get('api', 'port', fallback='8080')}"
    return str(url).rstrip("/")


def _answer_of_page(check: Any, context: Context | None) -> str:
    """Request /metrics of the API server. A worker that cannot reach the server makes no finding."""
    try:
        return str(check(f"{_base_url()}{PREFIX}/metrics"))
    except OSError as e:
        why = getattr(e, "reason", None) or e
        text = f"nothing answers at {_base_url()}: {getattr(why, 'strerror', None) or type(why).__name__}"
        raise (OutsideError if context is None else NotExaminedError)(text) from None


def _page_without_login(url: str) -> str:
    status, kind = _answer(url)
    if status == 200 and kind != "text/html":  # Airflow answers an unknown path with its own page
        return f"the API server at {_base_url()} has the pages, and shows them without a login"
    if status not in (401, 403):
        raise CleantailError(f"{url} answered {status}, so the API server has not loaded the plugin")
    return f"the API server at {_base_url()} has the pages"


def _page_with_token(url: str) -> str:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise NotExaminedError(f"{TOKEN_VARIABLE} is not set here: only Airflow's own logins may read {url}")
    status, _ = _answer(url, {"Authorization": f"Bearer {token}"})
    if status in (401, 403):
        raise CleantailError(f"{url} refuses the token of {TOKEN_VARIABLE} in this environment")
    if status == 503:
        return f"{url} accepts the token, and cannot reach the catalog"
    if status != 200:
        raise OutsideError(f"{url} answered {status}")
    return f"{url} takes the token"


def _answer(url: str, headers: Mapping[str, str] = {}) -> tuple[int, str]:  # noqa: B006  # it is not changed
    try:
        with urlopen(Request(url, headers=dict(headers)), timeout=ANSWERED_WITHIN_S) as response:  # noqa: S310
            return int(response.status), response.headers.get_content_type()
    except HTTPError as e:
        return e.code, e.headers.get_content_type()


def _pool() -> str:
    from airflow.models.pool import Pool

    pool = Pool.get_pool(POOL)
    if pool is None:
        raise CleantailError("Airflow has no such pool: tasks that start Spark would wait for ever")
    return f"it has {counted(pool.slots, 'slot')}"


def _dags(config_dir: Path) -> Iterator[Finding]:
    """Yield a finding for each topic: Airflow has its DAG, the DAG has no import error, and is not paused."""
    from cleantail_airflow.outcomes.configured_topics import ConfigurationCache
    from cleantail_airflow.outcomes.dag_states import dags_of

    try:
        configured, _ = ConfigurationCache(config_dir).now()
        usable = [name for name, (_, topic) in configured.topics.items() if isinstance(topic, Topic)]
        states = dags_of(configured, usable)
    except ConfigError:
        return
    except Exception as e:
        text = f"Airflow's database cannot be read: {type(e).__name__}"
        yield Finding("dags", "", WRONG, text, "run `airflow db migrate`", OutsideError.exit_code)
        return
    for name, state in states.items():
        dag_id = configured.dag_ids[name]
        step = f"airflow dags unpause {dag_id}"
        if not state.exists or state.import_error:
            step = f'a file in the DAGs folder needs topic_dags("{config_dir}"); Airflow reads new files after a while'
        yield checked("dag", name, step, _dag, dag_id, state)


def _dag(dag_id: str, state: Any) -> str:
    if state.import_error:
        raise CleantailError(f"the file of DAG {dag_id} has an import error; the DAG list shows it")
    if not state.exists:
        raise CleantailError(f"Airflow has no DAG {dag_id}")
    if state.paused:
        raise CleantailError(f"DAG {dag_id} is paused: nothing runs, even if it is triggered")
    return f"DAG {dag_id} exists and is not paused"


def main(argv: Sequence[str]) -> int:
    """Print the findings as JSON after MARK."""
    findings = [finding.as_json() for finding in examine_all(Path(argv[0]), None, "--send-test" in argv[1:])]
    print(f"\n{MARK}{json.dumps(findings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
