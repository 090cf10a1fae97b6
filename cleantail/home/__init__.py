"""CLEANTAIL_HOME on the disk, and the processes of Cleantail on one machine."""
