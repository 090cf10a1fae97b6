"""pyarrow reads a block of lines as the rules read it line by line, or reads nothing of it."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cleantail.config.input_limits import DEFAULT_LIMITS
from cleantail.sources.kcat import parse_line
from cleantail.sources.source_files import (
    BLANK_LINES,
    LINE_BLOCK_BYTES,
    RANGE_BYTES_MIN,
    FileContent,
    FileRange,
    file_tasks,
)
from spark_jobs.round.intake.ingest import LineReading, SuspectLinesError, range_batches
from spark_jobs.round.intake.record_batches import ARROW_SCHEMA, arrow_batch, plain_batch

PLAIN = (
    b'{"topic":"t","partition":0,"offset":1,"tstype":"create","ts":1600000000000,"broker":0,"key":"a","payload":"x"}'
)
KCATS = [
    PLAIN,
    b'{"partition":2147483647,"offset":9223372036854775806,"tstype":"logappend","ts":9223372036854775,"key":"","payload":""}',
    b'{"topic":"t","partition":0,"offset":2,"tstype":"unknown","ts":-1,"key":null,"payload":null}',
    b'{"partition":0,"offset":-0,"payload":"no time, no key"}',
    b'{"topic":"t","tstype":"create","ts":1,"partition":0,"offset":3,"headers":["h","v","h",null,"",""],"key":"k\\n\\u0000\\"","payload":"\xff\xfe\xed\xa0\x80"}',
    b'{"topic":"t","tstype":"create","ts":1,"headers":[],"partition":0,"offset":4,"key":"\\ud83d\\ude00 \xf0\x9f\x98\x80 \\/","payload":"{\\"payload\\":null}"}',
    b'{"partition":1,"offset":5,"headers":null,"payload": null , "key":"payload"}',
]
OTHERS = [
    b"",
    b"  \r",
    b'{"partition":0,"offset":6,"payload":"AAEC","payload_encoding":"base64"}',
    b'{"partition":0,"offset":7,"payload":"x","other":{"a":[1]}}',
    b'{"partition":0,"offset":8,"payload":"x","broker":"one"}',
    b' {"partition":0,"offset":9,"payload":"x"} ',
    b'{"partition":0,"offset":10,"payload":"x"}\r',
    b'{"partition":0,"offset":11,"pa\\u0079load":null,"k\\u0065y":"a"}',
    b'{"partition":0,"offset":12,"payload":"\\udc80"}',
    b'{"partition":0,"offset":13,"headers":["\\u00e9","\xff"],"payload":"x"}',
]
BAD = [
    b'{"partition":0,"offset":1,"payload":null,"payload_error":"Schema not found"}',
    b'{"partition":0,"offset":1,"key":null,"key_\\u0065rror":"Schema not found","payload":"x"}',
    b'{"partition":0,"offset":1,"payload":null,"value_schema_id":7}',
    b"{not json",
    b"[]",
    b'{"partition":0,"offset":1,"payload":"x"}{"partition":0,"offset":2,"payload":"x"}',
    b'{"partition":0,"offset":1,"payload":"x"} {"partition":0,"offset":2,"payload":"x"}',
    b'{"partition":0,"offset":1,',
    b'"payload":"x"}',
    b'{"partition":0,"offset":1}',
    b'{"partition":0,"offset":1,"key":"payload"}',
    b'{"partition":0,"offset":1,"key":"\\"payload\\":"}',
    b'{"partition":0,"offset":1,"offset":2,"payload":"x"}',
    b'{"partition":0,"offset":1,"payload":"x","payload":"y"}',
    b'{"partition":0,"offset":1.0,"payload":"x"}',
    b'{"partition":0,"offset":1e3,"payload":"x"}',
    b'{"partition":0,"offset":"1","payload":"x"}',
    b'{"partition":0,"offset":true,"payload":"x"}',
    b'{"partition":0,"offset":-1,"payload":"x"}',
    b'{"partition":0,"offset":9223372036854775807,"payload":"x"}',
    b'{"partition":2147483648,"offset":1,"payload":"x"}',
    b'{"partition":-1,"offset":1,"payload":"x"}',
    b'{"partition":null,"offset":1,"payload":"x"}',
    b'{"offset":1,"payload":"x"}',
    b'{"partition":0,"offset":1,"ts":-9223372036854776,"payload":"x"}',
    b'{"partition":0,"offset":1,"ts":9223372036854776,"payload":"x"}',
    b'{"partition":0,"offset":1,"ts":null,"payload":"x"}',
    b'{"partition":0,"offset":1,"t\\u0073":null,"payload":"x"}',
    b'{"partition":0,"offset":1,"tstype":null,"payload":"x"}',
    b'{"partition":0,"offset":1,"tst\\u0079pe":null,"payload":"x"}',
    b'{"partition":0,"offset":1,"tstype":"later","payload":"x"}',
    b'{"partition":0,"offset":1,"topic":null,"payload":"x"}',
    b'{"partition":0,"offset":1,"top\\u0069c":null,"payload":"x"}',
    b'{"partition":0,"offset":1,"topic":"other","payload":"x"}',
    b'{"partition":0,"offset":1,"headers":["h"],"payload":"x"}',
    b'{"partition":0,"offset":1,"headers":[null,"h"],"payload":"x"}',
    b'{"partition":0,"offset":1,"headers":["h",1],"payload":"x"}',
    b'{"partition":0,"offset":1,"headers":["\xff","h"],"payload":"x"}',
    b'{"partition":0,"offset":1,"headers":{},"payload":"x"}',
    b'{"partition":0,"offset":1,"key":5,"payload":"x"}',
    b'{"partition":0,"offset":1,"payload":"\\ud800"}',
    b'{"partition":0,"offset":1,"payload":"a\x01b"}',
    b'{"partition":0,"offset":1,"payload":"\\q"}',
    b'{"partition":0,"offset":1,"payload":"x","payload_encoding":null}',
    b'\xef\xbb\xbf{"partition":0,"offset":1,"payload":"x"}',
    b'{"partition":0,"offset":1,"payload":NaN}',
]


def by_the_rules(lines, limits=DEFAULT_LIMITS):
    return arrow_batch([parse_line(line, "text", "t", limits) for line in lines])


def block_of(lines, end=b"\n"):
    return b"\n".join(lines) + end


@pytest.mark.parametrize("line", KCATS, ids=range(len(KCATS)))
@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "cut"])
def test_lines_as_kcat_writes_them_are_read_by_pyarrow_as_by_the_rules(line, end):
    assert plain_batch(block_of([line], end), "t", DEFAULT_LIMITS).equals(by_the_rules([line]))
    named = [PLAIN, line, PLAIN]
    batch = plain_batch(block_of(named, end), "t", DEFAULT_LIMITS)
    assert batch is None or batch.equals(by_the_rules(named))


def test_a_block_of_all_of_them_is_read_at_once():
    lines = [PLAIN, KCATS[2], *KCATS[4:6]]
    assert plain_batch(block_of(lines), "t", DEFAULT_LIMITS).equals(by_the_rules(lines))


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("neighbours", [[], [PLAIN]], ids=["alone", "among others"])
def test_a_block_with_a_bad_line_has_no_batch(line, neighbours):
    assert plain_batch(block_of([*neighbours, line, *neighbours]), "t", DEFAULT_LIMITS) is None


def test_a_block_with_an_object_over_two_lines_or_two_objects_on_one_line_has_no_batch():
    cut = [b'{"partition":0,"offset":1,', b'"payload":"x"}']
    double = b'{"partition":0,"offset":2,"payload":"x"}{"partition":0,"offset":3,"payload":"x"}'
    assert plain_batch(block_of([*cut, double]), "t", DEFAULT_LIMITS) is None


@pytest.mark.parametrize("changes", [2_000, pytest.param(40_000, marks=pytest.mark.deep)])
def test_pyarrow_and_the_rules_agree_on_randomly_changed_lines(changes):
    rng = random.Random(changes)
    alphabet = b'{}[]",:\\\n\r \t0159-+.eEunltrfasx\x00\x1f\x7f\x80\xc3\xa9\xed\xa0\xff'
    taken = 0
    for _ in range(changes):
        line = bytearray(rng.choice(KCATS + OTHERS + BAD))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(line) + 1)
            line[at : at + rng.randrange(2)] = bytes([rng.choice(alphabet)]) * rng.randrange(2)
        lines = bytes(line).split(b"\n")
        try:
            expected = by_the_rules([each for each in lines if each.strip()])
        except ValueError:
            expected = None
        batch = plain_batch(block_of(lines), "t", DEFAULT_LIMITS)
        assert batch is None or (expected is not None and batch.equals(expected)), bytes(line)
        taken += batch is not None
    assert taken > changes / 40


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"line_bytes": len(PLAIN) + 1}, PLAIN.replace(b"x", b"xx")),
        ({"headers": 2}, KCATS[4]),
    ],
    ids=["line", "headers"],
)
def test_a_block_beyond_a_limit_has_no_batch(limits, line):
    assert plain_batch(block_of([PLAIN]), "t", replace(DEFAULT_LIMITS, **limits)) is not None
    assert plain_batch(block_of([PLAIN, line, PLAIN]), "t", replace(DEFAULT_LIMITS, **limits)) is None


def ranged(file, cuts, encoding="text", limits=DEFAULT_LIMITS):
    ranges = [FileRange(file, start, end) for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    batches = [batch for each in ranges for batch in range_batches(each, LineReading(encoding, "t", limits))]
    return pa.Table.from_batches(batches, ARROW_SCHEMA).combine_chunks()


@pytest.mark.parametrize(
    "kinds", [pytest.param(KCATS, id="kcat's", marks=pytest.mark.deep), pytest.param([*KCATS, *OTHERS], id="all")]
)
def test_a_file_cut_at_any_byte_is_read_line_by_line_once(tmp_path, kinds):
    rng, file = random.Random(18), tmp_path / "a.jsonl"
    lines = [rng.choice(kinds) for _ in range(200)]
    file.write_bytes(block_of(lines, b""))
    expected = pa.Table.from_batches([by_the_rules([line for line in lines if line.strip()])])
    for _ in range(60):
        cuts = sorted(rng.randrange(1, file.stat().st_size) for _ in range(rng.randrange(6)))
        assert ranged(file, cuts).equals(expected)
    ends = [at for at, byte in enumerate(file.read_bytes()) if byte == ord("\n")]
    assert all(ranged(file, [at + more]).equals(expected) for at in ends[:40] for more in (0, 1))


def test_lines_longer_than_a_block_are_read_whole(tmp_path):
    file = tmp_path / "long.jsonl"
    value = "x" * (LINE_BLOCK_BYTES + 5)
    lines = [json.dumps({"partition": 0, "offset": n, "payload": value}).encode() for n in range(3)]
    file.write_bytes(block_of(lines))
    assert ranged(file, [10, LINE_BLOCK_BYTES, LINE_BLOCK_BYTES * 2])["offset"].to_pylist() == [0, 1, 2]
    with pytest.raises(SuspectLinesError, match="line by line"):
        ranged(file, [], limits=replace(DEFAULT_LIMITS, line_bytes=LINE_BLOCK_BYTES))


def test_each_range_of_a_file_that_is_too_large_says_so(tmp_path):
    """The digest may have been remembered since the limit was higher."""
    file = tmp_path / "large.jsonl"
    file.write_bytes(block_of([PLAIN] * 4))
    limits = replace(DEFAULT_LIMITS, file_bytes=file.stat().st_size - 1)
    for lines in (FileRange(file, 0, 10), FileRange(file, 150, None)):
        with pytest.raises(SuspectLinesError, match="line by line"):
            list(range_batches(lines, LineReading("text", "t", limits)))


def test_base64_is_read_line_by_line(tmp_path):
    file = tmp_path / "b.jsonl"
    text = base64.b64encode(b"\x00\xff").decode()
    file.write_text(json.dumps({"partition": 0, "offset": 1, "key": text, "payload": text}) + "\n")
    [row] = ranged(file, [], encoding="base64").to_pylist()
    assert (row["key"], row["value"]) == (b"\x00\xff", b"\x00\xff")


def test_a_range_with_more_blank_lines_than_its_limit_is_left_to_the_reader_of_lines(tmp_path):
    file = tmp_path / "blank.jsonl"
    file.write_bytes(PLAIN + b"\n" * 12)
    assert len(list(range_batches(FileRange(file, blank_lines=11), LineReading(topic="t")))) == 1
    with pytest.raises(SuspectLinesError, match="line by line"):
        list(range_batches(FileRange(file, blank_lines=10), LineReading(topic="t")))


def test_a_packed_file_is_one_range_and_small_files_share_a_task(tmp_path):
    large, packed = Path("large.jsonl"), Path("packed.jsonl.gz")
    tasks = file_tasks({large: 8 * RANGE_BYTES_MIN, packed: 8 * RANGE_BYTES_MIN}, 4)
    assert [[(r.file, r.start, r.end) for r in task] for task in tasks] == [
        [(large, 0, 4 * RANGE_BYTES_MIN)],
        [(large, 4 * RANGE_BYTES_MIN, None)],
        [(packed, 0, None)],
    ]
    assert {r.blank_lines for task in tasks for r in task} == {BLANK_LINES // 2, BLANK_LINES}
    small = {Path(f"{n}.jsonl"): RANGE_BYTES_MIN // 10 for n in range(25)}
    assert [len(task) for task in file_tasks(small, 4)] == [10, 10, 5]
    assert [[r.file for r in task] for task in file_tasks({large: 0, packed: 0}, 2)] == [[large, packed]]


def test_lines_of_a_packed_file_are_read_from_its_start(tmp_path):
    import gzip

    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(block_of(KCATS)))
    with FileContent(file, DEFAULT_LIMITS) as content:
        assert b"".join(content.line_blocks()) == block_of(KCATS)
