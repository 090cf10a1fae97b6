"""A source belongs to one topic: a topic in Kafka, files, a consumer group; the platform may say otherwise."""

import json
import re

import pytest

from cleantail.config.loading import scan_topics
from cleantail.config.topic import Topic


@pytest.fixture
def wrong(tmp_path):
    """wrong(platform, **sources): topic -> its error, empty if it can be used."""
    topics = tmp_path / "config" / "topics"
    topics.mkdir(parents=True)

    def scan(platform=None, **sources):
        (tmp_path / "config" / "defaults.yaml").write_text(json.dumps({"platform": platform or {}}))
        for name, source in sources.items():
            text = source if isinstance(source, str) else json.dumps({"topic": name, "source": source})
            (topics / f"{name}.yaml").write_text(text)
        return {
            file.stem: "" if isinstance(topic, Topic) else str(topic)
            for file, topic in scan_topics(tmp_path / "config", {"CLEANTAIL_HOME": str(tmp_path / "home")})
        }

    return scan


def kafka(**more):
    return {"kafka": more}


HERE, THERE = {"bootstrap.servers": "a:9092"}, {"bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("owner", "other"),
    [
        pytest.param(kafka(**HERE), kafka(topic="orders", **HERE), id="topic in Kafka"),
        pytest.param("topic: [x: unknown", kafka(topic="orders"), id="owner no YAML, topic in Kafka"),
        pytest.param("topic: [x: unknown", kafka(**{"group.id": "orders"}), id="owner no YAML, group"),
        pytest.param(kafka(**HERE), kafka(topic="orders", **THERE), id="by another address"),
        pytest.param(kafka(connection="kafka_a"), kafka(topic="orders", **THERE), id="with and without connection"),
        pytest.param("topic: orders\nsource: {kafka: {}}\nx: 1\n", kafka(topic="orders"), id="owner broken elsewhere"),
        pytest.param({"path": "landing/orders/*.jsonl"}, {"path": "landing/orders/*.jsonl", "topic": "*"}, id="path"),
        pytest.param({"path": "landing/orders/*.jsonl"}, {"path": "landing/*/a.jsonl"}, id="folder by a pattern"),
        pytest.param({"path": "landing/orders/*.jsonl"}, {"path": "landing/**/*"}, id="any depth"),
        pytest.param(kafka(**HERE), {"path": "landing/ORDERS/2026/*.jsonl"}, id="folder of its name, another case"),
        pytest.param({}, {"path": "landing/o[r]ders/*.jsonl"}, id="folder of its name, in brackets"),
        pytest.param(kafka(**{"group.id": "orders"}), kafka(**{"group.id": "orders"}), id="group of its name"),
    ],
)
def test_a_source_that_is_called_as_a_topic_is_that_topics_and_the_other_file_alone_is_wrong(wrong, owner, other):
    found = wrong(orders=owner, mallory=other, apart=kafka())
    assert re.search(r"a source of one topic: .*orders\.yaml has it; name another, or list ", found["mallory"])
    assert bool(found["orders"]) is isinstance(owner, str)
    assert found["apart"] == ""


@pytest.mark.parametrize(
    ("one", "two", "entry"),
    [
        (kafka(topic="prod"), kafka(topic="prod"), "kafka:prod"),
        ({"path": "landing/all/*.jsonl"}, {"path": "landing/all/*.jsonl"}, "path:landing/all/*"),
        (kafka(**{"group.id": "seen"}), kafka(**{"group.id": "seen"}), "group:s*"),
    ],
    ids=["kafka", "path", "group"],
)
def test_equal_claims_are_both_refused_until_the_platform_shares_the_source(wrong, one, two, entry):
    found = wrong(a=one, b=two)
    assert "b.yaml has it, and neither topic reads it until one file names another" in found["a"]
    assert "a.yaml has it, and neither" in found["b"]
    assert wrong({"shared_sources": [entry]}, a=one, b=two) == {"a": "", "b": ""}


def test_files_of_one_folder_that_no_file_can_match_both_ways_are_two_sources(wrong):
    found = wrong(
        a={"path": "landing/a-*.jsonl"},
        b={"path": "landing/b-*.jsonl"},
        c={"path": "landing/c-1.jsonl.gz"},
        d={"path": "landing/*.kcat"},
        e={"path": "landing/e/*.jsonl"},
        f={"path": "landing/f/deep/**"},
    )
    assert set(found.values()) == {""}


def test_a_connection_is_for_the_topics_and_groups_that_the_platform_lists(wrong):
    platform = {"kafka_access": {"kafka_*": {"topics": ["prod.*"], "groups": ["cleantail*"]}}}
    found = wrong(
        platform,
        good=kafka(connection="kafka_a", topic="prod.orders", **{"group.id": "cleantail-orders"}),
        bad=kafka(connection="kafka_a", topic="secret"),
        group=kafka(connection="kafka_a", topic="prod.x", **{"group.id": "billing"}),
        own_name=kafka(connection="kafka_a"),
        other=kafka(connection="cleantail_b", topic="any"),
    )
    assert (found["good"], found["other"]) == ("", "")
    for name in ("bad", "own_name"):
        assert "one of the topics that platform.kafka_access.kafka_* in defaults.yaml lists: prod.*" in found[name]
    assert 'source.kafka.group.id: "billing" is not allowed: one of the groups' in found["group"]


def test_topics_whose_names_differ_in_case_each_have_the_folder_of_their_name(wrong):
    found = wrong(
        orders={"path": "landing/orders/*.jsonl"}, ORDERS={"path": "landing/ORDERS/*.jsonl"}, Orders=kafka(**HERE)
    )
    assert found == {"orders": "", "ORDERS": "", "Orders": ""}


@pytest.mark.parametrize("path", ["landing/orders/*.jsonl", "landing/[oO]rders/*", "landing/Orders/*.jsonl"])
def test_a_topic_of_another_case_has_none_of_the_files(wrong, path):
    found = wrong(orders={"path": "landing/orders/*.jsonl"}, ORDERS={"path": path})
    assert (found["orders"], "orders.yaml has it" in found["ORDERS"]) == ("", True)
