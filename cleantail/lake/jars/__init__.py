"""The jars of Spark's applications: which they are, where they lie, and how they are fetched."""
