"""Play a history on a site, and compare with the oracle after each act."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from soak import oracle
from soak.gateway import ANSWERS, DISK, PAUSED
from soak.histories import DAY, FILES, HOUR, KAFKA, Act, History, Record
from soak.kafka import Broker
from soak.oracle import Truth
from soak.scenarios import REFUSED
from soak.site import DIED, LANDING, NAMESPACE, ROOT, Done, Site, now_ms

CONFLICT, OUTSIDE, WRONG = 3, 4, 2
SEVERE = ("away", "away after", "late")
"""Wrong answers after which a command may give up: a long time without answers, or a commit that is taken late."""
FORMAT = "cleantail.format"
CHECK = {"expectation": "expect_column_values_to_not_be_null", "kwargs": {"column": "key"}}
"""A check of the topic's own. Because it reads the branch of a round, the branch is committed."""
FILES_OF_COMMAND = 4
"""Allowed average number of files without a snapshot per command: files of staged rounds and of failed tries."""
BACKUP = "backup_of_another_user"
TAKING = ("ingest", "read", "dag")
"""Acts that take records."""
UNDOING = ("rollback", "rollback by others")
FORGETTING = ("reclaim", "expiry", "topic made again", *UNDOING)  # after these a snapshot may be gone
ENGINES = ("sql", "register twice", "roll back a round")
"""Acts of other engines. They may fail, because they are not part of the product."""
CRASH = ("Traceback (most recent call last)", "its message may quote a record", "is a bug")


class Finding(Exception):
    """A broken rule. The text names it."""


@dataclass
class Player:
    """One history on its topic. `base_ms` is the time at which it begins."""

    site: Site
    history: History
    topic: str
    base_ms: int = field(default_factory=now_ms)
    log: list[str] = field(default_factory=list)
    commands: int = 0
    broken: int = 0
    acts: int = 0

    def __post_init__(self) -> None:
        self.truth = Truth(int(str(self.history.configs["delete.retention.ms"])))
        self.catalog = self.site.catalog
        self.configs, self.table, self.dag = dict(self.history.configs), self.topic, self.topic
        self.lock = threading.Lock()

    def play(self) -> None:
        """Raise Finding."""
        if self.history.source == KAFKA:
            self.broker.create(self.topic, self.history.partitions)
        self.configure(Act("configure"))
        for number, act in enumerate(self.history.acts):
            try:
                self.act(act)
            except Exception as e:  # includes errors of the oracle, which cannot read a broken table
                raise Finding(f"act {number}, {shown(act)}: {e if isinstance(e, Finding) else repr(e)}") from e
        self.settle()

    # ---- acts

    def act(self, act: Act) -> None:
        if act.fault is None and not act.meanwhile:
            self.plain(act)
        else:
            self.disturbed(act)
        self.acts += 1
        self.compare()

    def plain(self, act: Act) -> None:
        done = self.run(act)
        if done.code not in act.codes or any(text in done.err for text in CRASH):
            raise Finding(f"without a fault: {done}")
        if act.do == "compact":
            self.truth.twice = False

    def disturbed(self, act: Act) -> None:
        """Run an act with its fault. Its `meanwhile` runs while the machine is paused, or at the same time."""
        machine, ended = self.site.machines[act.machine], list[Done]()
        before = self.head()
        thread = threading.Thread(target=lambda: ended.append(self.run(act)))
        thread.start()
        if act.fault is not None and act.fault.how.startswith(PAUSED):
            while thread.is_alive() and not machine.stopped.wait(0.1):
                pass
        others = [replace(other, fault=None, meanwhile=()) for other in act.meanwhile]
        waiting = self.branches() if machine.stopped.is_set() else set()
        done = [self.run(other) for other in others]
        dropped = waiting - self.branches() if all(other.do == "reclaim" for other in others) else set()
        if machine.stopped.is_set():
            machine.go_on()
        thread.join()
        if dropped:
            raise Finding(f"a reclaim dropped branches of a round that waits: {dropped}")
        on_disk = act.fault is not None and act.fault.how in DISK
        if not others and ended[0].code in (CONFLICT, WRONG) and self.head() != before:
            raise Finding(f"the command changed the table, but reports no change: {ended[0]}")
        for each, of in zip((*ended, *done), (act, *others), strict=True):
            # one wrong answer to one request changes no result, unless another machine works at the same time
            is_one = of.fault is not None and of.fault.how in ANSWERS and of.fault.how not in SEVERE and not others
            codes = set(of.codes) if is_one else {*of.codes, CONFLICT, OUTSIDE, DIED, *([WRONG] if on_disk else [])}
            self.judge(each, codes)
            if of.do in TAKING and each.code:
                self.again(of)

    def now(self) -> Table | None:
        """Load the table."""
        return oracle.load(self.catalog, f"{NAMESPACE}.{self.table}")

    @property
    def loaded(self) -> Table:
        """Load the table, which exists."""
        table = self.now()
        assert table is not None
        return table

    def head(self) -> int | None:
        """Return the id of the current snapshot of the table, or None."""
        return table.metadata.current_snapshot_id if (table := self.now()) else None

    def branches(self) -> set[str]:
        return set(table.refs()) if (table := self.now()) else set()

    def judge(self, done: Done, codes: set[int]) -> None:
        if done.argv[0] not in ENGINES and (done.code not in codes or any(text in done.err for text in CRASH)):
            raise Finding(str(done))

    def again(self, act: Act) -> None:
        """Ingest again, on another machine, a file that may not have been taken: no record may be there twice."""
        done = self.run(replace(act, machine=(act.machine + 1) % len(self.site.machines), fault=None, meanwhile=()))
        if done.code:
            raise Finding(f"the next run without a fault fails: {done}")

    def run(self, act: Act) -> Done:
        """Run one act, and report it to the oracle."""
        if act.do in self.elsewhere:
            self.elsewhere[act.do](act)
            return Done((act.do,), 0, "", "")
        machine, truth = self.site.machines[act.machine], self.truth
        with self.lock:
            self.commands += 1
            records = list(act.records)
            if act.do in ("read", "dag") and self.history.source == KAFKA:
                records = self.broker.committed(self.topic, self.base_ms)
            if act.codes != REFUSED:
                truth.send(records, act.file)
            if act.do in UNDOING:  # the round that registered a file once may be undone
                truth.twice = truth.revived
        done = machine.run(self.argv(act), act.fault, act.do == "dag", act.do)
        if done.code == WRONG and "`cleantail mend TABLE`" in done.err:  # its message names the command that repairs
            machine.run(["mend", f"{NAMESPACE}.{self.table}"])
            done = machine.run(self.argv(act), label=act.do)
        with self.lock:
            self.broken += done.code != 0
            if act.do in ("compact", "dag"):  # it may have kept tombstones that came while it ran
                truth.run(act.at)
            if act.do == "reader" and (done.code == 0 or truth.held is not None):
                truth.held = int(done.argv[-1])
            if act.do in TAKING and done.code == 0:
                truth.acknowledge(records)
            hit = f" [{machine.door.hit}, {act.fault.how}]" if act.fault and machine.door.hit else ""
            self.log.append(f"{machine.name}: {' '.join(done.argv)[:150]} -> {done.code}{hit}")
        return done

    def argv(self, act: Act) -> list[object]:
        match act.do:
            case "ingest":
                return ["ingest", self.topic, "--file", self.file(act)]
            case "read":
                return ["ingest", self.topic]
            case "compact":
                return ["compact", self.topic, "--force", "--now", self.base_ms + act.at]
            case "dag":
                return ["dag", self.dag, json.dumps({"now_ms": self.base_ms + act.at})]
            case "rollback":
                return ["rollback", self.topic, "--to", "last"]
            case "reader":
                end = max([offset for partition, offset in self.truth.acked if partition == 0], default=-1) + 1
                return ["reader", "set", self.topic, "index", "--partition", 0, "--offset", end]
            case "rewrite":
                call = f"rewrite_data_files(table => '{self.name}', options => map('rewrite-all', 'true'))"
                return ["sql", f"CALL cleantail.system.{call}"]
            case "expiry":
                call = f"expire_snapshots(table => '{self.name}', older_than => now(), retain_last => 1)"
                return ["sql", f"CALL cleantail.system.{call}"]
            case "manifests":
                return ["sql", f"CALL cleantail.system.rewrite_manifests('{self.name}')"]
            case "file registered twice":
                self.truth.twice = self.truth.revived = True
                return ["register twice", f"cleantail.{self.name}"]
            case "rollback by others":
                return ["roll back a round", self.name]
        return [act.do, self.topic]

    @property
    def elsewhere(self) -> dict[str, Callable[[Act], None]]:
        """Acts that are not commands."""
        return {
            "upgrade": lambda act: self.site.machines[act.machine].upgrade(),
            "configure": self.configure,
            "produce": self.produce,
            "broker restarts": lambda _: self.broker.restart(),
            "partition added": lambda _: self.broker.add_partition(self.topic),
            "log start moves": lambda _: self.broker.move_start(self.topic),
            "broker forgets": self.forgets,
            "catalog restarts": lambda _: self.site.restart_catalog(),
            "table of a later version": self.later_version,
            "topic made again": self.made_again,
            "home is shared": lambda act: self.site.machines[act.machine].move(self.site.machines[0].home),
            "nothing is left to do": lambda _: self.compare(settled=True),
        }

    @property
    def broker(self) -> Broker:
        assert self.site.broker is not None, "this history needs a broker"
        return self.site.broker

    def configure(self, act: Act) -> None:
        """Write the topic's YAML with these configs. Among them, `cleaner` is the platform's, and `others` is the
        number of topics in a group with this one. Four of them have records."""
        self.configs |= act.configs
        topic: dict[str, object] = {"config": {k: v for k, v in self.configs.items() if "." in k}}
        topic |= {"table": f"{NAMESPACE}.{self.table}", "checks": [] if self.history.number % 2 else [CHECK]}
        if self.history.source == KAFKA:
            topic["source"] = {"kafka": {"bootstrap.servers": self.broker.address}}
        others = int(str(self.configs.get("others", 0)))
        if others:
            self.dag = topic["group"] = f"{self.topic}_group"
            self.file(Act("ingest", records=(Record(0, 0, -HOUR, "a", "1"), Record(0, 1, -HOUR, "a", "2"))))
        for machine in self.site.machines:
            if others:
                machine.configure(self.dag, {"limits": {"pack.max.topics": 2, "run.max.packs": 1}}, kind="group")
            for n in range(others):
                path = self.site.folder / LANDING / f"{self.topic}-{0 if n < 4 else 'none*'}.jsonl"
                table, source = f"{NAMESPACE}.{self.topic}_{n}", {"path": str(path)}
                machine.configure(f"{self.topic}_{n}", topic | {"table": table, "source": source})
            machine.configure(self.topic, topic, self.configs.get("cleaner"))

    def produce(self, act: Act) -> None:
        """Send records in transactions: some are committed, then some aborted, then the others are committed."""
        half = len(act.records) // 2
        parts = ((act.records[:half], True), (act.aborted, False), (act.records[half:], True))
        self.broker.send(self.topic, parts, self.base_ms)

    def forgets(self, _: Act) -> None:
        """The broker removes superseded records and all tombstones before they are read."""
        before = self.broker.committed(self.topic, self.base_ms)
        tombstones = {record for record in before if record.value is None}

        def left() -> set[Record]:
            return set(self.broker.committed(self.topic, self.base_ms))

        self.broker.forget(self.topic, lambda: not tombstones & left())
        gone = set(before) - left()
        self.truth.send(gone)
        self.truth.acknowledge(gone)
        self.truth.gone |= {(record.partition, record.offset) for record in gone if record.value is None}

    def later_version(self, act: Act) -> None:
        """A table that a later version of Cleantail has written is refused by name, and nothing changes."""
        before = self.loaded.properties[FORMAT]
        self.loaded.transaction().set_properties({FORMAT: "99"}).commit_transaction()
        done = self.site.machines[act.machine].run(["compact", self.topic, "--force"])
        if done.code != WRONG or "99" not in done.err:
            raise Finding(f"a table of format 99 was not refused, or not named: {done}")
        self.loaded.transaction().set_properties({FORMAT: before}).commit_transaction()

    def made_again(self, act: Act) -> None:
        """The topic is deleted and created again. Its table refuses new records, and another table takes them."""
        before, partitions = self.rows(), len(self.broker.ends(self.topic))
        self.broker.delete(self.topic)
        self.broker.create(self.topic, partitions)
        self.broker.send(self.topic, [([Record(0, 0, 0, "a", "of another log")], True)], self.base_ms)
        if before:
            done = self.site.machines[act.machine].run(["ingest", self.topic], label="read")
            if done.code != WRONG or self.rows() != before:
                raise Finding(f"a recreated topic was not refused: {done}")
        self.table, self.truth = f"{self.table}_again", Truth(self.truth.retention)
        self.configure(act)

    @property
    def name(self) -> str:
        return f"{NAMESPACE}.`{self.table}`"

    def file(self, act: Act) -> Path:
        """Return the file of an act, in a landing folder that both machines see."""
        file = self.site.folder / LANDING / f"{self.topic}-{act.file}.jsonl"
        file.write_text("".join(self.line(record) for record in act.records))
        return file

    def line(self, r: Record) -> str:
        place = {"partition": r.partition, "offset": r.offset, "ts": self.base_ms + r.at}
        return json.dumps({**place, "key": r.key, "payload": r.value}) + "\n"

    # ---- comparison

    def rows(self) -> list[Record]:
        return oracle.read(table, self.base_ms) if (table := self.now()) else []

    def compare(self, settled: bool = False) -> None:
        problems = self.truth.problems(self.rows(), self.clean_points() if settled else None, settled)
        if problems:
            raise Finding("\n".join(problems[:20]))

    def clean_points(self) -> dict[int, int]:
        """Return partition -> first dirty offset, from `cleantail status`."""
        done = self.must("status", self.topic, "--json")
        return {log["partition"]: log["first_dirty_offset"] for log in json.loads(done.out)["topics"][self.topic]}

    def must(self, *argv: object, allow_clock: bool = False) -> Done:
        """Run a plain command that must succeed."""
        self.commands += 1
        done = self.site.machines[0].run(argv, None, allow_clock)
        self.log.append(f"0: {' '.join(done.argv)[:150]} -> {done.code}")
        if done.code:
            raise Finding(f"it fails without a fault: {done}")
        return done

    # ---- the end

    def settle(self) -> None:
        """Settle the topic by plain runs, and compare all reports with the records. Raises Finding."""
        try:
            self._settle()
        except Exception as e:
            raise Finding(f"at the end: {e if isinstance(e, Finding) else repr(e)}") from e

    def _settle(self) -> None:
        truth = self.truth
        for machine in self.site.machines:
            while machine.roots[0] != ROOT:
                machine.upgrade()
        if any(act.do == "reader" for act in self.history.acts):
            self.plain(Act("reader"))  # an earlier one of these acts may have been killed
            self.must("reader", "remove", self.topic, "index")
            truth.held = None
        if self.history.source == KAFKA:
            self.plain(Act("read"))
        at = max([act.at for act in self.history.acts] + [0])
        for _ in range(3):  # late records, then tombstones that are kept first, then expired ones
            at += truth.retention + 1
            truth.run(at)
            self.must("compact", self.topic, "--force", "--now", self.base_ms + at)
        self.truth.twice = False
        self.compare(settled=True)
        live = sorted(self.rows())
        for command in ("latest", "read"):
            said = [json.loads(line) for line in self.must(command, self.topic).out.splitlines()]
            found = sorted((line["partition"], line["offset"], line["key"], line["payload"]) for line in said)
            if found != [(r.partition, r.offset, r.key, r.value) for r in live]:
                raise Finding(f"{command} prints {found} instead of {live}")
        self.must("check", self.topic)
        self.must("history", self.topic)
        table = self.loaded
        winners = [record for record in truth.winners().values() if record.value is not None]
        done = {each.do for act in self.history.acts for each in (act, *act.meanwhile)}
        evidence, is_whole = f"{NAMESPACE}.cleantail_evidence", done.isdisjoint(FORGETTING)
        problems = oracle.evidence_problems(self.catalog, evidence, self.topic, table, is_whole)
        if problems := problems + oracle.slow_reader_problems(table, self.base_ms, winners):
            raise Finding("\n".join(problems))
        self._reclaim()

    def _reclaim(self) -> None:
        """After plain reclaims only few files without a snapshot are left, and only branches of failed runs.

        A reclaim removes such files a day after they were written, by the machine's clock. So they are counted here.
        """
        table = self.loaded
        if current := table.current_snapshot():
            self.must("sql", f"ALTER TABLE cleantail.{self.name} CREATE TAG {BACKUP}")
        self._refused_to_another_topic()
        beside, kept = f"{NAMESPACE}.{self.table}_deleted_versions", list[Path]()
        oracle.make_beside(self.catalog, beside)
        for days in (60, 61):
            end = max((offset for partition, offset in self.truth.sent if partition == 0), default=-1) + 1
            last = (Record(0, end, -HOUR, "last", f"after {days} days"),)
            acts = [Act("produce", records=last), Act("read")]
            for act in acts if self.history.source == KAFKA else [Act("ingest", file=1000 + days, records=last)]:
                self.plain(act)
            self.must("compact", self.topic, "--force", "--now", now_ms() + days * DAY)
            if days == 61 and self.site.is_own:
                kept = self._refused_next_to_another(table)
            self.must("reclaim", self.topic, "--now", now_ms() + days * DAY, allow_clock=True)
        if gone := [str(file) for file in kept if not file.exists()]:
            raise Finding(f"a reclaim removed files that are younger than a day or older than the table: {gone}")
        theirs = oracle.load(self.catalog, beside)
        if not theirs or len(theirs.snapshots()) != 2:
            raise Finding(f"{beside} belongs to another owner, and a snapshot of it is gone")
        self.compare(settled=True)
        table = self.loaded
        unknown = oracle.unknown_files(table) if self.site.is_own else []
        if len(unknown) > FILES_OF_COMMAND * self.commands:
            raise Finding(f"{len(unknown)} files are in no snapshot after {self.commands} commands: {unknown[:10]}")
        # a later run drops the branch of a killed one after a day, by the machine's clock
        if len(refs := set(table.refs()) - {"main", BACKUP}) > self.broken:
            raise Finding(f"{self.broken} runs failed, but more branches are left: {refs}")
        if current and BACKUP not in table.refs():
            raise Finding(f"another user's tag {BACKUP} was dropped")
        self._watched(now_ms() + 61 * DAY)

    def _refused_next_to_another(self, table: Table) -> list[Path]:
        """A reclaim deletes no file while the folder has a table of an unknown catalog. Return files that a later one
        must keep."""
        there, kept = oracle.make_stranger(table, self.site.folder / f"{self.topic}.db")
        self._refused("reclaim", self.topic, "--now", now_ms() + 61 * DAY, allow_clock=True)
        if not all(file.exists() for file in there):
            raise Finding(f"reclaim deleted files of another table: {[str(f) for f in there if not f.exists()]}")
        shutil.rmtree(there[0].parents[1])
        return kept

    def _refused_to_another_topic(self) -> None:
        """A topic whose YAML names the table of another topic changes nothing."""
        machine, other = self.site.machines[0], f"{self.topic}_other"
        machine.forget(self.topic)
        machine.configure(other, {"table": f"{NAMESPACE}.{self.table}", "config": {"segment.ms": 1}}, {})
        before = self.loaded.metadata_location
        for command in (("compact", other, "--force"), ("reclaim", other), ("adopt", f"{NAMESPACE}.{self.table}")):
            self._refused(*command)
        machine.forget(other)
        self.configure(Act("configure"))
        if self.loaded.metadata_location != before:
            raise Finding("another topic changed the table")

    def _refused(self, *argv: object, allow_clock: bool = False) -> None:
        done = self.site.machines[0].run(argv, None, allow_clock)
        if done.code != WRONG:
            raise Finding(f"the command was not refused, although it concerns another owner's table: {done}")

    def _watched(self, at_ms: int) -> None:
        """Compare pages, metrics and alerts of the settled topic with the records."""
        said = json.loads(self.must("watch", self.topic, at_ms).out)
        metrics = {tuple(labels): value for *labels, value in said["metrics"]}
        rows, acked = self.rows(), self.truth.acked
        for p in {partition for partition, _ in acked}:
            end = 1 + max(offset for partition, offset in acked if partition == p)
            wanted = {
                "log-records": sum(row.partition == p for row in rows),
                "tombstones-pending": 0,
                "log-quarantined": 0,
                "log-first-dirty-offset": metrics.get(("log-end-offset", str(p))),
                **({"log-end-offset": end} if self.history.source == FILES else {}),
            }
            if (found := {name: metrics.get((name, str(p))) for name in wanted}) != wanted:
                raise Finding(f"metrics of partition {p} are {found} instead of {wanted}")
        if said["state"] != "clean" or said["alarms"]:
            raise Finding(f"the topic is clean, but the page shows {said['state']}, and alerts are {said['alarms']}")

    def forget(self) -> None:
        """Remove the topic. On the soak's own site also drop its tables: a long soak would fill the disk."""
        if self.site.is_own:
            oracle.forget(self.catalog, NAMESPACE, self.topic)
        for machine in self.site.machines:
            machine.forget(self.topic)
            if machine.home.name != f"home-{machine.name}":
                machine.move()


def shown(act: Act) -> str:
    fault = f" with {act.fault.how} at {act.fault.kind} {act.fault.nth}" if act.fault else ""
    more = f", meanwhile {', '.join(shown(other) for other in act.meanwhile)}" if act.meanwhile else ""
    return f"{act.do} on machine {act.machine}{fault}{more}"


def shrink(history: History, fails: Callable[[History], bool], say: Callable[[str], None]) -> History:
    """Return a history with fewer acts that still fails. Try without halves, quarters, …, single acts, then faults."""

    def with_acts(acts: Sequence[Act]) -> History:
        return replace(history, acts=tuple(acts))

    acts, size = list(history.acts), len(history.acts) // 2
    while size:
        for end in range(len(acts), 0, -size):  # the last first: acts after the failing one are dropped at once
            fewer = acts[: max(end - size, 0)] + acts[end:]
            if fewer and fails(with_acts(fewer)):
                acts = fewer
                say(f"{len(acts)} acts still fail")
        size //= 2
    for n, act in enumerate(acts):
        simplest: tuple[dict[str, Any], ...] = ({"meanwhile": ()}, {"meanwhile": (), "fault": None})
        for simpler in simplest:
            changed = replace(act, **simpler)
            if changed != acts[n] and fails(with_acts([*acts[:n], changed, *acts[n + 1 :]])):
                acts[n] = act = changed
    return with_acts(acts)
