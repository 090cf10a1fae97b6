"""`erasures` and `certificate`, with real tables in a catalog, without Spark."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleantail.config.loading import find_topic
from cleantail.erasure.certificate import issue
from cleantail.erasure.requests import APPROVED, FAILED, HIDDEN, PUBLISHING, ErasureEvent
from cleantail.erasure.store import ErasureStore
from cleantail_cli import main
from cleantail_cli.erase_command import read_keys

NOW = 1_764_000_000_000
DAY = 86_400_000
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def run(project, capsys, monkeypatch):
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", base64.b64encode(bytes(32)).decode())
    monkeypatch.setenv("CLEANTAIL_CERTIFICATE_KEY", base64.b64encode(bytes(range(32))).decode())

    def command(*arguments):
        code = main([*map(str, arguments), "--config", str(project / "config")])
        return (code, *capsys.readouterr())

    return command


@pytest.fixture
def topic(run, project):
    return find_topic("orders", project / "config")


def ask(topic, *events, key=b"marker-k1", at_ms=NOW):
    store = ErasureStore(topic.platform)
    request = store.request("orders", [key], by="ana", now_ms=at_ms, deadline_ms=at_ms + 30 * DAY)
    for event in events:
        details = {"reason": "tag audit reaches old files"} if event == FAILED else {}
        store.append(ErasureEvent("orders", request.id, event, at_ms + 1, "ana", details))
    return store, request


def certified(topic, key=b"marker-k1", at_ms=NOW):
    store, request = ask(topic, APPROVED, key=key, at_ms=at_ms)
    issue(store, topic, request, now_ms=at_ms + 2, by="ana", facts={"table": "cleantail.orders"})
    return request


def test_without_requests_there_is_nothing_to_list(run):
    assert run("erasures") == (0, "there are no requests to erase keys\n", "")
    assert run("erasures", "orders", "--json") == (0, '{"requests": []}\n', "")


def test_requests_are_listed_with_state_and_deadline_and_an_overdue_one_fails(run, topic, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # the id is whole, so that people can copy it
    _, request = ask(topic, APPROVED, FAILED)
    code, out, err = run("erasures", "--now", NOW + DAY)
    assert code == 0 and request.id in out and "2025-12-24" in out and "marker" not in out
    assert err == f"error: orders, {request.id}: tag audit reaches old files\n"
    code, out, err = run("erasures", "orders", "--now", NOW + 31 * DAY, "--json")
    (row,) = json.loads(out)["requests"]
    assert code == 1 and row == {
        "topic": "orders", "request": request.id, "state": "failed", "reason": "tag audit reaches old files", "keys": 1,
        "requested_by": "ana", "requested_ms": NOW, "deadline_ms": NOW + 30 * DAY, "overdue": True, "denied": True,
    }  # fmt: skip


def test_a_person_lifts_the_denylist_of_a_request_once(run, topic):
    store, request = ask(topic, APPROVED)
    assert [denied.id for denied in store.denied("orders")] == [request.id]
    assert run("erasures", "--lift", request.id, "--now", NOW)[0] == 0
    assert store.denied("orders") == ()
    code, _, err = run("erasures", "--lift", request.id)
    assert code == 2 and "keeps no key out of the table: it was already lifted" in err
    code, _, err = run("erasures", "--lift", "20000101-00000000")
    assert code == 2 and "there is no request 20000101-00000000" in err


def test_a_person_rejects_a_request_until_its_records_were_removed(run, topic):
    store, request = ask(topic, APPROVED, FAILED)
    assert run("erasures", "--reject", request.id, "--now", NOW)[0] == 0
    (rejected,) = store.requests("orders")
    assert rejected.state == "rejected" and store.denied("orders") == ()
    code, _, err = run("erasures", "--reject", request.id)
    assert code == 2 and "cannot be rejected: it is rejected" in err
    for number, event in enumerate((PUBLISHING, HIDDEN)):  # a run that was killed in between has published
        _, request = ask(topic, APPROVED, event, key=b"marker-k%d" % (2 + number))
        code, _, err = run("erasures", "--reject", request.id)
        assert code == 2 and "cannot be rejected: its records may have been removed" in err


def test_a_rejection_is_refused_if_a_run_begins_to_publish_meanwhile(run, topic, monkeypatch):
    store, request = ask(topic, APPROVED)
    real = ErasureStore.append_after

    def append_after(self, *arguments):
        store.append(ErasureEvent("orders", request.id, PUBLISHING, NOW + 2, "ana"))  # after the command has read
        return real(self, *arguments)

    monkeypatch.setattr(ErasureStore, "append_after", append_after)
    code, _, err = run("erasures", "--reject", request.id)
    assert code == 2 and "cannot be rejected: its records may have been removed" in err
    assert [read.state for read in store.requests("orders")] == ["approved"]


def test_request_files_of_no_topic_are_named(run, topic):
    file = topic.platform.home / "erasures" / "absent" / "a.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    code, _, err = run("erasures")
    assert code == 0 and "absent/a.json is not read: the configuration has no valid topic absent" in " ".join(
        err.split()
    )
    assert "is not read" not in run("erasures", "orders")[2]


def test_a_certificate_is_printed_as_it_was_signed_and_verified_without_anything_of_ours(run, topic, tmp_path):
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for n, file in enumerate(files):
        code, out, err = run("certificate", "show", certified(topic, b"marker-k%d" % n, NOW + n * DAY).id)
        assert (code, err) == (0, "") and "marker" not in out
        file.write_text(out)
    code, pem, _ = run("certificate", "public-key")
    (tmp_path / "key.pem").write_text(pem)
    alone = {name: value for name, value in os.environ.items() if not name.startswith("CLEANTAIL_")}
    verify = [sys.executable, "-m", "cleantail_cli", "certificate", "verify", "--public-key", "key.pem"]
    done = subprocess.run([*verify, "one.json", "two.json"], cwd=tmp_path, env=alone | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0 and "valid: certificate 2 of topic orders" in done.stdout, done.stderr
    assert "not checked" not in done.stderr
    code, _, err = run("certificate", "verify", files[1], "--public-key", tmp_path / "key.pem")
    assert code == 0 and "not checked: the topic's certificates before number 2, because they were not given" in err
    code, _, err = run("certificate", "verify", files[1], files[0], "--public-key", tmp_path / "key.pem")
    assert code == 1 and "number 1 of topic orders does not follow number 2" in err
    data = bytearray(files[0].read_bytes())
    data[100] ^= 1
    files[0].write_bytes(data)
    code, _, err = run("certificate", "verify", files[0], "--public-key", tmp_path / "key.pem")
    assert code == 1 and f"{files[0]} is not a valid certificate" in err


def test_the_page_of_a_certificate_is_html(run, topic):
    code, out, _ = run("certificate", "show", certified(topic).id, "--html")
    assert code == 0 and out.startswith("<!DOCTYPE html>") and "certificate.json" in out


def test_a_missing_certificate_file_or_key_is_an_error_without_a_traceback(run, topic, tmp_path, monkeypatch):
    _, request = ask(topic)
    code, _, err = run("certificate", "show", request.id)
    assert code == 2 and f"request {request.id} has no certificate: it is requested" in err
    code, _, err = run("certificate", "verify", tmp_path / "absent.json", "--public-key", tmp_path / "absent.pem")
    assert code == 2 and "absent.pem cannot be read: No such file or directory" in err
    monkeypatch.delenv("CLEANTAIL_CERTIFICATE_KEY")
    code, _, err = run("certificate", "public-key")
    assert code == 2 and "CLEANTAIL_CERTIFICATE_KEY is not set" in err


def test_a_byte_order_mark_does_not_belong_to_the_first_key(tmp_path):
    (tmp_path / "keys.txt").write_bytes(b"\xef\xbb\xbfk1\r\nk 2\n\n")
    assert read_keys(str(tmp_path / "keys.txt"), "text") == [b"k1", b"k 2"]
