"""Compares policies by replaying a topic's real history."""
