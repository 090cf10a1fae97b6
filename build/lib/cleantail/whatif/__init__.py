"""Policies side by side, each replayed over a topic's real history."""
