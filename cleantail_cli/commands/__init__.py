"""Holds what each group of commands does."""
