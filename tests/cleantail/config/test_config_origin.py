"""Where each config comes from."""

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.loading import load_topic
from cleantail.config.settings_in_force import Origin, settings_in_force
from cleantail.config.topic import Topic

DEFAULTS = """
topic:
  config: {segment.ms: 60000, retention.ms: 1000}
  schedule: "@daily"
  publish: approve
  owner: team-a
  alerts: [{type: file, path: alerts/all.jsonl}]
"""
SET_ON_TOPIC = """
topic: orders
schedule: null
owner: null
config: {segment.ms: 3600000, retention.ms: null, cleanup.policy: "compact,delete", delete.retention.ms: 48h}
approvers: [anna, ben]
source: {path: "landing/*.jsonl"}
columns: {partition: p, offset: o, key: "r.key"}
checks: [{expectation: expect_column_values_to_not_be_null, kwargs: {column: key}, severity: warning}]
alerts:
  - {type: mail, to: [oncall@example.org], conn_id: smtp_default}
  - {type: slack, conn_id: cleantail_chat, endpoint: services/T0/B0/hidden}
  - {type: webhook, conn_id: cleantail_hook, endpoint: in/hidden, events: [check_failed]}
  - {type: apprise, tag: ops}
"""
CONFIGS = {field.alias or name for name, field in KafkaConfigs.model_fields.items()}


@pytest.fixture
def found(project):
    (project / "config" / "defaults.yaml").write_text(DEFAULTS)
    file = project / "config" / "topics" / "orders.yaml"
    file.write_text(SET_ON_TOPIC)
    return {s.name: s for s in settings_in_force(load_topic(file, project / "config"))}


@pytest.mark.parametrize(
    ("name", "value", "words", "origin"),
    [
        pytest.param("segment.ms", "3600000", "1h", Origin.TOPIC, id="the topic's over the defaults"),
        pytest.param("retention.ms", "1000", "1s", Origin.DEFAULTS, id="null is the layer below"),
        pytest.param("delete.retention.ms", "48h", "", Origin.TOPIC, id="as it was written"),
        pytest.param("segment.bytes", "1073741824", "1.0 GiB", Origin.BUILT_IN, id="nobody wrote it"),
        pytest.param("max.compaction.lag.ms", "9223372036854775807", "no limit", Origin.BUILT_IN, id="no limit"),
        pytest.param("cleanup.policy", "compact,delete", "", Origin.TOPIC, id="a set"),
        pytest.param("schedule", "by hand", "", Origin.TOPIC, id="a schedule that is switched off"),
        pytest.param("owner", "team-a", "", Origin.DEFAULTS, id="an owner"),
        pytest.param("table", "cleantail.orders", "", Origin.BUILT_IN, id="a table that nobody named"),
        pytest.param("publish", "approve", "", Origin.DEFAULTS, id="publish"),
        pytest.param("approvers", "anna, ben", "", Origin.TOPIC, id="approvers"),
        pytest.param("source.path", "landing/*.jsonl", "", Origin.TOPIC, id="within a mapping"),
        pytest.param("source.encoding", "text", "", Origin.BUILT_IN, id="beside it in the mapping"),
        pytest.param("columns.key", "r.key", "", Origin.TOPIC, id="columns of an adopted table"),
        pytest.param("columns.headers", "", "", Origin.BUILT_IN, id="a column that is in no record"),
        pytest.param(
            "checks", 'expect_column_values_to_not_be_null(column="key"), warning', "", Origin.TOPIC, id="checks"
        ),
        pytest.param(
            "alerts",
            "mail by connection smtp_default; slack by connection cleantail_chat; webhook by connection cleantail_hook of check_failed; "
            "apprise by connection apprise_default",
            "",
            Origin.TOPIC,
            id="alerts without what may be secret",
        ),
    ],
)
def test_a_setting_says_its_value_and_its_layer(found, name, value, words, origin):
    assert (found[name].value, found[name].readable, found[name].origin) == (value, words, origin)


def test_every_key_of_a_topic_is_there_but_its_name_and_description(found):
    keys = set(Topic.model_fields) - {"topic", "description", "config"}
    assert {name.partition(".")[0] for name in found if name not in CONFIGS} == keys
    assert found.keys() >= CONFIGS
    assert not [s for s in found.values() if "hidden" in s.value or "@example.org" in s.value]


def test_files_that_say_nothing_leave_the_built_in_defaults(tmp_path):
    file = tmp_path / "topics" / "orders.yaml"
    file.parent.mkdir()
    file.write_text("topic: orders\n")
    found = {s.name: s for s in settings_in_force(load_topic(file, tmp_path))}
    assert {s.origin for s in found.values()} == {Origin.BUILT_IN}
    assert (found["schedule"].value, found["alerts"].value) == ("*/15 * * * *", "")
    assert not [name for name in found if name.startswith("columns")]


def test_a_topic_lists_the_settings_that_it_was_loaded_with_even_if_its_file_was_deleted(project):
    file = project / "config" / "topics" / "orders.yaml"
    file.write_text("topic: orders\nowner: team-b\n")
    topic = load_topic(file, project / "config")
    file.unlink()
    owner = next(s for s in settings_in_force(topic) if s.name == "owner")
    assert (owner.value, owner.origin) == ("team-b", Origin.TOPIC)
