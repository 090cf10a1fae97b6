"""Kafka itself: what a topic's source says, how far it was read, what a read does next, and what a client is given.

A table knows how far it has read (`positions`): the next offset of every partition is committed with the records, in
the same Iceberg commit, and nothing else decides. A read (`read_plan`, pure) goes from there to the last stable offset
that the brokers name (`broker_topic`), or stops with an error before anything is read. `range_reader` is what a task
does: one range of offsets of one partition, to its end.
"""
