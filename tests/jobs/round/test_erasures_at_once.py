"""Several processes erase at the same time: each request ends, with a certificate of its own, in an unbroken chain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleantail.erasure.certificate import public_pem, require_chain, signing_key, verified
from cleantail.lake.spark_settings import SMALL_RUN
from tests.jobs.round.test_erasure import GONE, SECRETS, holding, lines

pytestmark = [pytest.mark.deep, pytest.mark.integration]


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in SECRETS.items():
        monkeypatch.setenv(name, text)


def started(workshop, topic: str, key: str, place: Path) -> subprocess.Popen[str]:
    """Start `cleantail erase` of a key, as on a machine whose CLEANTAIL_HOME is `place`: the catalog is that of all tests."""
    place.mkdir(mode=0o700, exist_ok=True)
    argv = [sys.executable, "-m", "cleantail_cli", "erase", topic, "--keys", "-", "--json", "--config"]
    run = subprocess.Popen(
        [*argv, str(workshop.config)],
        env={**os.environ, "CLEANTAIL_HOME": str(place)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdin is not None
    run.stdin.write(key)
    run.stdin.close()
    run.stdin = None  # so that communicate() does not close it again
    return run


@pytest.mark.parametrize("places", [pytest.param("aa", id="one machine"), pytest.param("ab", id="two machines")])
def test_each_of_three_requests_at_once_has_its_own_certificate(workshop, tmp_path, home, places):
    """Two for one topic, and one for another. Processes of one machine share a lock, of two only the catalog."""
    catalog = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}
    platform = {"catalog": catalog, "spark": {"conf": SMALL_RUN}}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    shared, alone = (workshop.topic(f"erased-at-once-{places}-{number}") for number in (0, 1))
    for topic in (shared, alone):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}.jsonl", lines(topic)))
    one, other = (tmp_path / place for place in places)
    keys = [f"{GONE}-{number}" for number in (0, 1)]
    chosen = [(shared, keys[0], one), (shared, keys[1], other), (alone, keys[0], one)]
    runs = [started(workshop, *each) for each in chosen]
    ended = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], [(out[:2_000], err) for out, err in ended]
    texts = [request["certificate"].encode() for out, _ in ended for request in json.loads(out)["requests"]]
    contents = [verified(text, public_pem(signing_key(os.environ)).encode()) for text in texts]
    assert [c["topic"] for c in contents] == [topic for topic, _, _ in chosen]
    assert [c["steps"]["hidden"]["records"] for c in contents] == [{"0": 3}, {"1": 3}, {"0": 3}]
    chain = sorted(range(2), key=lambda at: contents[at]["number"])
    require_chain([texts[at] for at in chain], [contents[at] for at in chain])
    assert [contents[at]["number"] for at in (*chain, 2)] == [1, 2, 1]
    for topic, gone in ((shared, keys), (alone, keys[:1])):
        assert {r["key"] for r in workshop.read(topic)} == {r["key"] for r in lines(topic)} - {*gone}
        assert holding(workshop, topic, *gone, full=True) == {}
