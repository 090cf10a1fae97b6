"""What the page of a topic says of its source in Kafka: a real broker is asked, and one that is away."""

from __future__ import annotations

import json
import sys
import threading
import time
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cleantail.codec import FORMAT
from cleantail.config.loading import find_topic
from cleantail.config.topic import Topic
from cleantail.kafka.table_position import write_caught_up
from cleantail.lake.evaluate import read_facts
from cleantail.log.source_position import PROPERTY_POSITION, Gap, SourcePosition
from cleantail.watch.source_watch import (
    ANSWERS_LIVE_S,
    BEFORE_LIVES_S,
    LISTED_LIVE_S,
    NO_ANSWER_YET,
    SourceWatch,
    TableEnds,
)
from cleantail_airflow.page.application import TEMPLATES
from cleantail_airflow.page.metrics_endpoint import samples_of
from cleantail_airflow.page.page_content import PageContent
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
        cluster_id,
        "prod.orders",
        topic_id,
        {0: 2},
        "read_committed",
        "r",
        NOW_MS - 300_000,
        **more,
        version=FORMAT,
    ).as_json()
    made = OrdersTable(tmp_path).append((0, 0, 1, b"a", b"1"), (0, 1, 1, b"b", b"1"))
    return made.set_properties(**{PROPERTY_POSITION: position})


def shown(site: Site) -> str:
    """The text of the topic's page, without its markup."""
    page = PageContent(site.config).one_topic("orders", NOW_MS)
    values = by_name(page) | {"released": None, "may_release": False, "root": "", "ui": "", "dag_id_of": str}
    html = TEMPLATES.get_template("topic.html").render(**values)
    return text_of(html)


def text_of(html: str) -> str:
    cells = html.replace("</td>", " </td>").replace("</th>", " </th>").replace("<small", " <small")
    text = "".join(part.partition(">")[2] for part in cells.split("<"))
    return " ".join(unescape(text).split())


def test_it_shows_source_lag_and_last_read(site: Site, tmp_path: Path, address: str) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": address, "topic": "prod.orders", "group.id": "seen"}})
    table(site, tmp_path, *ids_of(address))
    text = shown(site)
    assert "prod.orders in Kafka, 3 offsets behind, last read 5 min ago" in text
    assert f"prod.orders in Kafka, by {address}, read_committed; the progress is reported to the group seen" in text
    assert "5 min ago. 3 offsets behind the brokers: the next run reads them" in text
    assert "0 2 0 5 5 3" in text and "1 0 0 0 0 0" in text


def test_it_says_why_the_next_run_would_stop(site: Site, tmp_path: Path, address: str) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": address, "topic": "prod.orders"}})
    table(site, tmp_path, ids_of(address)[0], "another", gaps=(Gap(0, 0, 1, NOW_MS),))
    text = shown(site)
    assert "The next run would stop:" in text and "its id is" in text and "nothing was appended" not in text
    assert "partition 0: offsets 0 to 0 were deleted in Kafka before they were read" in text


def test_the_list_the_page_and_the_metrics_say_how_far_and_for_how_long_a_table_is_behind(
    site: Site, tmp_path: Path, address: str
) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": address, "topic": "prod.orders"}})
    made = table(site, tmp_path, *ids_of(address), as_of_ms={0: NOW_MS - 300_000, 1: NOW_MS - 900_000})
    content = PageContent(site.config)
    row = until_answered(content)
    assert (row.behind, row.source_lag.unread_since_ms) == (3, NOW_MS - 300_000)
    assert row.note.endswith("; 3 offsets of its source not read yet")
    assert "3 offsets up to 5 min" in listed(content) and "Behind source" in listed(content)
    text = shown(site)
    assert "3 offsets behind the brokers, for up to 5 min: the next run reads them" in text
    assert "Due workThe next run first reads 3 offsets of its source. As the table is now: " in text
    samples = {(s.metric.exposed, s.labels): s.value for s in samples_of(content, ["orders"], NOW_MS, {}, {})}
    assert samples["cleantail_source_lag_offsets", ("orders", "0")] == 3
    assert samples["cleantail_source_lag_offsets", ("orders", "1")] == 0
    assert samples["cleantail_source_lag_secs", ("orders",)] == 300
    # a later poll of the brokers found nothing new: what is unread now came after it
    write_caught_up(made.topic, read_facts(made.topic).source, NOW_MS - 60_000)  # type: ignore[union-attr, arg-type]
    assert until_answered(content).source_lag.unread_since_ms == NOW_MS - 60_000


def until_answered(content: PageContent) -> Any:
    """The row of the list, once the brokers have answered."""
    for _ in range(100):
        [row] = content.all_topics(["orders"], NOW_MS, {}).listing.rows
        if row.behind is not None:
            return row
        time.sleep(0.1)
    raise AssertionError(row.source_lag)


def listed(content: PageContent) -> str:
    values = by_name(content.all_topics(["orders"], NOW_MS, {})) | {"examined": None}
    values |= {"root": "", "ui": "", "dag_id_of": str}
    return text_of(TEMPLATES.get_template("topics.html").render(**values))


def test_an_unknown_lag_is_shown_as_unknown_and_not_as_0(site: Site, tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    site.topic("orders", source={"kafka": {"bootstrap.servers": away, "topic": "prod.orders"}})
    table(site, tmp_path, "c", "id")
    content = PageContent(site.config)
    [row] = content.all_topics(["orders"], NOW_MS, {}).listing.rows
    assert (row.behind, row.source_lag) == (None, "its source has not answered yet")
    assert " unknown " in listed(content)
    names = {s.metric.exposed for s in samples_of(content, ["orders"], NOW_MS, {}, {})}
    assert "cleantail_topic_up" in names and not [name for name in names if "source_lag" in name]


def test_without_the_catalog_the_page_has_what_the_brokers_know(site: Site, tmp_path: Path, address: str) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": address, "topic": "prod.orders"}})
    table(site, tmp_path, *ids_of(address))
    catalog = f"http://127.0.0.1:{free_port()}"
    (site.config / "defaults.yaml").write_text(f"platform: {{catalog: {{type: rest, uri: '{catalog}'}}}}\n")
    text = shown(site)
    assert "The table cannot be read" in text and "How far it was read is unknown." in text
    assert "Partition Log start in Kafka Last stable offset Log end 0 0 5 5 1 0 0 0" in text
    assert "behind" not in text.partition("Source prod.orders")[2] and "Nothing was read yet" not in text


def test_brokers_that_are_away_leave_the_rest_of_the_page_as_it_is(site: Site, tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    site.topic("orders", source={"kafka": {"bootstrap.servers": away, "topic": "prod.orders"}})
    table(site, tmp_path, "c", "id")
    text = shown(site)
    assert "last read 5 min ago, see Source" in text and "The lag is unknown: its source has not answered yet" in text
    assert "Read up to 2 of partition 0" in text and "Partition 0" in text


def test_a_missing_or_invalid_connection_is_shown_without_a_secret(
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

    watch = SourceWatch(settings_of, lambda: now_s[0])
    for now_s[0] in (0.0, ANSWERS_LIVE_S - 1, ANSWERS_LIVE_S):
        assert watch.view(made.topic, TableEnds(), NOW_MS, 30) is not None
    assert asked == ["orders", "orders"]


def test_a_list_asks_once_a_minute_shows_the_last_answer_meanwhile_and_shares_the_connection(
    site: Site, tmp_path: Path, address: str
) -> None:
    kafka = {"kafka": {"bootstrap.servers": address, "topic": "prod.orders"}}
    for name in ("orders", "others"):
        site.topic(name, source=kafka)
    (site.config / "defaults.yaml").write_text("platform: {shared_sources: ['kafka:prod.orders']}\n")
    topics, asked, now_s = [find_topic(name, site.config) for name in ("orders", "others")], [], [0.0]
    held = threading.Event()
    held.set()

    def settings_of(topic: Topic) -> dict[str, str]:
        asked.append(topic.topic)
        held.wait()
        return {"bootstrap.servers": address}

    watch = SourceWatch(settings_of, lambda: now_s[0])
    tables = [(topic, TableEnds(ends={0: 2})) for topic in topics]
    first = watch.lags(tables, NOW_MS, 30)
    assert {name: lag.behind for name, lag in first.items()} == {"orders": 3, "others": 3}  # type: ignore[union-attr]
    assert len(watch._clients) == 1
    now_s[0] = LISTED_LIVE_S - 1
    watch.lags(tables, NOW_MS, 30)
    assert sorted(asked) == ["orders", "others"]
    now_s[0] = LISTED_LIVE_S
    held.clear()
    assert watch.lags(tables, NOW_MS, 0) == first  # it is asked again, and has not answered
    held.set()
    assert watch.lags(tables, NOW_MS, 30) == first
    assert sorted(asked) == ["orders", "orders", "others", "others"]
    now_s[0] += BEFORE_LIVES_S
    held.clear()
    assert set(watch.lags(tables, NOW_MS, 0).values()) == {
        NO_ANSWER_YET
    }  # what was true three minutes ago is not shown
    held.set()


def test_an_unexpected_error_makes_the_lag_of_its_topic_unknown_and_shows_only_its_class(site: Site) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": "127.0.0.1:1", "topic": "prod.orders"}})

    def settings_of(_: Topic) -> dict[str, str]:
        raise ValueError("hunter2")

    watch = SourceWatch(settings_of)
    found = watch.lags([(find_topic("orders", site.config), TableEnds())], NOW_MS, 30)
    assert found == {"orders": "its source cannot be queried: ValueError"}


@pytest.mark.deep
def test_a_client_that_failed_is_not_used_again(site: Site, tmp_path: Path) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": "127.0.0.1:1", "topic": "prod.orders"}})
    watch = SourceWatch(lambda _: {"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    [problem] = watch.lags([(find_topic("orders", site.config), TableEnds())], NOW_MS, 30).values()
    assert isinstance(problem, str) and "Connection refused" in problem
    assert watch._clients == {}


def test_without_kafkas_client_the_lag_is_unknown_and_the_rest_is_shown(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic("orders", source={"kafka": {"bootstrap.servers": "127.0.0.1:1", "topic": "prod.orders"}})
    table(site, tmp_path, "c", "id")
    for name in ("confluent_kafka", "confluent_kafka.admin"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "The lag is unknown: the package confluent-kafka is not installed" in shown(site)
