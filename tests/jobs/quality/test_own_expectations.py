"""Own expectations in a round: imported by the platform's list alone, judged as the others, and blocking if unusable."""

from __future__ import annotations

import json
import sys

import pytest

from cleantail.config.topic_checks import Check
from spark_jobs.quality.expectations import expectation_class
from spark_jobs.quality.time_limit import UnusableCheckError
from tests.jobs.round.test_rounds import NOW, record

pytestmark = pytest.mark.gx
CODE = '''
import great_expectations.expectations as gxe


class ExpectShortKeys(gxe.ExpectColumnValueLengthsToBeBetween):
    """The platform's own idea of a key."""

    column: str = "key"
    max_value: int = 3


class NotAnExpectation:
    pass


ExpectNothing = NotAnExpectation
'''
OWN = "house_checks.ExpectShortKeys"


@pytest.fixture
def house(workshop, tmp_path, monkeypatch):
    """A module of the platform's on the path, and topics that use its expectation."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "house_checks.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.delitem(sys.modules, "house_checks", raising=False)

    def topic(name, expectation, **kwargs):
        allowed = {"platform": {"expectations": [OWN, "house_checks.ExpectNothing", "nowhere.ExpectShortKey"]}}
        (workshop.config / "defaults.yaml").write_text(json.dumps(allowed))
        made = workshop.topic(name, checks=[{"expectation": expectation, "kwargs": kwargs}])
        lines = [record(0, "a", "x"), record(1, "a", "y"), record(2, "long", "y"), record(3, "long", "z")]
        workshop.ok("ingest", made, "--file", workshop.file(f"{name}.jsonl", lines))
        return made

    return topic


def checks_of(workshop, topic):
    rows = [json.loads(row["checks"]) for row in workshop.evidence(topic) if row["checks"] != "[]"]
    return {c["expectation"]: c for c in rows[-1]}


def test_an_own_expectation_judges_a_round_and_its_arguments_are_the_topics(house, workshop):
    topic = house("house-green", OWN, max_value=4)
    workshop.ok("compact", topic, "--now", NOW)
    check = checks_of(workshop, topic)["expect_short_keys"]
    assert (check["passed"], check["observed"]) == (True, "0 of 2 records")
    assert "max_value=4" in check["rule"]


def test_an_own_expectation_that_fails_blocks_its_partition_and_shows_no_value(house, workshop):
    topic = house("house-red", OWN)
    code, out, err = workshop.run("compact", topic, "--now", NOW)
    check = checks_of(workshop, topic)["expect_short_keys"]
    assert (code, check["passed"], check["observed"]) == (1, False, "1 of 2 records, at offset 3"), (err, check)
    assert "long" not in json.dumps(check) + out + err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param(
            "house_checks.ExpectNothing", "is not an expectation of Great Expectations", marks=pytest.mark.deep
        ),
        ("nowhere.ExpectShortKey", "cannot be imported in the Spark driver: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_used_blocks_the_partition_with_the_reason(house, workshop, name, says):
    topic = house(f"house-{name[:4]}", name)
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    check = checks_of(workshop, topic)[name]
    assert (check["passed"], check["error"]) == (False, True)
    assert check["observed"] == f"could not be evaluated: {name} {says}"


def test_nothing_that_the_platform_does_not_list_is_imported(house, workshop):
    topic = workshop.find(house("house-listed", OWN))
    (workshop.config.parent / "lib" / "sneaky.py").write_text("raise SystemExit('imported')")
    check = Check.model_construct(expectation="sneaky.ExpectAll", kwargs={}, severity="critical")
    with pytest.raises(UnusableCheckError, match=r"sneaky.ExpectAll is not in platform.expectations"):
        expectation_class(check, topic.platform)
    assert "sneaky" not in sys.modules
