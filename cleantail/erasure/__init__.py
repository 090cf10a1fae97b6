"""Erasure: which keys are to be gone from a topic, by when, and the proof that they are."""
