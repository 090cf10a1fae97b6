"""Iceberg through PyIceberg, without Spark: catalogs, metadata, data files and neighbouring tables."""
