"""The rules of one log: segments, sections, what is due, what a round must keep, and what the table stores. Pure."""
