"""The systems that benchmarks compare: Cleantail, the broker's cleaner, Spark's rewrites, DuckDB, ingestion."""
