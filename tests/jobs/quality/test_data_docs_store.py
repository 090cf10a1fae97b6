"""Data Docs that are copied to a store: what a driver with an empty folder finds there stays in the index."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from cleantail.config.loading import load_platform
from cleantail.config.platform import Catalog, Platform
from cleantail.config.topic import Topic
from cleantail.home.home_folder import results_of, site_of
from cleantail.log.work_units import round_name
from spark_jobs.quality.data_docs import LIST, DocsStore, page, remove_results
from tests.jobs.catalog_sites import SECRET, STORE_LOGIN, s3_gateway

COPIED = Topic(topic="copied", table="cleantail.copied")


@pytest.fixture
def store(tmp_path: Path) -> DocsStore:
    platform = Platform(catalog=Catalog(), home=tmp_path, config_dir=tmp_path, data_docs=f"file://{tmp_path}/store/")
    found = DocsStore.of(COPIED.on(platform))
    assert found is not None
    return found


def site_with(folder: Path, round_name: str, time: str) -> tuple[Path, list[Path]]:
    """The site of a driver that has checked one round."""
    file = folder / "validations" / "round" / round_name / time / "round-round.html"
    file.parent.mkdir(parents=True)
    title = f"copied · partition 0 · compact {round_name} · rules of the round · passed"
    content = {"topic": "copied", "title": title, "heading": "", "up": "", "facts": [], "head": [], "rows": []}
    file.write_text(page(content))
    return folder, [file]


def test_pages_of_two_drivers_are_in_one_index_newest_first(store: DocsStore, tmp_path: Path) -> None:
    store.copy(*site_with(tmp_path / "one", "r1", "20260101T000000.000000Z"))
    store.copy(*site_with(tmp_path / "two", "r2", "20260102T000000.000000Z"))
    folder = tmp_path / "store" / "copied"
    index = (folder / "index.html").read_text()
    assert 0 < index.index("r2") < index.index("r1")
    pages = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.html"))
    assert len(pages) == 3 and all(name in index for name in pages if name != "index.html")


DAY_MS = 86_400_000


def test_results_and_pages_go_after_the_retention_of_the_evidence(store: DocsStore) -> None:
    topic, at_ms = store.topic, 1_800_000_000_000
    site, results = site_of(topic.platform.home, topic.topic), results_of(topic.platform.home, topic.topic)
    old, young = round_name(at_ms - 1, 7), round_name(at_ms, 8)
    for name, time in ((old, "20260101T000000.000000Z"), (young, "20260102T000000.000000Z"), ("mine", "x")):
        site_with(site, name, time)
        (results / "round" / name / time).mkdir(parents=True)
        (results / "round" / name / time / "round-round.json").write_text("{}")
    assert topic.config.cleantail_evidence_retention_ms == 30 * DAY_MS
    assert remove_results(topic, at_ms + 30 * DAY_MS) == 2
    left = {file.parts[-3] for folder in (site, results) for file in folder.rglob("round-round.*")}
    assert left == {young, "mine"}
    index = (site / "index.html").read_text()
    assert young in index and old not in index
    assert remove_results(topic, at_ms + 30 * DAY_MS) == 0


def test_a_truncated_list_of_pages_does_not_hide_a_new_page(store: DocsStore, tmp_path: Path) -> None:
    store.copy(*site_with(tmp_path / "one", "r1", "20260101T000000.000000Z"))
    (tmp_path / "store" / "copied" / LIST).write_text('[{"path": "val')
    store.copy(*site_with(tmp_path / "two", "r2", "20260102T000000.000000Z"))
    assert "r2" in (tmp_path / "store" / "copied" / "index.html").read_text()


def test_a_store_that_cannot_be_written_fails_nothing(
    store: DocsStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        store.copy(*site_with(tmp_path / "one", "r1", "20260101T000000.000000Z"))
    assert "Data Docs were not copied to file://" in caplog.text


def test_without_the_setting_there_is_no_store(tmp_path: Path) -> None:
    assert DocsStore.of(COPIED.on(Platform(catalog=Catalog(), home=tmp_path, config_dir=tmp_path))) is None


def test_on_s3_the_login_of_the_warehouse_opens_the_store_and_a_wrong_one_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with s3_gateway(tmp_path) as endpoint:
        properties = {"s3.endpoint": endpoint, "s3.path-style-access": "true", "client.region": "us-east-1"}
        catalog = {"warehouse": "s3://lake/warehouse", "properties": properties}
        settings = {"catalog": catalog, "data_docs": "s3://lake/docs"}
        (tmp_path / "defaults.yaml").write_text(json.dumps({"platform": settings}))
        platform = load_platform(tmp_path, {"CLEANTAIL_HOME": str(tmp_path / "home")})
        for driver, time, login in (
            ("one", "20260101T000000.000000Z", STORE_LOGIN),
            ("two", "20260102T000000.000000Z", STORE_LOGIN),
            ("refused", "20260103T000000.000000Z", STORE_LOGIN | {"CLEANTAIL_S3_SECRET_ACCESS_KEY": "wrong"}),
        ):
            store = DocsStore.of(COPIED.on(platform.with_env(login)))
            assert store is not None
            store.copy(*site_with(tmp_path / driver, f"round-{driver}", time))
    folder = tmp_path / "s3" / "lake" / "docs" / "copied"  # the gateway's objects are plain files
    index = (folder / "index.html").read_text()
    assert 0 < index.index("round-two") < index.index("round-one") and "round-refused" not in index
    assert len(list((folder / "validations").rglob("*.html"))) == 2
    assert "Data Docs were not copied to s3://lake/docs: OSError" in caplog.text and SECRET not in caplog.text
