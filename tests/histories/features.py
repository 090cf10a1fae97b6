"""Which parts of the engine the histories may use. A part that has not landed yet is False, and nothing else changes."""

LATENESS = False  # cleantail.tombstone.lateness.ms
AFTER_MAX = False  # message.timestamp.after.max.ms
BUDGET = False  # cleantail.over.budget: rounds
READERS = False  # cleantail reader set
LATEST = False  # cleantail latest
RETENTION_ZERO = False  # delete.retention.ms 0: a tombstone stays in the cleaning that kept it first, and its run
