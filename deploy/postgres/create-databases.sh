#!/bin/sh
# Run by the postgres image when its volume is empty: one database and one role for Airflow, one for the Iceberg
# catalog; neither may look into the other's. Passwords come from the environment and never show on a command line.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname postgres <<'SQL'
\getenv airflow_password AIRFLOW_DB_PASSWORD
\getenv catalog_password CLEANTAIL_CATALOG_PASSWORD
CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;
REVOKE CONNECT ON DATABASE airflow FROM PUBLIC;
CREATE ROLE cleantail LOGIN PASSWORD :'catalog_password';
CREATE DATABASE iceberg OWNER cleantail;
REVOKE CONNECT ON DATABASE iceberg FROM PUBLIC;
SQL
