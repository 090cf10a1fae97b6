"""The embedded Airflow on one machine, for trials, the demo and tests. It is not part of a deployment."""
