"""Make many calls of the JVM in the time of one.

Python and the JVM are two processes. For each call, one wakes a thread of the other and waits for its answer, which
takes longer than most calls do. Py4J makes one call after another. This module sends many commands at once. The JVM
runs them in order, as always for one Python thread, and then their answers are read.

1. A portion of commands is sent only after all earlier answers are read, and fits into the buffers of the connection.
   So the JVM may wait for Python to read its answers, but Python never waits for the JVM to read commands.
2. The JVM's socket delays a small answer until the previous one is acknowledged. quick_answers acknowledges at once. On
   systems where that is not possible, the calls are made one by one.
3. All answers are read before any error is raised. If the exchange breaks off, the connection is closed: the remaining
   answers would be taken for those of other calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from py4j import java_gateway, protocol
from py4j.protocol import Py4JNetworkError

from spark_jobs.iceberg.jvm.quick_answers import QUICK_ACK

Call = tuple[Any, tuple[Any, ...]]
"""A method of a Java object or class, as a Py4J member (`file.location`), and its arguments. Not a method that Py4J
implements in Python, such as `get` of a map."""
PORTION_BYTES = 16 * 1024
"""Maximum size of the commands that are sent at once, unless a single one is longer. Linux's smallest buffers are
larger."""


def ask(objects: Iterable[Any], method: str, *arguments: Any) -> list[Any]:
    """Return the result of one method for each object. Raises as answers does."""
    return answers((getattr(asked, method), arguments) for asked in objects)


def facts_of(objects: Iterable[Any], *methods: str) -> list[tuple[Any, ...]]:
    """Return the results of these methods for each object. Raises as answers does."""
    asked = list(objects)
    facts = iter(answers((getattr(one, method), ()) for one in asked for method in methods))
    return [tuple(next(facts) for _ in methods) for _ in asked]


def answers(calls: Iterable[Call]) -> list[Any]:
    """Make the calls in their order, and return the answer to each. All must go to one JVM.

    If a call fails, the others are still made. Then the first error is raised, as the call itself would raise it.
    """
    made = list(calls)
    if len(made) < 2 or QUICK_ACK is None:
        return _results(partial(method, *arguments) for method, arguments in made)
    return _results(partial(_value, method, line) for (method, _), line in zip(made, _exchanged(made), strict=True))


def _results(attempts: Iterable[Callable[[], Any]]) -> list[Any]:
    """Return all results, or raise the first error after all attempts have ended."""
    values, errors = list[Any](), list[Exception]()
    for attempt in attempts:
        try:
            values.append(attempt())
        except Exception as e:
            errors.append(e)
    if errors:
        raise errors[0]
    return values


def _value(method: Any, line: str) -> Any:
    """Return the JVM's answer as a Python value, or raise its error. Must be called for every answer: the JVM never
    releases an object that Python has not taken."""
    # through the module, because PySpark has replaced this function by one that raises its own exceptions
    return java_gateway.get_return_value(line, method.gateway_client, method.target_id, method.name)


def _exchanged(made: Sequence[Call]) -> list[str]:
    """Return the line with which the JVM answers each call."""
    client, temporary = made[0][0].gateway_client, list[Any]()
    portions = _portions(_command(call, temporary) for call in made)
    lines = [line for portion in portions for line in _exchange(client, portion)]
    for argument in temporary:
        argument._detach()
    return lines


def _command(call: Call, temporary: list[Any]) -> bytes:
    """Return a call in Py4J's protocol. Java objects that Py4J creates for arguments, such as lists, are added to
    `temporary`."""
    method, arguments = call
    parts, made = method._build_args(*arguments)
    temporary += (argument for argument in made if hasattr(argument, "_detach"))
    text = f"{protocol.CALL_COMMAND_NAME}{method.command_header}{parts}{protocol.END_COMMAND_PART}"
    return text.encode()


def _portions(commands: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the commands in order, PORTION_BYTES at a time. A longer command is a portion of its own."""
    portion, size = list[bytes](), 0
    for command in commands:
        if portion and size + len(command) > PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(command)
        size += len(command)
    if portion:
        yield portion


def _exchange(client: Any, portion: Sequence[bytes]) -> list[str]:
    """Send a portion and return its answers. Raises Py4JNetworkError if the connection fails.

    Does not try again, as Py4J would: it is unknown which calls were made.
    """
    connection, lines = client._get_connection(), list[str]()
    try:
        _send(connection, b"".join(portion))
        while len(lines) < len(portion):
            lines.append(_answer(connection))
            if protocol.is_fatal_error(lines[-1]):  # the JVM has closed the connection; its message may quote a record
                raise Py4JNetworkError("The JVM has ended the connection after a fatal error")
    except BaseException:
        connection.close()
        raise
    client._give_back_connection(connection)
    return lines


def _send(connection: Any, commands: bytes) -> None:
    try:
        connection.socket.sendall(commands)
    except Exception as e:
        raise Py4JNetworkError("Error while sending", e, protocol.ERROR_ON_SEND) from e


def _answer(connection: Any) -> str:
    """Read one answer. Raises Py4JNetworkError if the JVM calls Python instead, which our calls never cause."""
    try:
        line = str(protocol.smart_decode(connection.stream.readline()[:-1]))
    except Exception as e:
        raise Py4JNetworkError("Error while sending or receiving", e, protocol.ERROR_ON_RECEIVE) from e
    if not line.strip():
        raise Py4JNetworkError("Answer from Java side is empty", when=protocol.EMPTY_RESPONSE)
    if not line.startswith(protocol.RETURN_MESSAGE):
        raise Py4JNetworkError("The JVM calls Python in place of an answer", when=protocol.ERROR_ON_RECEIVE)
    return line.removeprefix(protocol.RETURN_MESSAGE)
