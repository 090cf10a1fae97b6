"""Says how far a topic's table was read from a table that a sink fills, and which snapshots a read takes next. Pure."""
