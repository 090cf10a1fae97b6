"""CLEANTAIL_HOME on the disk: folders and files for their owner alone, and locks between processes."""
