"""The pool of all Spark tasks: as many slots as log.cleaner.threads, so many Spark applications run at once.

A task whose pool does not exist waits for ever without a word. So the pool is made by a listener whenever a
scheduler (or another component with the database) starts, from defaults.yaml, which is the truth about its size.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from airflow.listeners import hookimpl

from cleantail.config.loading import CONFIG_VARIABLE, load_platform
from cleantail.errors import ConfigError
from cleantail_airflow.installation import NO_CONFIG, config_dir

POOL = "cleantail_spark"
DESCRIPTION = "Spark applications of Cleantail; slots = log.cleaner.threads in defaults.yaml, set at each start"
NOT_NAMED = (
    f"{CONFIG_VARIABLE} names no configuration to the scheduler; set it, or the slots under Admin, Pools: as many "
    "Spark applications run at once"
)

logger = logging.getLogger(__name__)


@hookimpl
def on_starting(component: object) -> None:
    """Makes the pool when a Job starts (scheduler, dag-processor, triggerer); a task runner has no database."""
    if type(component).__name__ == "Job":
        ensure_pool()


def ensure_pool() -> None:
    """Makes the pool, or gives it the slots that defaults.yaml says. Where this process knows of no configuration, a
    pool that is there keeps its slots."""
    from airflow.models.pool import Pool

    config = config_dir(os.environ)
    if config == NO_CONFIG and (pool := Pool.get_pool(POOL)):
        logger.info("pool %s keeps its slots, %d: %s", POOL, pool.slots, NOT_NAMED)
        return
    slots = _slots(config)
    Pool.create_or_update_pool(POOL, slots=slots, description=DESCRIPTION, include_deferred=False)
    logger.info("pool %s has %d slots", POOL, slots)


def _slots(config: Path) -> int:
    """Returns log.cleaner.threads; 1 where there is no configuration, or a broken one, so that tasks do not wait
    without a word."""
    if config == NO_CONFIG:
        logger.warning("pool %s gets one slot: %s", POOL, NOT_NAMED)
        return 1
    try:
        return load_platform(config).cleaner.log_cleaner_threads
    except ConfigError as error:
        logger.error("pool %s gets one slot: %s", POOL, error)
        return 1
