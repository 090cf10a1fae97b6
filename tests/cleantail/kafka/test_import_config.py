"""Topic YAML from what Kafka 4.3's own kafka-configs printed (tests/cleantail/kafka/kafka_configs), and from older formats."""

import io
import json
import os
from pathlib import Path

import pytest
import yaml

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.loading import load_topic
from cleantail.errors import BadLineError, CleantailError
from cleantail.kafka import import_config
from cleantail.kafka.import_config import (
    DescribedConfig,
    DescribedTopic,
    carried_over,
    client_settings,
    parse_described,
)
from cleantail_cli import configuration_commands, main

CAPTURED = Path(__file__).with_name("kafka_configs")
DESCRIBE, DESCRIBE_ALL = CAPTURED / "describe.txt", CAPTURED / "describe-all.txt"
ORDERS = {
    "cleanup_policy": frozenset({"compact"}),
    "delete_retention_ms": 3_600_000,
    "max_compaction_lag_ms": 7_200_000,
    "message_timestamp_type": "LogAppendTime",
    "min_cleanable_dirty_ratio": 0.3,
    "segment_ms": 600_000,
}


@pytest.fixture
def empty(project):
    """A configuration without topics."""
    (project / "config" / "topics" / "orders.yaml").unlink()
    return project / "config"


@pytest.fixture
def run(project, capsys):
    """Runs a command over the project's configuration: (exit code, stdout, stderr)."""

    def command(*arguments):
        code = main([*map(str, arguments), "--config", str(project / "config")])
        return (code, *capsys.readouterr())

    return command


def imported(config, topic="orders.v2"):
    return load_topic(config / "topics" / f"{topic}.yaml", config)


@pytest.mark.parametrize("file", [DESCRIBE, DESCRIBE_ALL], ids=["what is set", "--all"])
def test_the_configs_of_a_topic_are_carried_over_with_their_names(empty, run, file):
    assert run("import-config", file, "--topic", "orders.v2")[0] == 0
    configs = imported(empty).config
    assert {name: getattr(configs, name) for name in ORDERS} == ORDERS
    assert configs.model_fields_set == {*ORDERS}
    code, _, err = run("check-config")
    assert (code, "no effect" in err) == (0, False), err


def test_configs_that_cleantail_does_not_have_are_listed_with_the_reason(empty, run):
    _, out, _ = run("import-config", DESCRIBE)
    text = (empty / "topics" / "orders.v2.yaml").read_text()
    for line in (
        "compression.type=zstd: data files are Parquet, compressed with zstd",
        "min.insync.replicas=1: an archive has no replicas of its own",
        "follower.replication.throttled.replicas=*: an archive has no replicas of its own",
    ):
        assert f"# {line}\n" in text
        assert f"  not carried over: {line}\n" in out


def test_topics_that_are_not_compacted_are_told_and_written_only_when_they_are_named(empty, run):
    code, out, _ = run("import-config", DESCRIBE)
    assert code == 0
    assert sorted(f.name for f in (empty / "topics").iterdir()) == ["both.yaml", "orders.v2.yaml"]
    for topic in ("plain-events", "nothing_set"):
        assert f"{topic}: {empty}/topics/{topic}.yaml not written: the topic is not compacted in Kafka" in out
    run("import-config", DESCRIBE, "--topic", "nothing_set", "--topic", "plain-events")
    assert not imported(empty, "nothing_set").config.compacts  # Kafka's default policy, not Cleantail's
    assert imported(empty, "plain-events").config.retention_ms == 86_400_000
    assert imported(empty, "both").config.cleanup_policy == {"compact", "delete"}


def test_an_existing_file_is_left_as_it_is_unless_forced(empty, run):
    mine = empty / "topics" / "orders.v2.yaml"
    mine.write_text("topic: orders.v2\nconfig: {segment.ms: 5}\n")
    code, out, _ = run("import-config", DESCRIBE)
    assert (code, "exists already and is kept; --force overwrites it" in out) == (0, True)
    assert imported(empty).config.segment_ms == 5
    run("import-config", DESCRIBE, "--force")
    assert imported(empty).config.segment_ms == 600_000


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_a_topic_file_created_during_an_import_is_not_overwritten(empty, run, monkeypatch, links):
    mine, validate = empty / "topics" / "orders.v2.yaml", import_config.validated
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", lambda *_: os.link("/", "/nowhere/at/all"))

    def meanwhile(*arguments):
        mine.write_text("topic: orders.v2\nconfig: {segment.ms: 5}\n")
        return validate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(import_config, "validated", meanwhile)
        code, out, _ = run("import-config", DESCRIBE, "--topic", "orders.v2")
    assert (code, "exists already and is kept" in out) == (2, True)
    assert imported(empty).config.segment_ms == 5
    mine.unlink()
    assert run("import-config", DESCRIBE, "--topic", "orders.v2")[0] == 0
    assert imported(empty).config.segment_ms == 600_000
    assert [file.name for file in (empty / "topics").iterdir()] == [mine.name]


def test_a_topic_is_found_whatever_suffix_its_file_has(empty, run):
    (empty / "topics" / "orders.v2.yml").write_text("topic: orders.v2\n")
    code, out, _ = run("import-config", DESCRIBE, "--topic", "orders.v2")
    assert (code, "topics/orders.v2.yml exists already" in out) == (2, True)


def described(project, *names):
    file = project / "described.txt"
    lines = [
        f"Dynamic configs for topic {n} are:\n  cleanup.policy=compact sensitive=false synonyms={{}}\n" for n in names
    ]
    file.write_text("".join(lines))
    return file


def test_an_imported_topic_takes_no_name_that_another_topic_has(empty, run, project):
    assert run("import-config", described(project, "prices", "prices_latest", "prices-latest"))[0] == 0
    tables = [load_topic(file, empty).table for file in sorted((empty / "topics").iterdir())]
    assert tables == ["cleantail.prices_latest__2", "cleantail.prices", "cleantail.prices_latest_"]
    assert run("check-config")[0] == 0


def test_a_topic_that_differs_from_another_in_its_case_alone_is_not_imported_where_the_catalog_folds_it(
    empty, run, project
):
    (empty / "defaults.yaml").write_text("platform: {catalog: {type: mysql, uri: 'mysql://h:1/d'}}")
    code, _, err = run("import-config", described(project, "prices", "Prices"))
    assert (code, 'Prices.yaml: topic: "Prices" is not allowed: also the topic of prices.yaml' in err) == (2, True)
    assert list((empty / "topics").iterdir()) == []


def test_machines_get_the_same(empty, run):
    code, out, _ = run("import-config", DESCRIBE, "--json")
    found = {t["topic"]: t for t in json.loads(out)["topics"]}
    assert code == 0
    assert {name: t["status"] for name, t in found.items()} == {
        "orders.v2": "written",
        "nothing_set": "not compacted",
        "plain-events": "not compacted",
        "both": "written",
    }
    assert found["orders.v2"]["left_out"][0].startswith("compression.type=zstd: ")


def test_a_description_is_read_from_standard_input(empty, run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(DESCRIBE.read_text()))
    assert run("import-config", "-")[0] == 0
    assert imported(empty).config.segment_ms == 600_000


def test_two_names_that_would_share_a_table_do_not(empty, run, tmp_path):
    line = "  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact}\n"
    file = tmp_path / "described.txt"
    file.write_text("".join(f"Dynamic configs for topic {t} are:\n{line}" for t in ("a-b", "a_b")))
    assert run("import-config", file)[0] == 0
    assert [imported(empty, t).table for t in ("a-b", "a_b")] == ["cleantail.a_b", "cleantail.a_b_2"]
    assert run("check-config")[0] == 0


def test_nothing_is_written_when_one_topic_cannot_be(empty, run, tmp_path):
    text = DESCRIBE.read_text().replace("max.compaction.lag.ms=7200000 ", "max.compaction.lag.ms=0 ")
    file = tmp_path / "described.txt"
    file.write_text(text)
    code, _, err = run("import-config", file)
    assert (code, list((empty / "topics").iterdir())) == (2, [])
    assert "orders.v2.yaml: config.max.compaction.lag.ms: 0 is not allowed" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("hello\n", "1: not a line that kafka-configs --describe", id="something else"),
        pytest.param("  a=b sensitive=false synonyms={}\n", "1: not a line", id="no topic before"),
        pytest.param("Dynamic configs for broker 1 are:\n", "describes a broker, not a topic", id="a broker's"),
        pytest.param("\nConfigs for topic 'a' are:\nx\n", "3: not a line", id="in between"),
    ],
)
def test_what_is_no_description_is_named_by_its_line(text, message):
    with pytest.raises(BadLineError, match=message):
        parse_described(io.StringIO(text), "f")


@pytest.mark.parametrize("topic", ["..", "a/b", "x" * 250])
def test_a_name_that_is_no_topics_is_refused(empty, run, tmp_path, topic):
    file = tmp_path / "described.txt"
    file.write_text(f"Configs for topic '{topic}' are cleanup.policy=compact\n")
    code, _, err = run("import-config", file)
    assert (code, list((empty / "topics").iterdir())) == (2, [])
    assert ": topic: " in err and "is not allowed: 1 to 249 of the characters" in err


def test_brokers_before_2_5_describe_a_topic_on_one_line():
    line = "Configs for topic 'orders' are cleanup.policy=compact,delete,min.compaction.lag.ms=5,compression.type=lz4"
    [found] = parse_described([line], "f")
    assert {c.name: c.value for c in found.configs.values()} == {
        "cleanup.policy": "compact,delete",
        "min.compaction.lag.ms": "5",
        "compression.type": "lz4",
    }


def test_a_hidden_value_is_told_and_not_written():
    lines = [
        "Dynamic configs for topic a are:",
        "  my.key=null sensitive=true synonyms={DYNAMIC_TOPIC_CONFIG:my.key=null}",
    ]
    [found] = parse_described(lines, "f")
    assert carried_over(found, KafkaConfigs()).left_out == (("my.key", "(hidden)", "the broker does not show it"),)


def test_what_the_broker_sets_for_its_topics_is_written_where_it_differs():
    configs = [
        DescribedConfig("segment.bytes", "1048576", "STATIC_BROKER_CONFIG"),
        DescribedConfig("delete.retention.ms", "86400000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        DescribedConfig("message.timestamp.after.max.ms", "3600000", "DEFAULT_CONFIG"),
        DescribedConfig("cleanup.policy", "compact", "STATIC_BROKER_CONFIG"),
    ]
    carried = carried_over(DescribedTopic("a", {c.name: c for c in configs}), KafkaConfigs())
    assert dict(carried.configs) == {"segment.bytes": 1_048_576}


@pytest.mark.parametrize(("policy", "written"), [("compact", {}), ("compact,delete", {"retention.ms": -1})])
def test_what_the_broker_sets_is_written_where_the_policy_uses_it(policy, written):
    configs = [
        DescribedConfig("retention.ms", "-1", "STATIC_BROKER_CONFIG"),
        DescribedConfig("cleanup.policy", policy, "DYNAMIC_TOPIC_CONFIG"),
    ]
    carried = carried_over(DescribedTopic("a", {c.name: c for c in configs}), KafkaConfigs())
    assert dict(carried.configs) == {"cleanup.policy": policy, **written}


def test_what_a_list_of_dynamic_configs_has_is_set_on_the_topic_whatever_its_synonyms(empty, run, project):
    file = project / "described.txt"
    file.write_text(
        "Dynamic configs for topic billing are:\n"
        "  cleanup.policy=compact sensitive=false synonyms={}\n"
        "  delete.retention.ms=3600000 sensitive=false synonyms={}\n"
        "  min.insync.replicas=2 sensitive=false synonyms={}\n"
    )
    code, out, _ = run("import-config", file)
    assert (code, imported(empty, "billing").config.delete_retention_ms) == (0, 3_600_000)
    assert "not carried over: min.insync.replicas=2: an archive has no replicas of its own" in out


def test_a_topic_read_from_brokers_is_written_with_its_source(empty, run, monkeypatch):
    topic = DescribedTopic("prod.payments", {"cleanup.policy": DescribedConfig("cleanup.policy", "compact", "x")})
    monkeypatch.setattr(configuration_commands, "describe", lambda *_: [topic])
    code, out, _ = run("import-config", "--bootstrap-server", "b-1:9092,b-2:9092", "--topic", "prod.payments")
    assert (code, "source: read from b-1:9092,b-2:9092" in out) == (0, True), out
    source = imported(empty, "prod.payments").source.kafka
    assert (source.bootstrap_servers, source.topic) == ("b-1:9092,b-2:9092", None)
    assert run("check-config")[0] == 0


def test_a_topic_of_a_file_says_that_it_has_no_source_and_how_to_give_one(empty, run):
    _, out, _ = run("import-config", DESCRIBE, "--topic", "orders.v2")
    text = (empty / "topics" / "orders.v2.yaml").read_text()
    assert "source: none; without one, add source.kafka" in out
    assert (
        "# No source is known. To read the topic from Kafka: source: {kafka: {bootstrap.servers: host:9092}}\n" in text
    )
    [line] = [line for line in text.splitlines() if line.startswith("# No source")]
    (empty / "topics" / "orders.v2.yaml").write_text(text + line.partition("from Kafka: ")[2])
    assert imported(empty).source.kafka.bootstrap_servers == "host:9092"


def test_brokers_that_do_not_answer_are_named_with_the_reason_in_words(empty, run, monkeypatch):
    monkeypatch.setattr(import_config, "ANSWER_TIMEOUT_S", 2)
    code, _, err = run("import-config", "--bootstrap-server", "127.0.0.1:1")
    assert code == 4
    assert "127.0.0.1:1: the brokers do not answer: " in err and "Connection refused" in err, err
    assert "Local: " not in err


def test_a_ratio_as_java_writes_small_ones_is_a_number():
    described = DescribedTopic(
        "a", {"x": DescribedConfig("min.cleanable.dirty.ratio", "0.001", "DYNAMIC_TOPIC_CONFIG")}
    )
    assert carried_over(described, KafkaConfigs()).configs["min.cleanable.dirty.ratio"] == 0.001


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "give either FILE (- is stdin) or --bootstrap-server", id="neither"),
        pytest.param(["f", "--bootstrap-server", "h:1"], "give either FILE", id="both"),
        pytest.param(["--bootstrap-server", "h"], "--bootstrap-server is not host:port", id="no port"),
        pytest.param(["/nowhere.txt"], "error: /nowhere.txt cannot be read: No such file or directory\n", id="no file"),
        pytest.param(
            [str(DESCRIBE), "--topic", "x"], "topic x is not described; described are: orders.v2", id="unknown"
        ),
        pytest.param(
            ["--bootstrap-server", "h:1", "--command-config", "/nowhere"], "/nowhere: No such file", id="no props"
        ),
    ],
)
def test_a_wrong_source_is_an_error_in_words(empty, run, arguments, message):
    code, _, err = run("import-config", *arguments)
    assert (code, message in err) == (2, True), err


def test_without_the_kafka_client_the_extra_is_named(empty, run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    code, _, err = run("import-config", "--bootstrap-server", "127.0.0.1:1")
    assert (code, "pip install confluent-kafka" in err) == (2, True)


def test_the_clients_properties_are_librdkafkas(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("# mine\nsecurity.protocol=SASL_SSL\nsasl.password=p=q\n")
    found = client_settings("h:1", file)
    assert {k: found[k] for k in ("bootstrap.servers", "security.protocol", "sasl.password")} == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.password": "p=q",
    }
    file.write_text("sasl.jaas.config=x\n")
    with pytest.raises(CleantailError, match="sasl.jaas.config is a setting of Java clients: use sasl.username"):
        client_settings("h:1", file)


SET = "DYNAMIC_TOPIC_CONFIG"


@pytest.mark.parametrize(
    ("set_on_topic", "written", "comment"),
    [
        pytest.param(
            {"cleanup.policy": "compact", "retention.ms": "-1"},
            {"cleanup.policy": "compact"},
            "retention.ms=-1: has no effect: cleanup.policy is compact, without delete",
            id="kept for ever, though nothing is deleted",
        ),
        pytest.param(
            {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"},
            {"cleanup.policy": "compact,delete", "retention.ms": -1, "retention.bytes": -1},
            "",
            id="no limits",
        ),
        pytest.param(
            {"cleanup.policy": "compact,delete", "retention.bytes": "-100"},  # Kafka has no lower end of this range
            {"cleanup.policy": "compact,delete", "retention.bytes": -1},
            "",
            id="no limit, in other words",
        ),
        pytest.param(
            {"cleanup.policy": "", "retention.ms": "60000"},  # Kafka 4.2 and later: no record is ever removed
            {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1},
            "cleanup.policy=: written as delete without limits, which removes no record either",
            id="no policy",
        ),
        pytest.param(
            {
                "cleanup.policy": "compact",
                "message.timestamp.type": "LogAppendTime",
                "message.timestamp.after.max.ms": "5",
            },
            {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
            "message.timestamp.after.max.ms=5: has no effect: message.timestamp.type is LogAppendTime",
            id="a bound of a clock that is not used",
        ),
    ],
)
def test_special_values_are_carried_over_as_kafka_means_them(empty, run, project, set_on_topic, written, comment):
    lines = [
        f"  {name}={value} sensitive=false synonyms={{{SET}:{name}={value}}}\n" for name, value in set_on_topic.items()
    ]
    file = project / "described.txt"
    file.write_text("Dynamic configs for topic a are:\n" + "".join(lines))
    code, _, err = run("import-config", file, "--topic", "a")
    assert code == 0, err
    text = (empty / "topics" / "a.yaml").read_text()
    assert yaml.safe_load(text)["config"] == written
    assert (f"# {comment}\n" in text) if comment else ("Not carried over" not in text)
    assert "no effect" not in run("check-config")[2]
