"""How records and tables come in: from files, Kafka and source tables, and by adoption."""
