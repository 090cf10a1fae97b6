"""Out again: a log, or the latest records of its keys, written into a topic in Kafka, and read back.

What is written is fixed before the first record is: a branch of the table pins it, and its records have one order, that
of their offsets. Only that restore writes into the topic, so that record n of a partition has offset n there. How many
records a partition has is how far its restore has come; nothing else keeps count.

`restore_target` has the rules by which a topic is refused (pure), `target_client` asks the brokers, `target_log` is
what a task does at one partition, `record_rows` has records as clients take them, `restore_pin` what a branch says.
"""
