"""Where each config comes from."""

import pytest

from cleantail.config import load_topic
from cleantail.config_origin import Origin, settings, written_configs

DEFAULTS = "topic:\n  config:\n    segment.ms: 60000\n    retention.ms: 1000\n"
OWN = "topic: orders\nconfig:\n  segment.ms: 3600000\n  retention.ms: null\n  cleanup.policy: compact,delete\n"


@pytest.fixture
def found(project):
    (project / "config" / "defaults.yaml").write_text(DEFAULTS)
    file = project / "config" / "topics" / "orders.yaml"
    file.write_text(OWN)
    topic = load_topic(file, project / "config")
    return {s.name: s for s in settings(topic, *written_configs(file, project / "config"))}


@pytest.mark.parametrize(
    ("name", "value", "words", "origin"),
    [
        pytest.param("segment.ms", "3600000", "1 h", Origin.TOPIC, id="the topic's over the defaults"),
        pytest.param("retention.ms", "1000", "1 s", Origin.DEFAULTS, id="null is the layer below"),
        pytest.param("segment.bytes", "1073741824", "1.0 GiB", Origin.BUILT_IN, id="nobody wrote it"),
        pytest.param("max.compaction.lag.ms", "9223372036854775807", "no limit", Origin.BUILT_IN, id="no limit"),
        pytest.param("cleanup.policy", "compact,delete", "", Origin.TOPIC, id="a set"),
    ],
)
def test_a_setting_says_its_value_and_its_layer(found, name, value, words, origin):
    assert (found[name].value, found[name].words, found[name].origin) == (value, words, origin)


def test_files_without_configs_have_written_none(tmp_path):
    (tmp_path / "orders.yaml").write_text("topic: orders\n")
    assert written_configs(tmp_path / "orders.yaml", tmp_path) == ({}, {})
