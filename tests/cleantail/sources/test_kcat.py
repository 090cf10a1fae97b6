"""Lines of kcat -J as records and back: every byte survives, and a bad line says what is wrong with it."""

import base64
import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleantail.config.input_limits import DEFAULT_LIMITS
from cleantail.errors import BadLineError, CleantailError
from cleantail.sources.kcat import Record, format_record, ignored_text, parse_line, read_records, unheld_reason

LONG_MAX = 9223372036854775807
TS_MAX = 9223372036854775
SECRET = "MARKER-of-a-person"


def line(**fields):
    """A good line with these fields over it; a field that is `...` is left out."""
    whole = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "tstype": "create",
        "ts": 3,
        "headers": [],
        "key": "k",
        "payload": "v",
    }
    return json.dumps({k: v for k, v in (whole | fields).items() if v is not ...}).encode()


def parsed(**fields):
    return parse_line(line(**fields))


# ---- good lines


def test_a_line_as_kcat_writes_it():
    text = b'{"topic":"t","partition":1,"offset":2,"tstype":"create","ts":3,"broker":0,"headers":["h","1","n",null],"key":"k","payload":"v"}\n'
    assert parse_line(text) == Record(1, 2, 3, 0, b"k", b"v", (("h", b"1"), ("n", None)))


def test_what_kcat_may_leave_out_has_a_default():
    assert parse_line(b'{"partition":0,"offset":0,"payload":"v"}') == Record(0, 0, None, 0, None, b"v", ())


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(None, None, id="null: no key"),
        pytest.param(..., None, id="absent: no key"),
        pytest.param("", b"", id='"": an empty key'),
        pytest.param("null", b"null", id="the word null"),
        pytest.param("\u0000", b"\x00", id="NUL"),
        pytest.param("grün 😀", "grün 😀".encode(), id="not ASCII"),
    ],
)
def test_case_23_an_empty_key_is_a_key_and_null_is_none(key, expected):
    assert parsed(key=key).key == expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [pytest.param(None, None, id="null: a tombstone"), pytest.param("", b"", id='"": an empty value')],
)
def test_case_23_an_empty_value_is_a_value_and_null_a_tombstone(payload, expected):
    assert parsed(payload=payload).value == expected


def test_case_23_a_key_of_ten_megabytes_is_a_key():
    assert len(parsed(key="k" * 10_000_000).key) == 10_000_000


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b"\xff\xfe\x00", b"\xff\xfe\x00", id="no UTF-8 at all"),
        pytest.param(b"a\xc3(", b"a\xc3(", id="half a character"),
        pytest.param(b"\xed\xa0\x80", b"\xed\xa0\x80", id="an encoded surrogate"),
        pytest.param(b"\xc0\xaf", b"\xc0\xaf", id="overlong"),
    ],
)
def test_bytes_that_are_not_utf8_survive_as_kcat_writes_them(raw, expected):
    text = b'{"partition":0,"offset":0,"headers":["h","%s"],"key":"%s","payload":"%s"}' % (
        (raw.replace(b"\x00", b"\\u0000"),) * 3
    )
    record = parse_line(text)
    assert (record.key, record.value, record.headers) == (expected, expected, (("h", expected),))


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        pytest.param(-1, None, id="-1: none"),
        pytest.param(..., None, id="absent: none"),
        pytest.param(0, 0, id="0 is a timestamp"),
        pytest.param(TS_MAX, TS_MAX, id="the latest that Iceberg keeps"),
    ],
)
def test_a_timestamp_is_in_milliseconds_or_there_is_none(ts, expected):
    assert parsed(ts=ts).timestamp_ms == expected


@pytest.mark.parametrize(("name", "number"), [("create", 0), ("logappend", 1), ("unknown", -1), (..., 0)])
def test_timestamp_types_are_kafkas_numbers(name, number):
    assert parsed(tstype=name).timestamp_type == number


@pytest.mark.parametrize(
    ("name", "value"),
    [("partition", 0), ("partition", 2_147_483_647), ("offset", 0), ("offset", LONG_MAX - 1)],
)
def test_the_ends_of_a_range_are_allowed(name, value):
    assert getattr(parsed(**{name: value}), name) == value


@pytest.mark.parametrize("headers", [..., None, []], ids=["absent", "null", "empty"])
def test_a_record_may_have_no_headers(headers):
    assert parsed(headers=headers).headers == ()


def test_repeated_and_empty_headers_keep_their_order():
    assert parsed(headers=["a", "1", "", "", "a", None]).headers == (("a", b"1"), ("", b""), ("a", None))


# ---- lines that kcat has decoded, or could not decode

UNDECODED = "which Kafka has; schema not found"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"payload": None, "payload_error": UNDECODED}, '"payload_error"', id="the value"),
        pytest.param({"key": None, "key_error": UNDECODED}, '"key_error"', id="the key"),
        pytest.param({"payload_error": ""}, '"payload_error"', id="an empty reason, a value nevertheless"),
        pytest.param({"payload_error": False}, '"payload_error"', id="a reason that is no text"),
        pytest.param({"payload": None, "value_schema_id": 7}, '"value_schema_id"', id="Avro's null as a value"),
        pytest.param({"key": None, "key_schema_id": 7}, '"key_schema_id"', id="Avro's null as a key"),
    ],
)
def test_a_line_whose_null_stands_for_bytes_in_kafka_is_not_a_record(fields, reason):
    with pytest.raises(ValueError, match=f"{reason} .*without kcat's -s") as e:
        parsed(**fields)
    assert UNDECODED not in str(e.value)


@pytest.mark.parametrize("fields", [{"payload": None, "payload_error": "x"}, {"key": None, "key_schema_id": 7}])
def test_a_line_that_was_not_decoded_is_left_out_without_key_value_and_headers(fields):
    text = line(**fields, headers=["h", "v"])
    assert parse_line(text, "text", None, DEFAULT_LIMITS, None, "held") is None
    left = parse_line(text, "text", None, DEFAULT_LIMITS, None, "unheld")
    assert left is not None and unheld_reason(left) == "not decoded"
    assert (left.offset, left.key, left.value, left.headers) == (parsed().offset, None, None, ())


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"payload_error": None, "key_error": None}, id="no error"),
        pytest.param({"key_schema_id": 3, "value_schema_id": 7}, id="text by Avro"),
        pytest.param({"payload": None, "value_schema_id": None}, id="a tombstone, and no schema"),
    ],
)
def test_a_line_without_an_error_is_a_record(fields):
    assert parsed(**fields) == parsed(payload=fields.get("payload", "v"))


def test_fields_that_kcat_does_not_write_are_collected_by_name():
    ignored: set[str] = set()
    known = {"broker": 1, "key_schema_id": 1, "value_schema_id": 1, "key_error": None, "payload_error": None}
    parse_line(line(**known, key_encoding="text"), ignored=ignored)
    assert ignored == set()
    for name in ("Key", "lag", "lag"):
        parse_line(line(**{name: SECRET}), ignored=ignored)
    assert ignored == {"Key", "lag"}
    parse_line(line(**{f"f{n}": n for n in range(500)}), ignored=ignored)
    assert len(ignored) == 100


@pytest.mark.parametrize(
    ("names", "text"),
    [
        pytest.param({"lag"}, 'a.jsonl: field that kcat does not write, ignored: "lag"', id="one"),
        pytest.param({"b", "a"}, 'a.jsonl: fields that kcat does not write, ignored: "a", "b"', id="two"),
        pytest.param({"\x1b[2J\n"}, r'a.jsonl: field that kcat does not write, ignored: "\u001b[2J\n"', id="escaped"),
        pytest.param({"x" * 500}, f'a.jsonl: field that kcat does not write, ignored: "{"x" * 40}"', id="long"),
        pytest.param(
            {f"f{n:02}" for n in range(12)},
            "a.jsonl: fields that kcat does not write, ignored: "
            + ", ".join(f'"f{n:02}"' for n in range(10))
            + " and 2 more",
            id="many",
        ),
    ],
)
def test_ignored_fields_are_named_briefly_and_on_one_line(names, text):
    assert ignored_text("a.jsonl", names) == text


# ---- base64


def test_fields_marked_as_base64_are_bytes():
    record = parsed(
        key="/w==",
        key_encoding="base64",
        payload="AAE=",
        payload_encoding="base64",
        headers=["h", "/g==", "n", None],
        headers_encoding="base64",
    )
    assert (record.key, record.value, record.headers) == (b"\xff", b"\x00\x01", (("h", b"\xfe"), ("n", None)))


def test_a_mark_is_for_its_own_field():
    record = parsed(key="AAE=", payload="AAE=", payload_encoding="base64", headers=["h", "AAE="])
    assert (record.key, record.value, record.headers) == (b"AAE=", b"\x00\x01", (("h", b"AAE="),))


def test_a_file_may_be_base64_as_a_whole():
    record = parse_line(line(key="/w==", payload=None, headers=["h", "/g=="]), "base64")
    assert (record.key, record.value, record.headers) == (b"\xff", None, (("h", b"\xfe"),))


def test_a_mark_wins_over_the_encoding_of_the_file():
    record = parse_line(
        line(key="k", key_encoding="text", payload="AAE=", headers=["h", "v"], headers_encoding="text"), "base64"
    )
    assert (record.key, record.value, record.headers) == (b"k", b"\x00\x01", (("h", b"v"),))


def test_empty_base64_is_the_empty_text():
    assert parse_line(line(key="", payload=""), "base64").key == b""


# ---- bad lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"offset 1", "not JSON: Expecting value", id="not JSON"),
        pytest.param(b'{"partition":0,', "not JSON: Expecting property name", id="cut"),
        pytest.param(b'{"partition":0} {"partition":1}', "not JSON: Extra data", id="two on a line"),
        pytest.param(b"\xef\xbb\xbf" + line(), "not JSON: Unexpected UTF-8 BOM", id="byte order mark"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="deep nesting"),
        pytest.param(line()[:-1] + b', "offset": 2}', '"offset" occurs twice', id="a name twice"),
        pytest.param(b"[1]", "not a JSON object but a list", id="a list"),
        pytest.param(b"NaN", "not a JSON object but a number", id="NaN"),
        pytest.param(b"null", "not a JSON object but null", id="null"),
        pytest.param(b"{}", '"payload" is missing: a record has one, null for a tombstone', id="empty object"),
        pytest.param(
            line(payload=...), '"payload" is missing: a record has one, null for a tombstone', id="no payload"
        ),
        pytest.param(line(offset=...), f'"offset" is missing: an integer from 0 to {LONG_MAX - 1}', id="no offset"),
        pytest.param(line(offset=None), f'"offset" is missing: an integer from 0 to {LONG_MAX - 1}', id="null offset"),
        pytest.param(
            line(offset=-1), f'"offset" is -1: an integer from 0 to {LONG_MAX - 1} is allowed', id="negative offset"
        ),
        pytest.param(
            line(offset=LONG_MAX), f'"offset" is {LONG_MAX}: an integer from 0 to {LONG_MAX - 1}', id="offset too large"
        ),
        pytest.param(line(offset=True), '"offset" is true or false: an integer', id="bool offset"),
        pytest.param(line(offset=1.0), '"offset" is a number: an integer', id="float offset"),
        pytest.param(line(offset=float("nan")), '"offset" is a number: an integer', id="NaN offset"),
        pytest.param(line(offset=float("inf")), '"offset" is a number: an integer', id="infinite offset"),
        pytest.param(
            b'{"payload":"v","partition":0,"offset":' + b"9" * 5_000 + b"}",
            "a number of thousands of digits",
            id="offset of 5000 digits",
        ),
        pytest.param(line(partition=...), '"partition" is missing: an integer from 0 to 2147483647', id="no partition"),
        pytest.param(
            line(partition="0"),
            '"partition" is a string: an integer from 0 to 2147483647 is allowed',
            id="partition as text",
        ),
        pytest.param(line(partition=-1), '"partition" is -1: an integer', id="negative partition"),
        pytest.param(line(partition=2_147_483_648), '"partition" is 2147483648: an integer', id="partition too large"),
        pytest.param(line(partition=False), '"partition" is true or false: an integer', id="bool partition"),
        pytest.param(
            line(ts=-TS_MAX - 1), f'"ts" is {-TS_MAX - 1}: an integer from {-TS_MAX} to', id="below timestamps"
        ),
        pytest.param(line(ts=TS_MAX + 1), f'"ts" is {TS_MAX + 1}: an integer', id="timestamp beyond Iceberg"),
        pytest.param(line(ts="3"), '"ts" is a string: an integer', id="timestamp as text"),
        pytest.param(line(ts=True), '"ts" is true or false: an integer', id="bool timestamp"),
        pytest.param(
            line(tstype="Create"),
            '"tstype" is another string: one of create, logappend, unknown is allowed',
            id="unknown type",
        ),
        pytest.param(line(tstype=None), '"tstype" is null: one of', id="null type"),
        pytest.param(line(tstype=["create"]), '"tstype" is a list: one of', id="list type"),
        pytest.param(line(key=5), '"key" is a number: a string or null is allowed', id="key is a number"),
        pytest.param(line(key=float("nan")), '"key" is a number: a string', id="key is NaN"),
        pytest.param(line(key={"id": 1}), '"key" is an object: a string', id="key is an object"),
        pytest.param(line(payload=False), '"payload" is true or false: a string or null is allowed', id="bool payload"),
        pytest.param(
            line(payload=["x" * 100]), '"payload" is a list: a string or null is allowed', id="payload is a list"
        ),
        pytest.param(
            b'{"partition":0,"offset":0,"payload":"\\ud800"}',
            '"payload" has a lone surrogate',
            id="lone surrogate in the payload",
        ),
        pytest.param(
            b'{"partition":0,"offset":0,"payload":"","key":"\\udbff"}',
            '"key" has a lone surrogate',
            id="lone surrogate in the key",
        ),
        pytest.param(line(headers=["h", "\ud800"]), '"headers" has a lone surrogate', id="lone surrogate in a header"),
        pytest.param(
            line(headers=["\ud800", "v"]),
            '"headers" has a name that is not UTF-8',
            id="lone surrogate in a name",
        ),
        pytest.param(
            line(headers=["\udfff", "v"]),
            '"headers" has a name that is not UTF-8',
            id="last surrogate in a name",
        ),
        pytest.param(
            b'{"partition":0,"offset":0,"payload":"","headers":["a\xff","v"]}',
            '"headers" has a name that is not UTF-8',
            id="bytes in a name",
        ),
        pytest.param(line(headers=["h"]), '"headers" is not a list of names and values in turn', id="odd headers"),
        pytest.param(line(headers=["h", "v", "h"]), '"headers" is not a list of names', id="three headers"),
        pytest.param(line(headers={"h": "v"}), '"headers" is not a list of names', id="headers as an object"),
        pytest.param(line(headers="hv"), '"headers" is not a list of names', id="headers as text"),
        pytest.param(
            line(headers=[1, "v"]),
            '"headers" has a number and a string: a string and a string or null are allowed',
            id="name is a number",
        ),
        pytest.param(line(headers=[None, "v"]), '"headers" has null and a string: a', id="name is null"),
        pytest.param(line(headers=["h", 1]), '"headers" has a string and a number: a', id="header value is a number"),
        pytest.param(
            line(key_encoding="hex"), '"key_encoding" is another string: text or base64 is allowed', id="unknown mark"
        ),
        pytest.param(line(key_encoding=None), '"key_encoding" is null: text or base64 is allowed', id="null mark"),
        pytest.param(line(payload_encoding=["base64"]), '"payload_encoding" is a list: text or base64', id="list mark"),
        pytest.param(
            line(headers=["h", "v"], headers_encoding=1),
            '"headers_encoding" is a number: text or base64',
            id="number mark",
        ),
        pytest.param(
            line(key="AA", key_encoding="base64"),
            '"key" is a string of 2 characters that is not base64',
            id="base64 without padding",
        ),
        pytest.param(
            line(key="A*A=", key_encoding="base64"),
            '"key" is a string of 4 characters that is not base64',
            id="a character outside base64",
        ),
        pytest.param(
            line(key="ü", key_encoding="base64"),
            '"key" is a string of 1 character that is not base64',
            id="base64 outside ASCII",
        ),
        pytest.param(
            line(headers=["h", "?"], headers_encoding="base64"),
            '"headers" is a string of 1 character that is not base64',
            id="header not base64",
        ),
    ],
)
def test_a_bad_line_says_field_kind_and_what_is_allowed(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_line(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": {SECRET: SECRET}},
        {"payload": [SECRET]},
        {"payload": SECRET, "payload_encoding": "base64"},
        {"payload": "x", "payload_encoding": SECRET},
        {"key": {SECRET: 1}},
        {"key": 4_917_300},
        {"key": SECRET, "key_encoding": "base64"},
        {"offset": SECRET},
        {"partition": {SECRET: 0}},
        {"ts": SECRET},
        {"tstype": SECRET},
        {"headers": [SECRET]},
        {"headers": [SECRET, {SECRET: 1}]},
        {"headers": [f"{SECRET}\ud800", "v"]},
        {"headers": ["h", SECRET], "headers_encoding": "base64"},
    ],
    ids=str,
)
def test_what_is_wrong_with_a_line_quotes_neither_key_nor_value_nor_header(fields):
    """The reason goes to logs, to Airflow's database and to every recipient of alerts."""
    with pytest.raises(ValueError, match="(is|has|not) ") as caught:
        parsed(**fields)
    assert SECRET not in str(caught.value) and "4917300" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([SECRET]).encode(),
        json.dumps(SECRET).encode(),
        f'{{"payload": {{"{SECRET}": 1, "{SECRET}": 2}}}}'.encode(),
        f'{{"payload": "{SECRET}" "{SECRET}"'.encode(),
        f"{SECRET}: 1".encode(),
    ],
    ids=["a list", "a string", "a name twice within the payload", "two values", "no JSON at all"],
)
def test_the_error_about_a_line_that_is_not_a_record_does_not_quote_it(text):
    with pytest.raises(ValueError, match="not|twice") as caught:
        parse_line(text)
    assert SECRET not in str(caught.value)


# ---- files


@pytest.fixture
def written(tmp_path):
    def write(content, name="orders.jsonl"):
        file = tmp_path / name
        file.write_bytes(content)
        return file

    return write


def test_records_come_in_the_order_of_their_lines_and_blank_lines_pass(written):
    file = written(line(offset=5) + b"\n\n  \r\n" + line(offset=3) + b"\r\n" + line(offset=4))
    assert [r.offset for r in read_records(file)] == [5, 3, 4]


def test_an_empty_file_has_no_records(written):
    assert list(read_records(written(b""))) == []


def test_a_file_that_ends_in_gz_is_decompressed(written):
    file = written(gzip.compress(line(offset=5) + b"\n"), "orders.jsonl.gz")
    assert [r.offset for r in read_records(file)] == [5]


def test_an_empty_gz_file_has_no_records(written):
    assert list(read_records(written(gzip.compress(b""), "orders.jsonl.gz"))) == []


def test_the_encoding_holds_for_every_line_of_a_file(written):
    assert [r.value for r in read_records(written(line(key=None, payload="AAE=")), "base64")] == [b"\x00\x01"]


def test_a_separator_of_unicode_does_not_end_a_line(written):
    text = json.dumps({"partition": 0, "offset": 0, "payload": "a\u2028b\x85c"}, ensure_ascii=False)
    assert [r.value for r in read_records(written(text.encode()))] == ["a\u2028b\x85c".encode()]


@pytest.mark.parametrize(("before", "number"), [(b"", 1), (b"\n\n", 3)], ids=["first line", "blank lines count"])
def test_a_bad_line_is_named_by_file_and_number(written, before, number):
    file = written(before + b"oops\n")
    with pytest.raises(BadLineError, match=re.escape(f"{file}:{number}: not JSON: ")) as caught:
        list(read_records(file))
    assert (caught.value.file, caught.value.line_number) == (file, number)


def test_the_records_before_a_bad_line_come_first(written):
    records = read_records(written(line(offset=5) + b"\noops\n"))
    assert next(records).offset == 5
    with pytest.raises(BadLineError, match=r":2: not JSON"):
        next(records)


def test_a_gz_file_that_is_cut_is_a_bad_file(written):
    lines = b"".join(line(offset=n, payload=str(n * n)) + b"\n" for n in range(500))
    file = written(gzip.compress(lines)[:-20], "cut.jsonl.gz")
    with pytest.raises(
        BadLineError, match=r"cut\.jsonl\.gz:\d+: the file ends early or is not gzip: Compressed file ended"
    ):
        list(read_records(file))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(line(), id="plain text"),
        pytest.param(gzip.compress(line())[:-8] + b"\x00" * 8, id="wrong checksum"),
        pytest.param(gzip.compress(line() * 50)[:12] + b"\xff" * 40, id="garbage inside"),
    ],
)
def test_a_gz_file_that_is_no_gzip_is_a_bad_file(written, content):
    with pytest.raises(BadLineError, match=r"b\.jsonl\.gz:[12]: the file ends early or is not gzip: "):
        list(read_records(written(content, "b.jsonl.gz")))


def test_a_broken_gz_file_is_named_by_the_line_after_the_last_good_one(written):
    with pytest.raises(BadLineError, match=r":1: the file ends early or is not gzip"):
        list(read_records(written(b"plain", "b.jsonl.gz")))


@pytest.mark.parametrize(("name", "why"), [("absent.jsonl", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_no_bad_line(tmp_path, name, why):
    with pytest.raises(
        CleantailError, match=rf"{re.escape(str(tmp_path / name))} cannot be read: {why}; nothing was appended"
    ) as caught:
        list(read_records(tmp_path / name))
    assert not isinstance(caught.value, BadLineError)


# ---- back


def test_a_record_is_written_as_kcat_would():
    record = Record(1, 2, 3, 1, "ü".encode(), None, (("h", b"1"), ("n", None)))
    assert format_record("t", record) == (
        '{"topic": "t", "partition": 1, "offset": 2, "tstype": "logappend", "ts": 3, "headers": ["h", "1", "n", null], '
        '"key": "ü", "payload": null}'
    )


def test_a_record_without_headers_and_timestamp():
    assert format_record("t", Record(0, 0, None, -1, None, b"", ())) == (
        '{"topic": "t", "partition": 0, "offset": 0, "tstype": "unknown", "ts": -1, "key": null, "payload": ""}'
    )


def test_a_timestamp_at_0_is_written():
    assert '"ts": 0,' in format_record("t", Record(0, 0, 0, 0, None, None, ()))


def test_an_unheard_of_timestamp_type_is_written_as_unknown():
    assert '"tstype": "unknown"' in format_record("t", Record(0, 0, 0, 7, None, None, ()))


def test_bytes_that_are_not_utf8_are_written_as_base64_with_a_mark():
    fields = json.loads(
        format_record("t", Record(0, 0, 0, 0, b"\xff", b"\xfe", (("h", b"\xfd"), ("n", None), ("g", b"g"))))
    )
    assert (fields["key"], fields["key_encoding"]) == ("/w==", "base64")
    assert (fields["payload"], fields["payload_encoding"]) == ("/g==", "base64")
    assert (fields["headers"], fields["headers_encoding"]) == (["h", "/Q==", "n", None, "g", "Zw=="], "base64")


def test_only_what_needs_it_is_base64():
    fields = json.loads(format_record("t", Record(0, 0, 0, 0, b"\xff", b"v", (("h", b"v"),))))
    assert not {"payload_encoding", "headers_encoding"} & fields.keys()
    assert base64.b64decode(fields["key"]) == b"\xff"


# ---- whose line it is


@pytest.mark.parametrize("topic", ["t", None], ids=["its own", "any"])
def test_a_line_of_the_topic_and_a_line_without_one_are_taken(topic):
    assert parse_line(line(), "text", topic) == parse_line(line(topic=...), "text", topic) == parsed()


def test_a_line_of_another_topic_is_refused_with_what_is_allowed_and_the_way_out():
    with pytest.raises(ValueError, match=r'"topic" is "u": .*"t" is allowed.*source\.topic: u in .*--any-topic'):
        parse_line(line(topic="u"), "text", "t")
    assert parse_line(line(topic="u"), "text", None) == parsed()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "n" * 250, "ä", "\udcff", "t\n"])
def test_an_invalid_topic_name_in_a_line_is_refused_and_not_shown(name):
    with pytest.raises(ValueError, match='^"topic" is not a name that Kafka allows: "t" is allowed, or no "topic"'):
        parse_line(line(topic=name), "text", "t")


@pytest.mark.parametrize("topic", ["t", None], ids=["its own", "any"])
@pytest.mark.parametrize("name", [None, 7, True, ["t"], {"t": 1}], ids=str)
def test_a_topic_that_is_no_string_is_refused_whatever_is_allowed(topic, name):
    with pytest.raises(ValueError, match='"topic" is not a string'):
        parse_line(line(topic=name), "text", topic)


records = st.builds(
    Record,
    partition=st.integers(0, 2_147_483_647),
    offset=st.integers(0, LONG_MAX - 1),
    timestamp_ms=st.none() | st.integers(0, TS_MAX),
    timestamp_type=st.sampled_from([0, 1, -1]),
    key=st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode),
    value=st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=4).map(tuple),
)


@given(records)
def test_every_record_survives_its_line(record):
    text = format_record("t", record)
    assert "\n" not in text
    assert parse_line(text.encode()) == record


@given(st.binary(max_size=30))
def test_bytes_as_kcat_writes_them_survive(value):
    """kcat escapes quotes, backslashes and control characters, and writes all other bytes as they are."""
    escaped = b"".join(b"\\u%04x" % b if b < 0x20 or b in b'"\\' else bytes([b]) for b in value)
    assert parse_line(b'{"partition":0,"offset":0,"payload":"' + escaped + b'"}').value == value


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_line_is_a_record_or_a_value_error(text):
    try:
        parse_line(text)
    except ValueError as e:
        assert type(e) is ValueError
