"""The rules of one log: its segments and sections, what is remembered of it, and what a round leaves behind. Pure."""
