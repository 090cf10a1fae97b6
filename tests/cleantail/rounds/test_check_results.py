"""What a check observed, in words that hold no value."""

import pytest

from cleantail.rounds.check_results import checks_text, kept_result, observed_text


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"unexpected_count": 2, "element_count": 9}, "2 of 9 records"),
        ({"unexpected_count": 0, "element_count": 9}, "0 of 9 records"),
        ({"unexpected_count": 0}, "0 records"),
        ({"unexpected_count": 5}, "5 unexpected values"),
        ({"unexpected_count": 1}, "1 unexpected value"),
        ({"unexpected_count": 3, "element_count": 9, "offsets": [4, 5, 7]}, "3 of 9 records, at offsets 4, 5, 7"),
        (
            {"unexpected_count": 100, "element_count": 900, "offsets": [*range(4350, 4369), 5000]},
            "100 of 900 records, such as at offsets 4350 to 4368, 5000",
        ),
    ],
)
def test_records_are_counted_only_where_it_is_said_how_many_there_were(result, words):
    kept = kept_result("expect_column_distinct_values_to_be_in_set", {"column": "value"}, result)
    assert observed_text(kept) == words


@pytest.mark.parametrize(
    ("passed", "total", "partitions", "text"),
    [
        pytest.param(20, 20, 2, "20 of 20 checks passed (10 rules on 2 partitions)", id="partitions"),
        pytest.param(10, 10, 1, "10 of 10 checks passed", id="one partition"),
        pytest.param(10, 11, 2, "10 of 11 checks passed", id="a log of which not all was measured"),
        pytest.param(1, 2, 2, "1 of 2 checks passed (1 rule on 2 partitions)", id="one rule"),
        pytest.param(0, 0, 2, "0 of 0 checks passed", id="none"),
    ],
)
def test_checks_are_counted_as_rules_and_partitions(passed, total, partitions, text):
    assert checks_text(passed, total, partitions) == text
