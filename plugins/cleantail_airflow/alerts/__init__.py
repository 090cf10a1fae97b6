"""Says what the channels of a topic are told: incidents, the messages about them, and the notifiers that send these."""
