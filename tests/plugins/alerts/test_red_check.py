"""Failed expectations in words."""

from __future__ import annotations

import pytest

from cleantail.rounds.checked_round import RoundResult
from cleantail_airflow.outcomes.failures import failures_of, warnings_of
from tests.airflow_site import failure, parsed, verdict


def test_only_partitions_that_did_not_pass_have_failures() -> None:
    found = failures_of("orders", parsed(verdict(0), verdict(2, failure(), failure(observed="x"))))
    assert [(f.partition, f.observed) for f in found] == [(2, "3 of 9 records"), (2, "x")]


def test_warnings_are_kept_apart() -> None:
    passed = parsed(verdict(1) | {"warnings": [failure(partition=1, severity="info")]})
    assert failures_of("orders", passed) == []
    (warning,) = warnings_of("orders", RoundResult(verdicts=tuple(passed)))
    assert "(info)" in warning


def test_a_log_that_only_waits_for_others_has_no_failure_of_its_own() -> None:
    waiting = parsed(verdict(1) | {"passed": False, "waits_for": [0]})
    assert failures_of("orders", waiting) == []


def test_failures_come_in_the_order_of_the_partitions() -> None:
    found = failures_of("orders", parsed(verdict(10, failure(partition=10)), verdict(2, failure(partition=2))))
    assert [failure.partition for failure in found] == [2, 10]


def test_a_partition_held_back_without_a_named_expectation_is_not_lost() -> None:
    (found,) = failures_of("orders", parsed(verdict(5) | {"passed": False}))
    assert (found.partition, found.expectation) == (5, "no expectation named")


def test_an_expectation_that_could_not_be_evaluated_says_so() -> None:
    (found,) = failures_of("orders", parsed(verdict(0, failure(error=True, observed="no column v"))))
    assert str(found).startswith(
        "orders partition 0: expect_column_values_to_not_be_null (could not be evaluated): observed no column v"
    )


@pytest.mark.parametrize(
    ("observed", "shown"),
    [
        pytest.param("two\nlines\x1b[31m", '"two\\nlines\\u001b[31m"', id="control-characters"),
        pytest.param("x" * 400, "x" * 300 + "…", id="long"),
        pytest.param("{{ 7 * 7 }}", "{{ 7 * 7 }}", id="template"),
    ],
)
def test_observed_data_is_one_printable_line_of_bounded_length(observed: str, shown: str) -> None:
    (found,) = failures_of("orders", parsed(verdict(0, failure(observed=observed))))
    assert found.observed == shown
