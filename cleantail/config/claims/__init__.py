"""Says what a topic's file may name: itself, its table, and the folders and connections that the platform allows."""
