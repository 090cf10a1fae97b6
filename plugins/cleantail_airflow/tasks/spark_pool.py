"""The pool of Spark tasks, and the listener that makes it.

Tasks wait forever for a missing pool. So a listener makes the pool whenever a component with access to the database
starts. Its slots are `log.cleaner.threads` of defaults.yaml: the number of Spark applications at once.
"""

from __future__ import annotations

import logging
from pathlib import Path

from airflow.listeners import hookimpl

from cleantail.config.loading import CONFIG_VARIABLE, load_platform
from cleantail.errors import ConfigError
from cleantail_airflow.installation import NO_CONFIG, config_dir

POOL = "cleantail_spark"
DESCRIPTION = "Spark applications of Cleantail; slots = log.cleaner.threads in defaults.yaml, set at each start"
NOT_NAMED = (
    f"{CONFIG_VARIABLE} of the scheduler names no configuration. Set it, or set the slots under Admin, Pools: the "
    "number of Spark applications that run at once"
)

logger = logging.getLogger(__name__)


@hookimpl
def on_starting(component: object) -> None:
    """Make the pool when a Job starts (scheduler, dag-processor, triggerer). A task runner has no database."""
    if type(component).__name__ == "Job":
        ensure_pool()


def ensure_pool() -> None:
    """Make the pool, or set its slots from defaults.yaml.

    If this process has no configuration, an existing pool keeps its slots.
    """
    from airflow.models.pool import Pool

    config = config_dir()
    if config == NO_CONFIG and (pool := Pool.get_pool(POOL)):
        logger.info("pool %s keeps its slots, %d: %s", POOL, pool.slots, NOT_NAMED)
        return
    slots = _slots(config)
    Pool.create_or_update_pool(POOL, slots=slots, description=DESCRIPTION, include_deferred=False)
    logger.info("pool %s has %d slots", POOL, slots)


def _slots(config: Path) -> int:
    """Return log.cleaner.threads, or 1 if the configuration is missing or broken, so that tasks can run."""
    if config == NO_CONFIG:
        logger.warning("pool %s gets one slot: %s", POOL, NOT_NAMED)
        return 1
    try:
        return load_platform(config).cleaner.log_cleaner_threads
    except ConfigError as error:
        logger.error("pool %s gets one slot: %s", POOL, error)
        return 1
