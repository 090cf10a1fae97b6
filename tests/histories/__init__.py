"""Random histories through the engine and through the rules written a second time.

`rules` is that second writing, `history` what can happen to a topic and how it prints as a script, `generate` draws
histories with Hypothesis, `play` runs one through the command line and compares after every step.
"""
