"""Files of records: identified by content, read within limits, and parsed."""
