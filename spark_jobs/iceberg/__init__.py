"""All access to Iceberg through the JVM: the session, tables, branches, commits, delete files."""
