"""Files of records: how they are found again, read within limits, and parsed."""
