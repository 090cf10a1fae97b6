"""The environment first: nothing may import airflow before it."""

from tests.airflow_environment import airflow_db  # noqa: F401, I001
from tests.airflow_site import jobs, site  # noqa: F401
from tests.alert_sinks import hook, mailbox  # noqa: F401
from tests.statsd_sink import statsd  # noqa: F401
