"""`python -m soak`: see the package."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

import soak
from differential.broker import BrokerError
from soak import wire
from soak.gateway import DISK
from soak.histories import FAULTS, KAFKA, Deck, History, histories, parse_history
from soak.play import Finding, Player, shrink
from soak.scenarios import FIRST, OF_OWN, OF_REST, SCENARIOS
from soak.site import NotStarted, Site, running_site


def main(argv: list[str]) -> int:
    arguments = _parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end and unmount what this process started
    try:
        platform = yaml.safe_load(arguments.platform.read_text())["platform"] if arguments.platform else None
        kinds = not arguments.no_kafka, arguments.sql, platform, [each.absolute() for each in arguments.version]
        with running_site(say, arguments.machines, *kinds) as site:
            return Soak(site, arguments).run()
    except (NotStarted, BrokerError) as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m soak", description=soak.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="no history begins later (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of all histories (1)")
    parser.add_argument("--machines", type=int, default=2, metavar="N", help="processes, each with its own home (2)")
    parser.add_argument("--platform", type=Path, metavar="FILE", help="use the platform of this defaults.yaml")
    parser.add_argument("--sql", action="store_true", help="a catalog in Postgres instead of a REST server")
    parser.add_argument("--no-kafka", action="store_true", help="start no broker: no history from Kafka")
    parser.add_argument("--version", type=Path, action="append", default=[], metavar="DIR", help="another checkout")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="only this one; may be repeated")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play a saved history")
    parser.add_argument("--shrink", type=Path, metavar="FILE", help="shorten a saved history that fails")
    parser.add_argument("--save", type=Path, default=Path("soak-failures"), metavar="DIR", help="for failing histories")
    arguments = parser.parse_args(argv)
    if arguments.machines < 2 and not arguments.replay:
        parser.error("--machines: at least 2")
    return arguments


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


class Soak:
    def __init__(self, site: Site, arguments: argparse.Namespace) -> None:
        self.site, self.arguments = site, arguments
        self.deck = Deck(wire.FIRST, wire.POINTS, wire.FAULTS) if site.is_sql else Deck()
        if not site.has_disks:
            self.deck = replace(self.deck, faults=[how for how in self.deck.faults if how not in DISK])
        for machine in site.machines:
            machine.door.seen, machine.door.hits = self.deck.seen, self.deck.hits
        self.began = time.monotonic()
        self.played = self.acts = self.commands = 0
        self.failed: list[Path] = []

    def run(self) -> int:
        if self.arguments.shrink:
            return self._shrink(parse_history(self.arguments.shrink.read_text()))
        try:
            for name, history in self._histories():
                if found := self.finding(name, history):
                    self._save(name, history, found)
        finally:  # also after an interrupt
            minutes = (time.monotonic() - self.began) / 60
            print_summary(self.deck, self.played, self.acts, self.commands, minutes)
        unknown = sorted({name for machine in self.site.machines for name in machine.door.unknown})
        for name in unknown:
            say(f"FINDING: a request that matches no point: {name}")
        missed = sorted(self.deck.names - {point for point, _ in self.deck.hits})
        if missed and self.played >= len(self.deck.names):
            say(f"FINDING: points without a fault: {', '.join(missed)}")
            unknown += missed
        say(f"{len(self.failed)} of {self.played} histories failed" + "".join(f"\n  {file}" for file in self.failed))
        return 1 if self.failed or unknown else 0

    def _histories(self) -> Iterator[tuple[str, History]]:
        arguments = self.arguments
        if arguments.replay:
            yield arguments.replay.stem, parse_history(arguments.replay.read_text())
            return
        left_out = {*(OF_REST if self.site.is_sql else ()), *(() if self.site.has_disks else OF_OWN)}
        scenarios = iter(arguments.scenario or [name for name in SCENARIOS if name not in left_out])
        drawn = histories(arguments.seed, arguments.machines, self.site.broker is not None, self.deck)
        while time.monotonic() - self.began < arguments.minutes * 60:
            if (arguments.scenario or self.played < FIRST or self.played % 2) and (name := next(scenarios, None)):
                history = SCENARIOS[name]()
                if history.source != KAFKA or self.site.broker is not None:
                    say(f"scenario {SCENARIOS[name].__doc__}")
                    yield name, history
                continue
            if arguments.scenario:
                return
            history = next(drawn)
            yield f"{history.seed}-{history.number}", history

    def finding(self, name: str, history: History) -> str:
        """Play a history. Return the text of the finding, or an empty text."""
        topic = re.sub("[^a-z0-9]", "_", f"soak-{name}-{self.played}".lower())
        player, began, found = Player(self.site, history, topic), time.monotonic(), ""
        try:
            player.play()
        except Finding as e:
            found = f"{e}\n\n" + "\n".join(player.log)
        finally:
            player.forget()
        self.played += 1
        self.acts += player.acts
        self.commands += player.commands
        counts = f"{len(history.acts)} acts, {player.commands} commands, {time.monotonic() - began:.0f} s"
        say(f"{topic}: {'FINDING' if found else 'ok'}, {counts}. {kind_of(found)}")
        return found

    def _save(self, name: str, history: History, found: str) -> None:
        folder: Path = self.arguments.save
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.json"
        file.write_text(history.as_json())
        file.with_suffix(".txt").write_text(found)
        self.failed.append(file)
        say(f"FINDING, to repeat: `python -m soak --replay {file}`:\n{found}")

    def _shrink(self, history: History) -> int:
        def found(each: History) -> str:
            self.deck.seen.clear()  # the first request at each point has a fault again
            return kind_of(self.finding("shrink", each))

        if not (kind := found(history)):
            say("this history passes")
            return 0
        shorter = shrink(history, lambda each: found(each) == kind, say)
        file = self.arguments.shrink.with_suffix(".short.json")
        file.write_text(shorter.as_json())
        say(f"{len(shorter.acts)} of {len(history.acts)} acts still fail: {file}")
        return 1


def kind_of(found: str) -> str:
    """Return the beginning of a finding's text, without act, numbers and names: a shorter history must find it."""
    return re.sub(r"\d+|soak_\w+", "", found.partition(": ")[2].partition("\n")[0])[:50]


def print_summary(deck: Deck, played: int, acts: int, commands: int, minutes: float) -> None:
    hits = deck.hits
    print(f"\n{played} histories, {acts} acts, {commands} commands, {hits.total()} faults in {minutes:.0f} minutes\n")
    print(f"{'point':40} {'requests':>8} {'faults':>6}  kinds")
    for point in sorted(deck.names | deck.seen.keys()):
        kinds = {how: hits[point, how] for how in FAULTS if hits[point, how]}
        counts = ", ".join(f"{how} {n}" for how, n in kinds.items()) or "did not occur"
        print(f"{point:40} {deck.seen[point]:8} {sum(kinds.values()):6}  {counts}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
