"""Do the work of many topics in one Spark application."""
