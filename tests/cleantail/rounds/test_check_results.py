"""What a check observed, in words that hold no value."""

import pytest

from cleantail.rounds.check_results import kept_result, observed_text


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"unexpected_count": 2, "element_count": 9}, "2 of 9 records"),
        ({"unexpected_count": 0, "element_count": 9}, "0 records"),
        ({"unexpected_count": 5}, "5 unexpected values"),
        ({"unexpected_count": 1}, "1 unexpected value"),
    ],
)
def test_records_are_counted_only_where_it_is_said_how_many_there_were(result, words):
    kept = kept_result("expect_column_distinct_values_to_be_in_set", {"column": "value"}, result)
    assert observed_text(kept) == words
