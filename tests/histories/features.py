"""Which parts of the engine the histories may use. A part that has not landed yet is False, and nothing else changes."""

LATENESS = True  # cleantail.tombstone.lateness.ms
AFTER_MAX = True  # message.timestamp.after.max.ms
BUDGET = True  # cleantail.over.budget: rounds
READERS = True  # cleantail reader set
LATEST = True  # cleantail latest
RETENTION_ZERO = False  # delete.retention.ms 0: a tombstone stays in the cleaning that kept it first, and its run
