"""Says how records and tables come in: files that are appended, and tables that are adopted."""
