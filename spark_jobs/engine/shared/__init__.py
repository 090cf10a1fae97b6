"""Logs that are more than one task: shares of their files, and what has to come together of them."""
