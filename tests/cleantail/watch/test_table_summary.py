"""The summary of a table says at every moment what the whole table says; it is read once for one metadata."""

import stat
import time

import pytest

from cleantail.home.text_cache import KEPT_S, TextCache
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.watch import metadata_cache
from cleantail.watch.metadata_cache import FILE, FOLDER, UNLISTED_LIVE_S, MetadataCache
from cleantail.watch.observed_table import SUMMARY_JSON, size_points, summary_digest, summary_of

WAIT_S, DAY_MS = 20, 86_400_000
STATE = PartitionState(
    checkpoint=2,
    log_end_offset=9,
    horizons=(Horizon(2, 5, 1),),
    known_sequence_number=1,
    quarantine=Quarantine(1, "compact", "check failed: x", 1, 2),
)


@pytest.fixture
def filled(orders_table):
    """Two logs, one with a state, late records, and a record without a key."""
    orders_table.append((0, 0, 1, b"a", b"1"), (0, 2, 2, b"a", None), (1, 0, 1, b"b", b"1"))
    orders_table.set_properties(**{"cleantail.partition.0": STATE.as_json()})
    return orders_table.append((0, 1, 3, b"a", b"2"), (0, 5, DAY_MS, None, b"2"), (1, 7, 9 * DAY_MS, b"c", b"1"))


@pytest.fixture
def reads(monkeypatch):
    seen, real = [], metadata_cache.table_facts

    def facts(table):
        seen.append(table.name()[-1])
        return real(table)

    monkeypatch.setattr(metadata_cache, "table_facts", facts)
    return seen


@pytest.mark.parametrize("now_ms", [0, 5, DAY_MS, 8 * DAY_MS, 30 * DAY_MS])
def test_logs_by_the_summary_are_those_by_the_files_at_every_moment(filled, now_ms):
    facts = read_facts(filled.topic)
    summary = summary_of(filled.topic, facts, size_points(filled.table))
    kept = SUMMARY_JSON.value(SUMMARY_JSON.text(summary), "it")
    assert kept == summary
    assert kept.states(filled.topic, now_ms) == log_states(filled.topic, facts, now_ms)


def test_no_file_of_a_table_is_kept_but_those_with_records_without_a_key(filled):
    facts = read_facts(filled.topic)
    summary = summary_of(filled.topic, facts, ())
    assert [len(log.keyless) for log in summary.logs] == [1, 0]
    assert SUMMARY_JSON.text(summary).count(".parquet") == 1


def test_a_server_that_starts_reads_no_table_that_another_has_read(filled, reads):
    first = MetadataCache(filled.platform).summaries([filled.topic], WAIT_S)
    assert MetadataCache(filled.platform).summaries([filled.topic], WAIT_S) == first
    assert reads == ["orders"]
    filled.append((0, 9, 1, b"z", b"1"))
    later = MetadataCache(filled.platform).summaries([filled.topic], WAIT_S)["orders"]
    assert later.logs[0].log_end_offset == 10
    assert reads == ["orders", "orders"]


def test_of_a_catalog_that_lists_no_metadata_a_table_is_loaded_and_read_only_after_a_commit(filled, reads, monkeypatch):
    class Clock:
        now_s = 0.0

        def __call__(self):
            return self.now_s

    monkeypatch.setattr(metadata_cache, "metadata_locations", lambda catalog, platform: {})
    clock = Clock()
    cache = MetadataCache(filled.platform, clock)
    first = cache.summaries([filled.topic], WAIT_S)
    clock.now_s += UNLISTED_LIVE_S
    assert cache.summaries([filled.topic], WAIT_S) == first
    assert reads == ["orders"]
    filled.append((0, 9, 1, b"z", b"1"))
    assert cache.summaries([filled.topic], WAIT_S) == first  # it was asked for a moment ago
    clock.now_s += UNLISTED_LIVE_S
    assert cache.summaries([filled.topic], WAIT_S)["orders"].logs[0].log_end_offset == 10
    assert reads == ["orders", "orders"]


def test_another_policy_is_another_summary(filled, reads):
    MetadataCache(filled.platform).summaries([filled.topic], WAIT_S)
    config = filled.topic.config.model_copy(update={"segment_bytes": 1})
    other = filled.topic.model_copy(update={"config": config})
    assert summary_digest(other) != summary_digest(filled.topic)
    assert len(MetadataCache(filled.platform).summaries([other], WAIT_S)["orders"].logs[0].segments) > 1
    assert reads == ["orders", "orders"]


def test_while_a_table_is_read_again_what_was_known_is_shown(filled, monkeypatch):
    cache = MetadataCache(filled.platform)
    first = cache.summaries([filled.topic], WAIT_S)
    filled.append((0, 9, 1, b"z", b"1"))
    monkeypatch.setattr(metadata_cache, "LOCATIONS_LIVE_S", 0)
    with cache.at_rest():
        assert cache.summaries([filled.topic], 0.05) == first
    assert cache.summaries([filled.topic], WAIT_S)["orders"].logs[0].log_end_offset == 10


def test_the_file_is_its_owners_and_a_damaged_one_costs_a_read(filled, reads):
    MetadataCache(filled.platform).summaries([filled.topic], WAIT_S)
    file = filled.platform.home / FOLDER / FILE
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    file.write_bytes(b"no database" * 1000)
    assert MetadataCache(filled.platform).summaries([filled.topic], WAIT_S)["orders"].exists
    assert MetadataCache(filled.platform).summaries([filled.topic], WAIT_S)["orders"].exists
    assert 2 <= len(reads) <= 3


def test_where_nothing_can_be_written_tables_are_read(filled, reads):
    (filled.platform.home / FOLDER).write_text("a file, where the folder is to be")
    assert MetadataCache(filled.platform).summaries([filled.topic], WAIT_S)["orders"].exists
    assert reads == ["orders"]


def test_summaries_of_topics_that_have_gone_are_deleted_after_a_while(tmp_path, monkeypatch):
    kept = TextCache(tmp_path, FOLDER, FILE)
    kept.keep("orders", "key", "{}")
    assert kept.load() == {"orders": ("key", "{}")}
    now_s = time.time() + KEPT_S + 1
    monkeypatch.setattr(time, "time", lambda: now_s)
    assert TextCache(tmp_path, FOLDER, FILE).load() == {}
