"""What every benchmark needs: data sets and tables, a process of its own, and the report of what was measured."""
