"""A user's own DAG notifies the channels of a topic, and an unreachable channel silences no other."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cleantail.errors import ConfigError
from cleantail_airflow.alerts.topic_notifier import TopicNotifier
from tests.airflow_site import Site

TEXT = "the report {{ var.value.secret }} has failed"


def context() -> Any:
    ti = SimpleNamespace(dag_id="report", task_id="write", run_id="manual__1", log_url="http://ui/dags/report/runs/x")
    return cast(Any, {"ti": ti})


def test_a_topic_notifier_sends_its_text_unchanged_despite_an_unreachable_channel(site: Site) -> None:
    unreachable = {"type": "mail", "to": ["a@b.example"], "conn_id": "smtp_default"}
    site.topic("orders", alerts=[unreachable, {"type": "file", "path": "alerts/orders.jsonl"}])
    TopicNotifier(topic="orders", config=site.config, text=TEXT)(context())
    (line,) = (site.home / "alerts" / "orders.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["topic"], told["headline"], told["reason"]) == ("orders", "report: write", TEXT)
    assert told["page"].endswith("/cleantail/topics/orders")


def test_a_notifier_of_an_unknown_topic_is_an_error(site: Site) -> None:
    with pytest.raises(ConfigError, match="no topic nowhere"):
        TopicNotifier(topic="nowhere", config=site.config, text=TEXT).notify(context())
