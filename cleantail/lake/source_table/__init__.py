"""A table that a sink fills, as a topic reads from it: its snapshots, and how far the topic has come. Only metadata."""
