"""A file that is too much stops early, with the setting that would let it pass; honest large ones pass."""

import gzip
import json
import resource
import subprocess
import sys
import time
import tracemalloc

import pytest

from cleantail.config.input_limits import FREE_BYTES, InputLimits
from cleantail.config.loading import load_platform, load_topic
from cleantail.errors import BadLineError, ConfigError
from cleantail.sources.kcat import parse_line, read_records
from cleantail.sources.source_files import content_digest


def line(offset=0, payload="v", **more):
    return json.dumps({"partition": 0, "offset": offset, "payload": payload} | more).encode() + b"\n"


@pytest.fixture
def written(tmp_path):
    def write(content, name="orders.jsonl"):
        file = tmp_path / name
        file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return file

    return write


def refusal(file, limits, number):
    with pytest.raises(BadLineError, match=r"under `platform: limits:` in defaults\.yaml") as caught:
        list(read_records(file, limits=limits))
    assert caught.value.line_number == number
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_has_a_longest_length_and_the_error_names_file_line_and_setting(written, name):
    first, long = line(0), line(1, "x" * 100)
    file = written(first + long + line(2), name)
    text = refusal(file, InputLimits(line_bytes=len(long) - 1), 2)
    assert f"{name}:2: a line of more than {len(long) - 1} bytes; the limit is line.max.bytes" in text
    assert len(list(read_records(file, limits=InputLimits(line_bytes=len(long))))) == 3


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_file_has_a_largest_size_unpacked_and_neither_reader_goes_on_behind_it(written, name):
    content = line(0) + line(1) + line(2)
    file = written(content, name)
    small = InputLimits(file_bytes=len(content) - 1)
    assert "the limit is file.max.bytes" in refusal(file, small, 3)
    with pytest.raises(BadLineError, match=r"unpacked; the limit is file\.max\.bytes"):
        content_digest(file, small)
    assert len(list(read_records(file, limits=InputLimits(file_bytes=len(content))))) == 3


def test_a_gz_file_that_unpacks_to_far_more_than_it_is_stops_early(tmp_path):
    file = tmp_path / "bomb.jsonl.gz"
    row = line(0, "x" * 2000)
    with gzip.open(file, "wb") as stream:
        stream.writelines([row * 500] * (3 * FREE_BYTES // len(row) // 500))
    packed = file.stat().st_size
    assert FREE_BYTES < packed * 250 < 2 * FREE_BYTES
    for read in (lambda: sum(1 for _ in read_records(file)), lambda: content_digest(file)):
        with pytest.raises(
            BadLineError, match=rf"{packed} bytes that unpack to more than .*file\.max\.ratio"
        ) as caught:
            read()
        assert caught.value.line_number < 2 * FREE_BYTES // len(row)
    assert content_digest(file, InputLimits(file_ratio=1100))


def test_a_small_file_may_repeat_itself_as_it_likes(written):
    file = written(b"".join(line(n, "same " * 2000) for n in range(200)), "a.jsonl.gz")
    assert file.stat().st_size * 50 < 200 * 10_000
    assert len(list(read_records(file, limits=InputLimits(file_ratio=1)))) == 200


def test_a_file_of_one_endless_line_never_takes_the_memory_that_it_unpacks_to(tmp_path):
    file = tmp_path / "bomb.jsonl.gz"
    with gzip.open(file, "wb") as stream:
        stream.write(b'{"partition":0,"offset":0,"payload":"')
        stream.writelines([b"a" * 1_000_000] * 300)
    assert file.stat().st_size < 1_000_000
    code = f"from pathlib import Path; from cleantail.sources.kcat import read_records; list(read_records(Path({str(file)!r})))"
    memory = 256 << 20
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )
    assert "BadLineError" in done.stderr and "line.max.bytes" in done.stderr


def test_a_record_has_so_many_headers(written):
    row = line(headers=["a", "1"] * 3)
    assert len(parse_line(row, limits=InputLimits(headers=3)).headers) == 3
    text = refusal(written(row), InputLimits(headers=2), 1)
    assert '"headers" has 3 entries, and at most 2 are allowed; the limit is record.max.headers' in text


ENDLESS_S = 30
"""Of CPU: far above what any of these takes, far below what they would if cost grew with the square of their length."""


def cost_s(text):
    began = time.process_time()
    with pytest.raises(ValueError, match="occurs twice"):
        parse_line(text)
    return time.process_time() - began


def test_the_cost_of_an_object_is_that_of_its_length():
    """16,000 names took 4 s, each twice as many four times that."""
    names = ",".join(f'"n{n}":1' for n in range(64_000))
    assert cost_s(f'{{{names},"n63999":1}}'.encode()) < ENDLESS_S


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"payload":"v","partition":0,"offset":' + b"1" * 1_000_000 + b"}", "a number of thousands of digits"),
    ],
    ids=["nesting", "digits"],
)
def test_what_the_parser_cannot_take_is_said_in_words_of_the_line(text, words):
    with pytest.raises(ValueError, match=words):
        parse_line(text)


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'"",', b'{"a":[]},'], ids=lambda unit: unit.decode())
def test_a_line_of_lists_objects_or_numbers_is_refused_before_it_takes_thirty_times_its_length(unit):
    words = "outside of strings: a record is an object of strings|more than 12000 strings: .*record.max.headers"
    text = b'{"partition":0,"offset":0,"payload":null,"x":[' + unit * ((8 << 20) // len(unit)) + b"0]}"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words):
            parse_line(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_long_line_has_so_many_strings_and_no_more_of_them_are_looked_at():
    """60 MB of quotes took 52 s."""
    began = time.process_time()
    with pytest.raises(ValueError, match=r"more than 10006 strings: .* the limit is record\.max\.headers under"):
        parse_line(b'"' * (60 << 20), limits=InputLimits(headers=3))
    assert time.process_time() - began < ENDLESS_S
    most = line(payload="v" * (2 << 20), headers=["a", "1"] * 1000)
    assert len(parse_line(most).headers) == 1000


@pytest.mark.parametrize("blank", [b"\n", b" \r\n"], ids=["nothing", "blanks"])
def test_a_file_has_so_many_blank_lines_and_no_more_of_them_are_looked_at(written, blank):
    """60 MB of them took 54 s, and pack to nothing."""
    began = time.process_time()
    file = written(line(0) + blank * (8 << 20))
    with pytest.raises(
        BadLineError, match=r"100011 blank lines, and at most 100000 are allowed, with 10 more for each record"
    ) as caught:
        list(read_records(file))
    assert caught.value.line_number == 100_012
    assert time.process_time() - began < ENDLESS_S
    honest = b"".join(line(n) + blank * 10 for n in range(10_000)) + blank * 100_000
    assert sum(1 for _ in read_records(written(honest))) == 10_000


@pytest.mark.parametrize(
    "value",
    ["[]," * (1 << 20), '{"a": "\\"},' * (1 << 18), '"' * (2 << 20), "\\" * (2 << 20)],
    ids=["lists", "json", "quotes", "backslashes"],
)
def test_a_long_value_may_hold_whatever_it_likes(value):
    assert parse_line(line(payload=value)).value == value.encode()


def test_an_unterminated_string_is_scanned_only_once():
    began = time.process_time()
    with pytest.raises(ValueError, match="not JSON: Unterminated string"):
        parse_line(b'{"payload":"' + b'\\"' * (4 << 20))
    assert time.process_time() - began < ENDLESS_S


def configured(tmp_path, limits):
    (tmp_path / "topics").mkdir(exist_ok=True)
    (tmp_path / "defaults.yaml").write_text(json.dumps({"platform": {"limits": limits}}))
    return tmp_path


def test_limits_are_settings_of_the_platform_with_units(tmp_path):
    limits = {"line.max.bytes": "1MiB", "file.max.bytes": "2GiB", "file.max.ratio": 7, "record.max.headers": 5}
    limits["batch.max.bytes"] = "3MiB"
    config = configured(tmp_path, limits)
    assert load_platform(config).limits.of_input == InputLimits(1 << 20, 2 << 30, 7, 5, 3 << 20)
    assert load_platform(configured(tmp_path, {})).limits.of_input == InputLimits()


def test_a_topic_does_not_set_what_bounds_its_cost_for_all(tmp_path):
    config = configured(tmp_path, {})
    file = config / "topics" / "a.yaml"
    file.write_text("topic: a\nlimits: {line.max.bytes: 1GiB}\n")
    with pytest.raises(ConfigError, match="limits: unknown key"):
        load_topic(file, config)


def test_a_topics_yaml_has_a_longest_length_that_the_platform_sets(tmp_path):
    config = configured(tmp_path, {"yaml.max.bytes": 100_000})
    file = config / "topics" / "a.yaml"
    file.write_text("topic: a\n" + "# a comment\n" * 8000)
    assert load_topic(file, config).topic == "a"
    file.write_text("topic: a\n" + "# a comment\n" * 9000)
    with pytest.raises(
        ConfigError, match=r"at most 100000 bytes; the limit is yaml\.max\.bytes under `platform: limits:"
    ):
        load_topic(file, config)


HOSTILE_YAML = {
    "colons of an address": 'topic: a\nowner: "://' + ":" * 4000 + '"\n',
    "many addresses": "topic: a\nchecks: [" + ", ".join(['"://:::::::::::::::::::::::"'] * 2000) + "]\n",
    "many unknown keys": "topic: a\n" + "".join(f"k{n}: {'x' * 10}\n" for n in range(3000)),
    "long unknown keys": "topic: a\n" + "".join(f"k{n}{'x' * 900}: 1\n" for n in range(60)),
    "sixties": "topic: a\nowner: " + ":".join(["1"] * 30_000) + "\n",
    "digits": "topic: a\nowner: " + "1" * 60_000 + "\n",
    "floats": "topic: a\nowner: " + "1_" * 30_000 + "e\n",
    "brackets": "topic: a\nowner: " + "[" * 60_000 + "\n",
    "quotes": "topic: a\nowner: " + "'" * 60_000 + "\n",
    "blanks": "topic: a\nowner: x" + " " * 60_000 + "y\n",
    "a pattern": 'topic: a\nchecks: [{expectation: expect_column_values_to_match_regex, kwargs: {column: key, regex: "'
    + "(a" * 2000
    + '"}}]\n',
}


@pytest.mark.parametrize("text", HOSTILE_YAML.values(), ids=HOSTILE_YAML)
def test_no_yaml_file_costs_more_than_seconds(tmp_path, text):
    """A folder of topics is read as a whole every few seconds, for all topics."""
    config = configured(tmp_path, {})
    file = config / "topics" / "a.yaml"
    file.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match=r"a\.yaml"):
        load_topic(file, config)
    assert time.process_time() - began < ENDLESS_S
