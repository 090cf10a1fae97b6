"""Names that a file system, or a person, makes otherwise than expected."""

import pytest

from cleantail.errors import CleantailError
from cleantail.lake.pending_input import new_files
from cleantail.sources.source_files import require_readable
from tests.jobs.round.test_rounds import NOW, offsets, record


def test_a_topic_of_249_characters_is_ingested_and_compacted(workshop):
    for n, topic in enumerate(("t" * 249, "t" * 248 + "u")):
        # on a local disk the folder of the table and of its view have its name
        workshop.topic(topic, table=f"cleantail.long_name_{n}")
        workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "k", "v"), record(1, "k", "w")]))
        workshop.ok("compact", topic, "--now", NOW)
        assert offsets(workshop.read(topic)) == [1]


def test_a_folder_that_is_called_as_a_file_of_records_is_reported(workshop, home):
    landing = home / "landing" / "folders"
    (landing / "x.jsonl").mkdir(parents=True)
    (landing / "sub").mkdir()
    (landing / "a.jsonl").write_text("")
    topic = workshop.find(workshop.topic("folder-landing", source={"path": "landing/folders/*"}))
    _, new = new_files(topic)
    assert [file.name for file in new] == ["a.jsonl", "x.jsonl"]
    with pytest.raises(CleantailError, match=r"x\.jsonl is a folder, .*; nothing was appended"):
        require_readable(new)


def test_a_warning_names_its_partition_once(workshop):
    topic = workshop.topic("named-once", {"cleantail.unholdable.policy": "drop"})
    file = workshop.file("a.jsonl", [record(0, "k", "v", ts=1 << 62), record(1, "k", "v")])
    _, _, err = workshop.run("ingest", topic, "--file", file)
    assert err.count("partition 0") == 1
    code, _, err = workshop.run("plan", topic, "--now", NOW)
    assert (code, err.count("partition 0")) == (0, 1)
