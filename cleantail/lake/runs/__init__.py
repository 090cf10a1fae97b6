"""Says what a command or a run would do with a topic's table as it stands, decided from its metadata."""
