"""A round from its plan to its commit: make, check, publish, undo; and intake and reclaim."""
