"""Kafka itself: its configs as topic YAML, what a topic's brokers say of it, and what a read does next.

A table knows how far it was read (cleantail.log.source_position): the next offset of every partition is committed with
the records, in the same Iceberg commit, and nothing else decides. A read (`read_plan`, pure) goes from there to the
last stable offset that the brokers name (`broker_topic`), or stops with an error before anything is read.
`range_reader` is what a task does: one range of offsets of one partition, to its end. Whoever asks brokers does so by
`administrator`, and shows what they say by `client_messages`, which leaves out what may be a secret.
"""
