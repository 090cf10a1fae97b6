"""An erasure in a bucket that keeps older versions: they have the keys until somebody deletes them, and it says so."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from cleantail.erasure.certificate import verified
from tests.jobs.catalog_sites import STORE_LOGIN, bucket_client, jars, lacks, s3_gateway
from tests.jobs.round.test_erasure import GONE, KEPT, SECRETS, erase, lines, public_key
from tests.jobs.round.test_rounds import NOW

pytestmark = pytest.mark.integration

BUCKET = "lake"


class Bucket:
    """The bucket as its owner sees it."""

    def __init__(self, endpoint: str) -> None:
        self.client = bucket_client(endpoint)
        self.client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})

    def kept(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """Older versions, delete markers, and unfinished uploads."""
        page = self.client.list_object_versions(Bucket=BUCKET)
        assert not page["IsTruncated"]
        older = [version for version in page.get("Versions", ()) if not version["IsLatest"]]
        uploads = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return older, page.get("DeleteMarkers", []), uploads

    def with_keys(self) -> list[str]:
        """Names of the objects of which a version has an erased key."""
        found = set()
        for version in self.client.list_object_versions(Bucket=BUCKET).get("Versions", ()):
            which = {"Bucket": BUCKET, "Key": version["Key"], "VersionId": version["VersionId"]}
            content = self.client.get_object(**which)["Body"].read()
            if GONE.encode() in content or GONE in _decoded(version["Key"], content):
                found.add(version["Key"])
        return sorted(found)

    def forget(self) -> None:
        older, markers, uploads = self.kept()
        for each in (*older, *markers):
            self.client.delete_object(Bucket=BUCKET, Key=each["Key"], VersionId=each["VersionId"])
        for each in uploads:
            self.client.abort_multipart_upload(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])


def _decoded(name: str, content: bytes) -> str:
    if name.endswith(".parquet"):
        return repr(pq.read_table(io.BytesIO(content)).to_pylist())
    return repr(list(fastavro.reader(io.BytesIO(content)))) if name.endswith(".avro") else ""


@pytest.fixture
def bucket(workshop, spark, monkeypatch, tmp_path_factory):
    """A bucket with versions, which the workshop's tables are in. Spark knows their catalog by a name of its own."""
    lacks((bool(jars("iceberg-aws-bundle")), "the AWS bundle: bin/fetch-jars … with-s3"))
    for name, value in (STORE_LOGIN | SECRETS).items():
        monkeypatch.setenv(name, value)
    folder = tmp_path_factory.mktemp("gateway")
    with s3_gateway(folder) as endpoint:
        properties = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": endpoint, "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }  # fmt: skip
        catalog = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://{BUCKET}/warehouse"}
        platform = {"allow_clock": True, "catalog": {"name": "bucket", **catalog, "properties": properties}}
        (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
        yield Bucket(endpoint)


def test_older_versions_and_uploads_prevent_a_proof_until_they_are_deleted_or_excluded(workshop, bucket, monkeypatch):
    topic = workshop.topic("erased-in-bucket", {"delete.retention.ms": 86_400_000})
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines(topic)))
    workshop.ok("compact", topic, "--now", NOW)
    place = f"warehouse/{workshop.find(topic).table.replace('.', '/')}/data"
    bucket.client.create_multipart_upload(Bucket=BUCKET, Key=f"{place}/unfinished.parquet")
    # 1. the files are gone, and the bucket still has them
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-0")
    older, markers, uploads = bucket.kept()
    assert code == 1 and older and markers and len(uploads) == 1, err + out
    [request] = json.loads(out)["requests"]
    [problem] = request["problems"]
    assert f"{len(older)} older versions and 1 unfinished uploads" in problem and request["certificate"] is None
    assert any(name.endswith(".parquet") for name in bucket.with_keys())
    # 2. who accepts that has it in the certificate
    code, out, err = workshop.run("erase", topic, "--exclude", "versions", "--json")
    assert code == 0, err + out
    content = verified(json.loads(out)["requests"][0]["certificate"].encode(), public_key(workshop))
    assert any(f"{len(older)} older versions" in text for text in content["exclusions"])
    counts = {"listed": True, "versions": len(older), "delete_markers": len(markers), "uploads": 1}
    assert content["steps"]["proven"]["older_versions"] == counts
    # 3. who deletes them gets a proof of everything
    code, out, err = erase(workshop, monkeypatch, topic, f"{GONE}-1")
    assert code == 1, err + out
    bucket.forget()
    assert bucket.with_keys() == []
    out = workshop.ok("erase", topic, "--json")
    content = verified(json.loads(out)["requests"][0]["certificate"].encode(), public_key(workshop))
    none = {"listed": True, "versions": 0, "delete_markers": 0, "uploads": 0}
    assert content["steps"]["proven"]["older_versions"] == none
    assert not any("versions" in text for text in content["exclusions"]) and bucket.kept() == ([], [], [])
    assert {r["key"] for r in workshop.read(topic)} == {f"{KEPT}-{p}" for p in (0, 1)} | {
        f"{KEPT}-x{p}" for p in (0, 1)
    }
