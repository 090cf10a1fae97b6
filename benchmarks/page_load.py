"""Makes the pages of all topics and of one as the API server does, and writes down how long that took: `... RESULT`.

Airflow's login and HTTP are left out. The first page of a process reads all metadata; nothing was read ahead.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from differential.broker import ROOT


def main(argv: list[str]) -> int:
    """Loads the pages. The exit code is 1 where a topic is missing on the page of all topics."""
    # 1. the plugin's pages, without a server
    sys.path.insert(0, str(ROOT / "plugins"))
    app = import_module("cleantail_airflow.web.application")
    content = app.Content(Path(os.environ["CLEANTAIL_CONFIG"]), os.environ)
    names = sorted(content.topics())

    def page(template: str, shown: dict[str, Any]) -> str:
        return str(app._TEMPLATES.get_template(template).render(root="", ui="", **shown))

    def all_topics() -> str:
        return page("topics.html", content.all_topics(names, int(time.time() * 1000), asking={}))

    def one_topic() -> str:
        shown = content.one_topic(names[-1], int(time.time() * 1000))
        return page("topic.html", shown | {"released": None, "may_edit": True})

    # 2. the first load, and loads until all metadata is there
    seconds = {}
    began = time.perf_counter()
    text = all_topics()
    seconds["first"] = time.perf_counter() - began  # what is not read within a second comes at the next load
    while 'id="reading"' in text:
        text = all_topics()
    seconds["complete"] = time.perf_counter() - began
    # 3. loads after that
    for name, work in {"all topics": all_topics, "one topic": one_topic}.items():
        work()
        began = time.perf_counter()
        work()
        seconds[name] = time.perf_counter() - began
    # 4. the result
    Path(argv[0]).write_text(json.dumps(seconds))
    return 0 if all(f"/topics/{name}" in text for name in names) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
