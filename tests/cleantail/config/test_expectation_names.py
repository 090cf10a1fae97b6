"""Names of expectations, in snake_case and as classes; tests/jobs/quality/test_expectations.py has the list itself."""

import pytest

from cleantail.config.topic_checks import EXPECTATION_NAMES, class_name, expectation_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("expect_column_to_exist", "ExpectColumnToExist", id="plain"),
        pytest.param(
            "expect_column_kl_divergence_to_be_less_than",
            "ExpectColumnKLDivergenceToBeLessThan",
            id="acronym",
        ),
        pytest.param(
            "expect_column_pair_values_a_to_be_greater_than_b",
            "ExpectColumnPairValuesAToBeGreaterThanB",
            id="single letters",
        ),
    ],
)
def test_a_name_in_snake_case_is_a_class_in_camel_case(name, expected):
    assert class_name(name) == expected


@pytest.mark.parametrize("name", EXPECTATION_NAMES)
def test_either_form_of_a_name_is_found(name):
    assert (expectation_name(name), expectation_name(class_name(name))) == (name, name)


@pytest.mark.parametrize("name", ["", "expect", "Expect_column_to_exist", "expect_column_to_exits"])
def test_what_is_not_a_name_is_not_found(name):
    assert expectation_name(name) is None
