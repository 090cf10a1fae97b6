"""Benchmarks of one topic with many records: rounds, checks, rewriting, reading, ingestion and restores."""
