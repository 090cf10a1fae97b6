"""Run the main job on each catalog that can be started here: REST, Postgres, MySQL, Glue.

    .venv/bin/python deploy/check_catalogs.py            # five minutes on 2 cores

Needs: Postgres, MariaDB (apt-get install postgresql mariadb-server-core mariadb-client-core), Java 17, and versitygw or
Go. A missing program is a failure. Jars and Python packages go to a folder that is removed at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from service_processes import ROOT

PACKAGES = ("moto[server,glue]", "boto3", "pymysql")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cleantail-catalogs-") as folder:
        for name, kind in (("jars", "with-all"), ("rest", "rest")):
            subprocess.run([str(ROOT / "bin/fetch-jars"), f"{folder}/{name}", kind], check=True)
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        subprocess.run([*install, "--target", f"{folder}/packages", *PACKAGES], check=True)
        env = {
            **os.environ,
            "CLEANTAIL_JARS": f"{folder}/jars",
            "CLEANTAIL_REST_JARS": f"{folder}/rest",
            "CLEANTAIL_CATALOG_PACKAGES": f"{folder}/packages",
            "CLEANTAIL_REQUIRE_CATALOGS": "1",
            # after the environment's own, which take precedence
            "PYTHONPATH": os.pathsep.join([str(ROOT), f"{folder}/packages"]),
        }
        files = ("iceberg/test_catalogs.py", "quality/test_data_docs_store.py", "round/test_erasure_in_bucket.py")
        command = [sys.executable, "-m", "pytest", "--durations=10", *(f"tests/jobs/{file}" for file in files)]
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
