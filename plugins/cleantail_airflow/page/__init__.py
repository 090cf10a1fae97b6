"""Cleantail's pages in the Airflow UI."""
