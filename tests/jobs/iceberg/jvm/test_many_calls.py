"""Many calls of the JVM at once: they answer, and fail, as calls one by one do."""

import gc
import time

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import IllegalArgumentException

from spark_jobs.iceberg.jvm import many_calls
from spark_jobs.iceberg.jvm.java_collections import PORTION, each, elements_of
from spark_jobs.iceberg.jvm.many_calls import PORTION_BYTES, answers, ask, facts_of
from spark_jobs.iceberg.jvm.static_members import of_class, static

TEXTS = ["", "plain", 'a "quoted"\n\tname', "größe", "🙂\u2028", "back\\slash\\n"]
needs_quick_ack = pytest.mark.skipif(many_calls.QUICK_ACK is None, reason="the calls are made one by one")


def lists_of(spark, *contents):
    made = []
    for content in contents:
        made.append(spark._jvm.java.util.ArrayList())
        for element in content:
            made[-1].add(element)
    return made


@pytest.fixture
def exchanges(monkeypatch):
    """How many commands were sent at once, each time."""
    sizes, exchange = [], many_calls._exchange

    def counted(client, portion):
        sizes.append(len(portion))
        return exchange(client, portion)

    monkeypatch.setattr(many_calls, "_exchange", counted)
    return sizes


@needs_quick_ack
def test_many_calls_are_one_exchange_and_answer_in_their_order(spark, exchanges):
    lists = lists_of(spark, [1], [1, 2], [], [1, 2, 3])
    assert ask(lists, "size") == [1, 2, 0, 3]
    assert exchanges == [4]


@pytest.mark.parametrize("value", [None, True, 7, 1 << 40, 2.5, b"bytes", *TEXTS])
def test_a_value_goes_there_and_comes_back_as_by_a_call_of_its_own(spark, value):
    lists = lists_of(spark, [], [])
    assert ask(lists, "add", value) == [True, True]
    assert ask(lists, "get", 0) == [one.get(0) for one in lists] == [value, value]


def test_objects_are_answers_and_arguments_and_so_is_a_list_of_python(spark):
    lists = lists_of(spark, ["a"], ["b", "c"])
    whole = spark._jvm.java.util.ArrayList()
    assert answers([(whole.addAll, (one,)) for one in lists] + [(whole.addAll, (["d"],))]) == [True] * 3
    assert list(each(whole)) == ["a", "b", "c", "d"]
    streams = ask(lists, "stream")
    assert ask(streams, "count") == [1, 2]


def test_static_methods_are_called_as_well(spark):
    number_of = static(spark._jvm, "java.lang.Integer", "parseInt")
    assert answers((number_of, (text,)) for text in ("7", "8", "9")) == [7, 8, 9]


def test_a_static_member_is_looked_up_once_and_says_where_there_is_none(spark):
    client = spark._jvm._gateway_client
    assert of_class(client, "java.lang.Long", "MAX_VALUE") == (1 << 63) - 1
    assert of_class(client, "java.lang.Long", "parseLong") is static(spark._jvm, "java.lang.Long", "parseLong")
    with pytest.raises(Exception, match=r"java\.lang\.Long\.missing does not exist in the JVM"):
        of_class(client, "java.lang.Long", "missing")


@needs_quick_ack
def test_an_error_is_raised_as_by_a_call_of_its_own_after_all_answers(spark):
    lists = lists_of(spark, [1], [], [2])
    with pytest.raises(Py4JJavaError, match=r"calling o\d+\.get") as alone:
        lists[1].get(0)
    with pytest.raises(Py4JJavaError, match=r"calling o\d+\.get") as among_others:
        ask(lists, "get", 0)
    assert str(among_others.value).splitlines()[:2] == str(alone.value).splitlines()[:2]
    assert ask(lists, "size") == [1, 0, 1]  # no answer is left that would be taken for one of these


def test_the_first_of_several_errors_is_raised_and_is_pysparks_own_where_it_has_one(spark):
    level = static(spark._jvm, "java.util.logging.Level", "parse")
    with pytest.raises(IllegalArgumentException, match='Bad level "first"'):
        answers((level, (name,)) for name in ("INFO", "first", "second", "FINE"))


@needs_quick_ack
def test_a_portion_is_as_long_as_it_may_be_and_what_is_longer_goes_alone(spark, exchanges):
    [target] = lists_of(spark, [])
    texts = ["a" * (PORTION_BYTES // 3)] * 5 + ["b" * (8 << 20)] + ["c"] * 3
    assert answers((target.add, (text,)) for text in texts) == [True] * len(texts)
    assert exchanges == [2, 2, 1, 1, 3]
    assert answers((target.get, (n,)) for n in range(len(texts))) == texts


@needs_quick_ack
def test_long_answers_to_many_short_commands_block_nobody(spark):
    text = "a" * (1 << 20)
    [target] = lists_of(spark, [text])
    assert answers((target.get, (0,)) for _ in range(40)) == [text] * 40


@needs_quick_ack
def test_no_answer_waits_for_an_acknowledgement(spark):
    lists = lists_of(spark, *([[]] * 50))
    ask(lists, "size")
    began = time.perf_counter()
    ask(lists, "size")
    assert time.perf_counter() - began < 1  # by 40 ms for each it is two seconds


def test_where_the_system_acknowledges_late_the_calls_are_made_one_by_one(spark, exchanges, monkeypatch):
    monkeypatch.setattr(many_calls, "QUICK_ACK", None)
    lists = lists_of(spark, [1], [], [2])
    assert ask(lists, "size") == [1, 0, 1]
    assert not exchanges


@pytest.mark.parametrize("option", [many_calls.QUICK_ACK, None], ids=["at once", "one by one"])
def test_calls_after_one_that_failed_are_made(spark, monkeypatch, option):
    monkeypatch.setattr(many_calls, "QUICK_ACK", option)
    first, last = lists_of(spark, [], [1, 2])
    with pytest.raises(Py4JJavaError, match="IndexOutOfBounds"):
        answers([(first.get, (0,)), (last.add, (3,))])
    assert list(each(last)) == [1, 2, 3]


def test_no_call_and_one_call_are_what_they_are_without_this(spark, exchanges):
    assert ask([], "size") == []
    assert ask(lists_of(spark, [1]), "size") == [1]
    assert not exchanges


@pytest.mark.parametrize("count", [0, 1, PORTION, PORTION + 1])
def test_each_yields_every_element_of_a_list_and_of_any_other_collection(spark, count):
    numbers = list(range(count))
    [java_list] = lists_of(spark, numbers)
    assert list(each(java_list)) == numbers
    assert list(each(spark._jvm.java.util.LinkedHashSet(java_list))) == numbers


@pytest.mark.parametrize("sizes", [[], [0], [2, 0, 3]])
def test_the_elements_of_many_collections_are_those_of_each(spark, sizes):
    contents = [[f"{number} {element}" for element in range(size)] for number, size in enumerate(sizes)]
    lists = lists_of(spark, *contents)
    sets = [spark._jvm.java.util.LinkedHashSet(one) for one in lists]
    both = [one for pair in zip(lists, sets, strict=True) for one in pair]
    assert elements_of(both) == [content for content in contents for _ in range(2)]


def test_several_facts_of_many_objects_stand_by_object(spark):
    assert facts_of(lists_of(spark, [1, 2], []), "size", "isEmpty", "toString") == [
        (2, False, "[1, 2]"),
        (0, True, "[]"),
    ]
    assert facts_of([], "size") == []


class DeadSocket:
    """Is the socket of a connection that fails when something is sent."""

    def sendall(self, _):
        raise BrokenPipeError("gone")


class DeadStream:
    """Is the stream of a connection that fails when an answer is read."""

    def readline(self):
        raise ConnectionResetError("gone")


class Connection:
    """Is a connection with a socket or a stream of another kind."""

    def __init__(self, connection, stream=None, socket=None):
        self.of_jvm, self.closed = connection, False
        self.stream, self.socket = stream or connection.stream, socket or connection.socket

    def close(self):
        self.closed = True
        self.of_jvm.close()


class Answers:
    def __init__(self, line):
        self.readline = lambda: line


@needs_quick_ack
@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"socket": DeadSocket()}, "Error while sending$"),
        ({"stream": DeadStream()}, "Error while sending or receiving"),
        ({"stream": Answers(b"")}, "Answer from Java side is empty"),
        ({"stream": Answers(b"c\n")}, "The JVM calls Python"),
        ({"stream": Answers(b"!zthe text of an error\n")}, "after a fatal error$"),
    ],
    ids=["sending", "receiving", "closed", "callback", "fatal"],
)
def test_a_connection_that_fails_is_closed_and_the_next_calls_have_another(spark, monkeypatch, named, says):
    lists, client = lists_of(spark, [1], [2, 3]), spark._jvm._gateway_client
    broken = Connection(client._get_connection(), **named)
    with monkeypatch.context() as patch:
        patch.setattr(client, "_get_connection", lambda: broken)
        with pytest.raises(Py4JNetworkError, match=says):
            ask(lists, "size")
    assert broken.closed
    assert ask(lists, "size") == [1, 2]


@needs_quick_ack
def test_a_call_that_is_interrupted_leaves_no_answer_to_the_next(spark, monkeypatch):
    lists, answer = lists_of(spark, [1], [2, 3], [4]), many_calls._answer

    def interrupted(connection):
        monkeypatch.setattr(many_calls, "_answer", answer)
        raise KeyboardInterrupt

    monkeypatch.setattr(many_calls, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(lists, "toString")
    assert ask(lists, "size") == [1, 2, 1]


@needs_quick_ack
def test_objects_that_come_with_an_error_are_let_go(spark, monkeypatch):
    lists = lists_of(spark, [1], [])
    released, client = [], spark._jvm._gateway_client
    monkeypatch.setattr(type(client), "garbage_collect_object", lambda _, target, *more: released.append(target))
    with pytest.raises(Py4JJavaError, match="IndexOutOfBounds"):
        answers([(lists[0].iterator, ()), (lists[1].get, (0,)), (lists[0].iterator, ())])
    gc.collect()
    assert len(released) >= 2
