"""Great Expectations: suites, what is kept of their results, and Data Docs."""
