"""Kafka log compaction for changelogs in Apache Iceberg: the rules, as pure functions over small frozen objects.

The semantics on one page (section numbers are those of docs/semantics.md, which the code cites):

A *topic* is one Iceberg table, a *log* one `partition` of it. Records have offsets that never change.

1.2  A log has three sections, divided by two offsets:
         clean [log start, first dirty) | cleanable [first dirty, first uncleanable) | uncleanable [.., log end)
     First dirty is the checkpoint; a checkpoint outside the log is reset to the log start. First uncleanable is the
     lowest of the log end, the base of the active segment, and the base of the first dirty segment with a record
     younger than min.compaction.lag.ms. The active segment is never changed.
1.3  A log is compacted when it has cleanable bytes and either its dirty ratio, cleanable / (clean + cleanable), is
     above min.cleanable.dirty.ratio (strictly), or its oldest dirty record has passed max.compaction.lag.ms.
1.4  A round reads the records below its end offset. Of every key that occurs in the dirty part it keeps the winner. It
     keeps every record of the other keys. The commit that changes the data also makes the end offset the checkpoint.
1.5  A tombstone gets its delete horizon once, in the round that first keeps it: now + delete.retention.ms. A later
     round removes it when now >= horizon.
2    The winner has the highest offset, timestamp, or version header (8 bytes, big-endian). The offset decides ties.
3.1  Segments are virtual: data files of one log in offset order, rolled by segment.bytes and segment.ms. Bytes are
     data-file bytes x live fraction.
3.3  Horizons are a ledger of rounds: (end offset, horizon). A tombstone has the horizon of the first end above it.
3.4  Expired tombstones are removed when due, even if no new record has arrived.
3.5  Records that arrive below the checkpoint move it back to the lowest of them. If an offset occurs twice, one stays.
3.6  Overdue logs come first, by deadline; then the dirtiest.

This package imports no pyspark, airflow or great_expectations. The rules are in `log` and `rounds`. `lake` reads table
metadata and writes single properties through PyIceberg. docs/architecture.md describes the other folders. Time is
always an argument, in Unix milliseconds.
"""
