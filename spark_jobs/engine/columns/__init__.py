"""Records as columns: read from files, told apart by key and offset, and ranked. A task works on these."""
