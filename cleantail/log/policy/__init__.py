"""Says what is due in a log, and why the rest waits: triggers, retention, tombstones, readers, budgets. Pure."""
