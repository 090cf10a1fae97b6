"""Lineage of the tasks, through Airflow's provider for OpenLineage where that is installed and set up."""
