"""What the page of a topic says of its source in Kafka: a real broker is asked, and one that is away."""

from __future__ import annotations

import json
import os
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cleantail.config.topic import Topic
from cleantail.log.source_position import PROPERTY_POSITION, Gap, SourcePosition
from cleantail_airflow.page.application import TEMPLATES
from cleantail_airflow.page.kafka_watch import ANSWERS_LIVE_S, KafkaWatch
from cleantail_airflow.page.page_content import Content
from cleantail_airflow.page.page_values import by_name
from differential.broker import free_port
from differential.kafka_client import KafkaClient
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def address(broker_address: str) -> str:
    """A broker with the topic `prod.orders`: five records in partition 0, none in partition 1."""
    KafkaClient(broker_address).create("prod.orders", 2, {})
    producer = Producer({"bootstrap.servers": broker_address})
    for number in range(5):
        producer.produce("prod.orders", b"v", b"k%d" % number, 0)
    assert producer.flush(30) == 0
    return broker_address


def ids_of(address: str) -> tuple[str, str]:
    """The ids of the cluster and of the topic."""
    from cleantail.kafka.source_topic import Brokers

    described = Brokers({"bootstrap.servers": address}).describe("prod.orders")
    return described.cluster_id, described.topic_id


def table(site: Site, tmp_path: Path, cluster_id: str, topic_id: str, **more: Any) -> OrdersTable:
    """A table that was read from Kafka five minutes ago, up to offset 2."""
    position = SourcePosition(
        cluster_id, "prod.orders", topic_id, {0: 2}, "read_committed", "r", NOW_MS - 300_000, **more
    ).as_json()
    made = OrdersTable(tmp_path).append((0, 0, 1, b"a", b"1"), (0, 1, 1, b"b", b"1"))
    return made.set_properties(**{PROPERTY_POSITION: position})


def shown(site: Site) -> str:
    """The text of the topic's page, without its markup."""
    page = Content(site.config, os.environ).one_topic("orders", NOW_MS)
    values = by_name(page) | {"released": None, "may_release": False, "root": "", "ui": "", "dag_id_of": str}
    html = TEMPLATES.get_template("topic.html").render(**values)
    cells = html.replace("</td>", " </td>").replace("</th>", " </th>")
    text = "".join(part.partition(">")[2] for part in cells.split("<"))
    return " ".join(unescape(text).split())


def test_it_shows_source_lag_and_last_read(site: Site, tmp_path: Path, address: str) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": address, "topic": "prod.orders", "group.id": "seen"}})
    table(site, tmp_path, *ids_of(address))
    text = shown(site)
    assert "prod.orders in Kafka, 3 offsets behind, last read 5 min ago" in text
    assert f"prod.orders in Kafka, by {address}, read_committed; the progress is reported to the group seen" in text
    assert "3 offsets behind the brokers: the next run reads them" in text
    assert "0 2 0 5 5 3" in text and "1 0 0 0 0 0" in text


def test_it_says_why_the_next_run_would_stop(site: Site, tmp_path: Path, address: str) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": address, "topic": "prod.orders"}})
    table(site, tmp_path, ids_of(address)[0], "another", gaps=(Gap(0, 0, 1, NOW_MS),))
    text = shown(site)
    assert "The next run would stop:" in text and "its id is" in text and "nothing was appended" not in text
    assert "partition 0: offsets 0 to 0 were deleted in Kafka before they were read" in text


def test_brokers_that_are_away_leave_the_rest_of_the_page_as_it_is(site: Site, tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    site.topic("orders", source={"kafka": {"bootstrap.servers": away, "topic": "prod.orders"}})
    table(site, tmp_path, "c", "id")
    text = shown(site)
    assert "last read 5 min ago, see Source" in text and "The lag is unknown: the brokers have not answered yet" in text
    assert "Read up to 2 of partition 0" in text and "Partition 0" in text


def test_a_login_that_is_missing_is_told_and_no_secret_shown(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic("orders", source={"kafka": {"connection": "kafka_k"}})
    table(site, tmp_path, "c", "id")
    assert "The lag is unknown: source.kafka.connection is kafka_k, an Airflow connection" in shown(site)
    extra = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_K", json.dumps({"conn_type": "kafka", "extra": extra}))
    text = shown(site)
    assert "The lag is unknown: a setting of the Kafka client is wrong" in text and "hunter2" not in text


def test_a_topic_of_files_says_so(site: Site, tmp_path: Path) -> None:
    site.topic("orders", source={"path": "landing/orders/*.jsonl"})
    OrdersTable(tmp_path).append((0, 0, 1, b"a", b"1"))
    assert "Files that match landing/orders/*.jsonl, each ingested once" in shown(site)


def test_an_answer_is_kept_for_a_few_seconds(site: Site, tmp_path: Path, address: str) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": address, "topic": "prod.orders"}})
    made, asked, now_s = table(site, tmp_path, "c", "id"), [], [0.0]

    def settings_of(topic: Topic) -> dict[str, str]:
        asked.append(topic.topic)
        return {"bootstrap.servers": address}

    watch = KafkaWatch(settings_of, lambda: now_s[0])
    for now_s[0] in (0.0, ANSWERS_LIVE_S - 1, ANSWERS_LIVE_S):
        assert watch.view(made.topic, None, NOW_MS, 30) is not None
    assert asked == ["orders", "orders"]
