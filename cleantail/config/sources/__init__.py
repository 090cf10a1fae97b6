"""Holds what a topic's `source:` may say: files of records, or the topic in Kafka itself."""
