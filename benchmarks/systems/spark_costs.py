"""Costs of a round: bytes that it read, shuffled and spilled, its memory, and its new files.

They are summed over the JVM, its Python workers and this process, because the workers read keys (spark_jobs.engine).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.iceberg.tables import TopicTable


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes over all stages, and those that this process read. `spilled`: written to disk for lack of memory."""

    read: int = 0
    shuffled: int = 0
    spilled: int = 0

    def __sub__(self, other: Costs) -> Costs:
        return Costs(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


class Meter:
    """Measures costs from one call of `start` to the next."""

    def __init__(self, spark: SparkSession) -> None:
        # py4j's own view of the JVM has no types
        self._spark: Any = spark
        self._before = self._total()

    def start(self) -> Costs:
        """Return the costs since the last call."""
        now = self._total()
        costs, self._before = now - self._before, now
        return costs

    def peak_memory_bytes(self) -> int:
        """Return the sum of VmHWM (peak memory) of the JVM, its Python workers and this process, since their start."""
        return sum(1024 * _number(f"/proc/{pid}/status", "VmHWM") for pid in self._processes())

    def cpu_seconds(self) -> float:
        """Return the processor time of these processes so far. Other load affects it less than elapsed seconds."""
        return sum(map(_cpu_seconds, self._processes()))

    def _processes(self) -> list[int]:
        """Return this process, the JVM, the daemon of its Python workers, and the workers."""
        parents = {int(file.parent.name): _number(str(file), "PPid") for file in Path("/proc").glob("[0-9]*/status")}
        jvm = int(self._spark._jvm.java.lang.ProcessHandle.current().pid())
        family = {jvm}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        return [os.getpid(), jvm, *(family - {jvm})]

    def _workers(self) -> list[int]:
        """Return the Python workers, without the JVM: Spark's stages count the JVM's reads."""
        return self._processes()[2:]

    def _total(self) -> Costs:
        context = self._spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty()
        stages = self._stages(context)
        return Costs(
            sum(int(s.inputBytes()) for s in stages) + sum(map(_bytes_read, self._processes()[:1] + self._workers())),
            sum(int(s.shuffleWriteBytes()) for s in stages),
            sum(int(s.diskBytesSpilled()) for s in stages),
        )

    def _stages(self, context: Any) -> list[Any]:
        """Return Spark's stages without details, summaries and quantiles."""
        none = context._gateway.new_array(context._jvm.double, 0)
        stages = context._jsc.sc().statusStore().stageList(None, False, False, none, context._jvm.java.util.ArrayList())
        return [stages.apply(i) for i in range(stages.size())]


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Bytes of files under a table's directory: data and deletion vectors, and Iceberg's metadata."""

    data: int
    metadata: int

    @classmethod
    def before(cls, table: TopicTable) -> NewFiles:
        root = Path(unquote(urlparse(str(table.load().location())).path))
        return cls(_bytes_under(root / "data"), _bytes_under(root / "metadata"))

    def now(self, table: TopicTable) -> NewFiles:
        """Return the bytes that were written since `before`."""
        after = NewFiles.before(table)
        return NewFiles(after.data - self.data, after.metadata - self.metadata)


def _cpu_seconds(pid: int) -> float:
    """Return processor seconds of a process and of its ended children. 0 if there is no such process."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    return sum(map(int, numbers)) / os.sysconf("SC_CLK_TCK")


def _bytes_read(pid: int) -> int:
    return _number(f"/proc/{pid}/io", "rchar")


def _number(file: str, name: str) -> int:
    """Return the number in a line `name: number` of a file under /proc. 0 if the line or the process does not exist."""
    try:
        match = re.search(rf"^{name}:\s+(\d+)", Path(file).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def _bytes_under(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
