"""Says how the tasks of a run and the jobs that they start ended, and what they say of it."""
