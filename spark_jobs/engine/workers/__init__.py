"""Python on the workers: what it needs, and how it starts."""
