"""Great Expectations: the suites, the stored results, and Data Docs."""
