"""What each group of commands does."""
