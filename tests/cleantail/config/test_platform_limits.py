"""Which of Airflow's connections a topic's alerts may use: those that the platform lists."""

import pytest

from cleantail.config.loading import load_topic, scan_topics
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError
from cleantail_cli import main


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config" / "topics").mkdir(parents=True)
    return tmp_path / "config"


def topic_with(config, alert, defaults=""):
    (config / "defaults.yaml").write_text(defaults)
    file = config / "topics" / "a.yaml"
    file.write_text(f"topic: a\nalerts:\n  - {alert}\n")
    return load_topic(file, config)


@pytest.mark.parametrize(
    "alert",
    [
        "{type: mail, to: [a@b.c]}",
        "{type: apprise}",
        "{type: slack, conn_id: cleantail_slack}",
        "{type: webhook, conn_id: cleantail_}",
        "{type: file, path: alerts/x}",
    ],
)
def test_the_default_connections_and_those_named_for_cleantail_may_be_used(config, alert):
    assert len(topic_with(config, alert).alerts) == 1


@pytest.mark.parametrize(
    ("alert", "conn_id"),
    [
        ("{type: webhook, conn_id: salesforce}", "salesforce"),
        ("{type: slack, conn_id: my_cleantail_}", "my_cleantail_"),
        ("{type: slack, conn_id: Cleantail_x}", "Cleantail_x"),
        ("{type: mail, to: [a@b.c], conn_id: smtp_payroll}", "smtp_payroll"),
        ("{type: apprise, conn_id: pager}", "pager"),
    ],
)
def test_any_other_connection_is_an_error_that_says_what_to_write(config, alert, conn_id):
    with pytest.raises(ConfigError, match=r"a\.yaml:3: alerts\[0\]\.conn_id: ") as caught:
        topic_with(config, alert)
    assert str(caught.value).endswith(
        f'"{conn_id}" is not allowed: a connection that platform.alert_connections in defaults.yaml lists: smtp_default, '
        "apprise_default, cleantail_*; list it there"
    )


def test_the_platform_lists_others(config):
    alert = "{type: slack, conn_id: crm_slack}"
    assert topic_with(config, alert, "platform: {alert_connections: [crm_slack]}").alerts
    assert topic_with(config, alert, "platform: {alert_connections: ['crm_*']}").alerts
    for listed in ("[]", "[crm]", "[crm_slack2]"):
        with pytest.raises(ConfigError, match="list it there"):
            topic_with(config, alert, f"platform: {{alert_connections: {listed}}}")


@pytest.mark.parametrize("entry", ["'*'", "'a*b'", "'a b'", "'**'", "''", "5"])
def test_an_entry_is_an_id_or_the_beginning_of_one(config, entry):
    with pytest.raises(ConfigError, match=r"platform\.alert_connections(\[0\])?: .* is not allowed: "):
        topic_with(config, "{type: apprise}", f"platform: {{alert_connections: [{entry}]}}")


def test_check_config_says_so_and_goes_on_with_the_other_topics(config, capsys):
    (config / "topics" / "b.yaml").write_text("topic: b\n")
    (config / "topics" / "a.yaml").write_text("topic: a\nalerts: [{type: slack, conn_id: x}]\n")
    assert main(["check-config", "--config", str(config)]) == 2
    assert "a.yaml:2: alerts[0].conn_id" in "".join(capsys.readouterr())
    assert {file.stem: isinstance(topic, Topic) for file, topic in scan_topics(config)} == {"a": False, "b": True}


def topic_in_kafka(config, kafka, defaults=""):
    (config / "defaults.yaml").write_text(defaults)
    file = config / "topics" / "a.yaml"
    file.write_text(f"topic: a\nsource:\n  kafka: {kafka}\n")
    return load_topic(file, config).source.kafka


@pytest.mark.parametrize("conn_id", ["kafka_default", "kafka_eu", "cleantail_lake"])
def test_the_default_connections_of_kafka_may_be_used(config, conn_id):
    assert topic_in_kafka(config, f"{{connection: {conn_id}}}").connection == conn_id


def test_a_topic_reads_by_no_other_connection_than_those_that_the_platform_lists(config):
    with pytest.raises(ConfigError, match=r"a\.yaml:3: source\.kafka\.connection: ") as caught:
        topic_in_kafka(config, "{connection: payroll}")
    assert str(caught.value).endswith(
        '"payroll" is not allowed: a connection that platform.kafka_connections in defaults.yaml lists: kafka_*, '
        "cleantail_*; list it there"
    )
    assert topic_in_kafka(config, "{connection: payroll}", "platform: {kafka_connections: [payroll]}")


def test_brokers_may_be_named_unless_the_platform_says_which(config):
    two = '{bootstrap.servers: "a:1,b:2"}'
    assert topic_in_kafka(config, two)
    assert topic_in_kafka(config, two, 'platform: {kafka_servers: ["b:2", "a:1"]}')
    for listed in ("[]", '["a:1"]', '["a:1,b:2"]'):
        with pytest.raises(ConfigError, match=r"kafka_servers"):
            topic_in_kafka(config, two, f"platform: {{kafka_servers: {listed}}}")
