"""A checked round: what was staged, what was measured, what the checks say of it, and what became of it."""
