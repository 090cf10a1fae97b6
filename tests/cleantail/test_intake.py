"""Which row of FEEDS a topic has, and that every kind of source has its rows."""

from typing import get_args

import pytest

from cleantail.config.topic import Topic
from cleantail.config.topic_source import Source
from cleantail.config.topic_table import Columns
from cleantail.intake import FEEDS

COLUMNS = {"partition": "p", "offset": "o", "key": "k"}
SINK = {"columns": Columns(**COLUMNS)}


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        pytest.param({"source": {"path": "in/*.gz"}}, "files", id="files"),
        pytest.param({"source": {"kafka": {}}}, "kafka", id="Kafka"),
        pytest.param({"source": {"table": {"name": "sinks.orders", "columns": COLUMNS}}}, "table", id="a table"),
        pytest.param(SINK, "sink", id="an adopted table"),
        pytest.param(
            {**SINK, "source": {"path": "in/*.gz"}}, "sink", id="files of the defaults, not for a sink's table"
        ),
        pytest.param({**SINK, "source": {"kafka": {}}}, "kafka", id="Kafka, which an adopted table then refuses"),
        pytest.param({}, "hand", id="nothing"),
    ],
)
def test_a_topic_is_fed_by_one_kind(topic, kind):
    assert Topic(topic="orders", table="n.orders", **topic).fed_by == kind


def test_every_kind_of_source_is_looked_at_and_read():
    from spark_jobs.round.intake.readers import READERS

    kinds = set(get_args(Source.model_fields["type"].annotation))
    assert set(READERS) == kinds
    assert set(FEEDS) == kinds | {"sink", "hand"}
