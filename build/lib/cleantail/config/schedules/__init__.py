"""Cron lines and presets: whether a text is one, and when it starts runs."""
