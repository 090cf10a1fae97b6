"""Shared parts of the benchmarks: data sets, tables, fresh processes, and reports."""
