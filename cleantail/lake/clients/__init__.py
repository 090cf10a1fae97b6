"""One catalog, two clients: the properties with which Spark's Iceberg catalog and PyIceberg open it."""
