"""What is known of rounds: how they were checked, approved, published and undone."""
