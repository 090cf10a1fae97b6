"""The shape of a data set: the number of its records, the share of updates, and the key of each record.

shape = Shape(records=10_000_000, update_share=0.2)     # steady state: 80 % clean, 20 % dirty
"""

from __future__ import annotations

from dataclasses import dataclass

CLEAN_STEP, UPDATE_STEP = 2_246_822_519, 2_654_435_761
"""Primes above any number of keys. Multiples of such a prime, modulo the number of keys, reach each key once before a
key repeats."""
FIRST_TIMESTAMP_MS = 1_700_000_000_000
NOW_MS = 1_790_000_000_000
"""The clock of every round (Unix ms): long after the records, and before the horizons."""
HORIZON_MS = 1_800_000_000_000
"""The horizon of every tombstone: after the clock of every round."""
KEY_DIGITS = 12
VALUE_BYTES = 256
TOPIC_CONFIG = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.0001, "cleantail.reclaim.deleted.ratio": 0.05}
"""No segment stays active. Any share of updates starts a round, and any deletion starts a reclaim."""
OWN, REDPANDA_2, REDPANDA_3 = "own", "redpanda2", "redpanda3"
"""Layouts of a table: Cleantail's own, and the layout of Redpanda's Iceberg topics in format version 2 or 3."""
NUMBERS, UUIDS = "numbers", "uuids"
ZIPF_S = 1.1
VERSION_HEADER = "version"


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of records over all logs, and the share of updates. An update is the second record of its key, at the
    log's end.

    `first_clean`: no round has cleaned the log, so all records are dirty. Otherwise only the updates are dirty.
    `tombstone_share`: the share of records without a value. `layout` of the table: OWN, or REDPANDA for a sink's.
    `keys`: NUMBERS or UUIDS. `zipf`: updates choose their key by Zipf's law, so a key may have many updates. `files`:
    the approximate number of data files, 0 for files of the usual size.
    """

    records: int
    update_share: float
    first_clean: bool = False
    tombstone_share: float = 0.0
    partitions: int = 4
    strategy: str = "offset"
    layout: str = OWN
    keys: str = NUMBERS
    zipf: bool = False
    files: int = 0
    value_bytes: int = VALUE_BYTES

    def __post_init__(self) -> None:
        if not 0 < self.update_share <= 0.5:
            raise ValueError(f"the share of updates is {self.update_share}: above 0, and at most 0.5 (a key has two)")
        if self.updates_per_log < 1:
            raise ValueError(f"{self.records} records are too few for an update in each of {self.partitions} logs")

    @property
    def per_log(self) -> int:
        return self.records // self.partitions

    @property
    def updates_per_log(self) -> int:
        return round(self.per_log * self.update_share)

    @property
    def keys_per_log(self) -> int:
        """Return the number of keys of a log, which is also the offset of the first update."""
        return self.per_log - self.updates_per_log

    @property
    def first_dirty_offset(self) -> int:
        return 0 if self.first_clean else self.keys_per_log

    @property
    def total(self) -> int:
        """Return the number of records over all logs. Each log has the same number."""
        return self.per_log * self.partitions

    @property
    def survivors(self) -> int:
        """Return the number of records that a round leaves: one for each key."""
        return self.keys_per_log * self.partitions

    @property
    def topic(self) -> str:
        kind = "first" if self.first_clean else "steady"
        shares = f"{round(self.update_share * 10_000)}_{round(self.tombstone_share * 10_000)}"
        special = [self.strategy, self.layout, self.keys, "zipf" * self.zipf, f"f{self.files}" * (self.files > 0)]
        if self.value_bytes != VALUE_BYTES:
            special.append(f"v{self.value_bytes}")
        names = "_".join(name for name in special if name and name not in ("offset", OWN, NUMBERS))
        return f"bench_{kind}_{self.total}_{shares}_{self.partitions}{f'_{names}' if names else ''}"

    @property
    def text(self) -> str:
        what = "first clean" if self.first_clean else "steady state"
        tombstones = f", {self.tombstone_share:.0%} tombstones" if self.tombstone_share else ""
        return f"{what}, {self.total:,} records in {self.partitions} logs, {self.update_share:.4g} updates{tombstones}"

    def key_number(self, offset: int) -> int:
        """Return the key of the record at an offset, equal to the result of `key_expression`."""
        step = CLEAN_STEP if offset < self.keys_per_log else UPDATE_STEP
        return offset * step % self.keys_per_log

    def key_expression(self, updates: bool) -> str:
        if updates and self.zipf:
            return self._zipf_expression()
        step = UPDATE_STEP if updates else CLEAN_STEP
        return f"id * {step}L % {self.keys_per_log}L"

    def _zipf_expression(self) -> str:
        """Return SQL that chooses a key by Zipf's law: the inverse of the continuous distribution, applied to a
        hash."""
        rest = 1 - ZIPF_S
        share = "(pmod(xxhash64(id), 1000000007) / 1000000007.0D)"
        power = f"power(1 + {share} * ({self.keys_per_log**rest!r}D - 1), {1 / rest!r}D)"
        return f"least(cast(floor({power}) AS bigint), {self.keys_per_log}L) - 1"

    @property
    def config(self) -> dict[str, object]:
        header = {"compaction.strategy.header": VERSION_HEADER} if self.strategy == "header" else {}
        log_bytes = self.per_log * (self.value_bytes + KEY_DIGITS)
        segments = {"segment.bytes": max(log_bytes * self.partitions // self.files, 1)} if self.files else {}
        return dict[str, object](TOPIC_CONFIG) | {"compaction.strategy": self.strategy} | header | segments
