"""The operators of the DAGs, and Airflow's listeners."""
