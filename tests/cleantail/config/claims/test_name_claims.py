"""A topic is what its file says: names of topics, tables and what lies beside them have one owner at most."""

import pytest

from cleantail.config.claims.name_claims import Claim, problem_of_new
from cleantail.config.loading import find_topic, scan_topics
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE, KEYLESS_SUFFIX, LATEST_SUFFIX, LEDGER_SUFFIX
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
            (config_dir / "topics" / f"{name.replace('__', '.')}").write_text(text)
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
        pytest.param("orders_latest.yaml", "topic: orders_latest\n", id="called as its view"),
        pytest.param("ORDERS_deleted_versions.yaml", "topic: ORDERS_deleted_versions\n", id="called as its ledger"),
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
    found = scanned(**{"a.b__yaml": "topic: a.b\n", "a_b__yaml": "topic: a_b\n"})
    assert "also the table of a_b.yaml" in found["a.b.yaml"]
    assert "also the table of a.b.yaml" in found["a_b.yaml"]


def test_three_claimants_are_all_named(scanned):
    found = scanned(**{f"{name}__yaml": f"topic: {name}\ntable: lake.t\n" for name in "abc"})
    assert "also the table of b.yaml, the table of c.yaml" in found["a.yaml"]


@pytest.mark.parametrize(
    "names", [("orders.yaml", "orders.yml"), ("Orders.yaml", "orders.yaml"), ("ORDERS.yml", "orders.yaml")], ids=str
)
def test_two_files_of_one_name_are_both_refused(scanned, names):
    found = scanned(**{name: f"topic: {name.partition('.')[0]}\ntable: lake.t{i}\n" for i, name in enumerate(names)})
    for mine, other in (names, names[::-1]):
        assert f"{mine}:1: topic: " in found[mine]
        assert f"also the topic of {other}: neither has it until the other file is gone" in found[mine]


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


@pytest.mark.parametrize("suffix", [KEYLESS_SUFFIX, LEDGER_SUFFIX, LATEST_SUFFIX])
def test_what_lies_beside_a_table_is_no_other_topics_table(scanned, suffix):
    found = scanned(**{"orders__yaml": "topic: orders\n", f"orders{suffix}__yaml": f"topic: orders{suffix}\n"})
    assert f'table: "cleantail.orders{suffix}" is not allowed: also the ' in found[f"orders{suffix}.yaml"]
    assert "of orders.yaml: name another table" in found[f"orders{suffix}.yaml"]
    assert found["orders.yaml"] == ""


@pytest.mark.parametrize("suffix", [KEYLESS_SUFFIX, LEDGER_SUFFIX, LATEST_SUFFIX])
def test_a_name_with_such_an_end_is_free_where_nothing_lies_beside(scanned, suffix):
    assert set(scanned(**{f"orders{suffix}__yaml": f"topic: orders{suffix}\n"}).values()) == {""}


@pytest.mark.parametrize(
    "text", [f"topic: {EVIDENCE}\n", f"topic: {EVIDENCE}\ntable: cleantail.{EVIDENCE.upper()}\n"], ids=["name", "table"]
)
def test_the_table_of_the_evidence_is_no_topics(scanned, text):
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
        pytest.param(("a_b", "c.a_b"), ("a-b", "c.a_b"), "also the table of a-b.yaml", id="equal names"),
        pytest.param(("a", "c.a"), ("a_latest", "c.a_latest"), "takes no name from another topic: a_latest.yaml",
                     id="a view that is the table of another's name"),
    ],
)  # fmt: skip
def test_a_new_file_is_judged_as_check_config_judges_it(tmp_path, new, there, wrong):
    """A topic that has the table of its own name keeps it also where the new file's claim of the name is better."""
    new_claim, claim = (Claim.of(tmp_path / f"{name}.yaml", table, "c") for name, table in (new, there))
    problem = problem_of_new(new_claim, [claim], "c")
    assert wrong in (problem.allowed if problem else "") and bool(problem) is bool(wrong)
