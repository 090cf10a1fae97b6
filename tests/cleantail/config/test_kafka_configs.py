"""The table of configs: Kafka's names, defaults and ranges, and the rules over several configs."""

import pickle

import pytest
from pydantic import ValidationError

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.loading import load_platform
from cleantail.config.platform_configs import CleanerConfigs
from cleantail.errors import ConfigError
from cleantail.human import interval

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647

# name -> (default, lowest, highest); None where a config is no number
TABLE = {
    "cleanup.policy": (frozenset({"compact"}), None, None),
    "min.cleanable.dirty.ratio": (0.5, 0.0, 1.0),
    "min.compaction.lag.ms": (0, 0, LONG_MAX),
    "max.compaction.lag.ms": (LONG_MAX, 1, LONG_MAX),
    "delete.retention.ms": (86_400_000, 0, LONG_MAX),
    "segment.bytes": (1_073_741_824, 14, INT_MAX),
    "segment.ms": (604_800_000, 1, LONG_MAX),
    "retention.ms": (604_800_000, -1, LONG_MAX),
    "retention.bytes": (-1, -1, LONG_MAX),
    "message.timestamp.type": ("CreateTime", None, None),
    "message.timestamp.after.max.ms": (LONG_MAX, 0, LONG_MAX),
    "compaction.strategy": ("offset", None, None),
    "compaction.strategy.header": ("", None, None),
    "cleantail.header.occurrence": ("last", None, None),
    "cleantail.keyless.policy": ("fail", None, None),
    "cleantail.unholdable.policy": ("fail", None, None),
    "cleantail.reconcile": ("trigger", None, None),
    "cleantail.adopted.orphans": ("keep", None, None),
    "cleantail.tombstone.lateness.ms": (0, 0, LONG_MAX),
    "cleantail.reclaim.deleted.ratio": (0.3, 0.0, 1.0),
    "cleantail.reclaim.min.merge.files": (8, 2, INT_MAX),
    "cleantail.snapshot.retention.ms": (129_600_000, 0, LONG_MAX),
    "cleantail.orphan.retention.ms": (259_200_000, 0, LONG_MAX),
    "cleantail.ingested.retention.ms": (604_800_000, 0, LONG_MAX),
    "cleantail.evidence.retention.ms": (2_592_000_000, 0, LONG_MAX),
    "cleantail.readers.hold.cap.ms": (604_800_000, 0, LONG_MAX),
    "cleantail.full.proof.interval.ms": (604_800_000, 0, LONG_MAX),
    "cleantail.failed.branch.retention.ms": (604_800_000, 0, LONG_MAX),
    "cleantail.erasure.grace.ms": (86_400_000, 0, LONG_MAX),
    "cleantail.max.drop.ratio": (1.0, 0.0, 1.0),
    "cleantail.approval.timeout.ms": (86_400_000, 1000, 31_536_000_000),
    "cleantail.approval.pause.ms": (86_400_000, 0, LONG_MAX),
}
RANGES = [pytest.param(name, *row[1:], id=name) for name, row in TABLE.items() if row[1] is not None]


def read(**configs):
    return KafkaConfigs.model_validate(configs, by_alias=True, by_name=False)


def read_one(name, value):
    others = {"max.compaction.lag.ms": LONG_MAX} if name == "min.compaction.lag.ms" else {}
    return read(**{**others, name: value})


def test_the_table_has_exactly_these_configs_and_defaults():
    fields = KafkaConfigs.model_fields.values()
    assert {field.alias: field.default for field in fields} == {name: row[0] for name, row in TABLE.items()}


@pytest.mark.parametrize("model", [KafkaConfigs, CleanerConfigs])
def test_an_attribute_is_the_name_with_underscores_for_dots(model):
    for attribute, field in model.model_fields.items():
        assert attribute == field.alias.replace(".", "_")


@pytest.mark.parametrize("model", [KafkaConfigs, CleanerConfigs])
def test_every_config_says_what_it_means_and_where_it_comes_from(model):
    for field in model.model_fields.values():
        assert field.description
        assert field.json_schema_extra["x-source"]


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_both_ends_of_a_range_are_allowed(name, low, high):
    attribute = name.replace(".", "_")
    assert getattr(read_one(name, low), attribute) == low
    assert getattr(read_one(name, high), attribute) == high


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_beyond_either_end_of_a_range_is_an_error(name, low, high):
    step = 0.001 if isinstance(low, float) else 1
    with pytest.raises(ValidationError, match="greater than or equal to"):
        read_one(name, low - step)
    with pytest.raises(ValidationError, match="less than or equal to"):
        read_one(name, high + step)


@pytest.mark.parametrize("value", ["5", 5.0, True, None, [5]], ids=repr)
def test_a_whole_number_is_nothing_else(value):
    with pytest.raises(ValidationError, match="valid integer"):
        read(**{"segment.ms": value})


@pytest.mark.parametrize("value", ["0.5", True, float("nan"), float("inf")], ids=repr)
def test_a_ratio_is_a_finite_number(value):
    with pytest.raises(ValidationError, match="valid number|finite"):
        read(**{"min.cleanable.dirty.ratio": value})


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [
        pytest.param("compact", True, False, id="compact"),
        pytest.param("delete", False, True, id="delete"),
        pytest.param("compact,delete", True, True, id="both"),
        pytest.param("delete, compact", True, True, id="both with a space"),
        pytest.param(["compact", "delete"], True, True, id="list"),
    ],
)
def test_the_policy_is_a_set_however_it_is_written(policy, compacts, deletes):
    configs = read(**{"cleanup.policy": policy})
    assert (configs.compacts, configs.deletes) == (compacts, deletes)


@pytest.mark.parametrize("policy", ["", "compat", "compact,", "COMPACT", [], [1], [["compact"]], 5, True], ids=repr)
def test_an_unknown_policy_is_an_error(policy):
    with pytest.raises(ValidationError, match="not a cleanup policy"):
        read(**{"cleanup.policy": policy})


def test_an_empty_strategy_is_offset():
    assert read(**{"compaction.strategy": ""}).compaction_strategy == "offset"


@pytest.mark.parametrize("strategy", ["Offset", "latest", 1], ids=repr)
def test_an_unknown_strategy_is_an_error(strategy):
    with pytest.raises(ValidationError, match="'offset', 'timestamp', 'header' or 'order'"):
        read(**{"compaction.strategy": strategy})


def test_the_header_strategy_needs_a_header():
    with pytest.raises(ValidationError, match="the key of the version header"):
        read(**{"compaction.strategy": "header"})


def test_a_header_without_its_strategy_has_no_effect_and_is_no_error():
    assert read(**{"compaction.strategy.header": "version"}).compaction_strategy == "offset"


def test_min_lag_may_equal_max_lag():
    configs = read(**{"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 5})
    assert configs.min_compaction_lag_ms == configs.max_compaction_lag_ms


def test_min_lag_above_max_lag_is_an_error():
    with pytest.raises(ValidationError, match="at most max.compaction.lag.ms, which is 5"):
        read(**{"min.compaction.lag.ms": 6, "max.compaction.lag.ms": 5})


@pytest.mark.parametrize(("segment_ms", "max_lag_ms", "expected"), [(10, 20, 10), (20, 10, 10), (10, LONG_MAX, 10)])
def test_the_longest_lag_shortens_the_segment(segment_ms, max_lag_ms, expected):
    configs = read(**{"segment.ms": segment_ms, "max.compaction.lag.ms": max_lag_ms})
    assert configs.effective_segment_ms == expected


def test_configs_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        KafkaConfigs().segment_ms = 5


def test_code_uses_attribute_names_and_yaml_does_not():
    assert KafkaConfigs(segment_ms=5).segment_ms == 5
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        read(segment_ms=5)


@pytest.mark.parametrize("limit", [1_000_000, 1.5, "1MiB"])
def test_a_limit_that_nothing_would_keep_is_refused_with_its_reason(limit, tmp_path):
    (tmp_path / "defaults.yaml").write_text(
        f"platform: {{cleaner: {{log.cleaner.io.max.bytes.per.second: {limit}, log.cleaner.threads: 2}}}}"
    )
    with pytest.raises(ConfigError, match="null: Spark and Iceberg cannot limit bytes per second") as error:
        load_platform(tmp_path, {})
    assert error.value.key == "platform.cleaner.log.cleaner.io.max.bytes.per.second"


def test_no_limit_of_bytes_a_second_may_be_written_down(tmp_path):
    (tmp_path / "defaults.yaml").write_text("platform: {cleaner: {log.cleaner.io.max.bytes.per.second: null}}")
    assert load_platform(tmp_path, {}).cleaner == CleanerConfigs()


def test_the_cleaner_has_the_defaults_of_kafka():
    assert CleanerConfigs().model_dump(by_alias=True) == {
        "log.cleaner.threads": 1,
        "log.cleaner.dedupe.buffer.size": 134_217_728,
        "cleantail.over.budget": "spill",
        "log.cleaner.io.buffer.load.factor": 0.9,
        "log.cleaner.backoff.ms": 15_000,
        "cleantail.executors.lost.ms": 600_000,
        "cleantail.task.memory.bytes": 1 << 30,
    }


def test_a_number_keeps_the_text_that_was_written_for_it():
    configs = KafkaConfigs.model_validate({"segment.ms": "48h", "max.compaction.lag.ms": "3d", "segment.bytes": 1024})
    assert (configs.segment_ms, interval(configs.segment_ms)) == (172_800_000, "48h")
    assert interval(configs.effective_segment_ms) == "48h"
    for copy in (pickle.loads(pickle.dumps(configs)), configs.model_copy(update={"retention_ms": -1})):
        assert interval(copy.segment_ms) == "48h"
    assert configs.model_dump_json(include={"segment_ms"}) == '{"segment_ms":172800000}'
    assert configs.segment_bytes == 1024 and type(configs.segment_bytes) is int
