"""Kafka itself: its configs as topic YAML, what a topic's brokers say of it, what a read does next, and a restore.

A table knows how far it was read (cleantail.log.source_position): the next offset of every partition is committed with
the records, in the same Iceberg commit, and nothing else decides. A read (`read_plan`, pure) goes from there to the
last stable offset that the brokers name (`source_topic`), or stops with an error before anything is read. Whoever asks
brokers uses `broker_clients`, which leaves out what may be a secret. Without brokers, `segment_files` reads their logs.

A restore writes a log, or the latest records of its keys, into a topic, and reads it back: `restore_plan`,
`restore_target` (pure), `target_client` and `target_log`.
"""
