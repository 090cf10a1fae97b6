"""Compare each topic with its expected content, and compute the numbers of the final table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cleantail.config.platform import Platform
from cleantail.sources.kcat import Record
from demo.inputs import Expected
from demo.tables import Audit, Ingested, Size, audit, ingested, is_clean, live_bytes, live_records
from demo.topic_runs import TopicResult


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of one topic: sizes before and after, its evidence, and claims. A claim is a text and whether it is
    true."""

    result: TopicResult
    before: Size
    after: Size
    audit: Audit
    claims: Mapping[str, bool]

    @property
    def topic(self) -> str:
        return self.result.expected.input.topic

    @property
    def seconds(self) -> float:
        return sum(ended.seconds for ended in self.result.rounds)


def prove(result: TopicResult, platform: Platform, now_ms: int) -> Proof:
    """Read the table as any reader does."""
    topic = result.expected.input
    live, seen = live_records(platform, topic.topic), audit(platform, topic.topic)
    came = ingested(platform, topic.topic)
    return Proof(
        result=result,
        before=Size.of(topic.records, came.bytes),
        after=Size.of(live, live_bytes(platform, topic.topic, now_ms)),
        audit=seen,
        claims=_claims(result.expected, live, came)
        | {
            "clean up to the end of every log": is_clean(platform, topic.topic, now_ms),
            "all checks of the published rounds passed": 0 < seen.passed == seen.total,
            "no check failed, except in the corrupted round": seen.red_rounds == (1 if result.corrupted else 0),
        },
    )


def _claims(expected: Expected, live: list[Record], came: Ingested) -> dict[str, bool]:
    first, second = (set(batch) for batch in expected.input.batches)
    return {
        **expected.claims,
        "every record of the input was ingested once": came.records == len(first | second),
        f"every key has its value: {expected.proof}": latest_values(live) == expected.values,
        "keys are unique": len({record.key for record in live}) == len(live),
        "records, values and headers are those of the input": set(live) <= first | second,
        "tombstones of the first round have expired": all(r.value is not None for r in live if r not in second),
    }


def latest_values(records: list[Record]) -> dict[bytes, bytes]:
    """Return key -> value of the highest offset, without deleted keys: the final state of a consumer of all records."""
    latest = {record.key or b"": record.value for record in records}
    return {key: value for key, value in latest.items() if value is not None}
