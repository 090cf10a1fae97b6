"""Which parts of the engine the histories may use.

False is a difference between engine and rules that is known and reported: the histories keep clear of it until then.
"""

LATENESS = True  # cleantail.tombstone.lateness.ms
AFTER_MAX = True  # message.timestamp.after.max.ms
BUDGET = True  # cleantail.over.budget: rounds
READERS = True  # cleantail reader set
LATEST = True  # cleantail latest

RETENTION_ZERO = True
"""1.5, at least two cleanings: with delete.retention.ms 0 a tombstone stays in the run whose round kept it first, and
the check of the expiry in the same run does not hold it for overdue."""
RECLAIM = True
"""3.3, set once: after a reclaim the next round with a late record gives tombstones that had a horizon a new one."""
BOTH_RETENTIONS = True
"""1.1: a segment that retention.bytes uncovers and that is past retention.ms goes in the same run."""
