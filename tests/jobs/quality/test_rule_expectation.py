"""The expectation of a rule says what Great Expectations' own says, and is asked for its configuration often."""

from __future__ import annotations

from copy import copy

import pandas as pd
import pytest

from spark_jobs.quality.expectations import rule_expectation
from spark_jobs.quality.gx_validation import imported, validate
from spark_jobs.quality.time_limit import WHETHER


def one(measure="duplicate_keys", **more):
    return rule_expectation()(column=measure, min_value=0, max_value=0, severity="critical", **more)


def test_the_configuration_is_built_once_and_again_after_each_change():
    rule = one(meta={"rule": "a"})
    before = rule.configuration
    assert rule.configuration is before
    rule.meta = {"rule": "b"}
    assert (before.meta, rule.configuration.meta) == ({"rule": "a"}, {"rule": "b"})
    rule.column = "missing_winners"
    assert rule.configuration.kwargs["column"] == "missing_winners"


def test_a_copy_has_a_configuration_of_its_own():
    rule = one()
    rule.id = "10000000-0000-0000-0000-000000000000"
    assert rule.configuration.id == rule.id
    assert copy(rule).configuration.id is None


@pytest.mark.parametrize("counts", [[0, 0], [0, 3]], ids=["kept", "broken"])
def test_a_rule_gives_the_result_of_great_expectations_own_expectation(counts):
    own = imported().expectations.ExpectColumnMaxToBeBetween
    frame = pd.DataFrame({"partition": range(len(counts)), "duplicate_keys": counts})

    def said(expectation):
        document = validate("round", [expectation], frame, WHETHER, "r").to_json_dict()
        [result] = document["results"]
        return result.pop("expectation_config") | {"type": ""}, result, document["success"]

    plain = own(column="duplicate_keys", min_value=0, max_value=0, severity="critical", meta={"rule": "a"})
    assert said(one(meta={"rule": "a"})) == said(plain)
    assert said(plain)[-1] is (max(counts) == 0)
