"""Kafka log compaction for changelogs in Apache Iceberg: the rules, as pure functions over small frozen objects.

The semantics on one page. The numbers are sections of docs/semantics.md, which the code cites. A *topic* is one
Iceberg table, a *log* one `partition` of it. Records have offsets that never change. In `log`:

3.1  Segments are virtual: data files of one log in offset order, rolled by segment.bytes and segment.ms. Bytes are
     data-file bytes x live fraction. (segments)
1.2  A log has three sections, divided by two offsets:
         clean [log start, first dirty) | cleanable [first dirty, first uncleanable) | uncleanable [.., log end)
     First dirty is the checkpoint; a checkpoint outside the log is reset to the log start. First uncleanable is the
     lowest of the log end, the base of the active segment, and the base of the first dirty segment with a record
     younger than min.compaction.lag.ms. The active segment is never changed. (log_state)
3.5  Records below the checkpoint that arrive later move it back to the lowest of them. Copies of an offset are dropped.
1.3  A log with cleanable bytes is compacted if its dirty ratio is above min.cleanable.dirty.ratio (strictly), or if its
     oldest dirty record has passed max.compaction.lag.ms. The ratio is cleanable / (clean + cleanable). (triggers)
3.6  Overdue logs come first, by deadline; then the dirtiest.
1.4  A round reads the records below its end offset. It keeps the winner of every key that occurs in the dirty part. It
     keeps every record of the other keys. The commit that changes the data also makes the end offset the checkpoint.
     (work_units, round_state)
2    The winner has the highest offset, timestamp, or version header (8 bytes, big-endian). The offset decides ties.
     (winners)
1.5  A tombstone gets its delete horizon once, in the round that first keeps it: now + delete.retention.ms. A later
     round removes it when now >= horizon, even if no new record has arrived (3.4). (horizons)
3.3  Horizons are a ledger of rounds: (end offset, horizon). A tombstone has the horizon of the first end above it.
     (partition_state)
3.9  Removal of tombstones waits for the slowest registered reader, up to a cap.
1.6  A check proves each round before it is published. A log that breaks a rule is blocked alone. (rules, quarantine)

This package imports no pyspark, airflow or great_expectations. `rounds` has the types of rounds. `lake` reads table
metadata and writes single properties through PyIceberg. docs/architecture.md describes the other folders. Time is
always an argument, in Unix milliseconds.
"""
