"""Adapter: finds a topic's segments in a directory, and what the broker's checkpoints beside them say.

The directory is a broker's log directory, a copy of it, what tiered storage has copied, or one partition's folder:

- folders `TOPIC-N`, as a broker names them, or `TOPIC-N-TOPICID`, as Kafka's own LocalTieredStorage does;
- in them files that begin with their base offset: `00000000000000000042.log`, or `42-SEGMENTID.log`.

What a broker is about to delete (`-delete`, `.deleted`) or has not finished (`-future`, `.cleaned`) has other names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cleantail.errors import CleantailError, OutsideError

SEGMENT = re.compile(r"(\d{1,19}|0\d{19})(-[A-Za-z0-9_-]+)?\.log")
TOPIC_ID = r"[A-Za-z0-9_-]{22}"
HIGH_WATERMARKS, LOG_STARTS, CLEAN_POINTS = (
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
"""Files of a log directory: the ends of what is replicated, starts that were moved, and up to where logs are clean."""
CLUSTER_FILE, TOPIC_FILE = "meta.properties", "partition.metadata"
_NOTHING = "nothing was appended"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """Describes a file as it was found. `modified_ns` and `inode` tell whether it is still the same one."""

    path: Path
    base_offset: int
    size_bytes: int
    modified_ns: int
    inode: int

    @property
    def is_copy(self) -> bool:
        """Returns whether it is a copy in tiered storage, whose name has an id of its own: these may overlap, and are
        never of a log that is compacted."""
        return not self.path.stem.isdigit()


@dataclass(frozen=True, slots=True)
class LogFolder:
    """Describes one partition's folder. `segments` ascend by base offset. `log_start` and `high_watermark`
    are the broker's, where its checkpoints are there and know the partition. `clean_point` is 0 where the cleaner's
    checkpoint does not name the partition, which was then never cleaned, and None without that checkpoint."""

    partition: int
    path: Path
    topic_id: str
    segments: tuple[SegmentFile, ...]
    log_start: int = 0
    high_watermark: int | None = None
    clean_point: int | None = None

    def from_offset(self, offset: int) -> LogFolder:
        """Returns the log without the segments that lie wholly below the offset. Copies in tiered storage may overlap,
        so that their names do not tell where they end: they all stay."""
        if any(segment.is_copy for segment in self.segments):
            return self
        below = sum(segment.base_offset <= offset for segment in self.segments[1:])
        return replace(self, segments=self.segments[below:])


@dataclass(frozen=True, slots=True)
class TopicFolders:
    """Describes a topic's logs in a directory. Cluster and topic id are empty where no file says which they are."""

    topic: str
    cluster_id: str
    topic_id: str
    logs: tuple[LogFolder, ...]


def find_logs(directory: Path, topic: str) -> TopicFolders:
    """Returns the logs of the topic, ascending by partition. Raises CleantailError where there are none, and where it
    is not clear which files are the topic's."""
    folders, checkpoints = _partition_folders(directory, topic)
    starts, ends, clean = (
        _checkpoint(checkpoints / name, topic) for name in (LOG_STARTS, HIGH_WATERMARKS, CLEAN_POINTS)
    )
    never = 0 if (checkpoints / CLEAN_POINTS).exists() else None
    logs = tuple(
        LogFolder(n, path, _topic_id(path, topic), _segments(path), starts.get(n, 0), ends.get(n), clean.get(n, never))
        for n, path in sorted(folders.items())
    )
    ids = {log.topic_id: log.path for log in logs if log.topic_id}
    if len(ids) > 1:
        (one, first), (other, second) = list(ids.items())[:2]
        raise CleantailError(
            f"{first} is of the topic with the id {one}, and {second} of the one with the id {other}: two topics had "
            f"the name {topic}; give the folders of one of them; {_NOTHING}"
        )
    return TopicFolders(topic, _property(checkpoints / CLUSTER_FILE, "cluster.id", "="), next(iter(ids), ""), logs)


def _partition_folders(directory: Path, topic: str) -> tuple[dict[int, Path], Path]:
    """Returns partition -> folder, and the directory that has the checkpoints."""
    name = re.compile(rf"{re.escape(topic)}-(\d{{1,10}})(-{TOPIC_ID})?")
    if not directory.is_dir():
        raise CleantailError(f"{directory} is not a directory; {_NOTHING}")
    if match := name.fullmatch(directory.name):
        return {int(match[1]): directory}, directory.parent
    folders: dict[int, Path] = {}
    for path in sorted(_entries(directory)):
        if (match := name.fullmatch(path.name)) and path.is_dir():
            if (partition := int(match[1])) in folders:
                raise CleantailError(
                    f"{folders[partition]} and {path} are both of partition {partition} of topic {topic}; {_NOTHING}"
                )
            folders[partition] = path
    if not folders:
        raise CleantailError(
            f"{directory} has no folder of topic {topic}: expected are folders {topic}-N, or {topic}-N-TOPICID as "
            f"tiered storage names them, or such a folder itself; {_NOTHING}"
        )
    return folders, directory


def _segments(folder: Path) -> tuple[SegmentFile, ...]:
    """Returns the folder's segments. Raises CleantailError where there are none, and where a broker was stopped in the
    midst of putting cleaned segments in the place of others: which of both are whole only the broker can tell."""
    segments = []
    for path in _entries(folder):
        if path.name.endswith(".log.swap"):
            raise CleantailError(
                f"{path}: the broker was stopped while it replaced segments by cleaned ones, or is at it: start it "
                f"once, or try again; {_NOTHING}"
            )
        if match := SEGMENT.fullmatch(path.name):
            segments.append(_segment(path, int(match[1])))
    if not segments:
        raise CleantailError(f"{folder} has no segments (OFFSET.log, or OFFSET-SEGMENTID.log); {_NOTHING}")
    return tuple(sorted(segments, key=lambda s: (s.base_offset, s.path.name)))


def _segment(path: Path, base_offset: int) -> SegmentFile:
    try:
        status = path.stat()
    except OSError as e:
        raise OutsideError(f"{path} cannot be read: {e.strerror}; {_NOTHING}") from None
    return SegmentFile(path, base_offset, status.st_size, status.st_mtime_ns, status.st_ino)


def require_same_file(segment: SegmentFile, status: os.stat_result, may_grow: bool) -> None:
    """Raises OutsideError where a file is not the one that was scanned. `may_grow` is for the segment that a running
    broker appends to."""
    same_size = status.st_size >= segment.size_bytes if may_grow else status.st_size == segment.size_bytes
    if status.st_ino != segment.inode or not same_size or (status.st_mtime_ns != segment.modified_ns and not may_grow):
        raise OutsideError(f"{segment.path} was changed while it was read: try again; {_NOTHING}")


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError as e:
        raise CleantailError(f"{directory} cannot be read: {e.strerror}; {_NOTHING}") from None


def _topic_id(folder: Path, topic: str) -> str:
    """Returns the topic's id by the folder's name, or by the broker's file in it."""
    if match := re.fullmatch(rf"{re.escape(topic)}-\d+-({TOPIC_ID})", folder.name):
        return match[1]
    return _property(folder / TOPIC_FILE, "topic_id", ":")


def _property(file: Path, name: str, separator: str) -> str:
    """Returns a property of one of the broker's small files; empty where the file or the property is not there."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as e:
        raise CleantailError(f"{file} cannot be read: {e}; {_NOTHING}") from None
    pairs = (line.partition(separator) for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def _checkpoint(file: Path, topic: str) -> Mapping[int, int]:
    """Returns partition -> offset of one of the broker's checkpoints: a version, a number of lines, and lines of topic,
    partition and offset. Without the file, or before its first entry, there are none."""
    try:
        rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines()[2:]]
        return {int(partition): int(offset) for name, partition, offset in rows if name == topic}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise CleantailError(f"{file} is not a checkpoint of a broker: {e}; {_NOTHING}") from None
