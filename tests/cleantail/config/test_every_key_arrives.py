"""What is written in YAML arrives: each field of each model that a file is read as, by introspection."""

import json
import pickle

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.loading import find_group, find_topic, load_platform
from cleantail.config.platform import PlatformSettings
from cleantail.config.platform_configs import CleanerConfigs, LimitConfigs
from cleantail.config.topic import Topic
from cleantail.config.topic_group import GroupLimits, TopicGroup

PLATFORM = {
    "state": "/somewhere/else",
    "catalog": {"namespace": "lake"},
    "sources": ["drop"],
    "cleaner": {"log.cleaner.threads": 3},
    "spark": {"master": "local[3]"},
    "limits": {"yaml.max.bytes": 99_999},
    "data_docs": "s3://bucket/docs",
    "allow_clock": True,
    "dag_prefix": "team_",
    "alert_connections": ["mine_*"],
    "kafka_connections": ["mine_*"],
    "kafka_servers": ["a:9092"],
    "imported_folders": ["s3://bucket/raw"],
    "kafka_access": {"mine_a": {"topics": ["prod.*"]}},
    "shared_sources": ["kafka:all"],
    "source_catalogs": {"other": {"type": "sqlite", "uri": "sqlite:////x.db", "warehouse": "file:/x"}},
    "source_tables": ["other.sinks.*"],
    "expectations": ["acme_checks.ExpectIban"],
    "erasure_connection": "mine_erasures",
}
TOPIC = {
    "topic": "orders",
    "description": "All orders.",
    "table": "sinks.orders",
    "source": {"path": "drop/orders/*.jsonl"},
    "columns": {"partition": "p", "offset": "o", "key": "k"},
    "schedule": "@daily",
    "owner": "sales",
    "config": {"segment.ms": 7},
    "publish": "approve",
    "approvers": ["anna"],
    "checks": [{"expectation": "ExpectColumnValuesToNotBeNull", "kwargs": {"column": "key"}}],
    "alerts": [{"type": "file", "path": "alerts/x.jsonl"}],
}


@pytest.fixture
def written(tmp_path):
    config = tmp_path / "config"
    for folder in ("topics", "groups"):
        (config / folder).mkdir(parents=True)
    (config / "defaults.yaml").write_text(json.dumps({"platform": PLATFORM}))
    return config


def changed(model, loaded, built_in):
    """The fields that are another than without the file."""
    return {name for name in model.model_fields if getattr(loaded, name) != getattr(built_in, name)}


def test_every_key_of_the_platform_arrives(written):
    assert set(PLATFORM) == set(PlatformSettings.model_fields), "a new key: write a value of it here"
    loaded = load_platform(written, {})
    assert changed(PlatformSettings, loaded, PlatformSettings()) == set(PLATFORM)
    assert loaded.data_docs == "s3://bucket/docs" and loaded.catalog.namespace == "lake"


def test_every_key_of_a_topic_arrives(written):
    of_topics = {**TOPIC, "group": "hourly"}
    assert set(of_topics) == set(Topic.model_fields), "a new key: write a value of it here"
    (written / "topics" / "orders.yaml").write_text(json.dumps(TOPIC))
    loaded = find_topic("orders", written)
    assert changed(Topic, loaded, Topic(topic="x", table="a.b")) == set(TOPIC)
    (written / "groups" / "hourly.yaml").write_text("group: hourly\n")
    (written / "topics" / "second.yaml").write_text("topic: second\ngroup: hourly\n")
    assert find_topic("second", written).group == "hourly"


def test_every_key_of_a_group_arrives(written):
    text = {
        "group": "hourly",
        "schedule": "@daily",
        "limits": {"pack.max.topics": 7},
        "owner": "me",
        "description": "x",
    }
    assert set(text) == set(TopicGroup.model_fields), "a new key: write a value of it here"
    (written / "groups" / "hourly.yaml").write_text(json.dumps(text))
    assert changed(TopicGroup, find_group("hourly", written, {}), TopicGroup(group="x")) == set(text)


def another(model, name):
    """A value that the config `name` takes and is not its default, as the JSON Schema of the model says."""
    schema = model.model_json_schema()["properties"][model.model_fields[name].alias]
    if "cleanup.policy" in model.model_fields[name].alias:
        return "compact,delete"
    if "enum" in schema:
        return next(value for value in schema["enum"] if value not in ("", "order", "header", schema["default"]))
    if schema["type"] == "string":
        return "version"
    step = 1 if schema["type"] == "integer" else 0.25
    return schema["default"] + (step if schema["default"] + step <= schema["maximum"] else -step)


CONFIGS = [
    pytest.param(model, name, id=model.model_fields[name].alias)
    for model in (KafkaConfigs, CleanerConfigs, LimitConfigs, GroupLimits)
    for name in model.model_fields
]


@pytest.mark.parametrize(("model", "name"), CONFIGS)
def test_every_config_arrives_from_defaults_and_from_the_file_of_its_own(tmp_path, model, name):
    text = {model.model_fields[name].alias: another(model, name)}
    wanted = getattr(model.model_validate(text), name)
    assert wanted != getattr(model(), name)
    places = {
        KafkaConfigs: ("topics", {"topic": {"config": text}}, {"topic": "a", "config": text}),
        GroupLimits: ("groups", {"groups": {"limits": text}}, {"group": "a", "limits": text}),
        CleanerConfigs: (None, {"platform": {"cleaner": text}}, {}),
        LimitConfigs: (None, {"platform": {"limits": text}}, {}),
    }
    folder, shared, own = places[model]
    for defaults, file in ((shared, {key: own[key] for key in list(own)[:1]}), ({}, own)):
        if folder is None:
            (tmp_path / "defaults.yaml").write_text(json.dumps(shared))
            platform = load_platform(tmp_path, {})
            found = platform.cleaner if model is CleanerConfigs else platform.limits
        else:
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / "defaults.yaml").write_text(json.dumps(defaults))
            (tmp_path / folder / "a.yaml").write_text(json.dumps(file))
            is_topic = model is KafkaConfigs
            found = find_topic("a", tmp_path).config if is_topic else find_group("a", tmp_path, {}).limits
        assert getattr(found, name) == wanted


def test_the_state_of_an_adopted_topic_is_in_cleantails_own_namespace(written):
    """Approvals, releases and reader positions: a user who may set properties of the sink's namespace cannot write
    them."""
    (written / "topics" / "orders.yaml").write_text(json.dumps({n: TOPIC[n] for n in ("topic", "table", "columns")}))
    topic = find_topic("orders", written)
    assert (topic.table, topic.own_namespace) == ("sinks.orders", "lake")
    assert topic.model_copy(update={"owner": "x"}).own_namespace == "lake"
    (written / "topics" / "own.yaml").write_text("topic: own\ntable: another.own\n")
    assert find_topic("own", written).own_namespace == "lake"


def test_the_environment_of_a_topics_platform_is_in_no_text_and_no_pickle(written):
    env = {"CLEANTAIL_CATALOG_TOKEN": "th1s-is-secret"}
    (written / "topics" / "own.yaml").write_text("topic: own\n")
    topic = find_topic("own", written, env)
    assert topic.platform.env is env
    copies = pickle.dumps(topic), pickle.dumps(topic.platform)
    assert not [copy for copy in copies if b"th1s-is-secret" in copy]
    assert pickle.loads(copies[0]).platform.env == {}
    shown = (repr, str, lambda value: value.model_dump_json(), lambda value: repr(value.model_dump()))
    assert not [show for show in shown for value in (topic, topic.platform) if "th1s-is-secret" in show(value)]
