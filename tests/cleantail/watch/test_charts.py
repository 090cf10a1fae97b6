"""Sizes, rounds and partitions as charts: everything inside the drawing, with round numbers at the axes."""

import pytest

from cleantail.rounds.commit_summaries import SizePoint
from cleantail.rounds.evidence_row import RoundWork
from cleantail.rounds.past_rounds import LogRound, Round
from cleantail.watch.charts import Frame, dropped_chart, duration_chart, partition_charts, size_chart

PLAIN = Frame(100, 40, 0, 0, 0, 0)
HOUR = 3_600_000


def a_round(at_ms, outcome="published", partitions=(0,), began_ms=None, kind="compact", **deleted):
    passed = outcome != "held_back"
    logs = [LogRound(p, 0, 10, 10, 5, deleted, passed, (), outcome, work=RoundWork(began_ms)) for p in partitions]
    return Round(f"r{at_ms}", kind, at_ms, at_ms, tuple(logs))


def test_sizes_are_steps_from_the_oldest_to_the_newest():
    chart = size_chart([SizePoint(20, "compact", 100, 25, 0), SizePoint(10, "ingest", 50, 50, 0)], PLAIN)
    assert chart.files == "0.0,20.0 100.0,20.0 100.0,0.0"
    assert chart.live == "0.0,20.0 100.0,20.0 100.0,30.0"
    assert [point.at_ms for _, _, point in chart.dots] == [10, 20]


def test_one_snapshot_has_no_axis_of_time_and_none_no_chart():
    assert size_chart([]) is None
    chart = size_chart([SizePoint(10, "ingest", 0, 0, 0)])
    assert (len(chart.dots), chart.moments) == (1, ())


def test_nothing_of_a_chart_is_outside_its_drawing_and_it_takes_the_whole_width():
    points = [SizePoint(n * HOUR, "ingest", n * 3000, n * 1000, 0) for n in range(30)]
    chart = size_chart(points)
    frame = chart.frame
    xs = [x for x, _, _ in chart.dots]
    assert (min(xs), max(xs)) == (frame.left, frame.end)
    assert all(frame.left <= tick.at <= frame.end for tick in chart.moments)
    assert all(0 < y <= frame.base for _, y, _ in chart.dots)
    columns = dropped_chart([a_round(n, superseded=n) for n in range(40)]).columns
    assert columns[0].x >= frame.left
    assert columns[-1].x + columns[-1].width == pytest.approx(frame.end, abs=frame.inner_width / 40)


def test_rounds_are_columns_of_what_they_dropped_oldest_left():
    chart = dropped_chart([a_round(2, superseded=30, expired=10), a_round(1, superseded=20)], PLAIN)
    assert [c.round.name for c in chart.columns] == ["r1", "r2"]
    assert [(p.kind, p.number, p.y, p.height) for p in chart.columns[0].parts] == [("superseded", 20, 20, 20)]
    assert [(p.kind, p.y, p.height) for p in chart.columns[1].parts] == [("superseded", 10, 30), ("expired", 0, 10)]
    assert [c.label for c in chart.columns] == ["20", "40"]
    assert [tick.label for tick in chart.values.ticks] == ["0", "10", "20", "30", "40"]
    assert chart.kinds == ("superseded", "expired")


def test_a_red_round_dropped_nothing():
    assert dropped_chart([a_round(1, "held_back", superseded=20)]).columns[0].parts == ()
    assert dropped_chart([]) is None


def test_only_rounds_whose_begin_is_known_have_a_duration():
    chart = duration_chart([a_round(9_000, began_ms=4_000), a_round(5)])
    assert [(c.round.name, c.label) for c in chart.columns] == [("r9000", "5 s")]
    assert duration_chart([a_round(5)]) is None


def test_each_partition_has_its_own_history_of_what_was_kept_and_dropped():
    rounds = [
        a_round(1, partitions=(0, 1), superseded=5),
        a_round(2, partitions=(1,), superseded=5),
        a_round(3, "held_back", partitions=(0,), superseded=5),
        a_round(4, kind="rollback", partitions=(0,)),
    ]
    charts = partition_charts(rounds)
    assert [(c.partition, c.records, len(c.chart.columns)) for c in charts] == [(0, 5, 1), (1, 5, 2)]
    assert [(p.kind, p.number) for p in charts[0].chart.columns[0].parts] == [("kept", 5), ("dropped", 5)]


def test_moments_under_many_rounds_do_not_touch():
    chart = dropped_chart([a_round(n * HOUR, superseded=1) for n in range(30)])
    places = [tick.at for tick in chart.moments]
    assert min(b - a for a, b in zip(places, places[1:], strict=False)) >= 100
