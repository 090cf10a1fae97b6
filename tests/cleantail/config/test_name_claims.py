"""Each name of a topic, table or side table has at most one owner."""

import re

import pytest

from cleantail.config.catalog import Catalog
from cleantail.config.claims import Claim, problem_of_new
from cleantail.config.loading import find_topic, scan_topics
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE, SIDE_SUFFIXES
from cleantail.errors import ConfigError
from cleantail_cli import main


@pytest.fixture
def config_dir(tmp_path):
    (tmp_path / "config" / "topics").mkdir(parents=True)
    return tmp_path / "config"


@pytest.fixture
def scanned(config_dir):
    """Writes files, and says of each what is wrong with it; empty for a topic that can be used."""

    def scan(**texts):
        for name, text in texts.items():
            (config_dir / "topics" / re.sub("__(ya?ml)$", r".\1", name)).write_text(text)
        return {
            file.name: "" if isinstance(topic, Topic) else str(topic).partition("/topics/")[2]
            for file, topic in scan_topics(config_dir)
        }

    return scan


def test_a_file_of_another_name_does_not_take_a_topic_over(scanned, config_dir):
    found = scanned(
        aaa__yaml="topic: orders\nowner: someone-else\n", orders__yaml="topic: orders\nowner: sales\npublish: approve\n"
    )
    assert found == {
        "aaa.yaml": 'aaa.yaml:1: topic: "orders" is not allowed: the name of its file: write aaa, or call the file '
        "orders.yaml",
        "orders.yaml": "",
    }
    assert find_topic("orders", config_dir).owner == "sales"


def test_a_file_of_another_name_is_no_topic_even_where_the_right_file_is_broken(scanned, config_dir):
    scanned(orders__yaml="topic: [", z__yaml="topic: orders\n")
    with pytest.raises(ConfigError, match=r"orders\.yaml: not valid YAML"):
        find_topic("orders", config_dir)


def test_a_topic_that_is_asked_for_is_found_with_the_name_of_the_file_that_names_it(scanned, config_dir):
    scanned(aaa__yaml="topic: orders\n")
    with pytest.raises(ConfigError, match=r'aaa\.yaml:1: topic: "orders" is not allowed: the name of its file'):
        find_topic("orders", config_dir)


def test_a_topic_whose_own_name_makes_its_table_keeps_it_whatever_another_file_says(scanned):
    found = scanned(
        aaa__yaml="topic: aaa\ntable: cleantail.orders\n", orders__yaml="topic: orders\n", other__yaml="topic: other\n"
    )
    assert found == {
        "aaa.yaml": 'aaa.yaml:2: table: "cleantail.orders" is not allowed: also the table of orders.yaml: name another '
        "table",
        "orders.yaml": "",
        "other.yaml": "",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("mallory.yaml", "topic: mallory\ntable: cleantail.Orders\n", id="case"),
        pytest.param("mallory.yaml", "topic: mallory\ntable: CLEANTAIL.ORDERS\n", id="case of the namespace"),
        pytest.param("mallory.yaml", "topic: mallory\ntable: cleantail.orders_latest\n", id="its view"),
        pytest.param("mallory.yaml", "topic: mallory\ntable: cleantail.orders_KEYLESS\n", id="its side table"),
        pytest.param("mallory.yaml", "topic: mallory\ntable: cleantail.orders\nunknown: 1\n", id="broken elsewhere"),
        pytest.param(
            "mallory.yaml", "topic: mallory\ntable: cleantail.orders\nsource: {path: /etc/*}\n", id="not allowed"
        ),
        pytest.param("mallory.yaml", "topic: orders\n", id="another file's topic"),
        pytest.param("orders_latest.yaml", "topic: orders_latest\ntable: cleantail.orders_latest\n", id="called as it"),
    ],
)
def test_no_other_file_takes_a_topic_out_whose_own_name_makes_its_table(scanned, name, text):
    found = scanned(**{name.replace(".", "__"): text, "orders__yaml": "topic: orders\n"})
    assert found["orders.yaml"] == "" and found[name] != ""


def test_a_broken_file_keeps_the_table_that_its_name_makes(scanned):
    found = scanned(mallory__yaml="topic: mallory\ntable: cleantail.orders\n", orders__yaml="topic: [")
    assert "also the table of orders.yaml: name another table" in found["mallory.yaml"]


def test_of_two_equal_claimants_both_are_refused_and_name_each_other(scanned):
    found = scanned(a__yaml="topic: a\ntable: lake.Orders\n", b__yaml="topic: b\ntable: LAKE.orders\n")
    rest = "neither topic has it until one of the files names another table"
    assert f"also the table of b.yaml: {rest}" in found["a.yaml"]
    assert f"also the table of a.yaml: {rest}" in found["b.yaml"]


def test_topics_whose_default_tables_are_one_are_both_refused(scanned):
    found = scanned(**{"a.b__yaml": "topic: a.b\n", "a-b__yaml": "topic: a-b\n"})
    assert "also the table of a-b.yaml" in found["a.b.yaml"]
    assert "also the table of a.b.yaml" in found["a-b.yaml"]


def test_three_claimants_are_all_named(scanned):
    found = scanned(**{f"{name}__yaml": f"topic: {name}\ntable: lake.t\n" for name in "abc"})
    assert "also the table of b.yaml, the table of c.yaml" in found["a.yaml"]


FOLDING, KEEPING = "{type: hive, uri: 'thrift://h:1', warehouse: 's3://b/w'}", "{type: sqlite}"
OWN, OTHER = "topic: {0}\n", "topic: {0}\ntable: cleantail.{1}\n"


@pytest.mark.parametrize("is_new_first", [False, True], ids=["", "new file sorts first"])
@pytest.mark.parametrize(
    ("catalog", "one", "other", "wrong"),
    [
        # own name, whatever the other file says
        pytest.param(KEEPING, "orders", "mallory table orders", "other", id="own name, table"),
        pytest.param(KEEPING, "orders", "mallory table ORDERS", "other", id="own name, table of another case"),
        pytest.param(FOLDING, "orders", "mallory table ORDERS", "other", id="own name, table of another case, folded"),
        pytest.param(FOLDING, "Orders", "mallory table orders", "other", id="own name with a capital, table"),
        pytest.param(KEEPING, "orders", "mallory table orders_latest", "other", id="own view, table"),
        pytest.param(KEEPING, "orders", "orders_latest table orders_latest", "other", id="own view, table so called"),
        pytest.param(KEEPING, "orders", "orders_latest", "", id="own view, own name"),
        pytest.param(KEEPING, "orders", "orders_keyless", "", id="own side table, own name"),
        pytest.param(KEEPING, "orders", "ORDERS_deleted_versions", "", id="own side table, own name of another case"),
        pytest.param(FOLDING, "orders", "ORDERS_unholdable", "", id="own side table, own name, folded"),
        pytest.param(KEEPING, "orders.latest", "orders", "", id="own view, own name with a dot"),
        pytest.param(KEEPING, "orders_latest", "mallory table orders", "", id="own name, view of a table"),
        pytest.param(KEEPING, "orders_latest", "orders_latest_", "", id="own names that differ in an underscore"),
        # two own names
        pytest.param(KEEPING, "orders", "ORDERS", "", id="case, kept"),
        pytest.param(KEEPING, "Orders", "orders", "", id="case, kept, the capital was first"),
        pytest.param(FOLDING, "orders", "ORDERS", "other", id="case, folded"),
        pytest.param(FOLDING, "Orders", "ORDERS", "both", id="case, folded, two with capitals"),
        pytest.param(KEEPING, "a_b", "a.b", "other", id="the table letter by letter"),
        pytest.param(KEEPING, "a_b_latest", "a.b.latest", "other", id="the table letter by letter, as a view"),
        pytest.param(KEEPING, "a.b", "a-b", "both", id="two names that make one table"),
        # two that name their tables
        pytest.param(KEEPING, "a table t", "b table t", "both", id="one table"),
        pytest.param(KEEPING, "a table T", "b table t", "both", id="one table of two cases"),
        pytest.param(KEEPING, "a table t", "b table t_latest", "both", id="table, view"),
    ],
)  # fmt: skip
def test_the_better_claim_has_the_name(scanned, config_dir, catalog, one, other, wrong, is_new_first):
    """Also a file that is broken elsewhere keeps what it claims."""
    (config_dir / "defaults.yaml").write_text(f"platform: {{catalog: {catalog}}}")
    if is_new_first:
        one, other, wrong = other, one, {"one": "other", "other": "one"}.get(wrong, wrong)
    texts = {text.split()[0]: (OTHER if " " in text else OWN).format(*text.split()[::2]) for text in (one, other)}
    names = list(texts)
    found = scanned(**{f"{name}__yaml": text for name, text in texts.items()})
    refused = [bool(found[f"{name}.yaml"]) for name in names]
    assert refused == {"": [0, 0], "one": [1, 0], "other": [0, 1], "both": [1, 1]}[wrong], found
    broken = scanned(**{f"{names[0]}__yaml": texts[names[0]] + "unknown: 1\n"})
    assert bool(broken[f"{names[1]}.yaml"]) is refused[1], broken


@pytest.mark.parametrize(
    ("catalog", "better", "worse"),
    [
        pytest.param(KEEPING, "orders.yaml", "orders.yml", id="yaml, yml"),
        pytest.param(FOLDING, "orders.yaml", "Orders.yaml", id="case"),
        pytest.param(FOLDING, "orders.yaml", "ORDERS.yml", id="case and ending"),
    ],
)
def test_only_the_worse_of_two_files_of_one_name_is_refused(scanned, config_dir, catalog, better, worse):
    (config_dir / "defaults.yaml").write_text(f"platform: {{catalog: {catalog}}}")
    found = scanned(
        **{
            name.replace(".", "__"): f"topic: {name.partition('.')[0]}\ntable: lake.t{i}\n"
            for i, name in enumerate((better, worse))
        }
    )
    assert f"{worse}:1: topic: " in found[worse]
    assert f"also the topic of {better}: give this file another name" in found[worse]
    assert found[better] == ""
    assert find_topic("orders", config_dir).table == "lake.t0"


@pytest.mark.parametrize("text", ["topic: orders\n{}", "topic: [\n"], ids=["the same", "no YAML"])
@pytest.mark.parametrize("more", ["", "table: lake.t\n", "source: {kafka: {bootstrap.servers: 'h:1', group.id: g}}\n"])
def test_a_file_that_lost_its_topic_to_another_file_claims_nothing_else(scanned, config_dir, text, more):
    found = scanned(orders__yaml=f"topic: orders\n{more}", orders__yml=text.format(more))
    assert (found["orders.yaml"], bool(found["orders.yml"])) == ("", True)
    assert find_topic("orders", config_dir).topic == "orders"


def test_a_directory_and_a_dangling_link_claim_no_topic(scanned, config_dir):
    (config_dir / "topics" / "orders.yml").mkdir()
    (config_dir / "topics" / "bills.yml").symlink_to("/nowhere")
    found = scanned(orders__yaml="topic: orders\n", bills__yaml="topic: bills\n")
    assert (found["orders.yaml"], found["bills.yaml"]) == ("", "")


def test_two_files_of_one_name_with_capitals_are_both_refused_where_the_catalog_folds_the_case(scanned, config_dir):
    (config_dir / "defaults.yaml").write_text(f"platform: {{catalog: {FOLDING}}}")
    found = scanned(Orders__yaml="topic: Orders\ntable: lake.a\n", ORDERS__yaml="topic: ORDERS\ntable: lake.b\n")
    assert "also the topic of ORDERS.yaml: neither has it until one file is deleted" in found["Orders.yaml"]
    assert "also the topic of Orders.yaml: neither" in found["ORDERS.yaml"]


def test_a_file_that_is_broken_otherwise_keeps_its_claim(scanned):
    found = scanned(
        a__yaml="topic: a\ntable: lake.t\nx: 1\n",
        b__yaml="topic: b\ntable: lake.t\n",
        c__yaml="topic: c\ntable: cleantail.d\n",
        d__yaml="topic: [",
    )
    assert "also the table of a.yaml" in found["b.yaml"]
    assert "also the table of d.yaml" in found["c.yaml"]
    assert "unknown key" in found["a.yaml"]


@pytest.mark.parametrize("suffix", SIDE_SUFFIXES)
def test_a_topic_that_is_called_as_a_side_table_has_a_table_that_no_other_needs(scanned, config_dir, suffix):
    names = {f"orders{suffix}", f"orders{suffix}_", f"orders.{suffix[1:]}x"}
    assert set(scanned(**{f"{name}__yaml": f"topic: {name}\n" for name in names}).values()) == {""}
    tables = {find_topic(name, config_dir).table for name in names}
    assert tables == {f"cleantail.orders{suffix}_", f"cleantail.orders{suffix}__", f"cleantail.orders{suffix}x"}


@pytest.mark.parametrize(
    "text", [f"topic: {EVIDENCE}\n", f"topic: {EVIDENCE}\ntable: cleantail.{EVIDENCE.upper()}\n"], ids=["name", "table"]
)
def test_no_topic_may_use_the_table_of_the_evidence(scanned, text):
    (error,) = scanned(**{f"{EVIDENCE}__yaml": text}).values()
    assert "is not allowed: it is the evidence of all topics: name another table" in error


def test_the_evidence_is_in_the_namespace_of_the_catalog(scanned, config_dir):
    (config_dir / "defaults.yaml").write_text("platform: {catalog: {namespace: lake}}")
    found = scanned(a__yaml=f"topic: a\ntable: cleantail.{EVIDENCE}\n", b__yaml=f"topic: b\ntable: lake.{EVIDENCE}\n")
    assert (found["a.yaml"], "evidence of all topics" in found["b.yaml"]) == ("", True)


def test_a_link_decides_over_no_topic_but_that_of_its_own_name(scanned, config_dir):
    """Volumes of Kubernetes are full of links: to files of the same name."""
    topics, elsewhere = config_dir / "topics", config_dir / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.yaml").write_text("topic: orders\n")
    (elsewhere / "bills.yaml").write_text("topic: bills\n")
    (topics / "orders.yaml").symlink_to(elsewhere / "mine.yaml")
    (topics / "bills.yaml").symlink_to(elsewhere / "bills.yaml")
    found = scanned()
    assert found["bills.yaml"] == ""
    assert found["orders.yaml"] == (
        "orders.yaml: a link to mine.yaml: a file, or a link to a file that is called orders.yaml: it decides over topic "
        "orders"
    )


def test_check_config_lists_both_claimants_and_goes_on(scanned, config_dir, capsys):
    scanned(
        aaa__yaml="topic: aaa\ntable: lake.o\n", orders__yaml="topic: orders\ntable: lake.o\n", ok__yaml="topic: ok\n"
    )
    assert main(["check-config", "--config", str(config_dir)]) == 2
    said = "".join(capsys.readouterr())
    assert "aaa.yaml:2: table" in said
    assert "orders.yaml:2: table" in said


@pytest.mark.parametrize(
    ("new", "there", "wrong"),
    [
        pytest.param(("orders", "c.orders"), ("mallory", "c.orders"), "", id="the table of its own name"),
        pytest.param(("orders", "c.orders"), ("mallory", "c.orders_latest"), "", id="the view of its own name"),
        pytest.param(("new", "c.orders"), ("orders", "c.orders"), "also the table of orders.yaml", id="another's name"),
        pytest.param(("new", "c.t"), ("old", "c.t"), "also the table of old.yaml", id="equal claims"),
        pytest.param(("a.b", "c.a_b"), ("a-b", "c.a_b"), "also the table of a-b.yaml", id="equal names"),
        pytest.param(("a_b", "c.a_b"), ("a-b", "c.a_b"), "takes no name from another topic: a-b.yaml",
                     id="a better claim of another's name"),
        pytest.param(("a", "c.a"), ("a_latest", "c.a_latest_"), "", id="a view as another topic is called"),
    ],
)  # fmt: skip
def test_a_new_file_is_judged_as_check_config_judges_it(tmp_path, new, there, wrong):
    """A topic that has the table of its own name keeps it also where the new file's claim of the name is better."""
    catalog = Catalog(namespace="c")
    new_claim, claim = (Claim.of(tmp_path / f"{name}.yaml", table, catalog) for name, table in (new, there))
    problem = problem_of_new(new_claim, [claim], catalog)
    assert wrong in (problem.allowed if problem else "") and bool(problem) is bool(wrong)
