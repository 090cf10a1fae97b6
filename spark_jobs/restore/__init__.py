"""A log, or the latest records of its keys, out of the table and into a topic in Kafka: inside of Spark's tasks."""
