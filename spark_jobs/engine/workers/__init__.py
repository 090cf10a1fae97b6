"""Check and start Python on Spark's workers."""
