"""docs/operations.md: every command of it, run in the situation that its section describes."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.codecs import KNOWN_CODECS

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
BLOCKS, QUERIES = (
    dict(re.findall(rf"<!-- run: ([a-z-]+) -->\n *```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    for language in ("sh", "sql")
)
SHORT_KEYS = {
    "expectation": "expect_column_value_lengths_to_be_between",
    "kwargs": {"column": "key", "min_value": 1, "max_value": 3},
}


def test_every_command_named_in_the_guides_text_is_run_in_one_of_its_blocks():
    text = re.sub(r"```sh\n.*?```", "", GUIDE.read_text(), flags=re.DOTALL)
    run = {line.split()[1] for block in BLOCKS.values() for line in block.splitlines() if line.strip()}
    named = set(re.findall(r"`cleantail ([a-z-]+)", text))
    assert "release" in named
    assert named - {"doctor", "init"} <= run  # both have tests of their own


class Guide:
    """Run the blocks. A block that was never run is an untested command."""

    def __init__(self, workshop, topic, folder):
        self.workshop, self.topic, self.folder = workshop, topic, folder
        self.left = {*BLOCKS, *QUERIES}

    def run(self, name, **values):
        """What the block's commands print. All must end well."""
        text = BLOCKS[name].replace("orders.positions.json", str(self.folder / "positions.json"))
        text = self.filled(name, text, values)
        return "".join(self.workshop.ok(*shlex.split(line)[1:]) for line in text.splitlines() if line.strip())

    def query(self, spark, name, **values):
        """The rows of a block's statement."""
        return spark.sql(self.filled(name, QUERIES[name], values)).collect()

    def filled(self, name, text, values):
        self.left.discard(name)
        text = text.replace("right.jsonl", str(self.workshop.config / "right.jsonl")).replace("orders", self.topic)
        for placeholder, value in values.items():
            text = text.replace(placeholder, str(value))
        return text


def record(offset, key, payload="v"):
    return {"partition": 0, "offset": offset, "ts": 1_700_000_000_000 + offset, "key": key, "payload": payload}


def test_every_command_of_the_guide_does_what_its_section_says(workshop, tmp_path, spark):
    topic = workshop.topic("guide", checks=[SHORT_KEYS])
    guide = Guide(workshop, topic, tmp_path)

    def ingest(*records):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{records[0]['offset']}.jsonl", records))

    # a check is red
    ingest(record(0, "a"), record(1, "a"), record(2, "too long"))
    assert workshop.run("compact", topic)[0] == 1
    held = workshop.json("status", topic)["topics"][topic][0]["state"]["quarantine"]["branch"]
    looked_at = guide.run("red", BRANCH=held)
    assert '"offset":1' in looked_at.replace(" ", "")
    assert len(workshop.read(topic)) == 3
    guide.run("prove")
    workshop.topic("guide")
    guide.run("released")
    assert offsets(workshop, topic) == [1, 2]

    # a record has no key
    guide.left &= _keyless(workshop, tmp_path).left

    two_records_at_one_offset(workshop, guide, spark)

    # the disk is full
    workshop.topic("guide", {"cleantail.reclaim.deleted.ratio": 1.0, "cleantail.snapshot.retention.ms": 0})
    guide.run("free")

    # overdue, and a bad policy was published
    lag = {"max.compaction.lag.ms": 1, "min.cleanable.dirty.ratio": 1.0}
    workshop.topic("guide", lag | {"compaction.strategy": "timestamp"})
    ingest(record(3, "a"), record(4, "b"), record(6, "c"), {**record(7, "c"), "ts": 1})
    assert "overdue" in guide.run("overdue")
    guide.run("catch-up")
    assert offsets(workshop, topic) == [2, 3, 4, 6]
    ingest(record(8, "d"))
    guide.run("undo-look")
    guide.run("undo")
    before = offsets(workshop, topic)
    assert before == [1, 2, 3, 4, 6, 7, 8]
    workshop.topic("guide")
    guide.run("undo-after")

    # a wrong file was ingested
    wrong = workshop.file("wrong.jsonl", [record(9, "d", "of another day"), record(10, "e", "of another day")])
    workshop.ok("ingest", topic, "--file", wrong)
    workshop.ok("compact", topic, "--force")
    wrong.unlink()
    code, _, err = workshop.run("rollback", topic, "--ingestion", "wrong.jsonl")
    assert code == 2
    guide.run("wrong-file-rounds", SNAPSHOT=re.search(r"rollback guide --to ([0-9]+)", err)[1])
    assert "wrong.jsonl" in guide.run("wrong-file-look")
    guide.run("wrong-file")
    assert offsets(workshop, topic) == before
    workshop.file("right.jsonl", [record(9, "d", "of this day")])
    guide.run("wrong-file-after")
    assert offsets(workshop, topic) == [*before, 9]

    # a reader was left behind
    guide.run("reload")
    assert json.loads((tmp_path / "positions.json").read_text())
    guide.run("reader-gone")
    assert guide.left == OF_ERASURE


OF_ERASURE = {name for name in BLOCKS | QUERIES if name.startswith("forget")}
"""Run by the test of what an erasure leaves."""
GONE = "a-name-to-be-forgotten"


@pytest.mark.deep
def test_after_the_section_on_erasure_no_file_holds_the_key_or_its_values(workshop, tmp_path, spark):
    """Of a key that was in the topic's table, in a failed branch, in both side tables and in a red check's evidence. By
    hand; test_erasure.py has the command that does all of it."""
    began = time.time()
    kept = {"cleantail.tombstone.lateness.ms": 10**12, "cleantail.keyless.policy": "quarantine"}
    topic = workshop.topic("erased", kept, checks=[SHORT_KEYS])
    lines = [record(0, GONE, GONE), record(1, "other"), record(2, None, GONE), record(3, GONE, None)]
    lines[0]["headers"] = ["h", GONE]
    workshop.ok("ingest", topic, "--file", workshop.file("erased.jsonl", lines))
    assert workshop.run("compact", topic)[0] == 1
    forgotten = {"cleantail.reclaim.deleted.ratio": 0, "cleantail.snapshot.retention.ms": 0}
    workshop.topic("erased", kept | {"cleantail.failed.branch.retention.ms": 0, "delete.retention.ms": 86_400_000})
    guide = Guide(workshop, topic, tmp_path)
    workshop.ok("release", topic, 0)
    guide.run("forget")
    guide.run("forget-tombstone", HORIZON=workshop.json("status", topic)["topics"][topic][0]["next_horizon_ms"])
    workshop.topic("erased", kept | forgotten | {"cleantail.failed.branch.retention.ms": 0})
    guide.run("forget-bytes")
    beside = {place.split("/")[0] for place in with_text(workshop, GONE, began)}
    assert {"erased_deleted_versions", "erased_keyless"} <= beside
    guide.query(spark, "forget-versions", KEY=GONE)
    guide.query(spark, "forget-keyless", OFFSET=2)
    guide.run("forget-rest")
    assert with_text(workshop, GONE, began) == []
    assert GONE not in (left := guide.run("forget-proof")) and "other" in left
    assert not guide.left & OF_ERASURE


def with_text(workshop, text, since):
    """Files below CLEANTAIL_HOME that hold a text, also in Parquet and Avro, by their place in the warehouse. Those that
    were written before a test began cannot, and are not unpacked."""
    home = workshop.platform().home
    files = [file for file in home.rglob("*") if file.is_file() and file.stat().st_mtime >= since - 1]
    found = [file for file in files if text.encode() in decoded(file)]
    return sorted(str(file.relative_to(home)).removeprefix("warehouse/cleantail/") for file in found)


def decoded(file):
    """Its bytes; of Parquet all values, of Avro all blocks, which are compressed in both."""
    if file.suffix == ".parquet":
        return str(pq.read_table(file).to_pylist()).encode()
    data = file.read_bytes()
    if file.suffix != ".avro":
        return data
    return b"".join(avro_blocks(data))


def avro_blocks(data):
    """Of a manifest or a list of them: as the Avro specification has object container files."""
    at = 4

    def number():
        nonlocal at
        value = shift = 0
        while data[at] & 0x80:
            value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
        value, at = value | data[at] << shift, at + 1
        return value >> 1 ^ -(value & 1)

    def piece():
        nonlocal at
        length = number()
        at += length
        return data[at - length : at]

    codec = b"null"
    while pairs := number():
        for _ in range(pairs):
            name, value = piece(), piece()
            codec = value if name == b"avro.codec" else codec
    at += 16
    while at < len(data):
        number()
        block = piece()
        at += 16
        decompress = KNOWN_CODECS[codec.decode()]
        yield decompress.decompress(block) if decompress else block


def _keyless(workshop, folder):
    """The section of records without a key, on a topic of its own."""
    topic = workshop.topic("guide-without-key")
    guide = Guide(workshop, topic, folder)
    lines = [record(0, "a"), record(1, None), record(2, "a")]
    workshop.ok("ingest", topic, "--file", workshop.file("keyless.jsonl", lines))
    assert workshop.run("compact", topic)[0] == 1
    looked_at = guide.run("keyless", OFFSET=1)
    assert '"key":null' in looked_at.replace(" ", "")
    workshop.topic(topic, {"cleantail.keyless.policy": "drop"})
    guide.run("keyless-policy")
    assert offsets(workshop, topic) == [2]
    return guide


def two_records_at_one_offset(workshop, guide, spark):
    """On a topic of its own, whose name the guide's blocks have for as long."""
    topic, guide.topic = guide.topic, workshop.topic("contradicted")
    old = [record(i, key, "old") for i, key in enumerate("abc")]
    anew = workshop.file("anew.jsonl", [record(i, key, "new") for i, key in enumerate("xyz")])
    workshop.ok("ingest", guide.topic, "--file", workshop.file("old.jsonl", old))
    code, _, err = workshop.run("ingest", guide.topic, "--file", anew)
    assert code == 2 and "partition 0, offset 0: the table has another record there" in err
    assert '"a"' in guide.run("contradiction-look", OFFSET=0)

    past_ingestion(workshop, spark, guide.topic, anew)
    code, _, err = workshop.run("compact", guide.topic)
    assert code == 1 and "contradicting_offsets" in err
    rows = guide.query(spark, "contradiction-files", OFFSET=0)
    (wrong,) = {row["_file"] for row in rows if row[2] == "a"}
    guide.query(spark, "contradiction-delete", DATAFILE=wrong)
    assert "no offset has two different records" in guide.run("contradiction-gone")
    assert {r["payload"] for r in workshop.read(guide.topic)} == {"new"}
    workshop.topic(guide.topic, {"cleantail.reclaim.deleted.ratio": 0, "cleantail.snapshot.retention.ms": 0})
    right = workshop.file("right.jsonl", [record(0, "x", "new"), record(3, "x", "newer")])
    assert workshop.run("ingest", guide.topic, "--file", right)[0] == 2
    guide.run("contradiction-rewrite", FILE=right)

    workshop.topic(guide.topic, table="cleantail.contradicted_2")
    again = workshop.file("again.jsonl", old)
    assert "no offset has two different records" in guide.run("contradiction-anew", FILE=again)
    assert {r["payload"] for r in workshop.read(guide.topic)} == {"old"}
    guide.topic = topic


def past_ingestion(workshop, spark, topic, file):
    """As another program writes to the table."""
    from spark_jobs.round.intake.ingest import parsed_records

    parsed_records(spark, [file]).writeTo(f"cleantail.cleantail.`{topic}`").append()


def offsets(workshop, topic):
    return [r["offset"] for r in workshop.read(topic)]
