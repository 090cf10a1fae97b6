"""Benchmarks of many small topics: stations, applications, the page, and runs under a real Airflow."""
