"""Says how a topic comes in from a table that a sink fills: what its snapshots have appended, each record once."""
