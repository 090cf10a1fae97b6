"""Play a history on a site, and compare with the oracle after each act."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.table import Table

from soak import oracle
from soak.gateway import ANSWERS, DISK, PAUSED
from soak.histories import ADOPTED, DAY, FILES, HOUR, KAFKA, Act, History, Record
from soak.kafka import Broker
from soak.oracle import Truth
from soak.scenarios import REFUSED
from soak.site import DIED, LANDING, NAMESPACE, ROOT, STUCK, Done, Site, now_ms

CONFLICT, OUTSIDE, WRONG, FORMAT = 3, 4, 2, "cleantail.format"
MILD = {*ANSWERS, "slow"} - {"away", "away after", "late"}
"""Faults after which no command gives up. Others: a long time without answers, or a commit that is taken late."""
NOT_NULL = "expect_column_values_to_not_be_null"
EVIDENCE = f"{NAMESPACE}.cleantail_evidence"
BACKUP = "backup_of_another_user"  # a tag, and a property of the table, that no command may remove
TAKING = ("ingest", "read", "dag")
UNDOING = ("rollback", "rollback by others")
FORGETTING = ("reclaim", "dag", "expiry", "topic made again", "erase", *UNDOING)  # after these a snapshot may be gone
ENGINES = ("sql", "register twice", "vectors twice", "roll back a round", "write by value")
"""Acts of other engines. They may fail, because they are not part of the product."""
CALLS = {
    "rewrite": "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    "expiry": "expire_snapshots(table => '{}', older_than => now(), retain_last => 1)",
    "manifests": "rewrite_manifests('{}')",
}
COLUMNS = {
    "partition": "int", "offset": "bigint", "timestamp": "timestamp", "key": "binary", "value": "binary",
    "headers": "array<struct<key: string, value: binary>>", "tombstone": "boolean",
}  # fmt: skip
OF_VERSION_2 = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
APPENDS = ("append by others", "upsert by others")
CRASH = ("Traceback (most recent call last)", "its message may quote a record", "is a bug")


class Finding(Exception):
    """A broken rule. The text names it."""


@contextlib.contextmanager
def naming(when: str) -> Iterator[None]:
    try:
        yield
    except Exception as e:  # includes errors of the oracle, which cannot read a broken table
        raise Finding(f"{when}: {e if isinstance(e, Finding) else repr(e)}") from e


def require(is_right: object, text: object) -> None:
    if not is_right:
        raise Finding(str(text))


def require_none(problems: Sequence[str]) -> None:
    require(not problems, "\n".join(problems[:20]))


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
        self.lock, self.theirs = threading.Lock(), ""
        self.left = dict[str, list[Record]]()  # tables that the topic no longer uses
        self.columns = dict[str, object]()  # the mapping of an adopted table

    def play(self) -> None:
        if self.history.source == KAFKA:
            self.broker.create(self.topic, self.history.partitions)
        self.configure(Act("configure"))
        for number, act in enumerate(self.history.acts):
            with naming(f"act {number}, {shown(act)}"):
                self.act(act)
        with naming("at the end"):
            self.settle()

    def act(self, act: Act) -> None:
        if act.fault is None and not act.meanwhile:
            self.plain(act)
        else:
            self.disturbed(act)
        self.acts += 1
        if act.do == "upsert by others":
            return  # the oracle cannot read deletes by value; the next act converts them
        self.compare()
        is_clean = act.do == "compact" and not (act.fault or act.meanwhile or self.truth.twice)
        require_none(self.truth.not_clean(self.rows(), self.clean_points()) if is_clean else ())
        if self.now() and self.theirs != self.table:
            self.set_by_others(BACKUP, "kept")
            self.theirs = self.table
        if act.fault and "evidence" in act.fault.kind:
            require_none(oracle.evidence_problems(self.catalog, EVIDENCE, self.topic))

    def set_by_others(self, name: str, value: str) -> None:
        """Set a property as another engine does. PyIceberg cannot write a table of version 3 to a SQL catalog."""
        self.must("sql", f"ALTER TABLE cleantail.{self.name} SET TBLPROPERTIES ('{name}' = '{value}')")

    def plain(self, act: Act) -> None:
        done = self.run(act)
        self.judge(done, set(act.codes), "without a fault: ")
        if act.do == "compact":
            self.truth.twice = 0
            self.truth.fixed |= self.truth.acked.keys() if done.code == 0 else set()
        if act.do == "erase" and done.code == 0 and self.site.is_own:
            require_none(oracle.erased_problems(self.catalog, NAMESPACE, self.table, self.truth.erased))

    def disturbed(self, act: Act) -> None:
        """Run an act with its fault. Its `meanwhile` runs while the machine is paused, or at the same time."""
        machine, how = self.site.machines[act.machine], act.fault.how if act.fault else ""
        others = [replace(other, fault=None, meanwhile=()) for other in act.meanwhile]
        before = self.refs().get("main")
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(self.run, act)
            try:
                while how.startswith(PAUSED) and not running.done() and not machine.stopped.wait(0.1):
                    pass
                waiting = self.refs().keys() if machine.stopped.is_set() else set()
                done = [self.run(other) for other in others]
                dropped = waiting - self.refs().keys() if all(other.do == "reclaim" for other in others) else set()
            finally:
                if machine.stopped.is_set():
                    machine.go_on()
        require(not dropped, f"a reclaim dropped branches of a round that waits: {dropped}")
        ended = running.result()
        on_disk = ended.hit and how in (*DISK, "refused")
        # an erasure makes several rounds, and a later one may find a damaged file
        may_change = others or ended.code not in (CONFLICT, WRONG) or (on_disk and act.do == "erase")
        require(may_change or self.refs().get("main") == before, f"the table changed, against the report: {ended}")
        for each, of in zip((ended, *done), (act, *others), strict=True):
            codes = {*of.codes, *([WRONG] if on_disk else [])}
            if others or (ended.hit and how not in MILD):
                codes |= {CONFLICT, OUTSIDE}
            if of is act and ended.hit and how.startswith(("kill", "orphan")):
                codes.add(DIED)
            self.judge(each, codes)
            if of.do in TAKING and each.code:
                # another machine ingests again a file that may not have been taken: no record may be there twice
                again = replace(of, machine=(of.machine + 1) % len(self.site.machines), fault=None, meanwhile=())
                self.judge(self.run(again), {0}, "the next run without a fault fails: ")

    def now(self) -> Table | None:
        return oracle.load(self.catalog, f"{NAMESPACE}.{self.table}")

    @property
    def loaded(self) -> Table:
        table = self.now()
        assert table is not None
        return table

    def refs(self) -> dict[str, int]:
        """Return branch or tag -> its snapshot."""
        return {name: ref.snapshot_id for name, ref in table.refs().items()} if (table := self.now()) else {}

    def judge(self, done: Done, codes: set[int], when: str = "") -> None:
        may_fail = done.argv[0] in ENGINES and (not when or self.truth.revived)  # another engine next to a command
        is_right = done.code in codes and not any(text in done.err for text in CRASH)
        require(is_right or (may_fail and done.code != STUCK), f"{when}{done}")

    def run(self, act: Act) -> Done:
        if act.do in self.elsewhere:
            self.elsewhere[act.do](act)
            return Done((act.do,), 0, "", "")
        machine, truth = self.site.machines[act.machine], self.truth
        with self.lock:
            self.commands += 1
            records = list(act.records)
            if act.do in ("read", "dag") and self.history.source == KAFKA:
                records = self.broker.committed(self.topic, self.base_ms)
            if act.codes != REFUSED and act.do != "erase":
                truth.send(records, act.file)
            if act.do in UNDOING:  # the round that registered a file once, or kept a tombstone, may be undone
                truth.twice = truth.revived
                truth.fixed.clear()
            truth.erasing |= {record.key for record in act.records if act.do == "erase"}
        there = Counter(self.rows() if act.do == "file registered twice" else ())
        done = machine.run(self.argv(act), act.fault, act.do)
        truth.again |= {(row.partition, row.offset) for row in Counter(self.rows() if there else ()) - there}
        if done.code and "`cleantail mend TABLE`" in done.out + done.err:  # its message names the command that repairs
            machine.run(["mend", f"{NAMESPACE}.{self.table}"])
            done = machine.run(self.argv(act), label=act.do)
        with self.lock:
            self.broken += done.code != 0
            if act.do in ("compact", "dag"):  # it may have kept tombstones that came while it ran
                truth.run(act.at)
            if act.do == "reader" and (done.code == 0 or truth.held is not None):
                truth.held = int(done.argv[-1])
            if act.do in (*TAKING, *APPENDS) and done.code == 0:
                truth.acknowledge(records)
            if act.do == "erase" and done.code == 0:
                truth.erased |= {record.key for record in records}
            hit = f" [{done.hit}, {act.fault.how}]" if act.fault and done.hit else ""
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
            case "release":
                return ["release", self.topic, 0]
            case "rollback":
                return ["rollback", self.topic, "--to", "last"]
            case "erase":
                keys = self.site.folder / f"{self.topic}.keys"
                keys.write_text("".join(f"{key}\n" for key in sorted({record.key for record in act.records})))
                exclude = ["--exclude", "source"] if self.history.source == KAFKA else []
                return ["erase", self.topic, "--keys", keys, *exclude]
            case "reader":
                acked = [n for (p, n), r in self.truth.acked.items() if p == 0 and r.key not in self.truth.erasing]
                return ["reader", "set", self.topic, "index", "--partition", 0, "--offset", max(acked, default=-1) + 1]
            case "rewrite" | "expiry" | "manifests":
                return ["sql", f"CALL cleantail.system.{CALLS[act.do].format(self.name)}"]
            case "file registered twice":
                self.truth.twice, self.truth.revived = self.truth.twice + 1, self.truth.revived + 1
                return ["register twice", f"cleantail.{self.name}"]
            case "vectors twice":
                return [act.do, f"cleantail.{self.name}"]
            case "clock jumps":
                return ["clock", act.at // 1000]
            case "append by others":
                return ["sql", self.insertion(act.records)]
            case "upsert by others":  # it deletes the keys by their values, then appends
                gone = sorted({record.key for record in act.records})
                return ["write by value", json.dumps([f"cleantail.{self.name}", gone, self.insertion(act.records)])]
            case "convert-deletes":
                return [act.do, f"{NAMESPACE}.{self.table}"]
            case "rollback by others":
                return ["roll back a round", self.name]
        return [act.do, self.topic]

    def insertion(self, records: Sequence[Record]) -> str:
        rows = ", ".join(map(self.sql_of, records))
        return f"INSERT INTO cleantail.{self.name} ({', '.join(COLUMNS)}) VALUES {rows}"

    def sql_of(self, r: Record) -> str:
        key, value = (f"CAST('{text}' AS BINARY)" if text is not None else "NULL" for text in (r.key, r.value))
        headers = f"array(named_struct('key', '{oracle.HEADER}', 'value', {key}))"
        at = f"timestamp_millis({self.base_ms + r.at})"
        return f"({r.partition}, {r.offset}, {at}, {key}, {value}, {headers}, {r.value is None})"

    @property
    def elsewhere(self) -> dict[str, Callable[[Act], None]]:
        return {
            "upgrade": lambda act: self.site.machines[act.machine].upgrade(),
            "configure": self.configure,
            "produce": self.produce,
            "broker restarts": lambda _: self.broker.restart(),
            "partition added": lambda _: self.broker.add_partition(self.topic),
            "log start moves": lambda _: self.broker.move_start(self.topic),
            "broker forgets": self.forgets,
            "catalog restarts": lambda act: self.site.restart_catalog(act.at / 1000),
            "table of a later version": self.later_version,
            "adopt": self.adopt,
            "adopt again": lambda _: self.must("adopt", f"{NAMESPACE}.{self.table}", "--upgrade"),
            "topic made again": self.made_again,
            "home is shared": lambda act: self.site.machines[act.machine].move(self.site.machines[0].home),
            "blocked": self.blocked,
            "nothing is left to do": lambda _: self.compare(settled=True),
        }

    @property
    def broker(self) -> Broker:
        assert self.site.broker is not None, "this history needs a broker"
        return self.site.broker

    def configure(self, act: Act) -> None:
        """Write the topic's YAML with these configs. Among them, `cleaner` is the platform's, and nulls of the column
        `checked` fail a check. `others`: the number of topics in a group with this one. Four of them have records."""
        self.configs |= act.configs
        topic: dict[str, object] = {"config": {k: v for k, v in self.configs.items() if "." in k}}
        topic |= {"table": f"{NAMESPACE}.{self.table}", "checks": [], **self.columns}
        if checked := self.configs.get("checked", "" if self.history.number % 2 else "key"):
            topic["checks"] = [{"expectation": NOT_NULL, "kwargs": {"column": checked}}]
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

    def adopt(self, act: Act) -> None:
        """Another engine makes a table of format version 2 with these records, and deletes the first one, which is
        superseded, by its position. Then the table is adopted."""
        name = f"cleantail.{self.name}"
        columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
        self.must("sql", f"CREATE TABLE {name} ({columns}) TBLPROPERTIES ({OF_VERSION_2})")
        self.must("sql", self.insertion(act.records))
        self.must("sql", f"DELETE FROM {name} WHERE offset = {act.records[0].offset}")
        self.truth.send(act.records)
        self.truth.acknowledge(act.records)
        machine = self.site.machines[0]
        machine.forget(self.topic)
        self.must("adopt", f"{NAMESPACE}.{self.table}", "--topic", self.topic)
        written = yaml.safe_load((machine.config / "topics" / f"{self.topic}.yaml").read_text())
        self.columns = {"columns": written["columns"]}
        self.configure(act)

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
        self.set_by_others(FORMAT, "99")
        done = self.site.machines[act.machine].run(["compact", self.topic, "--force"])
        require(done.code == WRONG and "99" in done.err, f"a table of format 99 was not refused, or not named: {done}")
        self.set_by_others(FORMAT, before)

    def made_again(self, act: Act) -> None:
        """The topic is deleted and created again. Its table refuses new records, and another table takes them."""
        before, partitions = self.rows(), len(self.broker.ends(self.topic))
        self.broker.delete(self.topic)
        self.broker.create(self.topic, partitions)
        self.broker.send(self.topic, [([Record(0, 0, 0, "a", "of another log")], True)], self.base_ms)
        if before:
            done = self.site.machines[act.machine].run(["ingest", self.topic], label="read")
            require(done.code == WRONG and self.rows() == before, f"a recreated topic was not refused: {done}")
        self.site.machines[act.machine].run(["reader", "remove", self.topic, "index"])  # it has read another log
        self.left[self.table] = before
        erasing, erased = self.truth.erasing, self.truth.erased
        self.table, self.truth = f"{self.table}_again", Truth(self.truth.retention, erasing=erasing, erased=erased)
        self.configure(act)

    @property
    def name(self) -> str:
        return f"{NAMESPACE}.`{self.table}`"

    def file(self, act: Act) -> Path:
        """Return the file of an act, in a landing folder that both machines see."""
        file = self.site.folder / LANDING / f"{self.topic}-{act.file}.jsonl"
        names = ("partition", "offset", "ts", "key", "payload")
        lines = (dict(zip(names, r._replace(at=self.base_ms + r.at), strict=True)) for r in act.records)
        file.write_text("".join(json.dumps(x | {"headers": [oracle.HEADER, x["key"]]}) + "\n" for x in lines))
        return file

    def rows(self) -> list[Record]:
        return oracle.read(table, self.base_ms) if (table := self.now()) else []

    def compare(self, settled: bool = False) -> None:
        rows = self.rows()
        require_none(self.truth.problems(rows, settled))
        require_none(self.truth.not_clean(rows, self.clean_points()) if settled else ())

    def clean_points(self) -> dict[int, int]:
        """Return partition -> the offset below which each key is unique, as the status tells."""
        logs = json.loads(self.must("status", self.topic, "--json").out)["topics"][self.topic]
        return {log["partition"]: log["first_dirty_offset"] for log in logs}

    def must(self, *argv: object) -> Done:
        self.commands += 1
        done = self.site.machines[0].run(argv)
        self.log.append(f"0: {' '.join(done.argv)[:150]} -> {done.code}")
        require(done.code == 0, f"it fails without a fault: {done}")
        return done

    def settle(self) -> None:
        truth = self.truth
        for machine in self.site.machines:
            while machine.roots[0] != ROOT:
                machine.upgrade()
        done = {each.do for act in self.history.acts for each in (act, *act.meanwhile)}
        has_reader = "reader" in done
        for machine in self.site.machines if "clock jumps" in done else ():
            machine.run(["clock", 0])
        if self.history.source == KAFKA:
            self.plain(Act("read"))
        if truth.erasing and self.site.is_own:
            self._erase()
        at = max([act.at for act in self.history.acts] + [0])
        for n in range(3):  # late records, then tombstones that are kept first, then expired ones
            at += truth.retention + 1 + (7 * DAY if has_reader else 0)  # a reader blocks no longer than a week
            self.plain(Act("compact", n % len(self.site.machines), at=at))
        self.compare(settled=True)
        if has_reader:
            self.plain(Act("reader"))  # an earlier one of these acts may have been killed
            self.must("reader", "remove", self.topic, "index")
            truth.held = None
        live = sorted(self.rows())
        for command in ("latest", "read"):
            said = [json.loads(line) for line in self.must(command, self.topic).out.splitlines()]
            found = [
                tuple(line[name] for name in ("partition", "offset", "key", "payload", "headers")) for line in said
            ]
            wanted = [(r.partition, r.offset, r.key, r.value, [oracle.HEADER, r.key]) for r in live]
            require(found == wanted, f"{command} prints {found} instead of {wanted}")
        self.must("check", self.topic)
        self.must("history", self.topic)
        for name, rows in self.left.items():
            left = oracle.load(self.catalog, f"{NAMESPACE}.{name}")
            require((oracle.read(left, self.base_ms) if left else []) == rows, f"{name} has changed")
        table = self.loaded
        winners = [record for record in truth.winners().values() if record.value is not None]
        is_whole = done.isdisjoint(FORGETTING)
        require_none(oracle.evidence_problems(self.catalog, EVIDENCE, self.topic, table, is_whole))
        require_none(oracle.slow_reader_problems(table, self.base_ms, winners))
        self._reclaim()

    def _erase(self) -> None:
        """Once branches of killed runs are dropped and their files are old, each requested erasure is certified."""
        for branch in sorted(self.refs().keys() - {"main"}):
            self.must("sql", f"ALTER TABLE cleantail.{self.name} DROP BRANCH `{branch}`")
        oracle.make_old(self.loaded)
        erase = Act("erase", records=tuple(Record(0, 0, 0, key, None) for key in self.truth.erasing))
        for name in oracle.unknown_files(self.loaded) if (done := self.run(erase)).code else ():
            if name.replace("/.", "/").removesuffix(".crc") in done.out + done.err:  # damaged: docs/erasure.md
                Path(self.loaded.location().removeprefix("file:"), name).unlink()
        self.plain(erase)

    def _reclaim(self) -> None:
        """After plain reclaims no old file without a snapshot is left, and only branches of failed runs."""
        table = self.loaded
        if current := table.current_snapshot():
            self.must("sql", f"ALTER TABLE cleantail.{self.name} CREATE TAG {BACKUP}")
        self._refused_to_another_topic()
        suffix = "keyless" if "cleantail.tombstone.lateness.ms" in self.configs else "deleted_versions"
        beside, kept = f"{NAMESPACE}.{self.table}_{suffix}", list[Path]()
        oracle.make_beside(self.catalog, beside)
        for days in (60, 61):
            end = max((offset for partition, offset in self.truth.sent if partition == 0), default=-1) + 1
            last = (Record(0, end, -HOUR, "last", f"after {days} days"),)
            taking = {
                FILES: [Act("ingest", file=1000 + days, records=last)],
                KAFKA: [Act("produce", records=last), Act("read")],
                ADOPTED: [Act("append by others", file=1000 + days, records=last)],
            }
            for act in taking[self.history.source]:
                self.plain(act)
            self.must("compact", self.topic, "--force", "--now", now_ms() + days * DAY)
            if days == 61 and self.site.is_own:
                kept = self._refused_next_to_another(table)
            self.must("reclaim", self.topic, "--now", now_ms() + days * DAY)
        gone = [str(file) for file in kept if not file.exists()]
        require(not gone, f"a reclaim removed files that are younger than a day or older than the table: {gone}")
        theirs = oracle.load(self.catalog, beside)
        has_all = theirs and len(theirs.snapshots()) == 2
        require(has_all, f"{beside} belongs to another owner, and a snapshot of it is gone")
        self.compare(settled=True)
        table = self.loaded
        # first metadata files show which table owns the folder, and stay: also one of a refused creation
        allowed = re.compile(r"data/10\.parquet|metadata/00000-[^/]*")
        unknown = [name for name in oracle.unknown_files(table, days=7) if not allowed.fullmatch(name)]
        require(not (unknown and self.site.is_own), f"files are old and in no snapshot, and stay: {unknown[:10]}")
        has_theirs = table.properties.get(BACKUP) == "kept" or self.theirs != self.table  # created since the last act
        require(has_theirs, f"another user's property {BACKUP} is gone")
        # a later run drops the branch of a killed one after a day, by the machine's clock
        refs = set(table.refs()) - {"main", BACKUP}
        require(len(refs) <= self.broken, f"{self.broken} runs failed, but more branches are left: {refs}")
        require(not current or BACKUP in table.refs(), f"another user's tag {BACKUP} was dropped")
        self._watched(now_ms() + 61 * DAY)

    def _refused_next_to_another(self, table: Table) -> list[Path]:
        """A reclaim deletes no file while the folder has a table of an unknown catalog. Return files that a later one
        must keep."""
        there, kept = oracle.make_stranger(table, self.site.folder / f"{self.topic}.db")
        self._refused("reclaim", self.topic, "--now", now_ms() + 61 * DAY)
        gone = [str(file) for file in there if not file.exists()]
        require(not gone, f"reclaim deleted files of another table: {gone}")
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
        require(self.loaded.metadata_location == before, "another topic changed the table")

    def _refused(self, *argv: object) -> None:
        done = self.site.machines[0].run(argv)
        require(done.code == WRONG, f"the command was not refused, although it concerns another owner's table: {done}")

    def _watched(self, at_ms: int) -> None:
        """Compare pages, metrics and alerts of the settled topic with the records."""
        said = self.watched(at_ms)
        metrics = {tuple(labels): value for *labels, value in said["metrics"]}
        rows, acked = self.rows(), self.truth.acked
        for p in {partition for partition, _ in acked}:
            last = max(offset for partition, offset in acked if partition == p)
            # a table that leaves out the last record, because its key was erased, does not know its offset
            ends = self.history.source == FILES and acked[p, last].key not in self.truth.erasing
            wanted = {
                "log-records": sum(row.partition == p for row in rows),
                "tombstones-pending": 0,
                "log-quarantined": 0,
                "log-first-dirty-offset": metrics.get(("log-end-offset", str(p))),
                **({"log-end-offset": last + 1} if ends else {}),
            }
            found = {name: metrics.get((name, str(p))) for name in wanted}
            require(found == wanted, f"metrics of partition {p} are {found} instead of {wanted}")
        is_clean = said["state"] == "clean" and not said["alarms"]
        require(is_clean, f"the topic is clean, but the page shows {said['state']}, and alerts are {said['alarms']}")

    def watched(self, at_ms: int) -> Any:
        """Return what page, metrics and alerts show: the last line. Airflow may print warnings above it."""
        return json.loads(self.must("watch", self.topic, at_ms).out.splitlines()[-1])

    def blocked(self, act: Act) -> None:
        """After a failed check page, metrics, alerts and evidence say that the log is blocked."""
        said = self.watched(self.base_ms + act.at)
        found = said["state"], [value for name, *_, value in said["metrics"] if name == "log-quarantined"]
        outcomes = {row["outcome"] for row in oracle.evidence_of(self.catalog, EVIDENCE, self.topic)}
        is_right = found == ("quarantined", [1]) and "held_back" in outcomes and "CHECK_FAILED" in str(said["alarms"])
        require(is_right, f"a check failed, but there are {found}, {outcomes} and {said['alarms']}")

    def forget(self) -> None:
        """Remove the topic. On the soak's own site also drop its tables: a long soak would fill the disk."""
        if self.site.is_own:
            oracle.forget(self.catalog, NAMESPACE, self.topic)
        for machine in self.site.machines:
            if any(act.do == "clock jumps" for act in self.history.acts):
                machine.run(["clock", 0])  # a finding may have left it wrong
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
