"""What a person is shown: numbers as they are, data only as quoted, short, printable text in a fenced block."""

from __future__ import annotations

import pytest

from cleantail.approval_text import (
    KEY_CHARS,
    LINE_CHARS,
    VALUE_CHARS,
    Question,
    body,
    count_lines,
    sample_lines,
    shown,
    subject,
)


def checked(sample=(), **more):
    logs = [
        {"partition": 1, "records_in": 200, "deleted": {"superseded": 50, "retention": 0}, "tombstones_out": 3},
        {"partition": 0, "records_in": 0, "deleted": {}, "tombstones_out": 0},
        {"partition": 2, "records_in": 9, "deleted": {"superseded": 9}, "tombstones_out": 0},
    ]
    verdicts = [{"partition": p, "passed": p != 2} for p in (0, 1, 2)]
    return {
        "topic": "orders", "round": "r1", "kind": "compact", "units": [{"now_ms": 1_700_000_000_000}],
        "measures": logs, "verdicts": verdicts, "checks_passed": 9, "checks_total": 10,
        "holds": [{"partition": 1, "reason": "publish: approve"}], "sample": list(sample), **more,
    }  # fmt: skip


def test_the_subject_counts_what_would_go_of_the_logs_that_passed():
    assert subject(checked()) == "orders: 50 records would go from 2 partitions"
    assert subject(checked(kind="expire")) == "orders: 50 tombstones would go from 2 partitions"


def test_the_counts_are_a_line_a_log_with_reasons_share_and_tombstones():
    head, empty, full = count_lines(checked())
    assert head.split("  ")[0] == "partition" and "superseded" in head and "retention" not in head
    assert empty.split() == ["0", "0", "0", "0", "-", "0"]
    assert full.split() == ["1", "200", "0", "50", "25.0", "%", "3"]


def test_the_body_says_why_what_and_that_a_red_log_is_not_part_of_it():
    text = body(checked())
    for part in ("2023-11-14 22:13:20 UTC", "9 of 10 checks passed", "partition 1: publish: approve", "partition 2."):
        assert part in text
    assert "nothing would go" in text


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


def test_no_data_ends_the_block_it_stands_in():
    hostile = shown(b"```\n# <script>alert(1)</script> {{ 7 * 7 }}\n```", 50, 100)
    text = body(checked([{"partition": 1, "offset": 5, "key": hostile, "value": hostile}]))
    fences = [line for line in text.splitlines() if line.lstrip().startswith("```")]
    assert fences == ["```text", "```"] * 3
    assert sum("<script>" in line for line in text.splitlines()) == 2  # as the key, and as the value


def test_the_sample_says_what_goes_and_what_stays_in_its_place():
    goes = {"partition": 1, "offset": 5, "key": '"k"', "value": "null"}
    assert sample_lines([goes | {"kept_offset": 9}, goes | {"kept_offset": None}, goes]) == [
        "partition 1, offset 5 goes; offset 9 of the same key stays", '  key   "k"', "  value null",
        "partition 1, offset 5 goes; nothing of its key stays", '  key   "k"', "  value null",
        "partition 1, offset 5 goes", '  key   "k"', "  value null",
    ]  # fmt: skip


def test_no_line_of_the_sample_is_so_wide_that_a_box_would_cut_it():
    longest = {
        "partition": 1,
        "offset": 5,
        "key": shown(b"k" * 90, 90, KEY_CHARS),
        "value": shown(b"v" * 900, 900, VALUE_CHARS),
    }
    lines = sample_lines([longest | {"kept_offset": 10**12}])
    assert max(map(len, lines)) <= LINE_CHARS
    assert "".join(line.strip() for line in lines).count("v") == VALUE_CHARS + 1  # and the word value


def test_the_body_says_until_when_an_answer_is_awaited_and_where_to_look():
    text = body(
        checked(), Question(1_700_000_000_000, "https://airflow/cleantail/topics/orders", "https://airflow/docs")
    )
    assert "**Answer until 2023-11-14 22:13:20 UTC.** No answer by then is a Reject" in text
    assert "[The topic's page](https://airflow/cleantail/topics/orders)" in text
    assert "[Data Docs of its checks](https://airflow/docs)" in text
