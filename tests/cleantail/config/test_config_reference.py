"""The generated reference: in step with the models, and true for the examples."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform_configs import CleanerConfigs
from docs_site.config_reference import json_schema, reference_markdown, schema_text

CONFIG_DIR = Path(__file__).parents[3] / "config"
TOPIC_FILES = sorted((CONFIG_DIR / "topics").glob("*.yaml"))


def test_the_schema_in_the_repository_is_the_generated_one():
    """Run `python -m docs_site.config_reference > config/topic.schema.json` after a change of the models."""
    assert (CONFIG_DIR / "topic.schema.json").read_text(encoding="utf-8") == schema_text()


def test_the_schema_of_groups_in_the_repository_is_the_generated_one():
    """Run `python -m docs_site.config_reference group > config/group.schema.json` after a change of the models."""
    assert (CONFIG_DIR / "group.schema.json").read_text(encoding="utf-8") == schema_text("group")


def test_the_schema_is_a_json_schema_without_keywords_of_our_own():
    of_schemas = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    assert list(of_schemas.iter_errors(json_schema())) == []
    assert '"x-' not in schema_text()


@pytest.mark.parametrize("file", TOPIC_FILES, ids=lambda file: file.stem)
def test_the_examples_fit_the_schema(file):
    assert errors_of(yaml.safe_load(file.read_text())) == []


@pytest.mark.parametrize("file", TOPIC_FILES, ids=lambda file: file.stem)
def test_the_examples_name_the_schema_in_their_first_line(file):
    first, *_ = file.read_text().splitlines()
    assert first == "# yaml-language-server: $schema=../topic.schema.json"


def test_four_lines_fit_the_schema():
    assert errors_of({"topic": "orders", "config": {"segment.ms": 1}}) == []


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param({}, id="no topic"),
        pytest.param({"topic": "a", "tpoic": "a"}, id="unknown key"),
        pytest.param({"topic": "a", "config": {"segment.ms": 0}}, id="out of range"),
        pytest.param({"topic": "a", "config": {"cleanup.policy": "compat"}}, id="unknown policy"),
        pytest.param({"topic": "a", "alerts": [{"type": "pager"}]}, id="unknown alert"),
        pytest.param({"topic": "a", "checks": [{"expectation": "expect_luck"}]}, id="unknown expectation"),
    ],
)
def test_an_editor_marks_what_the_loader_refuses(topic):
    with pytest.raises(jsonschema.ValidationError, match=r"not valid|required|Additional|minimum|not one of"):
        jsonschema.validate(topic, json_schema())


@pytest.mark.parametrize("model", [KafkaConfigs, CleanerConfigs])
def test_the_reference_has_one_row_per_config(model):
    rows = reference_markdown().splitlines()
    for field in model.model_fields.values():
        assert len([row for row in rows if row.startswith(f"| `{field.alias}` |")]) == 1


def test_a_row_has_name_default_range_meaning_and_source():
    row = next(row for row in reference_markdown().splitlines() if row.startswith("| `segment.ms`"))
    assert row == (
        "| `segment.ms` | `604800000` | a whole number, at least 1 | Age at which the newest "
        "segment stops being active, so that it can be compacted. | Kafka TopicConfig |"
    )


def test_the_schema_is_stable():
    assert json.loads(schema_text()) == json_schema()


def errors_of(topic):
    """What an editor would mark."""
    return [error.message for error in jsonschema.Draft202012Validator(json_schema()).iter_errors(topic)]
