"""Parse the DAG files as Airflow's dag-processor does, and write the seconds to the file RESULT."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from cleantail.config.loading import load_topics
from cleantail.config.topic import DOCTOR_DAG
from differential.broker import ROOT


def main(argv: list[str]) -> int:
    """Parse the DAG files. Return the exit code: 1 unless there is one DAG for each topic, and the doctor's."""
    os.environ |= {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    sys.path[:0] = [str(ROOT / "plugins"), str(ROOT / "dags")]
    from airflow.dag_processing.dagbag import BundleDagBag

    began = time.perf_counter()
    bag = BundleDagBag(dag_folder=ROOT / "dags", bundle_path=ROOT / "dags", bundle_name="dags-folder")
    seconds = time.perf_counter() - began
    Path(argv[0]).write_text(json.dumps({"seconds": seconds, "dags": len(bag.dags)}))
    expected = {DOCTOR_DAG, *(topic.topic for topic in load_topics(Path(os.environ["CLEANTAIL_CONFIG"])))}
    return 0 if set(bag.dags) == expected and not bag.import_errors else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
