"""A round from its plan to its commit: make, check, publish, undo; also intake and reclaim."""
