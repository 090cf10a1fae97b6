"""Incidents of topics, the messages about them, and the channels that get the messages."""
