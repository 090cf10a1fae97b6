"""Kafka: import of topic configs as YAML, brokers' answers about a topic, the plan of the next read, and restores.

A table stores its position (cleantail.log.source_position): the next offset of every partition. One Iceberg commit
contains the records and the new position, and nothing else decides where a read begins. A read (`read_plan`, pure)
continues from the position to the last stable offset of the brokers (`source_topic`). An error in the plan stops the
read before its first record. All queries use `broker_clients`, which removes possible secrets from errors.
`segment_files` reads the brokers' logs without brokers.

A restore writes a log, or the latest records of its keys, into a topic, and reads it back: `restore_plan`,
`restore_target` (pure), `target_client` and `target_log`.
"""
