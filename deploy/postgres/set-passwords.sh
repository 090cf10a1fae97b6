#!/bin/sh
# Set the passwords of all roles from the environment. Runs after create-databases.sh, and again after a change
# (docs/operations.md). No password is on a command line.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\getenv superuser_password POSTGRES_PASSWORD
\getenv airflow_password AIRFLOW_DB_PASSWORD
\getenv catalog_password CLEANTAIL_CATALOG_PASSWORD
ALTER ROLE CURRENT_USER PASSWORD :'superuser_password';
ALTER ROLE airflow PASSWORD :'airflow_password';
ALTER ROLE cleantail PASSWORD :'catalog_password';
SQL
