"""The one codec: what is written is what is parsed, by this version and the ones before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from cleantail.codec import Codec
from cleantail.errors import TableError


@dataclass(frozen=True, slots=True)
class Log:
    partition: int
    deleted: Mapping[str, int]
    ends: Mapping[int, int | None]
    spans: tuple[tuple[int, int], ...] = ()
    note: str | None = None


LOG_JSON: Codec[Log] = Codec(Log)
LOG = Log(3, {"superseded": 2}, {0: 7, 1: None}, ((0, 4), (4, 9)), "a\nb")


def test_what_is_written_is_what_is_parsed():
    assert LOG_JSON.value(LOG_JSON.text(LOG), "x") == LOG
    assert LOG_JSON.unpacked(LOG_JSON.packed(LOG), "x") == LOG
    assert LOG_JSON.of_plain(LOG_JSON.plain(LOG), "x") == LOG


def test_a_plain_value_that_is_no_json_is_a_table_error():
    with pytest.raises(TableError, match=r"^the XCom cannot be read: TypeError$"):
        LOG_JSON.of_plain({"partition": object()}, "the XCom")


def test_equal_values_are_equal_texts_of_one_line():
    other = Log(3, {"superseded": 2}, {1: None, 0: 7}, ((0, 4), (4, 9)), "a\nb")
    assert LOG_JSON.text(LOG) == LOG_JSON.text(other)
    assert "\n" not in LOG_JSON.text(LOG)


def test_an_earlier_version_wrote_less_and_a_later_one_writes_more():
    assert LOG_JSON.value('{"partition":1,"deleted":{},"ends":{},"unknown":[1]}', "x") == Log(1, {}, {})


@pytest.mark.parametrize(
    ("note", "read"),
    [
        pytest.param("x\udce9.gz", "x\ufffd.gz", id="a file's name that is no UTF-8"),
        pytest.param("\U0001f600\U0001f600", "\U0001f600\U0001f600", id="two pairs"),
        pytest.param("\\udce9", "\\udce9", id="a backslash"),
        pytest.param("\\\udce9", "\\\ufffd", id="one after a backslash"),
    ],
)
def test_a_text_that_python_writes_is_parsed_whatever_its_characters(note, read):
    assert LOG_JSON.value(LOG_JSON.text(replace(LOG, note=note)), "x").note == read


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("secret", "Invalid JSON"),
        ('{"deleted":{},"ends":{}}', "partition: Field required"),
        ('{"partition":"1","deleted":{},"ends":{}}', "partition: Input should be a valid integer"),
        ('{"partition":true,"deleted":{},"ends":{}}', "partition: Input should be a valid integer"),
        ('{"partition":1.5,"deleted":{},"ends":{}}', "partition: Input should be a valid integer"),
        ('{"partition":1,"deleted":{},"ends":{"secret":1}}', "ends.*Input should be a valid integer"),
        ('["secret"]', "Input should be"),
    ],
)
def test_another_text_is_refused_with_its_place_and_without_its_content(text, problem):
    with pytest.raises(TableError, match=f"property p of t cannot be read: .*{problem}") as error:
        LOG_JSON.value(text, "property p of t")
    assert "secret" not in str(error.value) or "ends" in str(error.value)


@pytest.mark.parametrize("text", ["no base 64!", "YWJj", ""])
def test_another_packed_text_is_refused(text):
    with pytest.raises(TableError, match="entry of snapshot 5 cannot be read"):
        LOG_JSON.unpacked(text, "entry of snapshot 5")
