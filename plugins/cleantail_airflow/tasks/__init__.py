"""The tasks of the DAGs, and the pool and listeners that they need."""
