"""Scenarios by name: known problems of real platforms. Each is a history, played and settled like a random one.

S1 to S17 are known problems of sinks, catalogs, brokers and other engines. Names with M test the sentences of
docs/operations.md about two machines. Names with A are runs of Airflow, E1 is an erasure, C1 a failed check, D1 an
adopted table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from soak.gateway import ANSWERS, DISK, PAUSED, Fault
from soak.histories import ADOPTED, CONFIGS, DAY, FILES, HOUR, KAFKA, Act, History, Record

REFUSED = (2,)


def records(text: str, start: int = 0, partition: int = 0) -> tuple[Record, ...]:
    """Return records of words, at offsets from `start` on: `a=1` is a value, `a` a tombstone."""
    words = enumerate((word.partition("=") for word in text.split()), start)
    return tuple(Record(partition, n, -20 * HOUR, key, value if equals else None) for n, (key, equals, value) in words)


def ingest(file: int, text: str, start: int = 0, machine: int = 0, how: str = "") -> Act:
    return Act("ingest", machine, Fault("ingest", how) if how else None, file=file, records=records(text, start))


def once(n: int) -> str:
    """Return two records of a key that no later round processes: a lost deletion stays lost."""
    return f"once{n}=1 once{n}=2"


def compact(at: int, machine: int = 0, kind: str = "publish", how: str = "", *meanwhile: Act) -> Act:
    nth = 6 if kind == "load" else 1  # a load in the middle of a round
    return Act("compact", machine, Fault(kind, how, nth) if how else None, at, meanwhile=meanwhile)


def send(text: str, aborted: str = "", partition: int = 0) -> tuple[Act, Act]:
    sent = records(text, partition=partition), records(aborted, partition=partition)
    return Act("produce", records=sent[0], aborted=sent[1]), Act("read")


def _history(*acts: Act, source: str = FILES, **configs: object) -> History:
    return History(0, 0, CONFIGS | {name.replace("_", "."): value for name, value in configs.items()}, acts, source)


def s1() -> History:
    """S1: a data file is registered in two snapshots. Once it has a vector, a round fails and names `mend`."""
    twice = Act("file registered twice")
    return _history(
        ingest(1, "a=1 b=1 a=2"), twice, compact(1000), ingest(2, "b c=1", 3), compact(2000), twice, compact(3000)
    )


def s2() -> History:
    """S2: the same offset in several files: copies, also of a tombstone; and another record, which is refused."""
    other = replace(ingest(4, "b=other", 1), codes=REFUSED)
    return _history(
        ingest(1, "a=1 b c=1"), compact(1000), ingest(2, "b c=1", 1), other, ingest(3, "a=2 c=1", 3), compact(1500),
        ingest(5, "c=1 a=2", 2), replace(other, file=6), compact(9000),
    )  # fmt: skip


def s3() -> History:
    """S3: the catalog takes a commit and answers that it did not, also while a second writer commits the same."""
    acts = [ingest(100, "a=0 a=1", how="409 before"), compact(1000), ingest(101, "d=1", 2)]
    acts.append(Act("rollback", 0, Fault("rollback", "409 after")))
    for n, (kind, how) in enumerate([("evidence", "409 after"), ("publish", "503 after"), ("evidence", "twice")]):
        acts += [ingest(50 + n, f"e={n} e f={n}", 24 + 3 * n), compact(1500 + n, 0, kind, how)]
    for n, how in enumerate(("409 after", "500 after", "503 after", "closed after", "silent after", "twice", "late")):
        one = ingest(n, f"a={n} b={n} c", 3 + 3 * n, n % 2, how)
        acts.append(replace(one, meanwhile=(replace(one, machine=1 - n % 2, fault=None),)))
        again = compact(2000 * n, 1)
        acts.append(compact(2000 * n, 0, "publish", how, again))
    return _history(*acts, Act("reclaim", 0, Fault("reclaim", "409 after")))


def s4() -> History:
    """S4: the broker has removed a tombstone before it was read: a reconciliation removes its key."""
    return _history(
        *send("a=1 b=1"), compact(1000), Act("produce", records=records("a b=2")), Act("broker forgets"), Act("read"),
        compact(2000), Act("reconcile"), compact(9000), source=KAFKA,
    )  # fmt: skip


def s5() -> History:
    """S5: gaps of aborted transactions, a log start that moves, a new partition, and a topic that is made again."""
    gaps = [act for n in range(5) for act in send(f"a={n} b={n}", aborted=f"a=no{n} c=no{n}")]
    return _history(
        *gaps, compact(1000), Act("log start moves"), *send("a=9 c=9"), Act("partition added"),
        *send("a=8 b", partition=1), compact(4000), Act("topic made again"), *send("a=7"), compact(9000), source=KAFKA,
    )  # fmt: skip


def s6a() -> History:
    """S6a: another engine rewrites all files between a round and its publication. No later act hides what that does."""
    return _history(ingest(0, f"a=0 c {once(0)}"), compact(1000, 0, "publish", "stop before", Act("rewrite", 1)))


def s6() -> History:
    """S6: another engine appends, rewrites, expires, rolls back or registers between a round and its publication."""
    append = Act("append by others", 1, file=9, records=records("a=x e=1", 30))
    acts = [ingest(8, "a=y e=0 e", 32), compact(1, 0, "publish", "stop before", append)]
    for n, other in enumerate(("rewrite", "expiry", "manifests", "rollback by others", "file registered twice")):
        file = ingest(n, f"a={n} b={n} c d={n} {once(n)}", 6 * n)
        acts += [file, compact(3000 * n, 0, "publish", "stop before", Act(other, 1))]
    return _history(*acts)


def s7() -> History:
    """S7: more keys than the map holds, and 3,000 records of one key: a round ends early, while records come."""
    small = {"cleantail.over.budget": "rounds", "log.cleaner.dedupe.buffer.size": 24 * 20}
    text = [" ".join([f"k{key}={n}" for key in range(60)] + [f"one={x}" for x in range(3000)]) for n in range(4)]
    more = [ingest(n, text[n], 3060 * n, 1) for n in range(4)]
    return _history(
        Act("configure", configs={"cleaner": small}), more[0], compact(1000, 0, "load", "stop before", more[1]),
        compact(2000, 0, "publish", "stop after", more[2]), more[3], compact(3000),
    )  # fmt: skip


def s8() -> History:
    """S8: configs change while a round runs: policy and ratio."""
    first = Act("configure", configs={"cleanup.policy": "delete", "retention.ms": -1})
    both = Act("configure", configs={"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1.0})
    back = Act("configure", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    return _history(
        first, ingest(1, "a=1 a=2 b"), compact(1000), both, compact(2000, 0, "publish", "stop before", back),
        ingest(2, "a c=1", 3), compact(3000, 0, "load", "stop before", both), back, compact(9000),
    )  # fmt: skip


def s9() -> History:
    """S9: clocks of two machines that differ by days and jump both ways, against the horizons of tombstones."""
    hours = (24, 0, 48, 1, 0, 0, 72, 0, 24, 24, 25, 25)  # the last two with right clocks
    times = [hour * HOUR + (0, 1, 999, 1000)[n % 4] for n, hour in enumerate(hours)]
    acts = list[Act]()
    for n, at in enumerate(times):
        ahead = (20, -20, -10, 10)[n % 4] * HOUR if n < 10 else 0
        acts += [Act("clock jumps", n % 2, at=ahead), ingest(n, f"a={n} b c{n}", 3 * n), compact(at, n % 2)]
    return _history(*acts, delete_retention_ms=HOUR)


def s10() -> History:
    """S10: SIGKILL and SIGSTOP at each station. A stopped machine continues after another did its work."""
    acts, offset = list[Act](), 0
    for how in ("kill before", "kill after", "orphan before", "stop before", "stop after"):
        for kind in ("ingest", "load", "publish", "evidence", "reclaim"):
            file = ingest(len(acts), f"a={offset} b c={offset}", offset)
            other = (replace(file, machine=1), compact(9000 + offset, 1)) if how.startswith(PAUSED) else ()
            if kind == "ingest":
                acts.append(replace(file, fault=Fault(kind, how), meanwhile=other))
            elif kind == "reclaim":
                acts += [file, compact(9000 + offset), Act("reclaim", 0, Fault(kind, how))]
            else:
                acts += [file, compact(9000 + offset, 0, kind, how, *other[1:])]
            offset += 3
    return _history(*acts)


def s11() -> History:
    """S11: each wrong answer of the catalog at a publication, and each fault of the disk in a round."""
    acts = list[Act]()
    for n, how in enumerate((*ANSWERS, *DISK)):
        kind = "publish" if how in ANSWERS else "load"
        acts += [ingest(n, f"a={n} b c={n}", 3 * n), compact(3000 * n, n % 2, kind, how)]
    return _history(*acts)


def s12() -> History:
    """S12: a third of the transactions is aborted; then all of them are."""
    parts = [send(f"k{n}=1 a={n} b", aborted=f"k{n} a=no x=no" if n % 3 else "") for n in range(9)]
    acts = [act for n, part in enumerate(parts) for act in (*part, *((compact(3000 * n),) if n % 3 == 2 else ()))]
    all_aborted = Act("produce", aborted=records("a=no b=no")), Act("read")
    return _history(*acts, *all_aborted, compact(99_000), source=KAFKA)


def s13() -> History:
    """S13: one key in two encodings is two keys, also if a part of it is null."""
    keys = ('{"k":1}', '{"k": 1}', '{"k":1,"l":null}', '{"l":null,"k":1}', "k", "K")
    sent = [Record(0, n, -20 * HOUR, keys[n % 6], None if n in (13, 15) else str(n)) for n in range(18)]
    return _history(*(Act("ingest", file=n, records=tuple(sent[n : n + 9])) for n in (0, 9)), compact(9))


def s14() -> History:
    """S14: deletion vectors meet files that a reclaim or another engine has rewritten meanwhile, or other vectors."""
    branch = compact(500, 0, "publish", "stop before", Act("reclaim", 1))  # with a file to register once: on a branch
    acts = [ingest(30, "q=1 q=2"), Act("file registered twice"), branch]
    for n, other in enumerate((Act("reclaim", 1), Act("rewrite", 1), compact(30_000, 1))):
        at, late = 3000 * n, ingest(n + 9, f"a=x{n} b {once(n)}", 7 * n + 5)
        acts += [ingest(n, f"a={n} b={n} c", 7 * n + 2), compact(at), late]
        acts += [compact(at, 0, kind, "stop before", other) for kind in ("publish", "load")]
        acts.append(Act("reclaim", 0, Fault("reclaim", "stop before"), meanwhile=(compact(40_000, 1),)))
    return _history(*acts, ingest(31, "q=3 r=1 r=2", 30), compact(50_000), Act("vectors twice"), compact(60_000))


def s15() -> History:
    """S15: 999 other topics share the DAG, and a run takes two: each gets its turn, tombstones expire in time."""
    turns = [dag(9000 * n) for n in (1, 2, 3)]
    return _history(
        Act("configure", configs={"others": 999}), ingest(1, "a=1 b=1 a"), *turns, ingest(2, "b=2", 3),
        *(replace(turn, at=turn.at + HOUR) for turn in turns[1:]), Act("nothing is left to do"),
    )  # fmt: skip


def s16() -> History:
    """S16: catalog and machines restart or are upgraded in a round; the catalog is away for minutes; a table of a later
    version is refused by name."""
    away = Act("catalog restarts", at=150_000)
    return _history(
        ingest(1, "a=1 b a=2"), compact(1000, 0, "publish", "stop before", Act("catalog restarts"), Act("upgrade", 1)),
        Act("upgrade", 0), compact(2000, 0, "load", "kill after"), Act("table of a later version"), compact(9000),
        replace(ingest(2, "a=3 b", 3), meanwhile=(away,)), replace(compact(12_000), meanwhile=(away,)), compact(15_000),
    )  # fmt: skip


def s17() -> History:
    """S17: a slow reader. Tombstones past their horizon wait for it. At the end it reads each snapshot in turn."""
    acts = list[Act]()
    for n in range(5):  # c0, c1, … are tombstones that nothing supersedes
        acts += [ingest(n, f"a={n} b={n} c{n} b", 4 * n), compact(2000 * n, n % 2), Act("reclaim", n % 2)]
    return _history(*acts[:2], Act("reader"), *acts[2:], cleantail_snapshot_retention_ms=5 * DAY)


def m1() -> History:
    """M1: two machines ingest the same file, or two files, at the same time: each record is there once."""
    acts = []
    for n, how in enumerate(("stop before", "stop after")):
        file = ingest(n, f"a={n} b c={n}", 4 * n, 0, how)
        acts.append(replace(file, meanwhile=(replace(file, machine=1, fault=None),)))
    acts.append(replace(ingest(2, "a=2 b", 8, 0, "stop before"), meanwhile=(ingest(3, "d=2 e", 10, 1),)))
    return _history(*acts, compact(1000))


def m7() -> History:
    """M7: two machines read a topic of Kafka at the same time, or a commit is refused: each record is there once."""
    acts = list[Act]()
    for n, how in enumerate(("409 before", "stop before", "409 after", "stop after")):
        sent, read = send(f"a={n} b c={n}", aborted=f"a=no{n}")
        others = (replace(read, machine=1),) if how.startswith(PAUSED) else ()
        acts += [sent, replace(read, fault=Fault("ingest", how), meanwhile=others)]
    return _history(*acts, compact(1000), source=KAFKA)


def m3() -> History:
    """M3: a machine reclaims files or undoes rounds while another one compacts."""
    acts = []
    for n, other in enumerate(("reclaim", "rollback", "reclaim")):
        acts += [ingest(n, f"a={n} b c={n}", 3 * n), compact(2000 * n)]
        acts.append(Act(other, 1, Fault(other, "stop before"), meanwhile=(compact(2000 * n + 1500, 0),), codes=(0, 2)))
    return _history(*acts)


def m5() -> History:
    """M5: two machines create a topic's table at the same time: files of the refused creation block no reclaim."""
    first = replace(ingest(1, "a=1 b c=1"), fault=Fault("create table", "stop before"))
    first = replace(first, meanwhile=(replace(first, machine=1, fault=None),))
    return _history(first, compact(1000), Act("reclaim"), cleantail_orphan_retention_ms=0)


def m6() -> History:
    """M6: two processes share a home, like Airflow tasks of a machine: one waits until the other ends or dies."""
    acts = [Act("home is shared", 1)]
    for n, how in enumerate(("twice", "kill after", "closed after")):
        file, other = ingest(n, f"a={n} b c={n} {once(n)}", 5 * n, 0, "late"), compact(2000 * n, 1)
        acts += [replace(file, meanwhile=(replace(file, machine=1),)), compact(2000 * n, 0, "publish", how, other)]
    return _history(*acts)


def c1() -> History:
    """C1: a check fails, also while the answer to a commit of its evidence is lost. Page, metrics, alerts and evidence
    say so. Then the log is released, and the check passes."""
    red = [replace(compact(1000), codes=(1,)), replace(compact(2000, 0, "evidence", "503 after"), codes=(1,))]
    return _history(
        ingest(1, "a=1 a=2 b"), Act("configure", configs={"checked": "value"}), *red, Act("blocked", at=2000),
        Act("configure", configs={"checked": "key"}), Act("release"), compact(3000, 1),
    )  # fmt: skip


def dag(at: int, kind: str = "publish", how: str = "") -> Act:
    return Act("dag", 0, Fault(kind, how) if how else None, at)


def a1() -> History:
    """A1: the topic's DAG in Airflow reads, compacts and publishes, and the answer to its commit is lost."""
    return _history(*send("a=1 b=1 a=2 c")[:1], dag(1000, "publish", "409 after"), source=KAFKA)


def a2() -> History:
    """A2: the worker of Airflow dies, and its application publishes late; then a run is killed."""
    late = replace(dag(1000, "publish", "orphan before"), meanwhile=(compact(1500, 1),))
    sent = [send(f"a={n} b={n} c")[0] for n in (1, 2, 3)]
    return _history(sent[0], late, sent[1], dag(5000, "publish", "kill before"), sent[2], dag(9000), source=KAFKA)


def erase(*keys: str, how: str = "", kind: str = "publish", at: int = 0, meanwhile: tuple[Act, ...] = ()) -> Act:
    gone = tuple(Record(0, 0, 0, key, None) for key in keys)
    return Act("erase", 0, Fault(kind, how) if how else None, at, records=gone, meanwhile=meanwhile, codes=(0,))


def e1() -> History:
    """E1: keys are erased, also while a file with them arrives; each commit is lost once; a replay brings none back."""
    old, hows = "a=1 b=1 e=1 f e=2 g", {"publish": "409", "erasures": "503", "erase files": "closed"}
    return _history(
        ingest(1, old), compact(1000), ingest(2, "e=3 f=1 a=2", 6), compact(5000), erase("e", "f"),
        ingest(3, old), ingest(4, "e=4 h=1 h=2", 9), compact(9000),
        erase("h", how="stop before", meanwhile=(ingest(5, "h=3 b=2", 12, 1),)), ingest(6, "a=5 c=5 i=5", 14),
        *(erase(key, kind=kind, how=f"{hows[kind]} after") for key, kind in zip("abc", hows, strict=True)),
        cleantail_tombstone_lateness_ms=DAY,
    )  # fmt: skip


def other(kind: str, text: str, start: int, machine: int = 1) -> Act:
    return Act(kind, machine, file=start, records=records(text, start))


def d1() -> History:
    """D1: an adopted table of format version 2, with deletes of another engine by position and by value, is upgraded to
    version 3. That engine appends, updates and rewrites also while rounds run."""
    append, upsert = "append by others", "upsert by others"
    return _history(
        Act("adopt", records=records("a=0 a=1 b=1 c=1 b")),
        compact(1000, 0, "publish", "stop before", Act("rewrite", 1)),
        other(append, f"a=2 c=2 {once(1)}", 5), compact(2000, 1, "publish", "409 after"),
        other(upsert, "b=2 d=1", 9), Act("convert-deletes", 1, Fault("stage", "409 after")),
        compact(4000, 0, "publish", "stop before", other(append, f"a=3 d {once(2)}", 11)), Act("reclaim", 1),
        Act("adopt again"), compact(9000), other(append, "c b=3 e=1", 15),
        compact(10_000, 1, "load", "stop before", Act("rewrite", 0)), other(upsert, "e=2", 18),
        Act("convert-deletes", 0, Fault("convert deletes", "503 after")), compact(15_000, 0, "publish", "kill after"),
        Act("reclaim", 0, Fault("reclaim", "stop before"), meanwhile=(compact(16_000, 1),)),
        source=ADOPTED, cleantail_adopted_orphans="remove",
    )  # fmt: skip


ORDER = (
    s6a, s14, s3, m1, m7, s17, e1, d1, s2, s1, s4, s6, s10, m3, c1, s9, a1, s5, s7, s8, s11, s12, s13, s16, m5, m6, a2,
    s15,
)  # fmt: skip  # short ones with many commits and rules first
FIRST = 10  # so many scenarios come before the first drawn history
SCENARIOS: dict[str, Callable[[], History]] = {str(each.__doc__).partition(":")[0]: each for each in ORDER}
OF_REST = ("D1", "E1", "S3", "S6a", "S6", "S7", "S8", "S10", "S11", "S14", "S16", "M1", "M3", "A1", "A2")
"""Scenarios whose faults name requests that only a REST catalog has."""
OF_OWN = ("S11", "S16")
"""Scenarios with faults of the disk, or of the catalog's server."""
