"""What is said of two different records at one offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleantail.log.rules import CANDIDATE, HIDDEN, LIVE, Contradiction, refusal

FILES = [Path("a.jsonl"), Path("b.jsonl")]


@pytest.mark.parametrize(
    ("differing", "text"),
    [
        pytest.param(("key",), "key differs", id="one"),
        pytest.param(("headers",), "headers differ", id="the headers are many"),
        pytest.param(("key", "value"), "key and value differ", id="two"),
        pytest.param(("key", "value", "headers"), "key, value and headers differ", id="three"),
    ],
)
def test_what_differs_is_named(differing, text):
    assert Contradiction(0, 1, 7, differing).difference == text


def test_a_finding_says_how_many_offsets_and_where_the_first_is():
    assert Contradiction(0, 1, 7, ("value",)).text == (
        "1 offset has two different records, the lowest is 7: value differs"
    )
    several = Contradiction(0, 3, 7, ("value",)).text
    assert several.startswith("3 offsets have two different records, the lowest is 7")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        pytest.param(CANDIDATE, "offset 7: two different records: key differs;", id="among the files"),
        pytest.param(HIDDEN, "offset 7: the table had another record there, which a delete file hides", id="hidden"),
        pytest.param(LIVE, "offset 7: the table has another record there: key differs;", id="in the table"),
    ],
)
def test_a_refusal_names_files_partition_and_offset_and_where_the_other_record_is(other, says):
    text = refusal([Contradiction(4, 1, 7, ("key",), other)], FILES)
    assert text.startswith("a.jsonl, b.jsonl: partition 4, ") and says in text
    assert "nothing was appended" in text and "in all" not in text


@pytest.mark.parametrize(
    ("logs", "counts"),
    [
        pytest.param([Contradiction(0, 2, 7, ("key",))], "(2 such offsets in all)", id="one log"),
        pytest.param(
            [Contradiction(0, 2, 7, ("key",)), Contradiction(1, 3, 0, ("value",))],
            "(5 such offsets in 2 partitions in all)",
            id="two logs",
        ),
    ],
)
def test_a_refusal_counts_the_offsets_of_all_logs(logs, counts):
    assert f"key differs {counts};" in refusal(logs, FILES)


def test_a_finding_names_only_the_columns_that_differ():
    first = {"offset": 7, "part": LIVE, "key": False, "value": True, "timestamp": False, "headers": True}
    found = Contradiction.of_row({"partition": 4, "offsets": 2, "first": first})
    assert found == Contradiction(4, 2, 7, ("value", "headers"), LIVE)
