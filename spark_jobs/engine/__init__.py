"""One round over the records of its logs: which of them go, and what was done. By columns, in Spark's tasks."""
