"""Metrics: what tasks send, and what a scraper finds."""
