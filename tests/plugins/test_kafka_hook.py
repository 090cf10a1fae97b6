"""The connection type that needs no provider for Kafka: its form, its button, and that topics take it."""

from __future__ import annotations

import json

import pytest

from cleantail.config.topic_source import KafkaSource
from cleantail.kafka.client_settings import settings_of_environment
from cleantail_airflow.kafka_hook import KafkaClientHook


def connection(monkeypatch: pytest.MonkeyPatch, extra: dict[str, str]) -> None:
    text = json.dumps({"conn_type": "cleantail_kafka", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_OF_UI", text)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        pytest.param({}, "the extra has no bootstrap.servers", id="no address"),
        pytest.param(
            {"bootstrap.servers": "127.0.0.1:1", "no.such": "x"}, "No such configuration", id="unknown setting"
        ),
    ],
)
def test_the_button_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, extra: dict[str, str], said: str) -> None:
    connection(monkeypatch, extra)
    well, text = KafkaClientHook("kafka_of_ui").test_connection()
    assert not well
    assert said in text


def test_a_topic_may_name_a_connection_of_this_type(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    connection(monkeypatch, {"bootstrap.servers": "127.0.0.1:9092"})
    source = KafkaSource.model_validate({"connection": "kafka_of_ui"})
    assert settings_of_environment(source, os.environ)["bootstrap.servers"] == "127.0.0.1:9092"


def test_the_form_asks_for_the_settings_alone() -> None:
    assert "password" in KafkaClientHook.get_ui_field_behaviour()["hidden_fields"]
