"""The id of a topic's DAG: prefix and name, and what is allowed for them."""

import pytest

from cleantail.config.loading import dag_prefix, load_platform, scan_groups, scan_topics
from cleantail.config.topic import Topic, by_topic, dag_id_of, topic_of
from cleantail.errors import ConfigError


@pytest.fixture
def config_dir(tmp_path):
    (tmp_path / "topics").mkdir()
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "cleantail_", "a.b-c"])
def test_a_dag_id_leads_back_to_its_topic(prefix):
    assert topic_of(dag_id_of("orders", prefix), prefix) == "orders"


@pytest.mark.parametrize(("dag_id", "prefix"), [("orders", "ct_"), ("ct_", "ct_"), ("", ""), ("CT_orders", "ct_")])
def test_a_dag_id_without_the_prefix_or_without_a_name_has_no_topic(dag_id, prefix):
    assert topic_of(dag_id, prefix) is None


def test_values_by_dag_id_become_values_by_topic():
    dag_ids = {topic: dag_id_of(topic, "x-") for topic in ("a", "b")}
    assert dag_ids == {"a": "x-a", "b": "x-b"}
    assert by_topic({"x-a": 1, "b": 2, "a": 3}, dag_ids) == {"a": 1}


@pytest.mark.parametrize("prefix", ["a b", "ü", "a/b", "a{b}", "a\n", "x" * 65], ids=repr)
def test_a_prefix_of_other_characters_is_refused(config_dir, prefix):
    (config_dir / "defaults.yaml").write_text(f"platform: {{dag_prefix: {prefix!r}}}".replace("'", '"'))
    allowed = "is not allowed: up to 64 of the characters a-z A-Z 0-9 . _ -"
    with pytest.raises(ConfigError, match=rf"defaults\.yaml:1: platform\.dag_prefix: .* {allowed}"):
        load_platform(config_dir)


def test_a_name_that_is_too_long_with_the_prefix_is_refused(config_dir):
    (config_dir / "defaults.yaml").write_text("platform: {dag_prefix: cleantail_}")
    for length in (240, 241):
        (config_dir / "topics" / f"{'a' * length}.yaml").write_text(f"topic: {'a' * length}\n")
    found = {len(file.stem): topic for file, topic in scan_topics(config_dir)}
    assert isinstance(found[240], Topic)
    assert str(found[241]).endswith(
        "at most 240 characters with platform.dag_prefix cleantail_: a DAG id has 250 at most"
    )


@pytest.mark.parametrize(("key", "scan"), [("topic", scan_topics), ("group", scan_groups)])
def test_no_topic_and_no_group_has_the_name_of_cleantails_own_dag(config_dir, key, scan):
    folder = config_dir / f"{key}s"
    folder.mkdir(exist_ok=True)
    for name in ("cleantail_doctor", "Cleantail_Doctor", "doctors"):
        (folder / f"{name}.yaml").write_text(f"{key}: {name}\n")
    wrong = {file.stem: str(error) for file, error in scan(config_dir) if isinstance(error, ConfigError)}
    assert wrong.keys() == {"cleantail_doctor", "Cleantail_Doctor"}
    for name, text in wrong.items():
        assert f'{key}: "{name}" is not allowed: another name: Cleantail has its own DAG of this name' in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("platform: {dag_prefix: ct_}", "ct_"),
        ("platform: {dag_prefix: ct_, x: 1}", "ct_"),
        ("platform: {dag_prefix: 5}", ""),
        ("platform: [", ""),
    ],
)
def test_the_prefix_is_known_where_something_else_is_wrong(config_dir, text, expected):
    (config_dir / "defaults.yaml").write_text(text)
    assert dag_prefix(config_dir) == expected
