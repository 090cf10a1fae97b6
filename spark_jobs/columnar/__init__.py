"""A whole log in one task, column by column: pyarrow reads keys and offsets, DuckDB matches them.

Spark hands out the tasks and takes back positions and counts; no row goes through it. Several times faster than
Spark's own join of the same records, which remains the plan for all that is not told here: another compaction strategy
than `offset`, adopted tables, copies of an offset, more keys than the buffer holds (join_plans).
"""
