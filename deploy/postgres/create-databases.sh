#!/bin/sh
# The postgres image runs this when its volume is empty: one database and role for Airflow, and one for the Iceberg
# catalog. Neither may read the other's. set-passwords.sh runs next and sets the passwords.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname postgres <<'SQL'
CREATE ROLE airflow LOGIN;
CREATE DATABASE airflow OWNER airflow;
REVOKE CONNECT ON DATABASE airflow FROM PUBLIC;
CREATE ROLE cleantail LOGIN;
CREATE DATABASE iceberg OWNER cleantail;
REVOKE CONNECT ON DATABASE iceberg FROM PUBLIC;
SQL
