"""The history of rounds: how they were checked, approved, published and undone."""
