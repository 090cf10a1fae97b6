"""Erasure: which keys have to leave a topic, by when, and the proof that they left."""
