"""Cleantail: Kafka's log compaction for changelog archives in Iceberg."""
