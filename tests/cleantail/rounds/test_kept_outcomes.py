"""What became of a pack's topics, from try to try: what is done, what was begun, and what the application died of."""

from __future__ import annotations

import os
import time

from cleantail.rounds.pack_results import BEGUN, KEPT_S, SUSPECTED, PackOutcomes, read_outcomes
from cleantail.rounds.stations import COMPACT, INGEST, Ingested, TopicOutcome

PATH = "packs/one.jsonl"
TOPICS = ["a", "b", "c", "d"]


def test_what_a_station_had_done_is_known_though_the_application_died_in_the_next_one(tmp_path):
    first = PackOutcomes(tmp_path, PATH)
    first.begun(TopicOutcome("a"), INGEST)
    first.begun(TopicOutcome("a", ingested=Ingested(7)), "compact")
    kept = read_outcomes(tmp_path, PATH)["a"]
    assert (kept.ok, kept.station, kept.error, kept.ingested) == (False, "compact", BEGUN, Ingested(7))
    second = PackOutcomes(tmp_path, PATH)
    second.begun(TopicOutcome("a"), INGEST)
    second.begun(TopicOutcome("a", ingested=Ingested(1)), "compact")
    second.ended(TopicOutcome("a", ingested=Ingested(1)))
    assert (second["a"].ok, second["a"].ingested, second["a"].error) == (True, Ingested(8), "")


def test_topics_at_which_the_application_died_come_last_and_each_alone(tmp_path):
    first = PackOutcomes(tmp_path, PATH)
    assert first.batches(TOPICS, 3) == [["a", "b", "c"], ["d"]]
    first.begun(TopicOutcome("b"), INGEST)
    first.begun(TopicOutcome("a"), INGEST)
    first.waits(TopicOutcome("b"), COMPACT)
    second = PackOutcomes(tmp_path, PATH)
    assert second.batches(TOPICS, 3) == [["b", "c", "d"], ["a"]]
    second.ended(TopicOutcome("b"))
    second.begun(TopicOutcome("c"), INGEST)
    third = PackOutcomes(tmp_path, PATH)
    assert third.batches(TOPICS, 3) == [["d"], ["a"], ["c"]]
    third.ended(TopicOutcome("d"))
    third.begun(TopicOutcome("a"), INGEST)
    third.begun(TopicOutcome("c"), INGEST)
    assert third.died_at("c")
    assert read_outcomes(tmp_path, PATH)["a"].error == SUSPECTED
    assert PackOutcomes(tmp_path, PATH).batches(TOPICS, 3) == [["a"], ["c"]]


def test_the_topic_at_which_the_last_try_has_died_does_not_keep_its_neighbours_from_their_turn(tmp_path):
    first = PackOutcomes(tmp_path, PATH)
    for topic in ("a", "b"):  # side by side: which of them it died of is unknown
        first.begun(TopicOutcome(topic), INGEST)
    second = PackOutcomes(tmp_path, PATH)
    assert second.batches(TOPICS, 9) == [["c", "d"], ["a"], ["b"]]
    for topic in ("c", "d"):
        second.ended(TopicOutcome(topic))
    second.begun(TopicOutcome("a"), INGEST)
    assert PackOutcomes(tmp_path, PATH).batches(TOPICS, 9) == [["b"], ["a"]]


def test_a_topic_that_failed_without_a_crash_is_not_suspected(tmp_path):
    first = PackOutcomes(tmp_path, PATH)
    first.begun(TopicOutcome("a"), INGEST)
    first.ended(TopicOutcome("a").failed_at(INGEST, "a conflict", 3))
    assert PackOutcomes(tmp_path, PATH).batches(TOPICS, 9) == [TOPICS]


def test_a_line_that_was_cut_is_passed_over(tmp_path):
    PackOutcomes(tmp_path, PATH).ended(TopicOutcome("a"))
    with (tmp_path / PATH).open("a") as file:
        file.write('{"topic": "b", "ok": tr')
    second = PackOutcomes(tmp_path, PATH)
    second.begun(TopicOutcome("c"), INGEST)
    second.ended(TopicOutcome("c"))
    assert {topic: outcome.ok for topic, outcome in read_outcomes(tmp_path, PATH).items()} == {"a": True, "c": True}


def test_a_topic_that_is_named_twice_is_done_once(tmp_path):
    assert PackOutcomes(tmp_path, "").batches(["a", "b", "a"], 9) == [["a", "b"]]


def test_outcomes_of_old_packs_are_deleted(tmp_path):
    PackOutcomes(tmp_path, PATH).ended(TopicOutcome("a"))
    other = PackOutcomes(tmp_path, "packs/two.jsonl")
    other.ended(TopicOutcome("b"))
    long_ago_s = time.time() - KEPT_S - 60
    os.utime(tmp_path / PATH, (long_ago_s, long_ago_s))
    PackOutcomes(tmp_path, "packs/three.jsonl")
    assert [file.name for file in (tmp_path / "packs").iterdir()] == ["two.jsonl"]
