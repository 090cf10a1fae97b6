"""What an ingestion notes of itself comes back as it was."""

from hashlib import sha256

import pytest

from cleantail.errors import TableError
from cleantail.rounds.past_ingestions import Ingestion, KafkaRead, SourceFile, Sources, unpacked_sources


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_note_comes_back_as_it_was_packed_and_stays_short(count):
    files = tuple(SourceFile(sha256(b"%d" % number).hexdigest(), f"orders-{number}é.jsonl") for number in range(count))
    sources = Sources(files, {0: None, 12: 5})
    text = sources.packed()
    assert unpacked_sources(text, "here") == sources
    assert len(text) < 100 + 70 * count


def test_a_note_that_the_version_before_packed_is_read():
    text = "eNqLjo5WSkxS0lGq0Msqzs/LUYrViVZKTgEKxJQaGKRa6qVXKcXG6lQrGSlZ5ZXm5OgoGRooWZnXxgIA55MQeg=="
    files = (SourceFile("ab", "x.jsonl"), SourceFile("cd", "é.gz"))
    assert unpacked_sources(text, "here") == Sources(files, {2: None, 10: 7})


@pytest.mark.parametrize("text", ["?", "eJwDAAAAAAE=", "", "4pyT"], ids=range(4))
def test_an_invalid_note_is_an_error_that_names_its_place(text):
    with pytest.raises(TableError, match="^here cannot be read: "):
        unpacked_sources(text, "here")


@pytest.mark.parametrize("before", [None, '{"a position": 1}'])
def test_a_note_of_a_read_of_kafka_comes_back_as_it_was_packed(before):
    sources = Sources((), {0: None, 12: 5}, KafkaRead({0: (3, 9), 12: (0, 1)}, before))
    assert unpacked_sources(sources.packed(), "here") == sources
    assert Ingestion(1, 2, 3, sources).names == "offsets from Kafka, by partition 0: 3 to 8, 12: 0 to 0"
