"""Says what lineage tells of a task, whatever tells it: which datasets were read and written, at which snapshot, and
what the checks found. Pure, but for `told_tables`, which reads the catalog."""
