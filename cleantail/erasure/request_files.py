"""Requests to erase keys that other programs leave as files in CLEANTAIL_HOME/erasures/TOPIC.

    {"keys": ["customer-17"], "requested_by": "ticket 4711", "deadline": "2026-12-24T00:00Z"}

A file becomes a request, and is then deleted, because it has keys. A repeated file makes no second request while the
first is open. A file that cannot be read, or deleted, stays. The error names the file, and quotes none of its content.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from cleantail.config.config_model import Model
from cleantail.config.topic import Topic
from cleantail.erasure.requests import ErasureRequest, default_deadline_ms
from cleantail.erasure.store import ErasureStore
from cleantail.errors import CleantailError, OutsideError
from cleantail.human import moment_ms
from cleantail.lake.catalogs import kept_catalog, load_table, side_tables

FOLDER = "erasures"
"""The folder of CLEANTAIL_HOME with a folder for each topic that has such files."""
PATTERN = "*.json"
"""Names of complete files: write another name first, then rename the file."""
LARGEST_BYTES = 256 << 20
NEEDED = {
    "keys": "a list of texts, not empty",
    "encoding": "text or base64",
    "requested_by": "a text of 1 to 200 characters",
    "deadline": "a time such as 2026-12-24T00:00Z",
    "exclude": "a list of names",
    "tombstone": "true or false",
}
"""Field of a request file -> its allowed values, for errors."""


class RequestFile(Model):
    """The JSON object in a request file. `encoding`: of the keys."""

    keys: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    encoding: Literal["text", "base64"] = "text"
    requested_by: Annotated[str, Field(min_length=1, max_length=200)]
    deadline: str | None = None
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = ()
    tombstone: bool = False

    def key_bytes(self) -> list[bytes]:
        """Return the keys. Raises ValueError for a key that is not in the encoding."""
        if self.encoding == "text":
            return [key.encode() for key in self.keys]
        return [base64.b64decode(key, validate=True) for key in self.keys]


def waiting_files(topic: Topic) -> list[Path]:
    """Return the files that are requests of a topic, by name."""
    return sorted(path for path in (topic.platform.home / FOLDER / topic.topic).glob(PATTERN) if path.is_file())


def files_without_topic(home: Path, topics: Collection[str]) -> list[Path]:
    """Return the request files in folders that are not named by one of these topics, so that no command reads them."""
    files = (home / FOLDER).glob(f"*/{PATTERN}")
    return sorted(path for path in files if path.parent.name not in topics and path.is_file())


def take_requests(store: ErasureStore, topic: Topic, now_ms: int) -> tuple[list[ErasureRequest], list[str]]:
    """Record the requests of a topic's files, and delete these files. Return the requests, and the problems of files.
    A file with a problem stays, and does not stop the others. A file that cannot be deleted still becomes a request."""
    taken, problems = list[ErasureRequest](), list[str]()
    for file in waiting_files(topic):
        try:
            taken.append(_taken(store, topic, file, now_ms))
            file.unlink(missing_ok=True)
        except OutsideError:
            raise
        except CleantailError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(
                f"{file} is request {taken[-1].id} now, and cannot be deleted: {error.strerror}. Delete it, because it "
                "contains keys. If it stays, it becomes a new request when that request has ended"
            )
    return taken, problems


def _taken(store: ErasureStore, topic: Topic, file: Path, now_ms: int) -> ErasureRequest:
    try:
        if file.stat().st_size > LARGEST_BYTES:
            raise CleantailError(f"{file} is not a request: it has more than {LARGEST_BYTES} bytes")
        asked = RequestFile.model_validate_json(file.read_bytes())
        keys = asked.key_bytes()
        at_ms = moment_ms(asked.deadline) if asked.deadline is not None else now_ms + default_deadline_ms(topic.config)
    except OSError as e:
        raise CleantailError(f"{file} cannot be read: {e.strerror}") from None
    except ValidationError as e:
        raise CleantailError(f"{file} is not a request: {_problems(e)}") from None
    except ValueError:
        raise CleantailError(f"{file} is not a request: a key is not base64, as its encoding requires") from None
    if at_ms is None:
        raise CleantailError(f"{file} is not a request: deadline must be {NEEDED['deadline']}")
    if asked.exclude and not {*asked.exclude} <= (known := excludable(topic)):
        raise CleantailError(
            f"{file} is not a request: exclude has a name that no branch or tag of the topic's tables has. Allowed are "
            f"these: {', '.join(sorted(known))}"
        )
    return store.request(
        topic.topic,
        keys,
        by=asked.requested_by,
        now_ms=now_ms,
        deadline_ms=at_ms,
        exclude=asked.exclude,
        tombstone=asked.tombstone,
    )


def excludable(topic: Topic) -> set[str]:
    """Return the names that a request may exclude: branches and tags of the topic's tables, the source, old
    versions."""
    tables = [load_table(kept_catalog(topic.platform), topic), *side_tables(topic).values()]
    refs = {name for table in tables if table is not None for name in table.metadata.refs}
    return {"source", "versions"} | (refs - {"main"})


def _problems(error: ValidationError) -> str:
    """Return the wrong fields, without the texts of keys and of unknown fields."""
    names = {str(e["loc"][0]) if e["loc"] else "" for e in error.errors(include_input=False)}
    if not (named := sorted(names & NEEDED.keys())):
        allowed = "an object with keys and requested_by, and possibly encoding, deadline, exclude and tombstone"
        return f"allowed is {allowed}"
    return "; ".join(f"{name} must be {NEEDED[name]}" for name in named)
