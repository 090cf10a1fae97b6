"""Data files, log states and configs with only the numbers that a test is about."""

from dataclasses import replace

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.log_state import KeylessRecords, LogState, resolve_log_state
from cleantail.log.partition_state import PartitionState
from cleantail.log.segments import DataFile, Segment

HOUR_MS = 3_600_000


def data_file(lower, upper=None, **changes):
    """A file of 100 bytes with one record an offset, timestamps 0."""
    upper = lower if upper is None else upper
    file = DataFile(
        path=f"f{lower}-{upper}",
        partition=0,
        lower_offset=lower,
        upper_offset=upper,
        min_timestamp_ms=0,
        max_timestamp_ms=changes.get("min_timestamp_ms", 0),
        records=upper - lower + 1,
        deleted_records=0,
        size_bytes=100,
        null_values=0,
        data_sequence_number=1,
        snapshot_id=1,
    )
    return replace(file, **changes)


def segment(base, end, **changes):
    """A segment of 100 bytes, timestamps 0."""
    return replace(Segment(base, end, 100, 0, 0, 1), **changes)


def configs(**changes):
    """Kafka's configs by attribute name: configs(segment_ms=1)."""
    return KafkaConfigs(**changes)


def resolved(files, *, state=None, arrived=(), now_ms=0, source=None, **changes):
    """The LogState of partition 0 at `now_ms`; `changes` are configs, `source` is how far it was read in Kafka."""
    return resolve_log_state(0, files, state or PartitionState(), arrived, configs(**changes), now_ms, source)


def log_state(**changes):
    """A log of offsets [0, 30): clean to 10, cleanable to 20, active from 20; 100 bytes each."""
    log = LogState(
        partition=0,
        log_start_offset=0,
        log_end_offset=30,
        checkpoint=10,
        first_dirty_offset=10,
        first_uncleanable_offset=20,
        active_base_offset=20,
        segments=(segment(0, 10), segment(10, 20), segment(20, 30)),
        clean_bytes=100,
        cleanable_bytes=100,
        uncleanable_bytes=100,
        records=30,
        earliest_dirty_timestamp_ms=None,
        horizons=(),
        tombstones_without_horizon=0,
        known_sequence_number=1,
        late_offset=None,
        warnings=(),
        state=PartitionState(checkpoint=10),
        cleanable_keyless=KeylessRecords(0, 0),
        uncleanable_keyless=KeylessRecords(0, 0),
    )
    return replace(log, **changes)


def horizon_of(horizons, offset):
    """The ledger's entry for `offset`: the first round whose end offset is above it (semantics.md 3.3)."""
    return next((h for h in horizons if offset < h.end_offset), None)
