"""What is kept of tables says what the tables say, as long as they say it, and no table is read twice for it."""

import json
import stat

import pyarrow as pa
import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.topic_table import Columns
from cleantail.errors import TableError
from cleantail.lake import evaluate, facts_cache
from cleantail.lake.catalogs import kept_catalog, open_catalog
from cleantail.lake.evaluate import evaluate_topic, read_facts
from cleantail.lake.facts_cache import FILE, FOLDER, FactsCache
from cleantail.lake.pending_input import new_files
from cleantail.lake.reader_positions import set_position
from cleantail.lake.records.topic_columns import property_of_columns
from cleantail.lake.releases import release
from cleantail.log.partition_state import PROPERTY_INGESTED, Horizon, PartitionState, Quarantine

STATE = PartitionState(
    checkpoint=2,
    log_end_offset=9,
    horizons=(Horizon(2, 5, 1),),
    known_sequence_number=1,
    quarantine=Quarantine(1, "compact", "check failed: x", 1, 2),
)


@pytest.fixture
def filled(orders_table):
    """Two logs, one with a state, late records, and a record without a key."""
    orders_table.append((0, 0, 1, b"secret-a", b"1"), (0, 2, 2, b"secret-a", None), (1, 0, 1, b"secret-b", b"1"))
    orders_table.set_properties(
        **{"cleantail.partition.0": STATE.as_json(), f"{PROPERTY_INGESTED}{'0' * 64}": "landing/a.kcat"}
    )
    return orders_table.append((0, 1, 3, b"secret-a", b"2"), (0, 5, 86_400_000, None, b"2"), (1, 7, 9, b"c", b"1"))


@pytest.fixture
def reads(monkeypatch):
    """The names of what was called, in order: `load_table` and `table_facts`."""
    seen = []

    def noted(name):
        real = getattr(facts_cache, name)

        def call(*arguments):
            seen.append(name)
            return real(*arguments)

        monkeypatch.setattr(facts_cache, name, call)

    noted("load_table")
    noted("table_facts")
    return seen


def test_what_is_read_back_is_what_the_table_says_and_no_table_is_loaded_for_it(filled, reads):
    facts = read_facts(filled.topic)
    assert facts.arrived and facts.states and facts.ingested
    assert FactsCache(filled.platform).of(filled.topic) == facts
    assert reads == ["load_table", "table_facts"]
    assert FactsCache(filled.platform).of(filled.topic) == facts
    assert reads == ["load_table", "table_facts"]


@pytest.mark.parametrize("now_ms", [0, 5, 86_400_000, 30 * 86_400_000])
def test_a_run_is_planned_by_what_is_kept_as_by_the_table(filled, reads, monkeypatch, now_ms):
    expected = evaluate_topic(filled.topic, now_ms=now_ms)
    FactsCache(filled.platform).of(filled.topic)
    monkeypatch.setattr(evaluate, "read_facts", None)
    assert evaluate_topic(filled.topic, now_ms=now_ms, kept=FactsCache(filled.platform)) == expected
    assert reads == ["load_table", "table_facts"]


def test_after_a_commit_the_table_is_read_again(filled, reads):
    FactsCache(filled.platform).of(filled.topic)
    filled.append((0, 9, 1, b"z", b"1"))
    facts = FactsCache(filled.platform).of(filled.topic)
    assert facts == read_facts(filled.topic)
    assert max(file.upper_offset for file in facts.files) == 9
    assert reads == ["load_table", "table_facts"] * 2


def test_one_evaluation_asks_for_a_topic_once(filled, reads, monkeypatch):
    kept = FactsCache(filled.platform)
    first = kept.of(filled.topic)
    monkeypatch.setattr(facts_cache, "FACTS_JSON", None)
    assert kept.of(filled.topic) is first
    assert reads == ["load_table", "table_facts"]


def test_readers_and_releases_are_those_of_now(filled, reads):
    FactsCache(filled.platform).of(filled.topic)
    assert FactsCache(filled.platform).of(filled.topic).states[0].quarantine is not None
    set_position(filled.catalog, filled.topic, "billing", 0, 3)
    release(filled.topic, 0, "ann", 1)
    facts = FactsCache(filled.platform).of(filled.topic)
    assert facts == read_facts(filled.topic)
    assert [reader.name for reader in facts.readers] == ["billing"]
    assert facts.states[0].quarantine is None
    assert reads == ["load_table", "table_facts"]


def test_a_position_that_is_none_is_an_error_as_where_the_table_is_read(filled):
    FactsCache(filled.platform).of(filled.topic)
    filled.catalog.update_namespace_properties("cleantail", updates={"cleantail.reader.x": '{"topic":"orders"}'})
    with pytest.raises(TableError, match=r"cleantail\.reader\.x is not a reader's position"):
        FactsCache(filled.platform).of(filled.topic)


def test_of_a_catalog_that_lists_no_metadata_a_table_is_loaded_and_its_manifests_are_not_read(
    filled, reads, monkeypatch
):
    monkeypatch.setattr(facts_cache, "metadata_locations", lambda catalog, platform: {})
    facts = FactsCache(filled.platform).of(filled.topic)
    assert FactsCache(filled.platform).of(filled.topic) == facts
    assert reads == ["load_table", "table_facts", "load_table"]
    filled.append((0, 9, 1, b"z", b"1"))
    assert FactsCache(filled.platform).of(filled.topic) != facts


def test_a_table_of_another_topic_is_refused_though_it_was_read_for_its_own(filled):
    FactsCache(filled.platform).of(filled.topic)
    other = filled.topic.model_copy(update={"topic": "payments"})
    with pytest.raises(TableError, match="is not the table of topic payments"):
        FactsCache(filled.platform).of(other)
    filled.set_properties(**{"cleantail.topic": "payments"})
    with pytest.raises(TableError, match="belongs to topic payments"):
        FactsCache(filled.platform).of(filled.topic)


def test_another_version_reads_the_table(filled, reads, monkeypatch):
    FactsCache(filled.platform).of(filled.topic)
    monkeypatch.setattr(facts_cache, "code_digest", lambda: "another")
    FactsCache(filled.platform).of(filled.topic)
    assert reads == ["load_table", "table_facts"] * 2


def test_a_table_that_has_gone_is_none(filled):
    assert FactsCache(filled.platform).of(filled.topic) is not None
    filled.catalog.drop_table("cleantail.orders")
    assert FactsCache(filled.platform).of(filled.topic) is None


def test_the_file_is_its_owners_and_has_no_key_and_no_value(filled):
    FactsCache(filled.platform).of(filled.topic)
    file = filled.platform.home / FOLDER / FILE
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert b".parquet" in file.read_bytes()
    assert b"secret" not in file.read_bytes()


@pytest.mark.parametrize("damage", ["file", "text"])
def test_what_is_damaged_costs_a_read(filled, reads, damage):
    facts = FactsCache(filled.platform).of(filled.topic)
    file = filled.platform.home / FOLDER / FILE
    content = file.read_bytes()
    file.write_bytes(b"no database" * 1000 if damage == "file" else content.replace(b'"arrived"', b'"arriveD"'))
    assert file.read_bytes() != content
    assert FactsCache(filled.platform).of(filled.topic) == facts
    assert reads == ["load_table", "table_facts"] * 2


def test_where_nothing_can_be_written_the_table_is_read(filled, reads):
    (filled.platform.home / FOLDER).write_text("a file, where the folder is to be")
    facts = FactsCache(filled.platform).of(filled.topic)
    assert FactsCache(filled.platform).of(filled.topic) == facts == read_facts(filled.topic)
    assert reads == ["load_table", "table_facts"] * 2


def test_a_table_with_very_many_files_is_read_each_time(filled, reads, monkeypatch):
    monkeypatch.setattr(facts_cache, "MOST_CHARS", 300)
    facts = FactsCache(filled.platform).of(filled.topic)
    assert FactsCache(filled.platform).of(filled.topic) == facts
    assert reads == ["load_table", "table_facts"] * 2


@pytest.mark.parametrize(("column", "is_kept"), [("p", True), ("o", True), ("v", False)])
def test_an_adopted_table_is_kept_unless_its_partitions_are_made_of_records(project, reads, column, is_kept):
    columns = Columns(partition="p", offset="o", timestamp="ms", key="k", value="v")
    (project / "config" / "topics" / "orders.yaml").write_text(
        json.dumps({"topic": "orders", "columns": columns.paths})
    )
    platform = load_platform(project / "config", env := {"CLEANTAIL_HOME": str(project / "home")})
    topic = find_topic("orders", project / "config", env)
    schema = pa.schema(
        [("p", pa.int32()), ("o", pa.int64()), ("ms", pa.int64()), ("k", pa.int64()), ("v", pa.string())]
    )
    catalog = open_catalog(platform)
    catalog.create_namespace("cleantail")
    properties = {"cleantail.topic": "orders", "cleantail.columns": property_of_columns(columns)}
    table = catalog.create_table("cleantail.orders", schema, properties=properties)
    with table.update_spec() as update:
        update.add_identity(column)
    table.append(pa.Table.from_pylist([{"p": 0, "o": 0, "ms": 1, "k": 1, "v": "secret"}], schema=schema))

    facts = FactsCache(platform).of(topic)
    assert FactsCache(platform).of(topic) == facts == read_facts(topic)
    assert reads == ["load_table", "table_facts"] * (1 if is_kept else 2)
    assert b"secret" not in (platform.home / FOLDER / FILE).read_bytes()
    with table.update_spec() as update:
        update.remove_field(column)
    FactsCache(platform).of(topic)  # files of the partitioning of before may still be there
    assert b"secret" not in (platform.home / FOLDER / FILE).read_bytes()


def test_a_catalog_that_goes_out_of_reach_is_told_when_the_evaluation_begins(filled):
    filled.catalog.engine.dispose()
    kept_catalog(filled.platform)
    (filled.platform.home / "catalog.db").write_bytes(b"no database" * 1000)
    with pytest.raises(TableError, match=r"catalog cleantail \(sqlite\) at .* cannot be opened"):
        FactsCache(filled.platform)


def test_which_files_are_new_is_told_by_what_is_kept(filled, reads, project):
    landing = filled.platform.home / "landing"
    landing.mkdir()
    (landing / "new.kcat").write_text("x")
    topic = filled.topic.model_copy(
        update={"source": filled.topic.source.model_copy(update={"path": "landing/*.kcat"})}
    )
    expected = new_files(topic)
    FactsCache(filled.platform).of(topic)
    assert new_files(topic, FactsCache(filled.platform)) == expected
    assert [file.name for file in expected[1]] == ["new.kcat"]
    assert reads == ["load_table", "table_facts"]
