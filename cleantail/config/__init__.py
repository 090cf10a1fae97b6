"""Holds what people write in YAML, as frozen values, with every problem named by file, key and what is allowed."""
