"""Random histories through the engine and through the rules written a second time.

`rules` has these rules, `history` the events of a topic and their script for a shell. `generate` draws histories with
Hypothesis. `play` runs one through the command line, and compares after every step.
"""
