"""What the metrics say of the last compaction, on real tables: as Kafka's CleanerStats, by both plans."""

from __future__ import annotations

import json
from random import Random

import pytest

from cleantail.lake.evaluate import log_states, read_facts
from cleantail.watch.metrics import METRICS
from cleantail_airflow.page.metrics_endpoint import samples_of
from cleantail_airflow.page.page_content import PageContent

NOW = 1_800_000_000_000
HOUR = 3_600_000
SLOTS = 8


def record(offset, key, payload="v", ts=None, partition=0):
    ts = 1_700_000_000_000 + offset if ts is None else ts
    return {"partition": partition, "offset": offset, "ts": ts, "key": key, "payload": payload}


def ingest(workshop, topic, *records):
    name = f"{topic}-{records[0]['partition']}-{records[0]['offset']}.jsonl"
    workshop.ok("ingest", topic, "--file", workshop.file(name, records))


def cleaner(workshop, over_budget):
    """A map with place for eight keys of the strategy offset."""
    budget = {"log.cleaner.dedupe.buffer.size": 24 * SLOTS, "log.cleaner.io.buffer.load.factor": 1.0}
    settings = {"platform": {"cleaner": budget | {"cleantail.over.budget": over_budget}}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(settings))


def last(workshop, topic):
    """As a scrape finds it: in the table's metadata."""
    return read_facts(workshop.find(topic)).last_compaction


def test_a_hundred_dirty_records_of_two_keys_take_two_places(workshop):
    topic = workshop.topic("two-keys", {"cleantail.keyless.policy": "drop"})
    cleaner(workshop, "spill")
    ingest(workshop, topic, record(0, "old"), record(1, "a"))
    workshop.ok("compact", topic, "--now", NOW)
    ingest(workshop, topic, *(record(i, "ab"[i % 2]) for i in range(2, 102)), record(102, None))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    found = last(workshop, topic)
    assert found.buffer_percent == 100 * 2 / SLOTS
    assert (found.messages_read, found.messages_written) == (103, 3)
    assert (found.map_messages_read, found.invalid_messages_read) == (101, 1)


def test_a_scrape_has_every_metric_of_a_topic_after_its_rounds(workshop):
    """Except for those that the API server takes from Airflow (metrics_endpoint)."""
    topic = workshop.topic("scraped", {"cleantail.reclaim.deleted.ratio": 0.01})
    for first in (0, 100):
        ingest(
            workshop,
            topic,
            *(record(first + i, f"k{i % 3}", Random(first + i).randbytes(500).hex()) for i in range(50)),
        )
        workshop.ok("compact", topic, "--now", NOW + first, "--force")
        if not first:
            workshop.ok("reclaim", topic, "--now", NOW)
    content = PageContent(workshop.config)
    content.cache.summaries([workshop.find(topic)], 30)
    content.cache.totals(30)
    found = {s.metric.name: s.value for s in samples_of(content, [topic], NOW + HOUR, {}, {}) if topic in s.labels}
    of_airflow = {"time-since-last-run-ms", "last-run-failed"}
    of_accidents = {"checks-failed", "bytes-put-back", "bytes-taken-again"}
    of_sources = {"source-lag-offsets", "source-lag-snapshots", "source-lag-secs"}
    of_erasures = {"erasures-open", "erasures-overdue", "erasure-deadline-left-secs"}
    of_expiry = {"stored-bytes"}
    of_topics = {metric.name for metric in METRICS if "topic" in metric.labels}
    assert of_topics - set(found) == of_airflow | of_accidents | of_sources | of_erasures | of_expiry
    seen = last(workshop, topic)
    assert found["round-messages-read"] == seen.messages_read and found["round-bytes-read"] == seen.bytes_read > 0
    sizes_now = [
        found[n] > 0 for n in ("hidden-bytes", "reclaimed-kept-history-bytes", "bytes-reclaimed", "bytes-saved")
    ]
    assert sizes_now == [True] * 4 and found["topic-up"] == 1


@pytest.mark.parametrize("strategy", ["offset", pytest.param("timestamp", marks=pytest.mark.deep)])
def test_bytes_are_those_of_the_files_by_their_share_of_the_records(workshop, strategy):
    config = {"compaction.strategy": strategy, "segment.bytes": 14, "min.compaction.lag.ms": HOUR}
    topic = workshop.topic(f"bytes-{strategy}", config)
    for first in (0, 10, 20):
        ingest(workshop, topic, *(record(first + i, f"k{i}", "x" * first) for i in range(10)))
    ingest(workshop, topic, *(record(30 + i, f"k{i}", ts=NOW) for i in range(10)))
    before = sizes(workshop, topic)
    workshop.ok("compact", topic, "--now", NOW)
    after, found = sizes(workshop, topic), last(workshop, topic)
    assert found.bytes_read == before["cleanable"] == found.map_bytes_read
    assert found.bytes_written == pytest.approx(after["clean"], abs=3)  # each of three files rounds down by itself
    assert 0 < found.recopy_percent < 60
    assert (found.messages_read, found.messages_written, found.map_messages_read) == (30, 10, 30)


def sizes(workshop, topic):
    found = workshop.find(topic)
    [log] = log_states(found, read_facts(found), NOW)
    return {"clean": log.clean_bytes, "cleanable": log.cleanable_bytes}


# test_a_hundred_dirty_records_of_two_keys_take_two_places holds the rule; here the map is full
@pytest.mark.deep
def test_a_round_that_ends_where_the_map_is_full_says_that_it_is_full(workshop):
    topic = workshop.topic("full")
    cleaner(workshop, "rounds")
    ingest(workshop, topic, *(record(i, f"k{i}") for i in range(2 * SLOTS)))
    workshop.ok("compact", topic, "--now", NOW)
    found = last(workshop, topic)
    assert (found.buffer_percent, found.map_messages_read) == (100, SLOTS)
    assert found.map_bytes_read == pytest.approx(found.bytes_read / 2, abs=1)


# test_a_hundred_dirty_records_of_two_keys_take_two_places holds the rule; here the map is full
@pytest.mark.deep
def test_more_keys_than_the_map_has_place_for_fill_it_and_spill(workshop):
    topic = workshop.topic("spilled")
    cleaner(workshop, "spill")
    ingest(workshop, topic, *(record(i, f"k{i}") for i in range(3 * SLOTS)))
    workshop.ok("compact", topic, "--now", NOW)
    assert last(workshop, topic).buffer_percent == 100


# more cases of what a scrape says; test_a_scrape_has_every_metric_of_a_topic_after_its_rounds has the metrics
@pytest.mark.deep
def test_a_round_of_retention_alone_does_not_change_the_last_compaction(workshop):
    config = {"cleanup.policy": "compact,delete", "retention.ms": HOUR, "segment.bytes": 14}
    topic = workshop.topic("retention-alone", config)
    for n in range(2):
        ts = NOW + n * HOUR // 2
        ingest(workshop, topic, record(2 * n, "a", ts=ts), record(2 * n + 1, f"b{n}", ts=ts))
    workshop.ok("compact", topic, "--now", NOW + HOUR)
    found = last(workshop, topic)
    assert (found.messages_read, found.messages_written) == (4, 3)
    result = workshop.json("compact", topic, "--now", NOW + HOUR + 1)
    assert result["compacted"]["published"] == [0]
    assert [r["offset"] for r in workshop.read(topic)] == [2, 3]
    assert last(workshop, topic) == found
