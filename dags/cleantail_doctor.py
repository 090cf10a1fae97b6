"""Make the Airflow DAG `cleantail_doctor`, which examines the installation when it is triggered."""

from __future__ import annotations

from cleantail_airflow import doctor_dag
from cleantail_airflow.installation import config_dir

doctor = doctor_dag(config_dir())
