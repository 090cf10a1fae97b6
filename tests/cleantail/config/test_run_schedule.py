"""`schedule:` as a mapping: cron, assets, or both; and what each form means in words."""

import jsonschema
import pytest
import yaml

from cleantail.config.loading import load_topic
from cleantail.config.run_schedule import AssetSchedule, parts_of, schedule_text, topic_asset_uri
from cleantail.errors import ConfigError
from docs_site.config_reference import json_schema


@pytest.fixture
def load(tmp_path):
    """Loads the topic `a` with this YAML as its schedule, over a default one if given."""
    (tmp_path / "topics").mkdir()

    def of(schedule, default=None):
        if default is not None:
            (tmp_path / "defaults.yaml").write_text(f"topic: {{schedule: {default}}}\n")
        file = tmp_path / "topics" / "a.yaml"
        file.write_text(f"topic: a\nschedule: {schedule}\n")
        return load_topic(file, tmp_path).schedule

    return of


@pytest.mark.parametrize(
    ("text", "parts", "words"),
    [
        pytest.param("null", (None, ()), "by hand", id="by hand"),
        pytest.param('"@daily"', ("@daily", ()), "@daily", id="cron as text"),
        pytest.param('{cron: "@daily"}', ("@daily", ()), "@daily", id="cron alone"),
        pytest.param("{assets: [s3://b/k]}", (None, ("s3://b/k",)), "after s3://b/k", id="one asset"),
        pytest.param(
            '{cron: "5 4 * * *", assets: [x-cleantail://b, landed]}',
            ("5 4 * * *", ("x-cleantail://b", "landed")),
            "5 4 * * *, or after x-cleantail://b and landed",
            id="both",
        ),
    ],
)
def test_a_schedule_is_cron_assets_or_both_and_is_said_in_words(load, text, parts, words):
    schedule = load(text)
    assert parts_of(schedule) == parts
    assert schedule_text(schedule) == words
    jsonschema.validate({"topic": "a", "schedule": yaml.safe_load(text)}, json_schema())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param('{cron: "61 * * * *"}', 'schedule.cron: "61 * * * *" is not allowed: five cron fields', id="cron"),
        pytest.param('{cron: "@once", assets: [b]}', 'schedule.cron: "@once" is not allowed', id="once"),
        pytest.param("{assets: []}", "schedule.assets: [] is not allowed: a list of different URIs", id="none"),
        pytest.param("{assets: b}", 'schedule.assets: "b" is not allowed: a list of different URIs', id="no list"),
        pytest.param("{assets: [b, b]}", 'schedule.assets: ["b", "b"] is not allowed', id="one twice"),
        pytest.param("{assets: [b, 'a b']}", 'schedule.assets[1]: "a b" is not allowed', id="a blank"),
        pytest.param("{assets: [airflow://b]}", 'schedule.assets[0]: "airflow://b" is not allowed', id="reserved"),
        pytest.param("{assets: ['http://[::1']}", 'schedule.assets[0]: "http://[::1" is not allowed', id="no address"),
        pytest.param("{assets: [5]}", "schedule.assets[0]: 5 is not allowed", id="a number"),
        pytest.param(
            "{asets: [b]}", "schedule.asets: unknown key (its value, a list of 1 entry, is not shown)", id="unknown key"
        ),
        pytest.param("[b]", 'schedule: ["b"] is not allowed: five cron fields', id="a list"),
        pytest.param("5", "schedule: 5 is not allowed: five cron fields", id="a whole number"),
        pytest.param(
            "{assets: [x-cleantail://a]}",
            'schedule.assets: "x-cleantail://a" is not allowed: assets that other topics',
            id="own",
        ),
    ],
)
def test_what_is_wrong_is_named_with_key_value_and_what_is_allowed(load, text, problem):
    with pytest.raises(ConfigError, match=r"a\.yaml") as caught:
        load(text)
    (found,) = caught.value.problems
    assert str(found).startswith(problem)


def test_a_misspelt_key_of_the_mapping_is_guessed(load):
    with pytest.raises(ConfigError, match=r"known: cron, assets \(did you mean assets\?\)"):
        load("{asets: [b]}")


def test_a_password_in_a_uri_is_refused_and_not_repeated(load):
    with pytest.raises(ConfigError, match="secrets are not allowed in YAML") as caught:
        load('{assets: ["postgres://me:hunter2@db/a"]}')
    assert "hunter2" not in str(caught.value)


def test_a_mapping_takes_the_place_of_a_text_and_merges_with_a_mapping(load):
    assert load("{assets: [b]}", default='"@daily"') == AssetSchedule(assets=("b",))
    assert load("{assets: [b]}", default='{cron: "@daily"}') == AssetSchedule(cron="@daily", assets=("b",))
    assert load('"@hourly"', default="{assets: [b]}") == "@hourly"


def test_the_asset_of_a_topic_is_named_after_it():
    assert topic_asset_uri("orders.v2") == "x-cleantail://orders.v2"
