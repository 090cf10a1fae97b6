"""What the adapter fetches from a real table's metadata, and the errors of a catalog or a table that is not usable."""

import struct
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from cleantail.config.platform import Catalog, Platform
from cleantail.errors import ConflictError, OutsideError, TableError
from cleantail.lake import data_files, table_metadata
from cleantail.lake.catalogs import load_table, open_catalog, require_ours
from cleantail.lake.manifest_entries import manifests_of
from cleantail.lake.table_metadata import TableFacts, live_partitions, snapshot_id_of, table_facts
from cleantail.log.partition_state import PartitionState
from tests.cleantail.kernel_builders import data_file

# ---- facts of a table


def test_a_table_without_data_has_no_snapshot(orders_table):
    facts = table_facts(orders_table.table)
    uuid = str(orders_table.table.metadata.table_uuid)
    assert facts == TableFacts("cleantail.orders", None, 0, (), (), {}, frozenset(), (), table_uuid=uuid)
    assert (facts.partitions, live_partitions(orders_table.table)) == ([], [])


def test_the_facts_of_a_file_are_those_of_its_manifest_entry(orders_table):
    orders_table.append((0, 7, 1_500, b"a", None), (0, 9, 1_200, b"b", b"x"), (0, 8, None, b"c", None))
    facts = table_facts(orders_table.table)
    (file,) = facts.files
    snapshot = orders_table.table.current_snapshot()
    assert replace(file, path="", size_bytes=0) == data_file(
        7,
        9,
        path="",
        size_bytes=0,
        min_timestamp_ms=1_200,
        max_timestamp_ms=1_500,
        null_values=2,
        snapshot_id=snapshot.snapshot_id,
    )
    assert file.size_bytes > 0
    assert (facts.snapshot_id, facts.sequence_number) == (snapshot.snapshot_id, 1)
    assert facts.snapshots == ((snapshot.snapshot_id, snapshot.timestamp_ms),)
    assert facts.arrived == facts.files


def test_a_missing_file_is_damage_unless_its_snapshot_has_expired_since(orders_table):
    orders_table.append((0, 7, 0, b"a", b"x")).append((0, 8, 0, b"a", b"y"))
    table = orders_table.table.catalog.load_table("cleantail.orders")
    first, last = table.snapshots()
    Path(first.manifest_list.removeprefix("file:")).unlink()
    with pytest.raises(TableError, match="is missing"):
        manifests_of(table, first)
    orders_table.table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    with pytest.raises(ConflictError, match="was changed while it was read"):
        manifests_of(table, first)
    assert len(manifests_of(table, last)) == 2


def test_a_file_without_timestamps_has_none(orders_table):
    orders_table.append((0, 7, None, b"a", b"x"))
    (file,) = table_facts(orders_table.table).files
    assert (file.min_timestamp_ms, file.max_timestamp_ms) == (-1, -1)


def test_files_are_those_of_their_partition(orders_table):
    orders_table.append((3, 1, 0, b"a", b"x"), (0, 2, 0, b"a", b"x")).append((3, 5, 0, b"a", b"x"))
    facts = table_facts(orders_table.table)
    assert (facts.partitions, live_partitions(orders_table.table)) == ([0, 3], [0, 3])
    assert sorted(f.lower_offset for f in facts.files_of(3)) == [1, 5]
    assert [f.lower_offset for f in facts.arrived_of(0)] == [2]


def test_a_log_without_files_is_known_by_its_state(orders_table):
    orders_table.set_properties(**{"cleantail.partition.5": PartitionState(checkpoint=3).as_json()})
    facts = table_facts(orders_table.table)
    assert (facts.partitions, facts.states[5].checkpoint) == ([5], 3)


def test_ingested_files_are_known_by_their_digests(orders_table):
    orders_table.set_properties(**{"cleantail.ingested.abc": "1", "cleantail.ingested.def": "1"})
    assert table_facts(orders_table.table).ingested == {"abc", "def"}


def test_arrived_is_what_is_newer_than_the_last_round(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x")).append((0, 1, 0, b"a", b"x")).append((0, 2, 0, b"a", b"x"))
    orders_table.set_properties(**{"cleantail.partition.0": PartitionState(known_sequence_number=2).as_json()})
    facts = table_facts(orders_table.table)
    assert ([f.lower_offset for f in facts.arrived], len(facts.files)) == ([2], 3)


def test_partitions_can_be_asked_of_an_old_snapshot(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x"))
    old = orders_table.table.current_snapshot().snapshot_id
    orders_table.append((1, 0, 0, b"a", b"x"))
    assert (live_partitions(orders_table.table, old), live_partitions(orders_table.table)) == ([0], [0, 1])


def test_an_unknown_snapshot_is_refused(orders_table):
    with pytest.raises(
        TableError,
        match=r"^no snapshot 5 in .*orders: it never existed, or has expired; `cleantail history TOPIC` lists the snapshots$",
    ):
        live_partitions(orders_table.table, 5)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (1_795_932_130, ". If it is a time, write it as 2026-11-29T06:02:10"),
        (1_795_932_130_000, ". If it is a time, write it as 2026-11-29T06:02:10"),
        (17_959_321_300_000, ""),
        (7_959_321_300_000_000_000, ""),
    ],
)
def test_a_unix_time_in_the_place_of_a_snapshot_is_answered_with_how_a_time_is_written(orders_table, number, hint):
    orders_table.append((0, 0, 0, b"a", b"x"))
    with pytest.raises(TableError, match=rf"no snapshot {number} in .* lists the snapshots{hint}$"):
        live_partitions(orders_table.table, number)


def test_a_file_without_bounds_of_the_offset_names_the_knob(orders_table):
    orders_table.set_properties(**{"write.metadata.metrics.default": "none"}).append((0, 0, 0, b"a", b"x"))
    with pytest.raises(
        TableError, match=r"has no bounds for the column offset: set write\.metadata\.metrics\.default=full"
    ):
        table_facts(orders_table.table)


def test_microseconds_become_milliseconds():
    assert data_files._millis(struct.pack("<q", 1_999)) == 1
    assert data_files._millis(struct.pack("<q", 2_000)) == 2
    assert data_files._millis(None) == -1


# ---- what arrived, after files were merged


class History:
    """A table with these snapshots, the oldest first; `added` are the data files that each one added."""

    properties = MappingProxyType({})

    def __init__(self, monkeypatch, *snapshots, expired=0):
        kept = []
        for n, (operation, added) in enumerate(snapshots, 1):
            summary = SimpleNamespace(operation=SimpleNamespace(value=operation))
            own = SimpleNamespace(added_snapshot_id=n, added=added)
            inherited = SimpleNamespace(added_snapshot_id=n - 1, added=[data_file(999, data_sequence_number=999)])
            manifests = [own, inherited]
            kept.append(
                SimpleNamespace(
                    snapshot_id=n,
                    sequence_number=n,
                    parent_snapshot_id=n - 1 or None,
                    summary=summary,
                    manifest_list=f"snap-{n}.avro",
                    manifests=lambda io, manifests=manifests: manifests,
                )
            )
        self.metadata = SimpleNamespace(snapshots=kept[expired:])
        self.io = None
        self.name = lambda: ("cleantail", "orders")
        content = SimpleNamespace(value=0)
        entries = {
            f.path: SimpleNamespace(snapshot_id=f.snapshot_id, data_file=SimpleNamespace(content=content, file=f))
            for _, a in snapshots
            for f in a
        }
        monkeypatch.setattr(
            table_metadata, "entries_of", lambda table, manifests: [entries[f.path] for m in manifests for f in m.added]
        )
        monkeypatch.setattr(
            table_metadata, "data_files_of", lambda table, entry, deleted, lineages: [entry.data_file.file]
        )

    @property
    def last(self):
        return self.metadata.snapshots[-1]

    def arrived(self, files, **known):
        states = {int(p[1:]): PartitionState(known_sequence_number=n) for p, n in known.items()}
        return sorted(f.path for f in table_metadata._arrived(self, self.last, tuple(files), states))


def added(sequence, partition=0, **changes):
    path = changes.pop("path", f"p{partition}s{sequence}")
    return data_file(
        sequence * 10, path=path, partition=partition, data_sequence_number=sequence, snapshot_id=sequence, **changes
    )


def test_of_a_merged_file_only_what_was_appended_after_the_last_round_arrived(monkeypatch):
    merged = added(4, path="merged")
    table = History(
        monkeypatch, ("append", [added(1)]), ("append", [added(2)]), ("append", [added(3)]), ("replace", [merged])
    )
    assert table.arrived([merged], p0=2) == ["p0s3"]
    assert table.arrived([merged], p0=1) == ["p0s2", "p0s3"]
    assert table.arrived([merged], p0=3) == []
    assert table.arrived([merged], p0=4) == []


def test_a_round_that_deletes_appends_nothing(monkeypatch):
    merged = added(4, path="merged")
    table = History(
        monkeypatch, ("append", [added(1)]), ("delete", []), ("overwrite", [added(3)]), ("replace", [merged])
    )
    assert table.arrived([merged], p0=1) == ["p0s3"]


def test_where_the_history_has_expired_the_merged_file_counts_as_new(monkeypatch):
    merged = added(4, path="merged")
    table = History(
        monkeypatch,
        ("append", [added(1)]),
        ("append", [added(2)]),
        ("append", [added(3)]),
        ("replace", [merged]),
        expired=3,
    )
    assert table.arrived([merged], p0=1) == ["merged"]


def test_where_the_snapshot_that_merged_has_expired_the_history_behind_it_has_too(monkeypatch):
    merged = added(2, path="merged")
    table = History(monkeypatch, ("append", [added(1)]), ("replace", [merged]), ("append", [added(3)]), expired=2)
    assert table.arrived([merged, added(3)], p0=1) == ["merged", "p0s3"]


def test_history_is_read_no_further_back_than_the_last_round(monkeypatch):
    """What has expired lies below what the round knew."""
    merged = added(4, path="merged")
    table = History(
        monkeypatch,
        ("append", [added(1)]),
        ("append", [added(2)]),
        ("append", [added(3)]),
        ("replace", [merged]),
        expired=2,
    )
    assert table.arrived([merged], p0=3) == []


def test_a_merge_in_one_log_hides_nothing_that_arrived_in_another(monkeypatch):
    """Partition 1 was last seen at 1; the history is only asked from 3 on, for partition 0."""
    late = added(2, partition=1)
    merged = added(4, path="merged")
    table = History(
        monkeypatch, ("append", [added(1)]), ("append", [late]), ("append", [added(3)]), ("replace", [merged])
    )
    assert table.arrived([late, merged], p0=3, p1=1) == ["p1s2"]


def test_without_a_merge_the_history_is_not_read(monkeypatch):
    table = History(monkeypatch, ("append", [added(1)]), ("append", [added(2)]))
    table.last.manifests = None
    assert table.arrived([added(1), added(2)], p0=1) == ["p0s2"]


# ---- what is not usable


def test_load_table_returns_none_for_a_missing_table(orders_table):
    orders_table.catalog.drop_table("cleantail.orders")
    assert load_table(orders_table.catalog, orders_table.topic) is None


@pytest.mark.parametrize(
    ("properties", "fact"),
    [
        pytest.param({}, "it has no property cleantail.topic", id="not ours"),
        pytest.param({"cleantail.topic": "other"}, "it belongs to topic other", id="of another topic"),
        pytest.param({"cleantail.topic": "Orders"}, "it belongs to topic Orders", id="names are exact"),
    ],
)
def test_a_table_without_the_properties_of_the_topic_is_refused(orders_table, properties, fact):
    with pytest.raises(
        TableError, match=rf"^table cleantail\.orders is not the table of topic orders: {fact}; nothing was changed\."
    ):
        require_ours(properties, orders_table.topic)


def test_our_own_table_is_accepted(orders_table):
    assert require_ours({"cleantail.topic": "orders"}, orders_table.topic) is None


def test_loading_a_table_of_someone_else_is_refused(orders_table):
    orders_table.set_properties(**{"cleantail.topic": "other"})
    with pytest.raises(TableError, match="belongs to topic other"):
        load_table(orders_table.catalog, orders_table.topic)


def test_a_broken_metadata_file_is_an_unusable_table(orders_table):
    for file in (orders_table.platform.home / "warehouse").rglob("*.metadata.json"):
        file.write_text("{")
    file_and_way_out = r"its metadata \S+\.metadata\.json cannot be read: \w+\. Put the file back from a backup"
    with pytest.raises(TableError, match=rf"^table cleantail\.orders is broken: {file_and_way_out}"):
        load_table(orders_table.catalog, orders_table.topic)


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        pytest.param(
            {"type": "postgres", "uri": "postgresql://127.0.0.1:1/iceberg"},
            r"^catalog cleantail \(postgres\) at postgresql://127\.0\.0\.1:1/iceberg cannot be reached: the connection was refused",
            id="postgres on a closed port",
        ),
        pytest.param(
            {"type": "rest", "uri": "http://127.0.0.1:1"},
            r"^catalog cleantail \(rest\) at http://127\.0\.0\.1:1 cannot be reached: the connection was refused",
            id="rest on a closed port",
        ),
    ],
)
def test_an_unreachable_catalog_is_named_without_its_login(tmp_path, catalog, message):
    platform = Platform(catalog=Catalog(**catalog), home=tmp_path / "home", config_dir=tmp_path)
    with pytest.raises(OutsideError, match=message):
        open_catalog(platform)
    assert not (tmp_path / "home").exists()


def test_a_catalog_file_that_is_no_sqlite_is_named(tmp_path):
    (tmp_path / "catalog.db").write_bytes(b"no database " * 100)
    platform = Platform(catalog=Catalog(), home=tmp_path, config_dir=tmp_path)
    with pytest.raises(
        TableError,
        match=rf"^catalog cleantail \(sqlite\) at sqlite:///{tmp_path}/catalog\.db cannot be opened: the file is not a SQLite database$",
    ):
        open_catalog(platform)


# ---- branches


@pytest.fixture
def branched(orders_table):
    """Two snapshots on main; a failed branch at the first."""
    orders_table.append((0, 0, 0, b"a", b"1")).append((0, 1, 0, b"a", b"2"))
    first, second = (s.snapshot_id for s in orders_table.table.metadata.snapshots)
    orders_table.table.manage_snapshots().create_branch(first, "failed_r_u0_5").commit()
    return orders_table.table, first, second


def test_a_snapshot_that_a_branch_keeps_is_not_one_to_expire(branched):
    table, _, second = branched
    facts = table_facts(table)
    assert (facts.branches, [i for i, _ in facts.snapshots]) == (("failed_r_u0_5",), [second])


@pytest.mark.parametrize(("name", "index"), [("main", 2), ("failed_r_u0_5", 1), ("7", 7), ("-7", -7)])
def test_a_snapshot_is_named_by_its_id_or_by_a_branch(branched, name, index):
    expected = branched[index] if index in (1, 2) else index
    assert snapshot_id_of(branched[0], name, 0) == expected


def test_a_snapshot_is_named_by_a_time_at_which_main_had_it(branched):
    table, first, second = branched
    first_ms, second_ms = (s.timestamp_ms for s in table.metadata.snapshots)

    def at(ms):
        moment = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
        return snapshot_id_of(table, moment, now_ms=second_ms + 86_400_000)

    assert first_ms < second_ms
    assert [at(first_ms), at(second_ms - 1), at(second_ms), at(second_ms + 86_400_000)] == [
        first,
        first,
        second,
        second,
    ]
    with pytest.raises(TableError, match=r"orders has no snapshot of 1999-12-31 00:00:00 UTC or before"):
        snapshot_id_of(table, "1999-12-31", 0)


def test_a_time_to_come_is_refused_unless_the_table_is_already_there(branched):
    table, _, second = branched
    changed = datetime.fromtimestamp(table.metadata.last_updated_ms / 1000, UTC).isoformat(timespec="milliseconds")
    assert snapshot_id_of(table, changed, now_ms=0) == second
    with pytest.raises(
        TableError, match=r"2100-01-01 00:00:00 UTC is in the future: it is 2001-09-09 01:46:40 UTC now"
    ):
        snapshot_id_of(table, "2100-01-01", now_ms=10**12)


def test_an_unknown_branch_is_refused_with_the_names_there_are_and_where_snapshots_are_listed(branched):
    with pytest.raises(TableError, match=r"orders has no branch or tag x; it has failed_r_u0_5, main") as refused:
        snapshot_id_of(branched[0], "x", 0)
    assert "A time such as 2026-11-29T14:20 and a snapshot's id are allowed too" in str(refused.value)
    assert "`cleantail history TOPIC` lists the snapshots" in str(refused.value)
