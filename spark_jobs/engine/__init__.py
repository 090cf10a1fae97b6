"""Decide which records a round removes, and check what it has done, by columns in Spark's tasks."""
