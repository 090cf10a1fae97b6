"""What became of a pack: of each of its topics by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleantail.codec import Codec
from cleantail.human import counted
from cleantail.rounds.checked.round_results import RunResult

PASSED_OVER = "its rounds may wait for a person: it is a pack of its own"
NOTHING_DUE = "nothing is due"


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """Says what became of one topic. `ok`: nothing of it failed, and no log was held back. `error`: why its rounds
    ended, empty where they did not. `reason`: why there was nothing to do, empty where there was."""

    topic: str
    ok: bool = True
    published: tuple[int, ...] = ()
    held_back: tuple[int, ...] = ()
    expired: int = 0
    reason: str = ""
    error: str = ""

    @classmethod
    def of_run(cls, topic: str, run: RunResult) -> TopicOutcome:
        """Returns the outcome of the rounds of a run."""
        rounds = run.rounds
        return cls(
            topic=topic,
            ok=run.ok,
            published=tuple(sorted({p for each in rounds for p in each.published})),
            held_back=tuple(sorted({p for each in rounds for p in each.held_back})),
            expired=sum(each.expired for each in rounds),
        )


@dataclass(frozen=True, slots=True)
class PackResult:
    """The result of a pack: whether all of it went well, what a person should know, and each topic's own part."""

    ok: bool = True
    reason: str = ""
    topics: tuple[TopicOutcome, ...] = field(default=())

    @classmethod
    def of(cls, outcomes: tuple[TopicOutcome, ...]) -> PackResult:
        """Returns the result of these topics; the reason names those that failed."""
        failed = [outcome.topic for outcome in outcomes if not outcome.ok]
        named = f": {', '.join(failed)}" if failed else ""
        return cls(not failed, f"{counted(len(failed), 'topic')} of {len(outcomes)} failed{named}", outcomes)


PACK_RESULT_JSON: Codec[PackResult] = Codec(PackResult)
