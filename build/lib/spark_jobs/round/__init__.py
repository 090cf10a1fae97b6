"""A round from its plan to its commit: make, check, publish, expire, and what is written beside it."""
