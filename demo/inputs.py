"""The inputs of the three topics, and their expected content at the end, computed without the platform's code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cleantail.sources.kcat import Record
from demo.generated_streams import customer_changes, file_changes, sensor_readings
from demo.git_history import NoHistoryError, changelog, head_of, tree
from demo.home import ROOT, DemoError
from demo.records import TopicInput, topic_input

FILES, CUSTOMERS, SENSORS = "repository-files", "customer-cdc", "sensor-readings"
CUSTOMERS_ORIGIN = "from Kafka: generated, one change in six out of order, a third of the transactions aborted"
IN_KAFKA = CUSTOMERS
"""The topic in Kafka. The others come from files."""
Rank = Callable[[Record], tuple[object, int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """A topic's input, and its expected end: key -> value of every key that is not deleted. `claims`: texts about the
    input itself, each with whether it is true."""

    input: TopicInput
    values: dict[bytes, bytes]
    proof: str
    claims: Mapping[str, bool] = field(default_factory=dict)


def make_inputs(repository: Path | None, now_ms: int) -> list[Expected]:
    """Return the three inputs. Without `repository`, the file history is that of the repository of the demonstration,
    or a generated one if there is no repository."""
    customers = topic_input(CUSTOMERS, CUSTOMERS_ORIGIN, customer_changes(now_ms), 2)
    sensors = topic_input(SENSORS, "generated, a third of the sensors send late", sensor_readings(now_ms), 2)
    return [
        _files(repository, now_ms),
        Expected(customers, winners(customers.records, version_of), "its highest version"),
        # after the second batch the first one exceeds retention.bytes
        Expected(sensors, winners(sensors.batches[1], lambda r: (r.timestamp_ms, r.offset)), "its latest reading"),
    ]


def _files(repository: Path | None, now_ms: int) -> Expected:
    folder = repository or ROOT
    try:
        head = head_of(folder)
        topic = topic_input(
            FILES, f"git history of {folder.resolve()} up to {head[:12]}", changelog(folder, head, now_ms), 3
        )
        return Expected(topic, tree(folder, head), f"git ls-tree -r {head[:12]}")
    except NoHistoryError as error:
        if repository:
            raise DemoError(f"{repository} has no history to show: {error}") from None
        origin = f"generated, because there is no git history here ({error})"
    generated = topic_input(FILES, origin, file_changes(now_ms), 3)
    return Expected(generated, winners(generated.records, lambda r: (0, r.offset)), "its latest version")


def version_of(record: Record) -> tuple[object, int]:
    """Return the rank of a customer's change: its version, then its offset."""
    return record.headers[0][1], record.offset


def winners(records: Iterable[Record], rank: Rank) -> dict[bytes, bytes]:
    """Return the value of the record with the highest rank of each key, without deleted keys."""
    best: dict[bytes, Record] = {}
    for record in records:
        key = record.key or b""
        if key not in best or rank(record) >= rank(best[key]):
            best[key] = record
    return {key: record.value for key, record in best.items() if record.value is not None}
