"""Requests that other programs leave as files."""

import base64
import json

import pyarrow as pa
import pytest

from cleantail.config.loading import find_topic
from cleantail.erasure.request_files import files_without_topic, take_requests, waiting_files
from cleantail.erasure.store import ErasureStore
from tests.cleantail.erasure.test_store import DAY, NOW, secret


@pytest.fixture
def topic(project, monkeypatch):
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", secret(1))
    return find_topic("orders", project / "config")


@pytest.fixture
def leave(topic):
    def file(name, **content):
        path = topic.platform.home / "erasures" / "orders" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.pop("text", None) or json.dumps(content))
        return path

    return file


def test_a_file_becomes_a_request_once_and_is_deleted(topic, leave):
    store = ErasureStore(topic.platform)
    assert take_requests(store, topic, NOW) == ([], [])
    file = leave("a.json", keys=["marker-1", "marker-2"], requested_by="ticket 4711")
    text = file.read_text()
    (request,), _ = take_requests(store, topic, NOW)
    assert (request.keys, request.requested_by, request.deadline_ms) == (2, "ticket 4711", NOW + 30 * DAY)
    assert not file.exists() and store.requests() == [request]
    leave("a.json", text=text)  # as after a crash before it was deleted
    assert take_requests(store, topic, NOW + 1) == ([request], []) and store.requests() == [request]


def test_a_file_may_say_more(topic, leave):
    keys = [base64.b64encode(b"\xff\x00").decode()]
    more = {"encoding": "base64", "deadline": "2026-12-24T00:00Z", "exclude": ["source"], "tombstone": True}
    leave("a.json", keys=keys, requested_by="ana", **more)
    (request,), _ = take_requests(ErasureStore(topic.platform), topic, NOW)
    assert request.deadline_ms == 1_798_070_400_000 and request.excluded == ("source",) and request.asked["tombstone"]
    assert ErasureStore(topic.platform).keys_of([request]).found(pa.array([b"\xff\x00"])).tolist() == [True]


def test_files_that_are_not_complete_wait(topic, leave):
    leave("a.json.part", keys=["k"], requested_by="ana")
    assert waiting_files(topic) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param({"text": '["marker"]'}, "allowed is an object with keys and requested_by", id="other JSON"),
        pytest.param({"text": "marker"}, "allowed is an object with keys and requested_by", id="no JSON"),
        pytest.param({"keys": [], "requested_by": "a"}, "keys must be a list of texts, not empty", id="no keys"),
        pytest.param({"keys": ["marker"]}, "requested_by must be a text of 1 to 200 characters", id="nobody"),
        pytest.param(
            {"keys": ["marker"], "requested_by": "a", "marker": 1},
            "allowed is an object with keys and requested_by",
            id="more",
        ),
        pytest.param({"keys": ["marker!"], "encoding": "base64", "requested_by": "a"}, "not base64", id="no base64"),
        pytest.param({"keys": ["marker"], "requested_by": "a", "deadline": "soon"}, "deadline must be", id="deadline"),
        pytest.param({"keys": ["k"], "requested_by": "a", "exclude": ["marker"]}, "source, versions", id="no such tag"),
    ],
)
def test_a_wrong_file_stays_and_is_named_without_its_content(topic, leave, content, problem):
    file = leave("a.json", **content)
    good = leave("b.json", keys=["k"], requested_by="ana")
    taken, (found,) = take_requests(ErasureStore(topic.platform), topic, NOW)
    assert problem in found and str(file) in found and "marker" not in found
    assert file.exists() and not good.exists() and ErasureStore(topic.platform).requests() == taken


def test_a_file_that_cannot_be_deleted_is_a_request_and_does_not_stop_the_others(topic, leave):
    files = [leave(name, keys=[f"marker-{name}"], requested_by="ana") for name in ("a.json", "b.json")]

    class Store(ErasureStore):
        def request(self, *arguments, **more):
            made = super().request(*arguments, **more)
            if files[0].is_file():
                files[0].unlink()
                files[0].mkdir()  # also root cannot delete it as a file
            return made

    store = Store(topic.platform)
    taken, (problem,) = take_requests(store, topic, NOW)
    assert sorted(r.id for r in taken) == sorted(r.id for r in store.requests()) and len(taken) == 2
    assert f"{files[0]} is request {taken[0].id} now, and cannot be deleted" in problem and "marker" not in problem
    assert not files[1].exists()


def test_files_for_a_topic_that_does_not_exist_are_listed(topic, leave):
    leave("a.json", keys=["k"], requested_by="ana")
    home = topic.platform.home
    assert files_without_topic(home, ["orders"]) == []
    assert files_without_topic(home, ["order"]) == [home / "erasures" / "orders" / "a.json"]
