"""The engine against Kafka's own log cleaner: the same histories through both, compared offset by offset.

    python -m differential [--histories N] [--seed S] [--only TOPIC]

1. A real broker is started on loopback, from the jars that `make setup` fetched.
2. Every random history is one partition; a family of histories is one topic, whose configs say what is tried:
   tombstones before and after their horizon, a changed retention, a lag, transactions. The changelog of
   ../shared/data is one more topic where it is at hand.
3. Round by round: the cleaner is held back by min.cleanable.dirty.ratio=1.0 while records are produced (segments roll
   by record timestamps alone), then let go until cleaner-offset-checkpoint covers the dirty part. What was appended,
   what is left, the checkpoint and the bounds of the segments are written down.
4. Cleantail ingests the same records under the same topic configs, and compacts with `--now`, one virtual hour a round.
   Most topics it reads from the broker itself, transactions and all, while the cleaner is held back: once before each
   segment at which the cleaner may have to stop. Some come as files that are cut there; the summary says which.
5. After each round every log must be equal: offsets, keys, values, timestamps, headers, checkpoint, and the tail
   above the bound. Two topics get a last round that brings nothing new, where an archive differs on purpose.

What differs by a declared difference is listed with its reason and its count; anything else is a failure, exit code 1.
"""
