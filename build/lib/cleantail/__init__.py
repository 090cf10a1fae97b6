"""Kafka log compaction for changelogs kept in Apache Iceberg: the rules, as pure functions over small frozen objects.

The semantics on one page (section numbers are those of the specification that the code cites):

A *topic* is one Iceberg table, a *log* one `partition` of it. Records have offsets that never change.

1.2  A log has three sections, divided by two offsets:
         clean [log start, first dirty) | cleanable [first dirty, first uncleanable) | uncleanable [.., log end)
     First dirty is the checkpoint; outside the log it is reset to the log start. First uncleanable is the lowest of
     the log end, the base of the active segment, and the base of the first dirty segment with a record younger than
     min.compaction.lag.ms. The active segment is never touched.
1.3  A log is compacted when it has cleanable bytes and either its dirty ratio, cleanable / (clean + cleanable), is
     above min.cleanable.dirty.ratio (strictly), or its oldest dirty record has passed max.compaction.lag.ms.
1.4  A round keeps, of all records below its end offset, the winner of every key that occurs in the dirty part, and
     every record of the other keys. The end offset becomes the checkpoint, in the commit that changes the data.
1.5  A tombstone gets its delete horizon once, at the round that first keeps it: now + delete.retention.ms. It goes
     in a later round, when now >= horizon.
2    The winner is the highest offset, timestamp, or version header (8 bytes, big-endian); ties go to the offset.
3.1  Segments are virtual: data files of one log in offset order, rolled by segment.bytes and segment.ms. Bytes are
     data-file bytes x live fraction.
3.3  Horizons are a ledger of rounds: (end offset, horizon); a tombstone's is that of the first end above it.
3.4  Expired tombstones go when due, though no new record came.
3.5  Records that arrive below the checkpoint move it back to the lowest of them. Of one offset twice, one survives.
3.6  Overdue logs come first, by deadline; then the dirtiest.

Nothing in this package imports pyspark, airflow or great_expectations; the command line (`cli`) starts jobs. The rules
are in `log` and `rounds`; `lake` reads table metadata and writes single properties through PyIceberg; what is on which
floor, and why, is in docs/architecture.md. Time is always an argument, Unix milliseconds.
"""
