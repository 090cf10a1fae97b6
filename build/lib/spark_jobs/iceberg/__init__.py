"""Everything that goes through the JVM: the session, tables, branches, commits, delete files."""
