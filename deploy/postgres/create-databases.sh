#!/bin/sh
# Run by the postgres image when its volume is empty: one database and one role for Airflow, one for the Iceberg
# catalog; neither may look into the other's. set-passwords.sh, which runs next, sets the passwords.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname postgres <<'SQL'
CREATE ROLE airflow LOGIN;
CREATE DATABASE airflow OWNER airflow;
REVOKE CONNECT ON DATABASE airflow FROM PUBLIC;
CREATE ROLE cleantail LOGIN;
CREATE DATABASE iceberg OWNER cleantail;
REVOKE CONNECT ON DATABASE iceberg FROM PUBLIC;
SQL
