"""Groups of topics: what their files may say, and what a topic in a group may not."""

import json
import re

import jsonschema
import pytest

from cleantail.config.loading import find_group, find_topic, may_run_in, scan_groups, scan_topics
from cleantail.config.settings_in_force import settings_in_force
from cleantail.errors import ConfigError
from cleantail_cli import main
from docs_site.config_reference import json_schema
from tests.unprivileged import as_nobody, open_folder


@pytest.fixture
def config_dir(tmp_path):
    for folder in ("topics", "groups"):
        (tmp_path / "config" / folder).mkdir(parents=True)
    return tmp_path / "config"


@pytest.fixture
def write(config_dir):
    """Writes a file of the configuration, and returns the directory of all."""

    def text_to(path, text):
        (config_dir / path).write_text(text)
        return config_dir

    return text_to


def groups_of(config_dir):
    """Group by file, or the lines of its error without the path."""
    found = {}
    for file, group in scan_groups(config_dir, {}):
        is_error = isinstance(group, ConfigError)
        found[file.name] = [str(problem).rpartition("/")[2] for problem in group.problems] if is_error else group
    return found


def problems_of(config_dir, topic):
    with pytest.raises(ConfigError) as caught:
        find_topic(topic, config_dir)
    return [str(problem) for problem in caught.value.problems]


def test_a_group_of_one_line_has_the_defaults_of_all_groups(write):
    config_dir = write("groups/hourly.yaml", "group: hourly\n")
    group = groups_of(config_dir)["hourly.yaml"]
    assert (group.group, group.schedule, group.limits.pack_max_topics) == ("hourly", "*/15 * * * *", 250)
    write("defaults.yaml", "groups: {schedule: '@hourly', limits: {pack.max.topics: 7, run.max.ms: 10min}}\n")
    write("groups/hourly.yaml", "group: hourly\nlimits: {pack.max.bytes: 1MiB}\n")
    group = groups_of(config_dir)["hourly.yaml"]
    assert (group.schedule, group.limits.pack_max_topics, group.limits.run_max_ms) == ("@hourly", 7, 600_000)
    assert group.limits.pack_max_bytes == 1 << 20


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        pytest.param(
            "a.yaml",
            "group: b\n",
            'group: "b" is not allowed: the name of its file: write a, or call the file b.yaml',
            id="name",
        ),
        pytest.param("a.yaml", "group: a\nlimits: {pack.max.topics: 0}\n", "in [1, 1000]", id="range"),
        pytest.param("a.yaml", "group: a\nlimit: {}\n", "did you mean limits?", id="unknown"),
        pytest.param("a.yaml", "group: a\nchecks: []\n", "checks: unknown key", id="a topic's"),
        pytest.param("a.yaml", "schedule: null\n", "group: missing", id="no name"),
    ],
)
def test_what_is_wrong_with_a_group_is_said_with_key_value_and_what_is_allowed(write, name, text, problem):
    write("topics/orders.yaml", "topic: orders\n")
    write("groups/good.yaml", "group: good\n")
    found = groups_of(write(f"groups/{name}", text))
    assert any(re.search(re.escape(problem), line) for line in found[name]), found[name]
    assert found["good.yaml"].group == "good"


@pytest.mark.parametrize("name", ["shop", "SHOP"])
@pytest.mark.parametrize(
    "text", ["topic: {0}\n", "topic: {0}\nunknown: 1\n", "topic: [\n"], ids=["good", "broken", "no YAML"]
)
def test_a_topic_file_of_a_groups_name_is_wrong_and_the_group_and_its_topics_go_on(write, name, text):
    write("groups/shop.yaml", "group: shop\n")
    write("topics/orders.yaml", "topic: orders\ngroup: shop\n")
    config_dir = write(f"topics/{name}.yaml", text.format(name))
    assert groups_of(config_dir)["shop.yaml"].group == "shop"
    assert find_topic("orders", config_dir).dag_name == "shop"
    assert problems_of(config_dir, name)


def test_the_error_of_a_topic_of_a_groups_name_says_so(write):
    write("groups/shop.yaml", "group: shop\n")
    [problem] = problems_of(write("topics/shop.yaml", "topic: shop\n"), "shop")
    assert 'topic: "shop" is not allowed: a name that no group has: a group and a topic would share one DAG' in problem


def test_of_two_files_of_one_group_that_with_the_ending_yml_is_refused(write):
    write("groups/shop.yaml", "group: shop\nlimits: {pack.max.topics: 7}\n")
    config_dir = write("groups/shop.yml", "group: shop\n")
    found = groups_of(config_dir)
    assert found["shop.yml"] == [
        'group: "shop" is not allowed: also the group of shop.yaml: give this file another name'
    ]
    assert find_group("shop", config_dir, {}).limits.pack_max_topics == 7


def test_a_group_whose_dag_would_have_too_long_an_id_is_refused(write):
    write("defaults.yaml", "platform: {dag_prefix: cleantail_}\n")
    name = "g" * 245
    [problem] = groups_of(write(f"groups/{name}.yaml", f"group: {name}\n"))[f"{name}.yaml"]
    assert "at most 240 characters" in problem


def test_the_groups_of_a_broken_defaults_file_are_not_read(write):
    write("groups/a.yaml", "group: a\n")
    with pytest.raises(ConfigError, match="groups.limits: unknown|groups.limits.run.max.mss: unknown key"):
        groups_of(write("defaults.yaml", "groups: {limits: {run.max.mss: 1}}\n"))


def test_a_topic_names_a_group_that_has_a_file(write):
    write("groups/hourly.yaml", "group: hourly\n")
    config_dir = write("topics/orders.yaml", "topic: orders\ngroup: hourl\n")
    [problem] = problems_of(config_dir, "orders")
    assert (
        problem.startswith('group: "hourl" is not allowed')
        and "groups: hourly" in problem
        and "did you mean hourly?" in problem
    )
    write("topics/orders.yaml", "topic: orders\ngroup: hourly\n")
    assert find_topic("orders", config_dir).group == "hourly"


def test_a_topic_loads_although_its_groups_file_is_broken(write):
    write("groups/hourly.yaml", "group: hourly\nlimits: {run.max.packs: many}\n")
    config_dir = write("topics/orders.yaml", "topic: orders\ngroup: hourly\n")
    assert find_topic("orders", config_dir).group == "hourly"


def test_a_topic_in_a_group_has_no_schedule_of_its_own(write):
    write("groups/hourly.yaml", "group: hourly\n")
    config_dir = write("topics/orders.yaml", "topic: orders\ngroup: hourly\nschedule: '@daily'\n")
    [problem] = problems_of(config_dir, "orders")
    assert "schedule: a schedule is not allowed" in problem and "`group: null`" in problem
    write("topics/orders.yaml", "topic: orders\ngroup: hourly\nschedule: null\n")
    assert find_topic("orders", config_dir).group == "hourly"


def test_a_group_in_the_defaults_moves_all_topics_but_those_that_say_null(write):
    write("defaults.yaml", "topic: {group: all, schedule: '@daily'}\n")
    write("groups/all.yaml", "group: all\n")
    write("topics/orders.yaml", "topic: orders\n")
    config_dir = write("topics/alone.yaml", "topic: alone\ngroup: null\nschedule: '@hourly'\n")
    topics = {topic.topic: topic for _, topic in scan_topics(config_dir)}
    assert (topics["orders"].group, topics["alone"].group) == ("all", None)
    shown = {setting.name: (setting.value, setting.origin) for setting in settings_in_force(topics["orders"])}
    assert shown["group"] == ("all", "defaults.yaml")


def test_an_editor_marks_in_a_group_what_the_loader_refuses():
    jsonschema.validate({"group": "a", "limits": {"run.max.ms": "1h"}}, json_schema("group"))
    with pytest.raises(jsonschema.ValidationError, match="required"):
        jsonschema.validate({"schedule": "@daily"}, json_schema("group"))


def test_check_config_tells_of_groups_and_of_what_is_wrong_with_them(write, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    write("groups/hourly.yaml", "group: hourly\n")
    config_dir = write("topics/orders.yaml", "topic: orders\ngroup: hourly\n")
    assert main(["check-config", "--config", str(config_dir), "--json"]) == 0
    assert [group["group"] for group in json.loads(capsys.readouterr().out)["groups"]] == ["hourly"]
    assert main(["check-config", "--config", str(config_dir)]) == 0
    assert "with group hourly" in " ".join(capsys.readouterr().out.split())
    write("groups/daily.yaml", "group: weekly\n")
    assert main(["check-config", "--config", str(config_dir)]) == 2
    assert 'daily.yaml:1: group: "weekly" is not allowed' in capsys.readouterr().err


@pytest.mark.parametrize(("assets", "is_right"), [("x-cleantail://orders", False), ("x-cleantail://bills", True)])
def test_a_group_waits_for_no_asset_of_its_own_topics(write, assets, is_right):
    write("topics/orders.yaml", "topic: orders\ngroup: hourly\n")
    config_dir = write("groups/hourly.yaml", f"group: hourly\nschedule: {{assets: ['{assets}']}}\n")
    if is_right:
        assert find_topic("orders", config_dir).group == "hourly"
        return
    [problem] = problems_of(config_dir, "orders")
    assert problem.startswith(f'group: "hourly" is not allowed: a group that does not wait for {assets}')


def test_a_file_that_may_not_be_read_counts_in_each_group_unless_the_defaults_name_one():
    with open_folder() as config_dir:
        file = config_dir / "orders.yaml"
        file.write_text("topic: orders\ngroup: hourly\n")
        assert [may_run_in(group, file, config_dir) for group in ("hourly", "daily")] == [True, False]
        file.chmod(0)
        with as_nobody():
            assert [may_run_in(group, file, config_dir) for group in ("hourly", "daily")] == [True, True]
        (config_dir / "defaults.yaml").write_text("topic: {group: daily}\n")
        with as_nobody():
            assert [may_run_in(group, file, config_dir) for group in ("hourly", "daily")] == [False, True]
