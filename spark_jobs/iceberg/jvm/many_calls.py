"""Makes many calls of the JVM in the time of one.

Python and the JVM are two processes: for each call one wakes a thread of the other and waits until it is woken itself,
which takes longer than most calls do. Py4J's own calls are one after another. Here the commands of many are sent at
once, the JVM carries them out in their order, as it always does for one thread of Python, and then their answers are
read.

1. A portion of the commands is sent only when all earlier answers are read, and is small enough for the buffers of the
   connection: the JVM may wait for Python to read its answers, and Python never waits for the JVM to read at that time.
2. The JVM's socket holds a small answer back until the one before it is acknowledged, which quick_answers has done at
   once. Where that cannot be, the calls are made one by one.
3. All answers are read before any error is raised. After whatever breaks that off the connection is closed: what is
   still to come would be taken for the answer of another call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from py4j import java_gateway, protocol
from py4j.protocol import Py4JNetworkError

from spark_jobs.iceberg.jvm.quick_answers import QUICK_ACK

Call = tuple[Any, tuple[Any, ...]]
"""A method of a Java object, or of a class, as Py4J has it (`file.location`), and its arguments. It is none of those
that Py4J has written in Python, such as `get` of a map."""
PORTION_BYTES = 16 * 1024
"""Commands that are sent at once, unless one alone is longer. The smallest buffers that Linux gives hold more."""


def ask(objects: Iterable[Any], method: str, *arguments: Any) -> list[Any]:
    """Return what a method of each object answers. Raises as answers does."""
    return answers((getattr(asked, method), arguments) for asked in objects)


def facts_of(objects: Iterable[Any], *methods: str) -> list[tuple[Any, ...]]:
    """Return for each object what these methods of it answer. Raises as answers does."""
    asked = list(objects)
    facts = iter(answers((getattr(one, method), ()) for one in asked for method in methods))
    return [tuple(next(facts) for _ in methods) for _ in asked]


def answers(calls: Iterable[Call]) -> list[Any]:
    """Make the calls, in their order, and return the answer to each. All are of one JVM.

    All are made, also after one has failed. Then the first error is raised, as the call itself would raise it.
    """
    made = list(calls)
    if len(made) < 2 or QUICK_ACK is None:
        return _results(partial(method, *arguments) for method, arguments in made)
    return _results(partial(_value, method, line) for (method, _), line in zip(made, _exchanged(made), strict=True))


def _results(attempts: Iterable[Callable[[], Any]]) -> list[Any]:
    """Return what all have returned, or raise the first error when all have ended."""
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
    """Return what the JVM has answered, or raise the error. It is called for every answer: an object that Python has
    not taken is one that it never lets go."""
    # by the module's name: PySpark has put there what raises its own exceptions
    return java_gateway.get_return_value(line, method.gateway_client, method.target_id, method.name)


def _exchanged(made: Sequence[Call]) -> list[str]:
    """Return the line that the JVM answers to each call."""
    client, temporary = made[0][0].gateway_client, list[Any]()
    portions = _portions(_command(call, temporary) for call in made)
    lines = [line for portion in portions for line in _exchange(client, portion)]
    for argument in temporary:
        argument._detach()
    return lines


def _command(call: Call, temporary: list[Any]) -> bytes:
    """Return a call as it is sent. Where Py4J makes objects of the arguments, as of a list, these are added."""
    method, arguments = call
    parts, made = method._build_args(*arguments)
    temporary += (argument for argument in made if hasattr(argument, "_detach"))
    text = f"{protocol.CALL_COMMAND_NAME}{method.command_header}{parts}{protocol.END_COMMAND_PART}"
    return text.encode()


def _portions(commands: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield all of them in order, PORTION_BYTES at a time, and longer ones alone."""
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
    """Send a portion and return its answers. Raises Py4JNetworkError if the connection fails, and does not try
    again, as Py4J would: nobody knows which calls were made."""
    connection, lines = client._get_connection(), list[str]()
    try:
        _send(connection, b"".join(portion))
        while len(lines) < len(portion):
            lines.append(_answer(connection))
            if protocol.is_fatal_error(lines[-1]):  # the JVM has closed the connection; what it says may quote a record
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
    """Read one answer. In place of one the JVM may call Python, which none of our calls has it do."""
    try:
        line = str(protocol.smart_decode(connection.stream.readline()[:-1]))
    except Exception as e:
        raise Py4JNetworkError("Error while sending or receiving", e, protocol.ERROR_ON_RECEIVE) from e
    if not line.strip():
        raise Py4JNetworkError("Answer from Java side is empty", when=protocol.EMPTY_RESPONSE)
    if not line.startswith(protocol.RETURN_MESSAGE):
        raise Py4JNetworkError("The JVM calls Python in place of an answer", when=protocol.ERROR_ON_RECEIVE)
    return line.removeprefix(protocol.RETURN_MESSAGE)
