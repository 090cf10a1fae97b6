"""Which landing files are new, told without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cleantail.config.loading import find_topic
from cleantail.errors import OutsideError
from cleantail.lake.pending_input import new_files
from cleantail.log.partition_state import PROPERTY_INGESTED
from cleantail.sources.source_files import content_digest
from tests.airflow_site import Site


def found(site: Site, path: str) -> tuple[list[str], list[str]]:
    site.topic("orders", source={"path": path})
    files, new = new_files(find_topic("orders", site.config))
    return [file.name for file in files], [file.name for file in new]


@pytest.fixture
def landing(site: Site) -> Path:
    folder = site.home / "landing"
    folder.mkdir()
    for name in ("b.jsonl", "a.jsonl"):
        (folder / name).write_text(f"{name}\n")
    return folder


def test_files_come_in_the_order_of_their_names(site: Site, landing: Path) -> None:
    assert found(site, "landing/*.jsonl") == (["a.jsonl", "b.jsonl"], ["a.jsonl", "b.jsonl"])


def test_content_that_the_table_has_is_not_new_under_any_name(
    site: Site, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SimpleNamespace(properties={f"{PROPERTY_INGESTED}{content_digest(landing / 'a.jsonl')}": "1", "other": "x"})
    monkeypatch.setattr("cleantail.lake.pending_input.load_table", lambda *_: table)
    (landing / "copy-of-a.jsonl").write_text("a.jsonl\n")
    assert found(site, "landing/*.jsonl")[1] == ["b.jsonl"]


def test_a_file_that_cannot_be_read_is_left_for_the_job_to_name(site: Site, landing: Path) -> None:
    (landing / "c.jsonl.gz").write_bytes(b"not gzip")
    assert "c.jsonl.gz" in found(site, "landing/*")[1]


def test_an_absolute_pattern_is_taken_as_it_is_in_a_folder_that_the_platform_names(site: Site, tmp_path: Path) -> None:
    (site.config / "defaults.yaml").write_text(f"platform: {{sources: [{tmp_path}/drop]}}\n")
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop" / "x.jsonl").write_text("{}\n")
    assert found(site, f"{tmp_path}/drop/*.jsonl")[0] == ["x.jsonl"]


def test_no_match_needs_no_catalog(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.home / "landing").mkdir()
    monkeypatch.setattr("cleantail.lake.pending_input.kept_catalog", lambda *_: pytest.fail("the catalog was opened"))
    assert found(site, "landing/*.jsonl") == ([], [])


@pytest.mark.parametrize("path", ["landing/*.jsonl", "landing/orders.jsonl", "landing/**/*.jsonl"])
def test_a_folder_that_is_gone_is_an_error_where_the_table_has_files_of_it_and_none_before(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A disk that is not mounted would look as if nothing were new, for ever."""
    assert found(site, path) == ([], [])  # nobody has written a file yet
    table = SimpleNamespace(properties={f"{PROPERTY_INGESTED}{'0' * 64}": "1"})
    monkeypatch.setattr("cleantail.lake.pending_input.load_table", lambda *_: table)
    with pytest.raises(OutsideError, match="landing of source.path does not exist, but the table of orders has files"):
        found(site, path)
    (site.home / "landing").mkdir()
    assert found(site, path) == ([], [])
