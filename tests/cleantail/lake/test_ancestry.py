"""The one walk of main's ancestry: what it goes through, and where it ends."""

from cleantail.lake.table_metadata import ancestry, history_of


def ids(table, snapshot):
    return [s.snapshot_id for s in ancestry(table, snapshot)]


def test_a_table_without_a_snapshot_has_no_ancestry(orders_table):
    assert ids(orders_table.table, orders_table.table.current_snapshot()) == []


def test_the_ancestry_of_main_is_newest_first_and_without_branches(orders_table):
    for n in range(3):
        orders_table.append((0, n, 0, b"k", b"v"))
    table = orders_table.table
    on_main = [s.snapshot_id for s in table.metadata.snapshots]
    rows = table.scan().to_arrow()
    table.append(rows, branch="other")
    table = orders_table.catalog.load_table("cleantail.orders")
    assert len(table.metadata.snapshots) == 4
    assert ids(table, table.current_snapshot()) == on_main[::-1]
    assert ids(table, table.snapshot_by_id(on_main[1])) == on_main[1::-1]


def test_the_ancestry_ends_where_a_parent_has_expired(orders_table):
    for n in range(4):
        orders_table.append((0, n, 0, b"k", b"v"))
    table = orders_table.catalog.load_table("cleantail.orders")
    kept = [s.snapshot_id for s in table.metadata.snapshots]
    del table.metadata.snapshots[:2]  # as Spark leaves it: PyIceberg's own expiry takes the parent's id away as well
    assert table.snapshot_by_id(kept[2]).parent_snapshot_id == kept[1]
    assert ids(table, table.current_snapshot()) == [kept[3], kept[2]]
    assert [c.snapshot_id for c in history_of(table)] == [kept[3], kept[2]]


def test_the_ancestry_after_a_rollback_has_not_what_was_left_behind(orders_table):
    for n in range(3):
        orders_table.append((0, n, 0, b"k", b"v"))
    table = orders_table.table
    first, second, _ = [s.snapshot_id for s in table.metadata.snapshots]
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(second)
    orders_table.table = table = orders_table.catalog.load_table("cleantail.orders")
    orders_table.append((0, 9, 0, b"k", b"v"))
    assert ids(orders_table.table, orders_table.table.current_snapshot())[1:] == [second, first]


def test_a_long_ancestry_is_walked_in_one_go(orders_table, monkeypatch):
    """PyIceberg's metadata looks through all its snapshots to find one by its id: a page has hundreds of tables."""
    for n in range(3):
        orders_table.append((0, n, 0, b"k", b"v"))
    table = orders_table.table

    def never(*_):
        raise AssertionError("looked through all snapshots")

    snapshot = table.current_snapshot()
    monkeypatch.setattr(type(table.metadata), "snapshot_by_id", never)
    assert len(ids(table, snapshot)) == 3
