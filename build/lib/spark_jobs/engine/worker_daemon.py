"""Spark's daemon of Python workers, with the engine's imports made before it forks one: `spark.python.daemon.module`.

So a worker begins its first task at once, and all of them share these pages of memory.
"""

from __future__ import annotations

from pyspark import daemon

import spark_jobs.engine.expiry
import spark_jobs.engine.judgement
import spark_jobs.engine.proof
import spark_jobs.engine.removals
import spark_jobs.engine.shared_log  # noqa: F401

if __name__ == "__main__":
    daemon.manager()  # type: ignore[no-untyped-call]
