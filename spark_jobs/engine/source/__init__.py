"""Says which keys of a log are gone at its source: the brokers' keys and the table's, compared byte by byte in
tasks."""
