"""Keys that are gone leave a file as people wrote it, but for themselves."""

import pytest
import yaml

from cleantail.upgrade.gone_keys import GONE, gone_in, rewritten

COLUMNAR, LIMIT, MASTER = GONE


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        pytest.param(
            COLUMNAR,
            "platform:\n  spark:\n    # a comment\n    columnar: auto   # goes as well\n    master: local[2]\n",
            "platform:\n  spark:\n    # a comment\n    master: local[2]\n",
            id="its line in a block",
        ),
        pytest.param(
            COLUMNAR, "platform:\n  spark:\n    columnar: auto\n", "platform:\n  spark:\n", id="the only key of a block"
        ),
        pytest.param(COLUMNAR, "platform: {spark: {columnar: auto}}", "platform: {spark: {}}", id="alone in braces"),
        pytest.param(
            COLUMNAR,
            'platform:\n  spark: {master: "local[2]", columnar: always}\n',
            'platform:\n  spark: {master: "local[2]"}\n',
            id="last in braces",
        ),
        pytest.param(
            COLUMNAR,
            "platform:\n  spark: {columnar: never, insecure: true}  # why\n",
            "platform:\n  spark: {insecure: true}  # why\n",
            id="first in braces",
        ),
        pytest.param(
            LIMIT,
            "platform:\r\n  cleaner:\r\n    log.cleaner.io.max.bytes.per.second: 5\r\n    log.cleaner.threads: 2\r\n",
            "platform:\r\n  cleaner:\r\n    log.cleaner.threads: 2\r\n",
            id="line ends of another system",
        ),
        pytest.param(
            MASTER,
            "platform:\n  spark:\n    conf:\n      spark.master: local[3]\n      spark.driver.memory: 2g\n",
            "platform:\n  spark:\n    master: local[3]\n    conf:\n      spark.driver.memory: 2g\n",
            id="moved before the mapping it was in",
        ),
        pytest.param(
            MASTER,
            "platform: {spark: {master: a, conf: {spark.master: b, spark.x: 1}}}\n",
            "platform: {spark: {master: b, conf: {spark.x: 1}}}\n",
            id="moved over the value that it overruled",
        ),
    ],
)
def test_a_key_goes_and_every_other_character_stays(key, before, after):
    assert [gone.path for gone in gone_in(yaml.safe_load(before))] == [key.path]
    assert rewritten(before, key) == after
    assert gone_in(yaml.safe_load(after)) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("platform:\n  spark: {columnar: {of: it}}\n", id="a mapping"),
        pytest.param("platform:\n  spark: {columnar: auto,\n master: x}\n  spark2: [\n", id="no YAML"),
        pytest.param("? platform\n: {spark: {? columnar : auto, master: x}}\n", id="written in an unusual way"),
        pytest.param(
            "platform:\n  spark:\n    columnar: |\n      auto\n      x\n    master: y\n", id="of several lines"
        ),
    ],
)
def test_what_cannot_be_taken_out_by_characters_is_left_to_a_person(text):
    new_text = rewritten(text, COLUMNAR)
    assert new_text is None or yaml.safe_load(new_text) == {"platform": {"spark": {"master": yaml_master(text)}}}


def yaml_master(text):
    return yaml.safe_load(text)["platform"]["spark"]["master"]


@pytest.mark.parametrize("data", [{}, {"platform": None}, {"platform": {"spark": {"columnar": None}}}])
def test_a_key_without_a_value_is_no_problem(data):
    assert gone_in(data) == []
