"""Compare the engine with Kafka's own log cleaner: both process the same histories, and their logs are compared offset
by offset.

    python -m differential [--histories N] [--seed S] [--only TOPIC]

1. A real broker is started on loopback, from the jars that `make setup` fetched.
2. Every random history is one partition. A family of histories is one topic, with the configs of the family: tombstones
   before and after their horizon, a changed retention, a lag, transactions. If the changelog of ../shared/data exists,
   it is one more topic.
3. In each round, min.cleanable.dirty.ratio=1.0 stops the cleaner while records are produced. Segments roll by record
   timestamps alone. Then the cleaner runs until cleaner-offset-checkpoint covers the dirty part. The round stores the
   appended records, the records that are left, the checkpoint and the bounds of the segments.
4. Cleantail ingests the same records under the same topic configs, and compacts with `--now`, one virtual hour a round.
   It reads most topics from the broker itself, with their transactions, while the cleaner is stopped: once before each
   segment at which the cleaner may have to stop. Other topics come as files that end there. The summary lists both.
5. After each round every log must be equal: offsets, keys, values, timestamps, headers, checkpoint, and the tail
   above the bound. Two topics get a last round without new records, in which an archive differs on purpose.

Declared differences are listed with reason and count. Any other difference is a failure, with exit code 1.
"""
