"""What of an environment a Spark driver gets."""

from cleantail.home.driver_process import of_driver

SECRETS = {
    "AIRFLOW__API_AUTH__JWT_SECRET": "jwt",
    "AIRFLOW__API_AUTH__JWT_SECRET_CMD": "cat jwt",
    "AIRFLOW__API__SECRET_KEY": "key",
    "AIRFLOW__API__SECRET_KEY_CMD": "cat key",
    "AIRFLOW__CORE__FERNET_KEY": "fernet",
    "AIRFLOW__CORE__FERNET_KEY_SECRET": "fernet",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": "/p.json",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:hunter2@db/airflow",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": "cat conn",
    "AIRFLOW__SECRETS__BACKEND_KWARGS": '{"token": "hunter2"}',
    "AIRFLOW_CONN_CRM_SLACK": "http://hooks.slack.example/T0",
    "AIRFLOW_VAR_PAGER_KEY": "hunter2",
    "AIRFLOW_PASSWORD_ADMIN": "hunter2",
    "_AIRFLOW_WWW_USER_PASSWORD": "hunter2",
    "airflow__core__fernet_key": "fernet",
    "CLEANTAIL_METRICS_TOKEN": "metrics",
    "CLEANTAIL_CERTIFICATE_KEY": "signs",
    "CLEANTAIL_KAFKA_SASL_PASSWORD": "hunter2",
}
NEEDED = {
    "CLEANTAIL_CATALOG_PASSWORD": "catalog",
    "CLEANTAIL_KAFKA_JARS": "/jars",
    "CLEANTAIL_ERASURE_KEY": "marks",
    "CLEANTAIL_S3_SECRET_ACCESS_KEY": "s3",
    "AIRFLOW_CTX_DAG_ID": "orders",
    "AIRFLOW_CTX_TASK_ID": "publish",
    "AWS_PROFILE": "lake",
    "HADOOP_CONF_DIR": "/etc/hadoop",
}


def test_the_drivers_environment_omits_airflows_secrets_and_keeps_the_rest():
    assert of_driver({**SECRETS, **NEEDED}) == NEEDED
