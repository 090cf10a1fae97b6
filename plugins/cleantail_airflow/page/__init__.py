"""Cleantail's pages in the Airflow UI, and its /metrics."""
