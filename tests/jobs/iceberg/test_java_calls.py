"""What is asked of the JVM, and how often: every question is a round trip between two processes."""

from __future__ import annotations

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JError

from spark_jobs.iceberg.java_calls import each, static, texts

TS = 1_700_000_000_000
TEXTS = {"": "", "plain": "text", 'a "quoted"\n\tname': '{"json": [1, "\\\\"]}', "größe": "🙂\u2028", "zero": "\x00"}


def calls_of(monkeypatch, work):
    """The commands that `work` sends, without those that release objects that Python no longer uses."""
    sent, send = [], GatewayClient.send_command

    def counted(self, command, *more, **named):
        sent.append(command)
        return send(self, command, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(GatewayClient, "send_command", counted)
        work()
    return [command for command in sent if not command.startswith("m\n")]


def test_a_java_map_is_copied_unchanged_in_one_call(spark, monkeypatch):
    java_map = spark._jvm.java.util.HashMap()
    for name, value in TEXTS.items():
        java_map.put(name, value)
    assert texts(java_map) == TEXTS
    assert len(calls_of(monkeypatch, lambda: texts(java_map))) == 1


def test_each_yields_every_element_of_a_list_and_of_any_other_collection(spark):
    java = spark._jvm.java.util
    for count in (0, 1, 250):
        for collection in (java.ArrayList(), java.LinkedHashSet()):
            for number in range(count):
                collection.add(number)
            assert list(each(collection)) == list(range(count))


def test_a_static_member_is_found_by_its_full_name_and_a_missing_one_is_an_error(spark):
    assert static(spark._jvm, "java.lang.Math", "abs")(-3) == 3
    with pytest.raises(Py4JError):
        static(spark._jvm, "java.lang.Math", "none")
