"""Data Docs are written beside what follows. If they were not, the command says so, whatever the reason."""

from __future__ import annotations

import pytest

from spark_jobs.quality import data_docs
from tests.jobs.round.test_rounds import record


@pytest.mark.parametrize(
    ("error", "says"),
    [
        pytest.param(
            UnicodeEncodeError("ascii", "MARKER", 0, 1, "MARKER"),
            "UnicodeEncodeError",
            id="encoding",
            marks=pytest.mark.deep,
        ),
        pytest.param(RuntimeError("MARKER"), "RuntimeError", id="a defect", marks=pytest.mark.deep),
        pytest.param(OSError(28, "No space left on device"), "No space left on device", id="disk"),
    ],
)
def test_data_docs_that_were_not_written_are_reported(workshop, monkeypatch, error, says):
    topic = workshop.topic(f"no-docs-{type(error).__name__}")
    lines = [record(0, "a", "x"), record(1, "a", "y")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))

    def fails(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(data_docs, "write_pages", fails)
        code, out, err = workshop.run("compact", topic, "--now", 1_800_000_000_000)
    assert (code, "data docs: " in out) == (0, False)
    assert f"Data Docs were not written: {says}" in err.replace("[Errno 28] ", "") and "MARKER" not in err
    more = [record(2, "a", "z")]
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", more))
    assert "data docs: " in workshop.ok("compact", topic, "--now", 1_800_000_000_000)
