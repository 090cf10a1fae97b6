"""Which ratios the tables of the benchmarks have, and what the watch over a command's steps writes down."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES, main
from benchmarks.harness.report import Times
from benchmarks.harness.shape import Shape
from benchmarks.rounds import ingestion
from benchmarks.rounds.compare import COLUMNS, Measured, _rows
from benchmarks.rounds.growth import shapes
from benchmarks.systems.ingested_kafka import Measured as Measurement
from benchmarks.topics import watched_command
from benchmarks.topics.aged_policies import LATE_RUNS, POLICIES, RECORDS, deleting
from benchmarks.topics.watched_command import Finder, Watch


def test_every_system_is_compared_with_the_whole_round_the_unchecked_one_and_the_scan() -> None:
    shape = Shape(4_000, 0.2)
    seconds = {
        "key scan": 1.0,
        "Cleantail: round + publish": 4.0,
        "Cleantail: round + check + publish": 8.0,
        "another": 16.0,
    }
    rows = list(_rows([Measured(shape, name, Times((99.0, s, s, s))) for name, s in seconds.items()]))
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert rows[-1] == ("steady, 20 % dirty", "another", 99.0, 16.0, "16.00 to 16.00", 2.0, 4.0, 16.0)


def test_rates_of_an_ingestion_are_compared_with_what_does_nothing_with_the_records() -> None:
    measured = {"bare": Measurement(Times((4.0, 2.0, 2.0))), "Cleantail": Measurement(Times((8.0, 3.0, 5.0)), 1 << 30)}
    bare, own = ingestion._rows(1_000, measured)
    assert all(len(row) == len(ingestion.COLUMNS) for row in (bare, own))
    assert bare == (1_000, "bare", 4.0, 2.0, "2.00 to 2.00", 250.0, 500.0, 1.0, None)
    assert own == (1_000, "Cleantail", 8.0, 4.0, "3.00 to 5.00", 125.0, 250.0, 0.5, 1 << 30)


def test_growth_has_four_sizes_at_one_share_and_other_shares_at_one_size() -> None:
    found = shapes(10_000_000)
    assert sorted(s.total for s in found if s.update_share == 0.2 and not s.tombstone_share) == [
        1_000_000,
        3_000_000,
        10_000_000,
        30_000_000,
    ]
    assert {s.update_share for s in found if s.total == 10_000_000} == {0.001, 0.01, 0.1, 0.2, 0.5}
    assert Shape(30_000_000, 0.001) in found


def test_a_step_is_watched_once_its_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "step_sample.py").write_text("def work(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(watched_command, "STEPS", {"step_sample": "work"})
    monkeypatch.setattr(watched_command, "IMPORTS", ("step_sample",))
    watch = Watch(time.time())
    monkeypatch.setattr(sys, "meta_path", [Finder(watch), *sys.meta_path])
    import step_sample  # type: ignore[import-not-found]

    assert step_sample.work(1) == 2
    assert list(watch.spans) == ["import step_sample", "work"]
    assert all(0 <= begin <= end for begin, end in watch.spans.values())
    del sys.modules["step_sample"]


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["compere"])
    assert f"there is no benchmark compere; the names are {', '.join(NAMES)}" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["age", "--policy", "compact,comapct"])
    assert f"there is no policy comapct; the names are {', '.join(POLICIES)}" in capsys.readouterr().err


@pytest.mark.parametrize("name", POLICIES)
def test_the_runs_of_an_aged_log_have_each_offset_once(name: str) -> None:
    lines, runs = POLICIES[name].lines, LATE_RUNS + 3
    offsets = [line.offset for number in range(1, runs + 1) for line in lines(number, number * 1_000)]
    missing = [] if name != "late" else [(number + 1) * RECORDS - 1 for number in range(4, runs + 1)]
    assert sorted([*offsets, *missing]) == list(range(RECORDS, (runs + 1) * RECORDS))


def test_a_run_of_the_aged_log_with_tombstones_deletes_the_keys_of_the_run_before() -> None:
    first, second = list(deleting(7, 0)), list(deleting(8, 0))
    added = {line.key for line in first if line.payload is not None}
    deleted = {line.key for line in second if line.payload is None}
    assert (len(added), added) == (RECORDS // 2, deleted)
