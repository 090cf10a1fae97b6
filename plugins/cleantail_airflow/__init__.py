"""Cleantail's side of Airflow: operators, notifier, and the pool that bounds its Spark applications.

Light at import, since every DAG file and every Airflow process imports it: no pyspark, no great_expectations, no
pyiceberg until a task runs.
"""
