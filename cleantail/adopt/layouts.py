"""Says how sinks lay out records: guessed from the names of a table's columns. Pure.

1. Redpanda's Iceberg topics have a struct `redpanda` beside the value.
2. Kafka Connect's Iceberg sink, with the metadata transform, has `_kafka_metadata` as a struct or as a prefix.
3. Spark and Flink write plain columns.

All of them have partition and offset together, under one prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, ORDER, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE

REQUIRED = (PARTITION, OFFSET, KEY)
ORDERED = (ORDER, KEY)
"""What has to be known of a table whose records have no offsets."""
TOPIC = "topic"
_NAMES = {TIMESTAMP: ("timestamp", "record_timestamp"), TIMESTAMP_TYPE: ("timestamp_type", "timestampType")}
_SINKS = {
    "redpanda.": "Redpanda's Iceberg topics",
    "_kafka_metadata.": "Kafka Connect's Iceberg sink, metadata as a struct",
    "_kafka_metadata_": "Kafka Connect's Iceberg sink, metadata as prefixed columns",
    "": "plain columns",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Says where the columns of a topic table are. `paths` maps such a column to its path; `topic_path` is a column of
    topic names. `guessed`: the columns that no person has named. `left_out`: which of them do not fit, and why."""

    sink: str
    paths: Mapping[str, str]
    topic_path: str | None
    guessed: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

    def may_leave_out(self, name: str) -> bool:
        """Returns whether the column was guessed, and records are records without it."""
        return name in self.guessed and name not in required(self.paths)

    def without(self, name: str, reason: str) -> Layout:
        """Returns the layout without a column that does not fit."""
        text = f"{name} is left out: {reason}"
        paths = {column: path for column, path in self.paths.items() if column != name}
        return replace(self, paths=paths, left_out=(*self.left_out, text))


def required(paths: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the columns that every record of a table with such a mapping needs."""
    return ORDERED if ORDER in paths else REQUIRED


def guess_layout(names: Sequence[str], named_paths: Mapping[str, str]) -> Layout:
    """Returns the layout of a table with these column paths. The paths of `named_paths`, which a person has named, win
    over what is guessed; an empty one leaves its column out."""
    prefix = _prefix(names, named_paths)
    guessed: dict[str, str] = {}
    if prefix is not None:
        candidates = {
            PARTITION: (f"{prefix}partition",),
            OFFSET: (f"{prefix}offset",),
            KEY: (f"{prefix}key", "key"),
            VALUE: ("value", f"{prefix}value"),
            HEADERS: (f"{prefix}headers", "headers"),
            **{name: tuple(f"{prefix}{n}" for n in choices) for name, choices in _NAMES.items()},
        }
        hits = {name: [path for path in paths if path in names] for name, paths in candidates.items()}
        guessed = {name: paths[0] for name, paths in hits.items() if paths}
    if named_paths.get(ORDER):  # that decides in place of offsets, which the table may have nevertheless
        guessed = {name: path for name, path in guessed.items() if name not in (PARTITION, OFFSET)}
    topic_path = f"{prefix}{TOPIC}" if prefix is not None and f"{prefix}{TOPIC}" in names else None
    paths = {name: path for name, path in (guessed | dict(named_paths)).items() if path}
    return Layout(_sink(prefix), paths, topic_path, frozenset(guessed.keys() - named_paths.keys()))


def _prefix(names: Sequence[str], named_paths: Mapping[str, str]) -> str | None:
    """Returns what stands before `offset` and `partition`; None where nothing does, or more than one thing."""
    if (named := named_paths.get(OFFSET, "")).endswith(OFFSET):
        return named.removesuffix(OFFSET)
    prefixes = {name[: -len(OFFSET)] for name in names if name.endswith(OFFSET)}
    both = sorted(prefix for prefix in prefixes if f"{prefix}{PARTITION}" in names)
    of_sinks = [prefix for prefix in _SINKS if prefix in both]
    return of_sinks[0] if of_sinks else both[0] if len(both) == 1 else None


def _sink(prefix: str | None) -> str:
    return "columns of its own" if prefix is None else _SINKS.get(prefix, f"columns under {prefix.rstrip('._')}")
