"""Rounds and ingestions taken back, each in one commit."""
