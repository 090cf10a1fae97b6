"""Files rewritten, snapshots expired, orphans removed: of the table, its side tables and the evidence."""
