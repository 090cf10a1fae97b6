"""What the tasks of a run pass on: plans, reports, notes of failures, metrics."""
