"""The web application in Airflow's UI: its routes, over the pages and the metrics, and where Airflow mounts it."""
