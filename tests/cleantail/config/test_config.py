"""Loading the configuration: defaults, merging, and errors that say what to do."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cleantail.config.alert_channels import FileAlert, MailAlert, WebhookAlert
from cleantail.config.loading import DefaultsFile, find_topic, load_platform, load_topic, load_topics, scan_topics
from cleantail.config.secret_filter import is_secret_value
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError

ROOT = Path(__file__).parents[3]

REPOSITORY = Path(__file__).parents[3]
FOUR_LINES = """\
topic: orders.v2
config:
  segment.ms: 1
  min.cleanable.dirty.ratio: 0
"""


@pytest.fixture
def config_dir(tmp_path):
    (tmp_path / "config" / "topics").mkdir(parents=True)
    return tmp_path / "config"


@pytest.fixture
def load(config_dir):
    """Loads a topic from its text, over a defaults.yaml if one is given."""

    def load_text(text, defaults=None, name="t.yaml"):
        if defaults is not None:
            (config_dir / "defaults.yaml").write_text(defaults)
        file = config_dir / "topics" / name
        file.write_text(text)
        return load_topic(file, config_dir)

    return load_text


@pytest.fixture
def problems(load, config_dir):
    """The lines of the error that a topic's text gives, without the file's name."""

    def lines(text, defaults=None):
        with pytest.raises(ConfigError, match=r"\.yaml(:\d+)?: ") as caught:
            load(text, defaults)
        return [str(problem) for problem in caught.value.problems]

    return lines


# ---- what loads


def test_four_lines_are_enough_without_a_defaults_file(load):
    topic = load(FOUR_LINES)
    assert (topic.topic, topic.table, topic.schedule) == ("orders.v2", "cleantail.orders_v2", "*/15 * * * *")
    assert (topic.config.segment_ms, topic.config.min_cleanable_dirty_ratio) == (1, 0.0)
    assert (topic.source.type, topic.source.path, topic.source.isolation) == ("files", None, "read_committed")
    assert (topic.config.compacts, topic.config.deletes, topic.config.effective_segment_ms) == (True, False, 1)
    assert (topic.checks, topic.alerts) == ((), ())


def test_the_defaults_file_of_the_repository_shows_the_built_in_defaults(config_dir):
    (config_dir / "defaults.yaml").write_text((REPOSITORY / "config" / "defaults.yaml").read_text())
    with_file = load_platform(config_dir, {})
    (config_dir / "defaults.yaml").unlink()
    assert with_file == load_platform(config_dir, {})


def test_the_defaults_file_of_the_repository_names_every_default():
    text = (REPOSITORY / "config" / "defaults.yaml").read_text()
    sections = [DefaultsFile().platform.catalog, DefaultsFile().platform.cleaner, DefaultsFile().topic.config]
    names = [field.alias or name for section in sections for name, field in type(section).model_fields.items()]
    assert [name for name in names if f" {name}: " not in text] == []


def test_the_topics_of_the_repository_load_and_differ_in_policy():
    topics = load_topics(REPOSITORY / "config", {})
    rules = {(topic.config.compaction_strategy, topic.config.deletes) for topic in topics}
    assert {("offset", False), ("header", False), ("timestamp", True)} <= rules


def test_a_topic_lies_over_the_defaults(load):
    topic = load(
        "topic: a\nconfig: {segment.ms: 2}\nalerts: [{type: file, path: alerts/b}]\n",
        "topic: {owner: me, config: {segment.ms: 1, segment.bytes: 99}, alerts: [{type: file, path: alerts/a}]}",
    )
    assert (topic.owner, topic.config.segment_ms, topic.config.segment_bytes) == ("me", 2, 99)
    assert topic.alerts == (FileAlert(type="file", path="alerts/b"),)


@pytest.mark.parametrize("text", ["", "# nothing\n", "topic:\n", "platform:\n", "topic: {config: }\n"], ids=repr)
def test_an_empty_section_is_the_default(load, text):
    assert load(FOUR_LINES, text) == load(FOUR_LINES)


def test_null_is_the_default_and_only_a_schedule_can_be_none(load):
    topic = load("topic: a\nowner: null\nschedule: null\nconfig: {segment.ms: null}\n", "topic: {owner: me}")
    assert (topic.owner, topic.schedule, topic.config.segment_ms) == ("me", None, 604_800_000)


def test_the_table_is_in_the_namespace_of_the_catalog(load):
    assert load("topic: a-b", "platform: {catalog: {namespace: lake}}").table == "lake.a_b"
    assert load("topic: a-b\ntable: x.y").table == "x.y"


def test_an_expectation_may_be_named_by_its_class(load):
    topic = load("topic: a\nchecks: [{expectation: ExpectColumnToExist, kwargs: {column: key, column_index: 4}}]")
    (check,) = topic.checks
    assert (check.expectation, check.severity) == ("expect_column_to_exist", "critical")
    assert check.kwargs == {"column": "key", "column_index": 4}


def test_everything_that_is_wrong_with_checks_is_told_at_once(problems):
    told = problems(
        "topic: a\nchecks:\n"
        "- {expectation: expect_column_to_exist, kwargs: {colum: key}}\n"
        "- {expectation: expect_column_values_to_not_be_null, kwargs: {column: keey, mostly: 2}}\n"
    )
    assert told == [
        "checks[0].kwargs.colum: unknown argument: expect_column_to_exist takes column, column_index "
        "(did you mean column?)",
        "checks[0].kwargs.column: missing: a column of the records",
        "checks[1].kwargs.mostly: 2 is not allowed: a number in [0, 1]",
        'checks[1].kwargs.column: no column "keey": columns: partition, offset, timestamp, timestamp_type, key, value, '
        "headers (did you mean key?)",
    ]


def test_a_check_of_an_adopted_table_names_a_column_of_the_mapping(problems, load):
    text = (
        "topic: a\ntable: s.t\ncolumns: {partition: p, offset: o, key: k}\n"
        "checks: [{expectation: expect_column_values_to_not_be_null, kwargs: {column: value}}]\n"
    )
    assert problems(text) == ['checks[0].kwargs.column: no column "value": columns: partition, offset, key']
    assert load(text.replace("column: value", "column: key")).checks[0].kwargs == {"column": "key"}


def test_alerts_are_told_apart_by_their_type(load):
    topic = load(
        "topic: a\nalerts:\n"
        "- {type: mail, to: [a@b.c], from: x@y.z}\n- {type: webhook, conn_id: cleantail_chat}\n- {type: file, path: alerts/a/b}\n"
    )
    assert topic.alerts == (
        MailAlert(type="mail", to=("a@b.c",), conn_id="smtp_default", sender="x@y.z"),
        WebhookAlert(type="webhook", conn_id="cleantail_chat", endpoint=""),
        FileAlert(type="file", path="alerts/a/b"),
    )


@pytest.mark.parametrize(
    "schedule",
    ["0 0 * * *", "*/15 * * * *", "0 6-18/2 1,15 * mon-fri", "5 4 * JAN,JUL 7", "@daily", "@once", "0 22-2 * * fri-mon"]
    + ["0 0 29 2 *", "0 0 31 1 *", "0 0 31 * *", "0 0 31 2-3 *", "0 0 31 4 mon", "0 0 30,31 2/5 *", "0 0 */30 2 *"],
)
def test_a_schedule_is_cron_or_a_preset(load, schedule):
    assert load(f'topic: a\nschedule: "{schedule}"').schedule == schedule


@pytest.mark.parametrize(
    "schedule",
    ["", "daily", "@dayly", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"]
    + [
        "0 0 30 2 *",
        "0 0 31 4 *",
        "0 0 31 apr,jun *",
        "0 0 30-31 2 *",
        "*/0 * * * *",
        "* * * * xyz",
        "1, * * * *",
        "* * * * *\\n",
        "²  * * * *",
        "-1 * * * *",
    ],
    ids=repr,
)
def test_any_other_schedule_is_an_error(problems, schedule):
    (line,) = problems(f'topic: a\nschedule: "{schedule}"')
    assert line.startswith("schedule: ")
    assert "five cron fields" in line


# ---- the platform


def test_the_state_is_in_a_folder_of_the_users_data_and_not_beside_the_configuration(config_dir, tmp_path):
    platform = load_platform(config_dir, {"XDG_DATA_HOME": str(tmp_path / "data")})
    home = platform.home
    assert (home.parent, platform.catalog_uri) == (tmp_path / "data" / "cleantail", f"sqlite:///{home}/catalog.db")
    assert platform.warehouse == f"file:{home}/warehouse"
    assert list(config_dir.parent.glob(".cleantail")) == []


def test_every_configuration_has_a_state_of_its_own(tmp_path):
    folders = [tmp_path / name for name in ("a-b", "a_b", "a")]
    for folder in folders:
        folder.mkdir()
    homes = [load_platform(folder, {"XDG_DATA_HOME": "/data"}).home for folder in folders]
    assert len(set(homes)) == len(folders)
    assert load_platform(folders[0], {"XDG_DATA_HOME": "/data"}).home == homes[0]
    assert load_platform(folders[0], {}).home.is_relative_to(Path.home() / ".local" / "share" / "cleantail")


def test_a_state_that_is_beside_the_configuration_already_is_taken(config_dir, monkeypatch):
    monkeypatch.chdir(config_dir.parent)
    (config_dir.parent / ".cleantail").mkdir()
    assert load_platform(Path("config"), {}).home == config_dir.parent / ".cleantail"


def test_the_state_of_a_checkout_is_in_the_checkout():
    assert load_platform(ROOT / "config", {}).home == ROOT / ".cleantail"


def test_the_environment_and_then_the_defaults_name_another_place_for_the_state(config_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(config_dir.parent)
    (config_dir.parent / ".cleantail").mkdir()
    (config_dir / "defaults.yaml").write_text("platform: {state: /srv/cleantail}")
    assert load_platform(config_dir, {}).home == Path("/srv/cleantail")
    assert load_platform(config_dir, {"CLEANTAIL_HOME": str(tmp_path / "x")}).home == tmp_path / "x"
    assert load_platform(Path("config"), {"CLEANTAIL_HOME": "x"}).home == config_dir.parent / "x"


@pytest.mark.parametrize("text", ["state", "./state", "/srv/a?b", "/srv/a#b", "~/state"])
def test_the_place_of_the_state_in_the_defaults_is_an_absolute_path(config_dir, text):
    (config_dir / "defaults.yaml").write_text(f"platform: {{state: '{text}'}}")
    with pytest.raises(ConfigError, match="platform.state: .* is not allowed: an absolute path without"):
        load_platform(config_dir, {})


def test_settings_of_the_platform_are_texts(config_dir):
    (config_dir / "defaults.yaml").write_text(
        "platform: {spark: {conf: {spark.x: 8, spark.y: true, spark.z: a}}, catalog: {properties: {s3.n: 1}}}"
    )
    platform = load_platform(config_dir, {})
    assert platform.spark.conf == {"spark.x": "8", "spark.y": "true", "spark.z": "a"}
    assert platform.catalog.properties == {"s3.n": "1"}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        pytest.param(
            "catalog: {type: rest}",
            "platform.catalog.uri: null is not allowed: the address of the rest catalog",
            id="server without address",
        ),
        pytest.param(
            "catalog: {type: rest, uri: 'db:8181'}",
            'platform.catalog.uri: "db:8181" is not allowed: an address such as https://host:8181',
            id="address without scheme",
        ),
        pytest.param(
            "catalog: {type: postgres, uri: 'mysql://db/x'}",
            'platform.catalog.uri: "mysql://db/x" is not allowed: an address such as postgresql://host:5432/database',
            id="address of another server",
        ),
        pytest.param(
            "catalog: {type: sqlight}",
            'platform.catalog.type: "sqlight" is not allowed: sqlite, postgres, mysql, rest, glue or hive (did you mean sqlite?)',
            id="unknown catalog",
        ),
        pytest.param(
            "catalog: {name: a.b}",
            'platform.catalog.name: "a.b" is not allowed: characters a-z A-Z 0-9 _',
            id="catalog name",
        ),
        pytest.param(
            "spark: {conf: {master: x}}",
            'platform.spark.conf.master: "master" is not allowed: names that begin with spark., each with a text or a number',
            id="spark key",
        ),
        pytest.param(
            "cleaner: {log.cleaner.threads: 0}",
            "platform.cleaner.log.cleaner.threads: 0 is not allowed: a whole number in [1, 2147483647]",
            id="no threads",
        ),
        pytest.param(
            "home: /tmp",
            "platform.home: unknown key (its value, a text of 4 characters, is not shown): known: state, catalog, "
            "sources, cleaner, spark, limits, data_docs, allow_clock, dag_prefix, alert_connections, kafka_connections, "
            "kafka_servers, imported_folders, kafka_access, shared_sources, source_catalogs, source_tables, erasure_connection, expectations",
            id="home",
        ),
        pytest.param(
            "catalog: {type: jdbc, uri: 'postgres://db/iceberg'}",
            'platform.catalog.type: "jdbc" is not allowed: sqlite, postgres, mysql, rest, glue or hive (did you mean '
            "postgres or mysql?)",
            id="a catalog by Iceberg's word, without what only follows from it",
        ),
    ],
)
def test_an_error_in_the_defaults_names_that_file(config_dir, section, expected):
    file = config_dir / "defaults.yaml"
    file.write_text(f"platform: {{{section}}}")
    with pytest.raises(ConfigError, match="defaults.yaml") as caught:
        load_platform(config_dir, {})
    assert str(caught.value) == f"{file}:1: {expected}"


def test_a_missing_config_directory_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: no such directory: give it with --config DIR"):
        load_platform(tmp_path / "nowhere", {})


# ---- what is refused


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "config: {min.cleanable.dirty.ratio: 1.5}",
            "config.min.cleanable.dirty.ratio: 1.5 is not allowed: a number in [0, 1]",
            id="range",
        ),
        pytest.param(
            "config: {segment.ms: '5'}",
            'config.segment.ms: "5" is not allowed: a whole number, at least 1, or a text with a unit '
            "(ms, s, min, h, d) such as 7d",
            id="type",
        ),
        pytest.param(
            "config: {min.compaction.lag.ms: 6, max.compaction.lag.ms: 5}",
            "config.min.compaction.lag.ms: 6 is not allowed: at most max.compaction.lag.ms, which is 5",
            id="lags",
        ),
        pytest.param(
            "config: {compaction.strategy: header}",
            "config.compaction.strategy.header: required with compaction.strategy: header: the key of the version header",
            id="header",
        ),
        pytest.param(
            "config: {compaction.strategy: heder}",
            'config.compaction.strategy: "heder" is not allowed: offset, timestamp or header; order with columns.order (did you mean header?)',
            id="strategy",
        ),
        pytest.param(
            "config: {cleanup.policy: compat}",
            'config.cleanup.policy: "compat" is not allowed: compact, delete or compact,delete (did you mean compact?)',
            id="policy",
        ),
        pytest.param(
            "config: {message.timestamp.type: createtime}",
            'config.message.timestamp.type: "createtime" is not allowed: CreateTime or LogAppendTime '
            "(did you mean CreateTime?)",
            id="timestamp type",
        ),
        pytest.param(
            "config: {min.compaction.lags.ms: 5}",
            "config.min.compaction.lags.ms: unknown key (its value, a number, is not shown): docs/configs.md lists the known ones "
            "(did you mean min.compaction.lag.ms?)",
            id="unknown config",
        ),
        pytest.param(
            "config: {min.insync.replicas: 2}",
            "config.min.insync.replicas: a config of Kafka's brokers, which Cleantail does not have: an archive has no "
            "replicas of its own",
            id="a broker's config",
        ),
        pytest.param(
            "config: {min.compaction.lag.ms: 48h, max.compaction.lag.ms: 1d}",
            "config.min.compaction.lag.ms: 48h is not allowed: at most max.compaction.lag.ms, which is 1d",
            id="values as they were written",
        ),
        pytest.param(
            "config: {segment.bytes: 13B}",
            "config.segment.bytes: 13B is not allowed: a whole number in [14, 2147483647]",
            id="a size as it was written",
        ),
        pytest.param(
            "segment.ms: 5",
            "segment.ms: unknown key (its value, a number, is not shown): known: schedule, group, owner, config, publish, approvers, checks, alerts, topic, description, table, source, columns "
            "(did you mean config.segment.ms?)",
            id="config in the wrong place",
        ),
        pytest.param(
            "config: [1]",
            "config: [1] is not allowed: a mapping",
            id="list for mapping",
        ),
        pytest.param(
            "table: a.b.c",
            'table: "a.b.c" is not allowed: namespace.name, each of the characters a-z A-Z 0-9 _ -',
            id="table of three parts",
        ),
        pytest.param(
            "table: 'a.b; drop table x'",
            'table: "a.b; drop table x" is not allowed: namespace.name, each of the characters a-z A-Z 0-9 _ -',
            id="table with more than a name",
        ),
        pytest.param(
            "checks: [{expectation: expect_column_values_not_null}]",
            'checks[0].expectation: "expect_column_values_not_null" is not allowed: a core expectation of '
            "Great Expectations that works on Spark and takes neither SQL nor another table, as "
            "expect_column_values_to_not_be_null, or a class of platform.expectations (did you mean expect_column_values_to_not_be_null?)",
            id="expectation",
        ),
        pytest.param(
            "checks: [{expectation: expect_column_value_to_be_json}]",
            'checks[0].expectation: "expect_column_value_to_be_json" is not allowed: a core expectation of Great '
            "Expectations that works on Spark and takes neither SQL nor another table, as "
            "expect_column_values_to_not_be_null, or a class of platform.expectations (did you mean expect_column_values_to_be_json_parseable?)",
            id="the expectation with the most words in common",
        ),
        pytest.param(
            "alerts: [{type: mial}]",
            'alerts[0].type: "mial" is not allowed: apprise, file, mail, slack or webhook (did you mean mail?)',
            id="alert type",
        ),
        pytest.param(
            "alerts: [{type: mail, to: [me]}]",
            'alerts[0].to[0]: "me" is not allowed: a list of mail addresses',
            id="mail address",
        ),
        pytest.param(
            "alerts: [{type: mail, to: []}]",
            "alerts[0].to: [] is not allowed: a list of mail addresses",
            id="no receivers",
        ),
        pytest.param(
            "alerts: [{type: webhook, url: 'https://x.y'}, {type: file, path: alerts/a}]",
            "alerts[0].conn_id: missing: the id of an Airflow connection: characters a-z A-Z 0-9 . _ -\n"
            "alerts[0].url: unknown key (its value, a text of 11 characters, is not shown): known: events, values, type, conn_id, endpoint",
            id="webhook by address",
        ),
        pytest.param(
            "source: {path: ../x}",
            'source.path: "../x" is not allowed: a path or pattern of files, absolute or inside '
            "CLEANTAIL_HOME, without ..",
            id="source path",
        ),
    ],
)
def test_an_error_says_key_value_and_what_is_allowed(problems, line, expected):
    assert "\n".join(problems(f"topic: a\n{line}")) == expected


@pytest.mark.parametrize(
    "path",
    ["/etc/x", "../x", "a/../../x", "a\\b", "", ".", "a\0b", "~/\n", "alerts", "alerts/", "alerts/../x", "alerts/x/"]
    + ["airflow/passwords.json", "landing/victim/alert.jsonl", "jars/.complete-embedded", "Alerts/x", "alerts.jsonl"],
    ids=repr,
)
def test_an_alert_file_is_below_alerts_in_the_home(problems, path):
    quoted = path.encode("unicode_escape").decode().replace("\\x00", "\\0")
    (line,) = problems(f'topic: a\nalerts: [{{type: file, path: "{quoted}"}}]')
    assert line.endswith(
        "is not allowed: a file below alerts/ in CLEANTAIL_HOME, without .., such as alerts/orders.jsonl"
    )


@pytest.mark.parametrize("name", ["''", ".", "..", "a/b", "a b", "'a\n\n'", "é", "5", "x" * 250], ids=repr)
def test_a_topic_is_named_as_in_kafka(problems, name):
    (line,) = problems(f"topic: {name}")
    assert "is not allowed: 1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or .." in line


def test_a_topic_file_needs_its_topic(problems):
    (line,) = problems("config: {segment.ms: 1}")
    assert line.startswith("topic: missing: ")


def test_all_problems_of_a_file_come_at_once(load, config_dir):
    text = "topic: a\nscedule: x\nconfig: {segment.ms: 0, min.compaction.lag.ms: 6, max.compaction.lag.ms: 5}"
    with pytest.raises(ConfigError, match="scedule") as caught:
        load(text)
    file = config_dir / "topics" / "t.yaml"
    assert str(caught.value).splitlines() == [
        f"{file}:3: config.segment.ms: 0 is not allowed: a whole number, at least 1",
        f"{file}:2: scedule: unknown key (its value, a text of 1 character, is not shown): known: schedule, group, owner, config, publish, approvers, checks, alerts, topic, description, table, source, columns "
        "(did you mean schedule?)",
        f"{file}:3: config.min.compaction.lag.ms: 6 is not allowed: at most max.compaction.lag.ms, which is 5",
    ]


def test_the_error_holds_its_parts_for_machines(load):
    with pytest.raises(ConfigError, match="severity") as caught:
        load("topic: a\nchecks: [{expectation: expect_column_to_exist, severity: Critical}]")
    error = caught.value
    assert (error.file.name, error.key, error.value) == ("t.yaml", "checks[0].severity", "Critical")
    assert (error.allowed, error.nearest) == ("critical, warning or info", "critical")
    assert error.exit_code == 2


def test_a_long_or_unprintable_value_stays_on_one_short_line(problems):
    (line,) = problems(f'topic: a\nowner: ["\\n\\e[31m{"x" * 500}"]')
    assert line.isprintable()
    assert len(line) < 150


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("topic: a\ntopic: b", "line 2: the key topic occurs twice", id="duplicate key"),
        pytest.param("topic: a\nconfig: {a: 1, a: 1}", "line 2: the key a occurs twice", id="inner duplicate"),
        pytest.param("a: &x {b: 1}\nc: *x", "line 2: an alias", id="alias"),
        pytest.param("topic: a\nschedule: */5 * * * *", "quote a text that starts with * or @", id="bare cron"),
        pytest.param("topic: a\nschedule: @daily", "quote a text that starts with * or @", id="bare preset"),
        pytest.param("topic: [", "line 2: did not find expected", id="open bracket"),
        pytest.param("[" * 60_000, "nested more than 20 levels deep", id="stack overflow"),
        pytest.param("topic: !!python/name:os.system a", "line 1: a tag is not allowed", id="python object"),
        pytest.param("- a", "not a mapping", id="list"),
        pytest.param("a", "not a mapping", id="text"),
        pytest.param("topic: a\n---\ntopic: b", "another document", id="two documents"),
    ],
)
def test_what_is_not_a_plain_yaml_mapping_is_refused(problems, text, expected):
    (line,) = problems(text)
    assert expected in line


@pytest.mark.parametrize(
    "value",
    ["!hunter2", "!hunter2 x", "!!int hunter2", "!!float hunter2", "!!bool hunter2", "!!timestamp hunter2", "! hunter2"]
    + ["!<hunter2> x", "!hunter2 {a: b}", "!hunter2 [a]", "!hunter2!x y"],
)
def test_a_tag_is_refused_and_what_is_written_in_it_is_not_shown(problems, value):
    """A password may begin with !."""
    (line,) = problems(f"topic: t\nowner: {value}\n")
    assert "line 2: a tag is not allowed: quote a text that starts with !" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("text", ["? [a, b]\n: c", "? {a: b}\n: c", "config: {[a]: 1}"])
def test_a_key_that_is_no_scalar_is_one_files_error(problems, text):
    (line,) = problems(f"topic: t\n{text}\n")
    assert "not valid YAML" in line
    assert "a key that is not text: quote it" in line


@pytest.mark.parametrize("value", ["1:30", "0777", "0x1f", "0b11"])
def test_a_number_that_only_yaml_1_1_knows_is_no_number(problems, value):
    (line,) = problems(f"topic: t\nconfig: {{segment.ms: {value}}}")
    assert f'config.segment.ms: "{value}" is not allowed' in line


@pytest.mark.parametrize("character", "?%#")
def test_a_home_that_no_address_can_hold_is_refused(config_dir, character):
    with pytest.raises(ConfigError, match="CLEANTAIL_HOME"):
        load_platform(config_dir, {"CLEANTAIL_HOME": f"/tmp/a{character}b"})


def test_bytes_that_are_not_text_are_refused(config_dir):
    file = config_dir / "topics" / "a.yaml"
    file.write_bytes(b"topic: \xff\xfe\x00")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_topic(file, config_dir)


def test_a_missing_file_is_an_error(config_dir):
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read: No such file or directory"):
        load_topic(config_dir / "none.yaml", config_dir)


def test_a_date_in_yaml_stays_text(load):
    (check,) = load(
        "topic: a\nchecks: [{expectation: expect_column_max_to_be_between, "
        "kwargs: {column: timestamp, max_value: 2024-01-01}}]"
    ).checks
    assert check.kwargs == {"column": "timestamp", "max_value": "2024-01-01"}


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter2",
        "source: {aws_secret: hunter2}",
        "config: {sasl.jaas.config: hunter2}",
        "alerts: [{type: webhook, conn_id: x, token: hunter2}]",
        "alerts: [{type: webhook, conn_id: x, access_key: hunter2}]",
        "source: {path: 's3://me:hunter2@host/x'}",
        "description: 'jdbc:x?password=hunter2'",
        "checks: [{expectation: expect_column_to_exist, kwargs: {apiKey: hunter2}}]",
    ],
)
def test_a_secret_is_refused_and_not_repeated(problems, line):
    (first, *others) = problems(f"topic: a\n{line}")
    assert (
        "secrets are not allowed in YAML: set an environment variable (CLEANTAIL_…), or write the id of an Airflow connection"
        in first
    )
    assert "hunter2" not in "\n".join([first, *others])


def test_a_secret_in_the_defaults_is_refused(problems):
    (line,) = problems("topic: a", "platform: {catalog: {properties: {s3.secret-access-key: hunter2}}}")
    assert line.startswith("platform.catalog.properties.s3.secret-access-key: secrets are not allowed in YAML")


# ---- many topics


def test_a_broken_file_does_not_hide_the_others(config_dir):
    for name, text in {"a": "topic: a", "b": "tpoic: b", "c": "topic: c", "d": "topic: ["}.items():
        (config_dir / "topics" / f"{name}.yaml").write_text(text)
    found = {file.stem: result for file, result in scan_topics(config_dir)}
    assert {name: type(result) for name, result in found.items()} == {
        "a": Topic,
        "b": ConfigError,
        "c": Topic,
        "d": ConfigError,
    }


def test_broken_defaults_are_an_error_of_every_topic(config_dir):
    (config_dir / "defaults.yaml").write_text("topik: {}")
    (config_dir / "topics" / "a.yaml").write_text("topic: a")
    ((_, error),) = scan_topics(config_dir)
    assert (
        "topik: unknown key (its value, a mapping of 0 keys, is not shown): known: format, platform, groups, topic (did you mean topic?)"
        in str(error)
    )


def test_loading_all_topics_stops_at_the_first_error(config_dir):
    (config_dir / "topics" / "1.yaml").write_text("topic: '1'")
    (config_dir / "topics" / "2.yaml").write_text("topic: 5")
    with pytest.raises(ConfigError, match=r"2\.yaml:1: topic: 5 is not allowed"):
        load_topics(config_dir, {})


def test_only_yaml_files_are_topics(config_dir):
    for name in ("a.yaml", "b.yml", ".#a.yaml", "c.yaml~", "README.md"):
        (config_dir / "topics" / name).write_text(f"topic: {name[0]}")
    assert [topic.topic for topic in load_topics(config_dir, {})] == ["a", "b"]


def test_a_topic_is_found_by_its_name_although_others_are_broken(config_dir):
    (config_dir / "topics" / "1.yaml").write_text("topic: [")
    (config_dir / "topics" / "orders.yaml").write_text("topic: orders")
    assert find_topic("orders", config_dir).topic == "orders"


def test_a_broken_topic_is_found_with_its_error(config_dir):
    (config_dir / "topics" / "orders.yaml").write_text("topic: orders\nx: 1")
    with pytest.raises(ConfigError, match=r"orders\.yaml:2: x: unknown key"):
        find_topic("orders", config_dir)


def test_an_unknown_topic_is_an_error_with_the_nearest_name(config_dir):
    (config_dir / "topics" / "orders.yaml").write_text("topic: orders")
    with pytest.raises(ConfigError, match=r"no topic order: topics: orders \(did you mean orders\?\)"):
        find_topic("order", config_dir)


# ---- imports


def test_the_configuration_imports_nothing_heavy():
    heavy = ["pyspark", "airflow", "great_expectations", "pyiceberg", "pyarrow"]
    code = f"import sys, cleantail.config.loading; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.strip() == "[]"


# ---- a file that would hold up the scheduler


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("# " + "x" * 70_000, r"too long: a file of at most 65536 bytes", id="a long file"),
        pytest.param(
            f"topic: a\ndescription: '{'x' * 5000}'", r"description: a text of 5000 characters", id="a long text"
        ),
        pytest.param(f"topic: a\n? {'x' * 5000}\n: 1", r"a key of 5000 characters", id="a long key"),
        pytest.param(f"topic: a\napprovers: ['://{':' * 4000}']", r"approvers\[0\]", id="many colons"),
        pytest.param(
            "topic: a\nconfig:\n" + "".join(f" s{i}.ms: 1\n" for i in range(4000)),
            r"more than 50 problems: correct the first ones",
            id="thousands of unknown keys",
        ),
    ],
)
def test_no_file_takes_long_to_be_refused(config_dir, text, reason):
    """The DAG processor reads every file at each parse: one that takes minutes would stop all topics."""
    (config_dir / "topics").mkdir(exist_ok=True)
    file = config_dir / "topics" / "a.yaml"
    file.write_text(text)
    began_s = time.process_time()
    with pytest.raises(ConfigError, match=reason) as caught:
        load_topic(file, config_dir)
    assert time.process_time() - began_s < 30
    assert len(str(caught.value)) < 60_000


def test_the_search_for_secrets_takes_time_by_the_length_of_a_text():
    """A text of the longest file took minutes by its square."""
    began_s = time.process_time()
    for text in ("://" + ":" * 65_000, "://:" * 16_000, "eyJ" * 1365, "eyJ-" * 1000, "basic " * 680, "bearer" * 680):
        assert not is_secret_value(text)
    for text in (
        "://:1/" * 11_000 + "?@",
        "password: who and " * 3_600,
        "jdbc:oracle:thin:u/" * 3_400,
        "&auth=none" * 6_000,
    ):
        assert not is_secret_value(text)
    assert is_secret_value("https://user:pass:word@host")
    assert time.process_time() - began_s < 30


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("compaction.strategy.header", "v\n\n![b](http://evil.example/beacon.png)"),
        ("compaction.strategy.header", "v\u202e"),
        ("owner", "me\n# Log in again"),
    ],
)
def test_what_airflow_shows_is_on_one_printable_line(problems, key, text):
    lines = {"owner": f"owner: {json.dumps(text)}"}.get(key, f"config: {{{key}: {json.dumps(text)}}}")
    assert any(
        "one printable line of up to 250 characters" in str(problem) for problem in problems(f"topic: a\n{lines}\n")
    )


@pytest.mark.parametrize("text", ["%d%d", "%Y" * 1000, "%99999999d"], ids=["twice", "often", "wide"])
def test_a_time_format_that_python_cannot_take_is_a_problem_of_its_file_alone(tmp_path, text):
    """strptime makes a regular expression of it, whose errors are of another kind."""
    kwargs = {"column": "value", "strftime_format": text}
    check = {"expectation": "expect_column_values_to_match_strftime_format", "kwargs": kwargs}
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "a.yaml").write_text(json.dumps({"topic": "a", "checks": [check]}))
    (tmp_path / "topics" / "b.yaml").write_text("topic: b\n")
    [(_, wrong), (_, right)] = scan_topics(tmp_path)
    assert isinstance(wrong, ConfigError) and "checks[0].kwargs.strftime_format" in str(wrong)
    assert right.topic == "b"


def test_a_defect_in_reading_one_file_hides_no_other_topic(tmp_path, monkeypatch):
    from cleantail.config import loading as config

    real = config._topic
    monkeypatch.setattr(config, "_topic", lambda file, *more: 1 // 0 if file.stem == "a" else real(file, *more))
    (tmp_path / "topics").mkdir()
    for name in "ab":
        (tmp_path / "topics" / f"{name}.yaml").write_text(f"topic: {name}\n")
    [(_, wrong), (_, right)] = scan_topics(tmp_path)
    assert isinstance(
        wrong, ConfigError
    ) and "cannot be read because of a defect of Cleantail: ZeroDivisionError" in str(wrong)
    assert right.topic == "b"


@pytest.mark.parametrize("column", [{}, [], {"a": []}, 1, None], ids=["mapping", "list", "nested", "number", "null"])
def test_a_column_that_is_no_text_is_a_problem_of_its_file_alone(tmp_path, column):
    kwargs = {"column": column, "min_value": 1, "max_value": "2026-01-01"}
    (tmp_path / "topics").mkdir()
    check = {"expectation": "expect_column_values_to_be_between", "kwargs": kwargs}
    (tmp_path / "topics" / "a.yaml").write_text(json.dumps({"topic": "a", "checks": [check]}))
    (tmp_path / "topics" / "b.yaml").write_text("topic: b\n")
    [(_, wrong), (_, right)] = scan_topics(tmp_path)
    assert isinstance(wrong, ConfigError) and "checks[0].kwargs.column" in str(wrong)
    assert right.topic == "b"
