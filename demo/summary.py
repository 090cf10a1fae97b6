"""Print the end of the demonstration: the table, the corrupted round, and what to open next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cleantail.human import size
from demo.corrupted import CorruptedRound
from demo.erasure import Erasure
from demo.home import Home
from demo.kafka_broker import KafkaBroker
from demo.proof import Proof
from demo.tables import Size


def print_summary(console: Console, proofs: Sequence[Proof], erasure: Erasure) -> None:
    """Print one row for each topic, then every claim with whether it is true."""
    console.print(_table(proofs))
    for proof in proofs:
        console.print(f"\n[bold]{proof.topic}[/bold]  {escape(proof.result.expected.input.origin)}", soft_wrap=True)
        _print_claims(console, proof.claims)
    for proof in proofs:
        if proof.result.corrupted:
            _print_corrupted(console, proof.topic, proof.result.corrupted)
    console.print(f"\n[bold]{erasure.topic}[/bold]  one key was erased: request {erasure.request}")
    _print_claims(console, erasure.claims)


def _table(proofs: Sequence[Proof]) -> Table:
    table = Table(
        title="before → after",
        caption="bytes: file size times the share of live records; seconds: both runs together",
        caption_justify="left",
    )
    table.add_column("topic", no_wrap=True)
    for name in ("records", "keys", "tombstones", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("removed", no_wrap=True)
    table.add_column("checks passed", justify="right")
    table.add_column("seconds", justify="right")
    for proof in proofs:
        table.add_row(*_row(proof))
    return table


def _row(proof: Proof) -> list[str]:
    before, after = proof.before, proof.after
    counts = [(b, a) for b, a in zip(_counts(before), _counts(after), strict=True)]
    return [
        proof.topic,
        *(f"{b:,} → {a:,}" for b, a in counts),
        f"{size(before.bytes)} → {size(after.bytes)}",
        "\n".join(f"{count:,} {reason}" for reason, count in proof.audit.removed.items() if count),
        f"{proof.audit.passed} of {proof.audit.total}",
        f"{proof.seconds:.0f}",
    ]


def _counts(size: Size) -> tuple[int, int, int]:
    return size.records, size.keys, size.tombstones


def _print_claims(console: Console, claims: Mapping[str, bool]) -> None:
    for claim, holds in claims.items():
        console.print(
            f"  {'[green]yes[/green]' if holds else '[bold red]NO [/bold red]'}  {escape(claim)}", soft_wrap=True
        )


def _print_corrupted(console: Console, topic: str, corrupted: CorruptedRound) -> None:
    console.print(f"\n[bold]{topic}-corrupted[/bold]  failed expectations: {', '.join(corrupted.expectations)}")
    _print_claims(console, corrupted.claims)
    console.print("  alert:", style="dim")
    for line in corrupted.alert.splitlines():
        console.print(f"    {escape(line)}", style="dim", soft_wrap=True)


def all_holds(proofs: Sequence[Proof]) -> bool:
    claims = [proof.claims for proof in proofs]
    claims += [proof.result.corrupted.claims for proof in proofs if proof.result.corrupted]
    return all(holds for topic_claims in claims for holds in topic_claims.values())


def print_locations(console: Console, home: Home, broker: KafkaBroker, topics: Sequence[str]) -> None:
    """Print what to open next, as commands and paths that can be copied."""
    settings = f"CLEANTAIL_HOME={home.path} CLEANTAIL_JARS={home.jars}"
    docs = [home.path / "data_docs" / topic / "gx/uncommitted/data_docs/local_site/index.html" for topic in topics]
    rows = [
        ("tables", f"{settings} .venv/bin/cleantail --config demo/config status"),
        ("records", f"{settings} .venv/bin/cleantail --config demo/config read {topics[0]}"),
        *((f"checks of {topic}", str(path)) for topic, path in zip(topics, docs, strict=True)),
        ("evidence", "table cleantail.cleantail_evidence in " + str(home.path / "catalog.db")),
        ("alerts", str(home.alerts)),
        ("certificates", str(home.path / "certificates")),
        ("Kafka", f"{broker.address} without a login, while it runs; log: {broker.folder / 'broker.log'}"),
        ("Airflow's UI", ".venv/bin/python -m demo up   (has these runs; also starts Kafka; `demo down` stops both)"),
    ]
    console.print("\n[bold]Where to look[/bold]")
    for name, location in rows:
        console.print(f"  {name:<28}{location}", soft_wrap=True, highlight=False, markup=False)
