"""What the channels of a topic are told, in which words, and through which notifier."""
