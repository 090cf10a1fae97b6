"""Bounds, ratio, triggers and retention against the rules written a second time (tests/histories/rules.py), over layouts
of files without number: what the histories on real tables cannot afford."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cleantail.log.due_work import resolve_retention
from cleantail.log.partition_state import PartitionState
from cleantail.log.triggers import decide
from tests.cleantail.kernel_builders import configs, data_file, resolved
from tests.histories import features, rules

TIMES = st.sampled_from([0, 1, 10, 11, 20, 30, 40, 50])
NOW = st.sampled_from([0, 9, 10, 11, 30, 40, 49, 50, 51, 61, 100])
SPANS = st.sampled_from([1, 10, 11, 20, 40, 1000])


@st.composite
def layouts(draw):
    """Files of one log: (first offset, last offset, lowest and highest timestamp, bytes, records, how many are left,
    whether it arrived since the last round)."""
    files, base = [], draw(st.sampled_from([0, 3]))
    for _ in range(draw(st.integers(0, 6))):
        records = draw(st.integers(1, 3))
        low = draw(TIMES)
        files.append(
            (base, base + records - 1, low, low + draw(TIMES), draw(st.sampled_from([60, 60, 60, 6, 600])), records)
        )
        files[-1] += (
            draw(st.sampled_from([records, records, *range(records)])),
            draw(st.sampled_from([False, False, True])),
        )
        base += draw(st.sampled_from([records, records, records + 2, 1]))  # a gap, or an overlap
    return files


@st.composite
def settings_of_a_topic(draw):
    low = draw(st.sampled_from([0, 0, 1, 10, 40]))
    retention_ms = draw(st.sampled_from([-1, 0, 10, 40]))
    by_bytes = retention_ms < 0 or features.BOTH_RETENTIONS
    return {
        "cleanup.policy": draw(st.sampled_from(["compact", "compact", "compact,delete", "delete"])),
        "min.cleanable.dirty.ratio": draw(st.sampled_from([0.0, 0.5, 1.0, 1.0])),
        "min.compaction.lag.ms": low,
        "max.compaction.lag.ms": max(low, draw(st.sampled_from([10, 11, 40, 1000, 1000]))),
        "segment.ms": draw(SPANS),
        "segment.bytes": draw(st.sampled_from([14, 66, 120, 660, 5000])),
        "retention.ms": retention_ms,
        "retention.bytes": draw(st.sampled_from([-1, 0, 60, 66, 660])) if by_bytes else -1,
    }


def both(layout, config, checkpoint, now):
    """The log as the kernel sees it, and as the rules do."""
    files, plain, late = [], [], []
    for a, b, low, high, size, records, left, new in layout:
        times = {"min_timestamp_ms": low, "max_timestamp_ms": high}
        files.append(data_file(a, b, records=records, deleted_records=records - left, size_bytes=size, **times))
        plain.append(rules.File(tuple(range(a, b + 1)), (low, high), size, left))
        late += [rules.Copy(rules.Record(a, low, b"k", b"v"))] * (new and left > 0)
    arrived = [f for f, (*_, left, new) in zip(files, layout, strict=True) if new and left]
    end = max((b + 1 for _, b, *_ in layout), default=0)
    log = rules.Log(late, checkpoint, min((a for a, *_, left, _ in layout if left), default=0), end=end)
    attributes = {name.replace(".", "_"): value for name, value in config.items()}
    kernel = resolved(files, state=PartitionState(checkpoint=checkpoint), arrived=arrived, now_ms=now, **attributes)
    return kernel, configs(**attributes), log, plain


@settings(max_examples=300)
@given(
    layouts(),
    settings_of_a_topic(),
    st.sampled_from([None, 0, 1, 3, 4, 6, 9, 30]),
    NOW,
    st.sampled_from([False, False, False, True]),
)
def test_a_log_is_bounded_weighed_and_triggered_as_the_rules_say(layout, config, checkpoint, now, force):
    kernel, settings_, log, files = both(layout, config, checkpoint, now)
    log.repair()
    expected = rules.sections_of(log, files, rules.DEFAULTS | config, now)
    assert [(s.base_offset, s.first_timestamp_ms) for s in kernel.segments] == [
        (s.base, s.first_ts) for s in rules.segments_of(files, rules.DEFAULTS | config)
    ]
    assert (kernel.first_dirty_offset, kernel.first_uncleanable_offset) == (
        expected.first_dirty,
        expected.first_uncleanable,
    )
    assert kernel.dirty_ratio == expected.ratio
    assert decide(kernel, settings_, now, force=force).compact == expected.due(rules.DEFAULTS | config, force)


@settings(max_examples=300)
@given(layouts(), settings_of_a_topic(), NOW)
def test_retention_leaves_the_log_start_that_the_rules_say(layout, config, now):
    kernel, settings_, log, files = both(layout, config, None, now)
    expected = rules.retained_from(log, files, rules.DEFAULTS | config, now)
    assert resolve_retention(kernel, settings_, now).log_start_offset == expected
