"""What a person is shown: numbers as they are, data only as quoted, short, printable text in a fenced block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.lake.records.shown_records import KEY_CHARS, VALUE_CHARS, ShownRecord, headers_shown, shown
from cleantail.log.rules import LogMeasure
from cleantail.rounds.check_results import RemovedRecord
from cleantail.rounds.checked_round import Hold, Verdict
from cleantail.watch.approval_text import LINE_CHARS, Question, body, count_lines, sample_lines, subject
from tests.round_builders import checked_round, staged_unit


def checked(sample=(), **more):
    measures = (
        LogMeasure(1, records_in=200, deleted={"superseded": 50, "retention": 0}, tombstones_out=3),
        LogMeasure(0),
        LogMeasure(2, records_in=9, deleted={"superseded": 9}),
    )
    return checked_round(
        units=(staged_unit(now_ms=1_700_000_000_000),),
        measures=measures,
        verdicts=tuple(Verdict(p, p != 2) for p in (0, 1, 2)),
        holds=(Hold(1, "publish: approve"),),
        sample=tuple(sample),
        **more,
    )


def test_the_subject_counts_what_would_go_of_the_logs_that_passed():
    assert subject(checked()) == "orders: 50 records would be removed from 2 partitions"
    assert subject(checked(kind="expire")) == "orders: 50 tombstones would be removed from 2 partitions"


def test_the_counts_are_a_line_a_log_with_reasons_share_and_tombstones():
    head, empty, full = count_lines(checked())
    assert head.split("  ")[0] == "partition" and "superseded" in head and "retention" not in head
    assert empty.split() == ["0", "0", "0", "0", "-", "0"]
    assert full.split() == ["1", "200", "0", "50", "25.0", "%", "3"]


def test_a_reason_that_all_partitions_share_is_said_once_without_them():
    holds = tuple(Hold(p, "all rounds of this topic wait") for p in (0, 1))
    text = body(replace(checked(), holds=holds))
    assert text.count("all rounds of this topic wait") == 1 and "partition 0:" not in text


def test_the_body_says_why_what_and_that_a_red_log_is_not_part_of_it():
    text = body(checked())
    for part in ("2023-11-14 22:13:20 UTC", "9 of 10 checks passed", "partition 1: publish: approve", "partition 2."):
        assert part in text
    assert "nothing would be removed" in text


@pytest.mark.parametrize(
    ("data", "length", "chars", "text"),
    [
        pytest.param(None, None, 5, "null", id="a tombstone's value"),
        pytest.param(b"", 0, 5, '""', id="empty is a value"),
        pytest.param(b"abc", 3, 5, '"abc"', id="text"),
        pytest.param("größe".encode(), 7, 5, '"größe"', id="letters"),
        pytest.param(b"abcdefg", 7, 5, '"abcde"…', id="cut to the limit"),
        pytest.param(b"abcde", 900, 5, '"abcde"…', id="only its beginning was read"),
        pytest.param("abü".encode()[:3], 4, 5, '"ab"…', id="read to the middle of a character"),
        pytest.param(b"\xff\x00", 2, 8, "0xff00", id="bytes"),
        pytest.param(b"\xff\x00\x01", 3, 4, "0xff00…", id="bytes cut"),
        pytest.param(b"a\n```\n<b>", 9, 20, r'"a\n```\n<b>"', id="no line of its own"),
        pytest.param("a\u202eb\u2028".encode(), 7, 9, r'"a\u202eb\u2028"', id="marks of direction, line separators"),
    ],
)
def test_data_is_one_printable_bounded_word(data, length, chars, text):
    assert shown(data, length, chars) == text


def test_the_body_says_which_records_would_go_and_where_to_see_them_and_not_what_they_hold():
    """Airflow keeps it, and whoever may see the DAG's questions of all topics in one list reads it."""
    text = body(checked([RemovedRecord(1, 5, 9)]), Question(0, "page", "docs", "https://airflow/records?round=r1"))
    assert "partition 1, offset 5 dropped; offset 9 of its key stays" in text
    assert "(1 record: [show the records](https://airflow/records?round=r1))" in text
    fences = [line for line in text.splitlines() if line.lstrip().startswith("```")]
    assert fences == ["```text", "```"] * 3


def test_the_sample_says_what_goes_and_what_stays_in_its_place():
    sample = [RemovedRecord(1, 5, 9), RemovedRecord(1, 5, None)]
    places = [
        "partition 1, offset 5 dropped; offset 9 of its key stays",
        "partition 1, offset 5 dropped; no record of its key stays",
    ]
    assert sample_lines(sample) == places
    seen = ['  key   "k"', "  value null"]
    records = {(1, 5): ShownRecord(1, 5, '"k"', "null")}
    assert sample_lines(sample, records) == [line for place in places for line in (place, *seen)]


def test_no_line_of_the_sample_is_so_wide_that_a_box_would_cut_it():
    key, value = shown(b"k" * 90, 90, KEY_CHARS), shown(b"v" * 900, 900, VALUE_CHARS)
    lines = sample_lines([RemovedRecord(1, 5, 10**12)], {(1, 5): ShownRecord(1, 5, key, value)})
    assert max(map(len, lines)) <= LINE_CHARS
    assert "".join(line.strip() for line in lines).count("v") == VALUE_CHARS + 1  # and the word value


def test_headers_are_words_too_and_the_first_few():
    assert headers_shown([("h", b"1"), ("\n", None), ("b", b"\xff")]) == ('"h": "1"', '"\\n": null', '"b": 0xff')
    assert headers_shown([("h", b"1")] * 10)[-1] == "and 2 more"


def test_the_body_says_until_when_an_answer_is_awaited_and_where_to_look():
    question = Question(
        1_700_000_000_000, "https://airflow/cleantail/topics/orders", "https://airflow/docs", "", "0d98"
    )
    text = body(checked(), question)
    assert "checksum of this round: `0d98`" in text
    assert "**Answer until 2023-11-14 22:13:20 UTC.** Without an answer by then the round counts as rejected" in text
    assert "[The topic's page](https://airflow/cleantail/topics/orders)" in text
    assert "[Data Docs of its checks](https://airflow/docs)" in text
