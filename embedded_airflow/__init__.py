"""An Airflow of its own on one machine: for a first look, a demo and tests. No part of a deployment."""
