"""Iceberg through PyIceberg, without Spark: catalogs, metadata, files and what lies beside a table."""
