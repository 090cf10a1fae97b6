"""A long answer of the JVM does not wait until the kernel acknowledges its first portion."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JNetworkError

from spark_jobs.iceberg import session as session_module
from spark_jobs.iceberg.session import QUICK_ACK, acknowledge, acknowledge_at_once

LONG = {f"key {n}": "é" * 100 for n in range(1000)}
pytestmark = pytest.mark.skipif(QUICK_ACK is None, reason="this system has no TCP_QUICKACK")


@pytest.fixture
def client(spark):
    return spark._jvm._gateway_client


@pytest.fixture
def connection(client):
    """A connection of its own, as Py4J makes it."""
    made = ClientServerConnection(client.java_parameters, client.python_parameters, client.gateway_property, client)
    made.connect_to_java_server()
    yield made
    made.close()


def long_answer(spark):
    """What the JVM answers where it is asked for a text of 100,000 characters."""
    jvm = spark._jvm
    java_map = jvm.java.util.HashMap()
    java_map.putAll(LONG)
    return json.loads(jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(java_map))


def at_once(connection):
    """Whether the kernel acknowledges at once what this socket has received: else it waits for the next command."""
    return bool(connection.socket.getsockopt(socket.IPPROTO_TCP, QUICK_ACK))


def ask_for_the_time(connection):
    return connection.send_command("c\nz:java.lang.System\nnanoTime\ne\n")


def test_what_a_connection_of_py4j_has_read_is_acknowledged_with_the_next_command(connection):
    """The premise."""
    for _ in range(20):  # the kernel acknowledges the first of a connection at once
        ask_for_the_time(connection)
    assert not at_once(connection)
    acknowledge(connection)
    for _ in range(20):
        assert ask_for_the_time(connection).startswith("yL")
        assert at_once(connection)


def test_every_thread_of_a_session_acknowledges_at_once(client, spark):
    seen = []

    def ask():
        assert long_answer(spark) == LONG
        seen.append(at_once(client.get_thread_connection()))

    ask()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == [True, True]


def test_acknowledge_at_once_wraps_a_client_and_its_connection_only_once(client, spark):
    create, stream = client._create_new_connection, client.get_thread_connection().stream
    acknowledge_at_once(client)
    acknowledge(client.get_thread_connection())
    assert client._create_new_connection is create
    assert client.get_thread_connection().stream is stream


def test_a_connection_that_is_closed_is_an_error_of_py4j_as_before(connection):
    acknowledge(connection)
    ask_for_the_time(connection)
    stream, connected = connection.stream, connection.socket
    connected.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Py4JNetworkError):
        ask_for_the_time(connection)
    connection.close()
    assert stream.closed and connected.fileno() == -1


def test_without_the_option_a_connection_is_as_py4j_makes_it(connection, monkeypatch):
    monkeypatch.setattr(session_module, "QUICK_ACK", None)
    stream = connection.stream
    acknowledge(connection)
    assert connection.stream is stream
