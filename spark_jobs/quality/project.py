"""Says what was validated of a topic, in files: results of Great Expectations, and Data Docs of all its rounds."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from cleantail.home.home_folder import FOLDER, make_folder, results_of, site_of
from spark_jobs.quality.data_docs_site import write_pages
from spark_jobs.quality.data_docs_store import DocsStore
from spark_jobs.quality.results_store import strip, write_result

logger = logging.getLogger("cleantail.expectations")

_WRITING: dict[Path, threading.Thread] = {}
"""Who writes Data Docs, by directory."""
_PROBLEMS: dict[str, str] = {}
"""Why Data Docs were not written, by the address of their index."""


def data_docs_problem(address: str) -> str | None:
    """Wait until this process has written Data Docs, and return why those with an index there were not; None if they
    were."""
    for thread in list(_WRITING.values()):
        thread.join()
    return _PROBLEMS.get(address)


class Project:
    """Holds the validations of one look at a topic, until they are written. Directory:
    CLEANTAIL_HOME/data_docs/<topic>."""

    def __init__(self, home: Path, topic: str, store: DocsStore | None = None) -> None:
        """Takes whose validations these are. `store`: where Data Docs are copied to, None for nowhere."""
        self._home, self._topic = home, topic
        self._store = store
        self._root = home / FOLDER / topic
        self._validations: list[Any] = []

    @property
    def data_docs(self) -> str:
        """Returns where the index is that others can read: in the store, where there is one."""
        return self._store.index if self._store else str(site_of(self._home, self._topic) / "index.html")

    @property
    def validations(self) -> int:
        """Returns how many validations were made, and not forgotten."""
        return len(self._validations)

    def keep(self, validation: Any) -> list[Any]:
        """Takes a validation in, without what records hold, and returns the result of each of its expectations."""
        strip(validation)
        self._validations.append(validation)
        return list(validation.results)

    def forget_all_after(self, count: int) -> None:
        """Forgets the validations of several logs of which one failed: each log then has one of its own, and Data Docs
        show those."""
        del self._validations[count:]

    def begin_data_docs(self) -> None:
        """Writes what was validated, and pages of it, beside what follows. The next audit of the topic waits for it,
        and so does the end of the process."""
        before = _WRITING.get(self._root)
        _WRITING[self._root] = threading.Thread(target=self._write, args=(before,), name="cleantail-data-docs")
        _WRITING[self._root].start()

    def _write(self, before: threading.Thread | None) -> None:
        """Writes results and Data Docs. A failure of it fails no round, since the results are in the evidence table
        too."""
        if before is not None:
            before.join()
        try:
            make_folder(self._home, FOLDER, self._topic)
            store = results_of(self._home, self._topic)
            for validation in self._validations:
                write_result(store, validation)
            site = site_of(self._home, self._topic)
            written = write_pages(site, self._topic, self._validations)
            if self._store is not None:
                self._store.copy(site, written)
            _PROBLEMS.pop(self.data_docs, None)
        except Exception as e:  # else the thread would end in silence
            # of another error than a disk's the text may quote what was checked
            _PROBLEMS[self.data_docs] = str(e) if isinstance(e, OSError) else type(e).__name__
            logger.warning("Data Docs were not written: %s", _PROBLEMS[self.data_docs])
