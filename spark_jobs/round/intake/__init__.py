"""The intake of records and tables: from files, Kafka and source tables, and by adoption."""
