"""Which record of a key wins, over columns of numpy and pyarrow: the one place for a round, its check and readers."""
