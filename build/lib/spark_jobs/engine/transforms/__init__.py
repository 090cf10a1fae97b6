"""DataFrame -> DataFrame, without reads, writes or actions."""
