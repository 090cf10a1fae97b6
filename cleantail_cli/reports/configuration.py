"""Says what `check-config` and `import-config` answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from cleantail.config.run_schedule import schedule_text
from cleantail.config.topic import Topic
from cleantail.config.topic_group import TopicGroup
from cleantail.errors import ConfigError
from cleantail.human import counted
from cleantail.kafka import import_config
from cleantail.kafka.import_config import ImportedTopic
from cleantail_cli.console import folding_table
from cleantail_cli.output import Page

_STATUS = {
    import_config.WRITTEN: "written",
    import_config.EXISTS: "exists already and is left as it is; --force overwrites it",
    import_config.NOT_COMPACTED: "not written: the topic is not compacted in Kafka; name it with --topic",
    import_config.INTERNAL: "not written: an internal topic; name it with --topic",
}


@dataclass(frozen=True)
class Configuration:
    """Is the answer of `check-config`: a row for each file of a topic, and of a group, and problems and warnings below,
    on stderr."""

    files: Sequence[tuple[Path, Topic | ConfigError]]
    groups: Sequence[tuple[Path, TopicGroup | ConfigError]]
    warnings: Sequence[str]

    @property
    def errors(self) -> list[ConfigError]:
        return [error for _, error in (*self.files, *self.groups) if isinstance(error, ConfigError)]

    def document(self) -> dict[str, Any]:
        topics = [{"file": str(f), "topic": t.topic, "table": t.table} for f, t in self.files if isinstance(t, Topic)]
        problems = [
            {"file": str(e.file), "key": p.key, "problem": str(p), "line": p.line}
            for e in self.errors
            for p in e.problems
        ]
        groups = [{"file": str(f), "group": g.group} for f, g in self.groups if isinstance(g, TopicGroup)]
        return {
            "ok": not self.errors,
            "topics": topics,
            "groups": groups,
            "problems": problems,
            "warnings": list(self.warnings),
        }

    def tell(self, page: Page) -> None:
        title = counted(len(self.files), "topic file")
        table = folding_table("file", "topic", "table", "policy", "strategy", "schedule", title=title)
        for file, topic in self.files:
            if isinstance(topic, Topic):
                table.add_row(*(escape(text) for text in _row(file, topic)))
            else:
                table.add_row(escape(file.name), "[red]wrong[/red]", "", "", "", "")
        page.table(table)
        if self.groups:
            page.table(self._groups())
        for error in self.errors:
            page.note(str(error))
        for text in self.warnings:
            page.warning(text)

    def _groups(self) -> Table:
        table = folding_table("file", "group", "topics", "schedule", title=counted(len(self.groups), "group file"))
        topics = [topic for _, topic in self.files if isinstance(topic, Topic)]
        for file, group in self.groups:
            if isinstance(group, TopicGroup):
                members = sum(topic.group == group.group for topic in topics)
                row = (file.name, group.group, str(members), schedule_text(group.schedule))
                table.add_row(*(escape(text) for text in row))
            else:
                table.add_row(escape(file.name), "[red]wrong[/red]", "", "")
        return table


def _row(file: Path, topic: Topic) -> tuple[str, ...]:
    policy = ",".join(sorted(topic.config.cleanup_policy))
    when = schedule_text(topic.schedule) if topic.group is None else f"with group {topic.group}"
    return (file.name, topic.topic, topic.table, policy, topic.config.compaction_strategy, when)


@dataclass(frozen=True)
class ImportedTopics:
    """Says what became of each topic that Kafka has told of; `folder` is where the files are."""

    topics: Sequence[ImportedTopic]
    folder: Path

    def document(self) -> dict[str, Any]:
        rows = [
            {
                "topic": i.topic,
                "status": i.status,
                "file": i.file,
                "path": str(self.folder / i.file),
                "left_out": list(i.notes),
            }
            for i in self.topics
        ]
        return {"ok": True, "topics": rows}

    def tell(self, page: Page) -> None:
        for imported in self.topics:
            page.line(f"{imported.topic}: {self.folder / imported.file} {_STATUS[imported.status]}")
            for note in imported.notes:
                page.line(f"  not carried over: {note}")
        if not self.topics:
            page.line("no topics are described")
