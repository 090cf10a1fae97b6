"""Own expectations: a topic names what the platform lists, and its text becomes neither an import nor SQL."""

import json

import pytest

from cleantail.config.loading import load_platform, load_topic
from cleantail.config.topic_checks import class_problem, expectation_name
from cleantail.errors import ConfigError

OWN = "acme_checks.iban.ExpectIban"


@pytest.fixture
def checked(project):
    """Loads the topic orders with one check, on a platform that allows these expectations."""

    def load(expectation, allowed=(OWN,), **kwargs):
        config = project / "config"
        (config / "defaults.yaml").write_text(json.dumps({"platform": {"expectations": list(allowed)}}))
        file = config / "topics" / "orders.yaml"
        file.write_text(json.dumps({"topic": "orders", "checks": [{"expectation": expectation, "kwargs": kwargs}]}))
        return load_topic(file, config)

    return load


def test_a_topic_may_name_what_the_platform_lists(checked):
    (check,) = checked(OWN, column="key", countries=["DE", "FR"], mostly=0.9).checks
    assert (check.expectation, check.kwargs["countries"]) == (OWN, ["DE", "FR"])


@pytest.mark.parametrize("name", ["acme_checks.iban.ExpectOther", "other.ExpectIban", "acme_checks.ExpectIban"])
def test_what_the_platform_does_not_list_is_refused_with_what_it_lists(checked, name):
    with pytest.raises(ConfigError) as refused:
        checked(name, column="key")
    allowed = f"an expectation that platform.expectations in defaults.yaml lists: {OWN}; list it there"
    assert f'checks[0].expectation: "{name}" is not allowed: {allowed}' in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["os.system", "acme_checks.iban.expect_iban", "acme checks.ExpectIban", ".ExpectIban", "ExpectIban", "a..ExpectB"],
)
def test_no_other_text_is_the_name_of_a_class(checked, name):
    assert expectation_name(name) is None
    with pytest.raises(ConfigError, match="or a class of platform.expectations"):
        checked(name)


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        pytest.param({"row_condition": "1=1"}, "kwargs.row_condition: an argument that a topic may not set", id="SQL"),
        pytest.param({"result_format": "COMPLETE"}, "kwargs.result_format: an argument", id="values of records"),
        pytest.param({"a": [{"$PARAMETER": "x"}]}, "kwargs.a[0].$PARAMETER: a suite parameter", id="evaluated"),
        pytest.param({"column": "nokey"}, 'kwargs.column: no column "nokey"', id="a column"),
        pytest.param({"column_list": ["key", "x"]}, 'kwargs.column_list[1]: no column "x"', id="columns"),
    ],
)
def test_arguments_that_great_expectations_takes_for_itself_are_refused(checked, kwargs, says):
    with pytest.raises(ConfigError) as refused:
        checked(OWN, **kwargs)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        pytest.param([OWN], None, id="one"),
        pytest.param([OWN, "b.ExpectOther"], None, id="two"),
        pytest.param(["a.ExpectColumnToExist"], "a.ExpectColumnToExist", id="the name of a core one"),
        pytest.param([OWN, "b.ExpectIban"], "b.ExpectIban", id="one class name twice"),
    ],
)
def test_every_class_has_a_name_of_its_own(project, names, wrong):
    assert class_problem(names) == wrong
    config = project / "config"
    (config / "defaults.yaml").write_text(json.dumps({"platform": {"expectations": names}}))
    if wrong is None:
        assert load_platform(config, {}).expectations == tuple(names)
    else:
        with pytest.raises(ConfigError, match="a class with a name that no other expectation has"):
            load_platform(config, {})


def test_the_platform_lists_classes_only(project):
    config = project / "config"
    (config / "defaults.yaml").write_text('platform: {expectations: ["acme_checks.*"]}\n')
    with pytest.raises(ConfigError, match="a class with its module, such as acme_checks.ExpectIban"):
        load_platform(config, {})
