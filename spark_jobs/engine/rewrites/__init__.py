"""Data files written anew without their deleted records: pyarrow reads and writes, inside of Spark's tasks."""
