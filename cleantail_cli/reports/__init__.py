"""Holds what commands answer: each answer for people and for machines."""
