#!/bin/sh
# The postgres image runs this script if its volume is empty. It creates a database and a role for Airflow, and others for
# the Iceberg catalog. Neither role may read the other's database. set-passwords.sh runs next and sets the passwords.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname postgres <<'SQL'
CREATE ROLE airflow LOGIN;
CREATE DATABASE airflow OWNER airflow;
REVOKE CONNECT ON DATABASE airflow FROM PUBLIC;
CREATE ROLE cleantail LOGIN;
CREATE DATABASE iceberg OWNER cleantail;
REVOKE CONNECT ON DATABASE iceberg FROM PUBLIC;
SQL
