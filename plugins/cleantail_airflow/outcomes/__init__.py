"""What the tasks of a run hand on: plans, reports, notes of failures, metrics."""
