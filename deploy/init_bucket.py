"""Create the bucket of the warehouse if it does not exist. The platform's configuration has its address and name.

python deploy/init_bucket.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from pyarrow.fs import FileType, S3FileSystem

from cleantail.config.loading import load_platform
from cleantail.config.platform import Platform
from cleantail.lake.client_properties import S3_ACCESS_KEY, S3_SECRET_KEY

CONFIG = Path(__file__).resolve().parent / "config"


def main() -> int:
    platform = load_platform(Path(os.environ.get("CLEANTAIL_CONFIG") or CONFIG))
    bucket = urlsplit(platform.warehouse).netloc
    store = open_store(platform)
    is_new = store.get_file_info(bucket).type is FileType.NotFound
    if is_new:
        store.create_dir(bucket)
    print(f"bucket {bucket} {'was created' if is_new else 'already exists'}")
    return 0


def open_store(platform: Platform) -> S3FileSystem:
    properties = platform.catalog.properties
    return S3FileSystem(
        access_key=os.environ[S3_ACCESS_KEY],
        secret_key=os.environ[S3_SECRET_KEY],
        endpoint_override=properties["s3.endpoint"],
        region=properties["client.region"],
        allow_bucket_creation=True,
    )


if __name__ == "__main__":
    sys.exit(main())
