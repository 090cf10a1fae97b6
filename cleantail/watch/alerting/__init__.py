"""Says what is wrong with a topic, since when, and what each channel was told of it."""
