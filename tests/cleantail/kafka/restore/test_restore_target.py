"""Which topics in Kafka a restore refuses, before anything is written (cleantail/kafka/restore_target.py)."""

import pytest

from cleantail.errors import TargetError
from cleantail.kafka.restore_target import (
    MARGIN_MS,
    NEVER_MS,
    LogFacts,
    TargetTopic,
    creation_command,
    require_configs,
    require_empty,
    require_fitting,
    require_partitions,
    require_whole,
)

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def target(starts=(0, 0), ends=(0, 0), **configs):
    dotted = {name.replace("_", "."): str(value) for name, value in configs.items()}
    return TargetTopic("c", "back", "id", dict(enumerate(starts)), dict(enumerate(ends)), dotted)


def facts(oldest_ms=NOW_MS, newest_ms=NOW_MS, **more):
    return [LogFacts(0), LogFacts(1, 2, 0, 9, oldest_ms, newest_ms, **more)]


def is_taken(require, *arguments):
    try:
        require(*arguments)
    except TargetError:
        return False
    return True


def test_a_topic_with_as_many_empty_partitions_is_taken():
    assert [is_taken(require_partitions, target(), count) for count in (1, 2, 3)] == [False, True, False]
    assert [is_taken(require_empty, target(ends=ends)) for ends in ((0, 0), (1, 0))] == [True, False]
    assert [is_taken(require_whole, target(starts, (5, 0))) for starts in ((0, 0), (1, 0))] == [True, False]


@pytest.mark.parametrize("partitions", [1, 3])
def test_another_number_of_partitions_is_refused(partitions):
    with pytest.raises(TargetError, match=rf"back has 2 partitions, the archive {partitions}: .* nothing was written"):
        require_partitions(target(), partitions)


def test_a_topic_that_ever_had_a_record_is_refused():
    with pytest.raises(TargetError, match="back is not empty: partition 1 ends at offset 7"):
        require_empty(target(starts=(0, 7), ends=(0, 7)))


def test_a_restore_whose_beginning_is_gone_does_not_go_on():
    with pytest.raises(TargetError, match="partition 1 begins at offset 3: restored records were deleted again"):
        require_whole(target(starts=(0, 3), ends=(0, 7)))


@pytest.mark.parametrize(
    ("mode", "configs", "name"),
    [
        pytest.param("log", {"message_timestamp_type": "LogAppendTime"}, "message.timestamp.type", id="append time"),
        pytest.param("latest", {"message_timestamp_type": "LogAppendTime"}, "message.timestamp.type", id="of latest"),
        pytest.param("log", {"cleanup_policy": "compact"}, "cleanup.policy", id="compact"),
        pytest.param("log", {"cleanup_policy": "delete, compact"}, "cleanup.policy", id="both"),
        pytest.param("latest", {"retention_bytes": 1}, "retention.bytes", id="by size"),
    ],
)
def test_configs_that_change_or_remove_records_are_refused(mode, configs, name):
    with pytest.raises(TargetError, match=rf"back has {name}=.*: .*; nothing was written"):
        require_configs(target(**configs), mode)


@pytest.mark.parametrize(
    ("configs", "log", "latest"),
    [
        ({}, True, True),
        ({"cleanup_policy": "delete"}, True, True),
        ({"cleanup_policy": "compact", "retention_bytes": 1}, False, True),
        ({"cleanup_policy": "compact,delete"}, False, True),
    ],
)
def test_the_latest_records_go_into_a_compacted_topic_and_a_log_into_another(configs, log, latest):
    assert is_taken(require_configs, target(**configs), "log") is log
    assert is_taken(require_configs, target(**configs), "latest") is latest


@pytest.mark.parametrize(
    ("age_ms", "retention_ms", "fits"),
    [
        pytest.param(DAY_MS, DAY_MS + MARGIN_MS + 1, True, id="longer by more than the margin"),
        pytest.param(DAY_MS, DAY_MS + MARGIN_MS, False, id="by the margin"),
        pytest.param(DAY_MS, 0, False, id="at once"),
        pytest.param(NOW_MS - 1, -1, True, id="for ever"),
    ],
)
def test_a_record_has_to_outlive_its_restore(age_ms, retention_ms, fits):
    topic, log = target(cleanup_policy="delete", retention_ms=retention_ms), facts(oldest_ms=NOW_MS - age_ms)
    require_fitting(target(cleanup_policy="compact", retention_ms=retention_ms), log, NOW_MS)
    if fits:
        require_fitting(topic, log, NOW_MS)
        return
    with pytest.raises(TargetError, match=f"retention.ms={retention_ms}: the broker would delete the restored records"):
        require_fitting(topic, log, NOW_MS)


@pytest.mark.parametrize(
    ("name", "bound", "oldest_ms", "newest_ms"),
    [
        ("message.timestamp.before.max.ms", 10, NOW_MS - 11, NOW_MS),
        ("message.timestamp.after.max.ms", 10, NOW_MS, NOW_MS + 11),
    ],
)
def test_a_timestamp_that_the_broker_would_refuse_is_reported_before_a_record_is_written(
    name, bound, oldest_ms, newest_ms
):
    configs = {name.replace(".", "_"): bound}
    require_fitting(target(**configs, retention_ms=-1), facts(NOW_MS - 10, NOW_MS + 10), NOW_MS)
    with pytest.raises(TargetError, match=rf"{name}=10: the broker would refuse the record of 2023-11-14 22:13:\d\d"):
        require_fitting(target(**configs, retention_ms=-1), facts(oldest_ms, newest_ms), NOW_MS)


def test_a_timestamp_that_librdkafka_cannot_write_is_refused():
    with pytest.raises(TargetError, match="partition 1 has 3 records with the timestamp 0"):
        require_fitting(target(retention_ms=-1), facts(0, zero_stamps=3), NOW_MS)
    require_fitting(target(retention_ms=-1), facts(-5), NOW_MS)


def test_records_without_timestamps_fit_anywhere():
    topic = target(retention_ms=0)
    assert is_taken(require_fitting, topic, facts(None, None), NOW_MS)
    assert not is_taken(require_fitting, topic, facts(), NOW_MS)


def test_the_suggested_creation_command_creates_a_topic_that_fits():
    for mode in ("log", "latest"):
        words = creation_command("host:1", "back", 2, mode).split()
        assert words[:7] == [
            "kafka-topics",
            "--bootstrap-server",
            "host:1",
            "--create",
            "--topic",
            "back",
            "--partitions",
        ]
        configs = dict(word.split("=") for word in words if "=" in word)
        made = target(**{name.replace(".", "_"): value for name, value in configs.items()})
        require_configs(made, mode)
        require_fitting(made, facts(1, NEVER_MS // 2), NOW_MS)
