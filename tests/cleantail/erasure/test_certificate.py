"""Certificates of erasures: signed, chained, and verified from the file and the public key alone."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cleantail.config.alert_channels import FileAlert
from cleantail.config.loading import find_topic
from cleantail.erasure import certificate
from cleantail.erasure.certificate import (
    ALERTS_EXCLUSION,
    FILES_EXCLUSION,
    issue,
    page,
    public_pem,
    require_chain,
    signed,
    signing_key,
    verified,
)
from cleantail.erasure.requests import APPROVED, HIDDEN, LIFTED, PROVEN, REJECTED, ErasureEvent
from cleantail.erasure.store import ErasureStore, newest_certificate
from cleantail.errors import CertificateError, CleantailError, TableError
from cleantail.home.driver_process import CERTIFICATE_KEY
from tests.cleantail.erasure.test_store import DAY, NOW, secret

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PEM = public_pem(KEY).encode()
OTHER = public_pem(Ed25519PrivateKey.from_private_bytes(bytes(32))).encode()
CONTENT = {"format": 1, "number": 1, "previous": None, "topic": "ordérs", "steps": {"hidden": {"records": 3}}}
TEXT = signed(KEY, CONTENT).encode()


def test_a_certificate_verifies_with_the_public_key_alone():
    assert verified(TEXT, PEM).items() >= CONTENT.items()


@pytest.mark.parametrize("number", [2, True, "1", None])
def test_a_certificate_of_an_unknown_format_is_refused_with_its_file_and_what_is_allowed(number):
    text = signed(KEY, CONTENT | {"format": number}).encode()
    shown = number if isinstance(number, str) else json.dumps(number)
    with pytest.raises(TableError, match=rf"^a\.json has format={shown}: this version of Cleantail reads format 1; "):
        verified(text, PEM, "a.json")


def test_every_changed_byte_is_noticed():
    for at, byte in enumerate(TEXT):
        for other in {byte ^ 1, byte ^ 32, ord(" ")} - {byte}:
            with pytest.raises(CertificateError, match="it was changed|or changed|not a certificate"):
                verified(TEXT[:at] + bytes([other]) + TEXT[at + 1 :], PEM)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT + b"\n", id="another line break"),
        pytest.param(TEXT[:-1], id="no line break"),
        pytest.param(json.dumps(json.loads(TEXT)).encode(), id="the same JSON in another form"),
        pytest.param(TEXT.replace(b'"number": 1', b'"number": 2,\n    "number": 1'), id="a key twice"),
        pytest.param(TEXT.replace(b'"number": 1', b'"number": 1.0'), id="a float"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"[]", id="other JSON"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_another_text_is_no_certificate(text):
    with pytest.raises(CertificateError):
        verified(text, PEM)


def test_the_unused_bits_of_the_signature_cannot_be_changed():
    signature = json.loads(TEXT)["signature"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = signature.rstrip("=")[-1]
    same = signature.rstrip("=")[:-1] + alphabet[alphabet.index(last) + 1] + "=="
    assert base64.b64decode(same) == base64.b64decode(signature)
    with pytest.raises(CertificateError, match="it was changed"):
        verified(TEXT.replace(signature.encode(), same.encode()), PEM)


def test_another_public_key_is_named():
    with pytest.raises(CertificateError, match="it names public key"):
        verified(TEXT, OTHER)
    with pytest.raises(CleantailError, match="is not a PEM file"):
        verified(TEXT, b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n")


def test_a_certificate_that_its_signer_made_by_hand_still_names_its_own_key():
    forged = signed(KEY, CONTENT | {"public_key": "another"})
    assert verified(forged.encode(), PEM)["public_key"] != "another"


def test_a_float_is_never_signed():
    with pytest.raises(ValueError, match="no floats"):
        signed(KEY, {"steps": [{"ratio": 0.5}]})


@pytest.fixture
def topic(project, monkeypatch):
    monkeypatch.setenv("CLEANTAIL_ERASURE_KEY", secret(1))
    monkeypatch.setenv(CERTIFICATE_KEY, base64.b64encode(bytes(range(32))).decode())
    return find_topic("orders", project / "config")


def proven(topic, key, at_ms=NOW):
    store = ErasureStore(topic.platform)
    request = store.request(
        "orders", [key], by="ana <b>", now_ms=at_ms, deadline_ms=at_ms + DAY, exclude=("tag:audit",)
    )
    details = {APPROVED: {}, HIDDEN: {"records": 2}, PROVEN: {"snapshot": 7, "found": 0, "exclusions": ["<source>"]}}
    for n, (event, more) in enumerate(details.items()):
        store.append(ErasureEvent("orders", request.id, event, at_ms + n, "ana", more))
    return store, request


def test_the_claim_has_an_exception_only_if_something_is_excluded(topic):
    assert "a key of the request, except what is listed under exclusions. This" in claim_of(certify(topic, b"k1"))
    store = ErasureStore(topic.platform)
    request = store.request("orders", [b"k2"], by="ana", now_ms=NOW, deadline_ms=NOW + DAY)
    store.append(ErasureEvent("orders", request.id, PROVEN, NOW + 1, "ana", {"found": 0}))
    text = issue(store, topic, request, now_ms=NOW + 10, by="ana", facts={})
    assert "a key of the request. This" in claim_of(text)


def claim_of(text):
    return verified(text.encode(), PEM)["claim"]


def certify(topic, key, at_ms=NOW):
    store, request = proven(topic, key, at_ms)
    return issue(store, topic, request, now_ms=at_ms + 10, by="ana", facts={"table": "cleantail.orders"})


@pytest.mark.parametrize("end", [REJECTED, LIFTED])
def test_a_request_that_a_person_has_ended_gets_no_certificate(topic, end):
    store, request = proven(topic, b"a")
    store.append(ErasureEvent("orders", request.id, end, NOW + 9, "ana"))
    with pytest.raises(CleantailError, match=f"request {request.id} is {end}: it gets no certificate"):
        issue(store, topic, request, now_ms=NOW + 10, by="ana", facts={"table": "cleantail.orders"})
    assert newest_certificate(store.events("orders")) is None


def test_the_next_certificate_follows_the_highest_number_whatever_the_clock_says(topic):
    first = certify(topic, b"a", NOW + DAY)
    second = certify(topic, b"b", NOW)  # of a machine whose clock is behind
    third = certify(topic, b"c", NOW + 1)
    texts = [text.encode() for text in (first, second, third)]
    require_chain(texts, [verified(text, PEM) for text in texts])


def test_of_two_that_are_issued_at_once_the_later_follows_the_other(topic, monkeypatch):
    store, request = proven(topic, b"a")
    real, others = certificate.signed, []

    def signed_while_another_is_issued(*arguments):
        text = real(*arguments)
        if not others:
            others.append("")
            others.append(certify(topic, b"b"))
        return text

    monkeypatch.setattr(certificate, "signed", signed_while_another_is_issued)
    later = issue(store, topic, request, now_ms=NOW, by="ana", facts={})
    texts = [others[-1].encode(), later.encode()]
    require_chain(texts, [verified(text, PEM) for text in texts])
    assert len(ErasureStore(topic.platform).events("orders")) == 10


def test_a_certificate_tells_the_request_its_steps_and_exclusions_without_the_key(topic):
    text = certify(topic, b"marker-k1")
    content = verified(text.encode(), PEM)
    assert "marker" not in text and content["exclusions"] == ["<source>", "tag:audit"]
    assert content["request"]["requested_at"] == "2025-11-24T16:00:00.000Z" and content["request"]["keys"] == 1
    assert content["steps"]["hidden"] == {"at": "2025-11-24T16:00:00.001Z", "by": "ana", "records": 2}
    assert content["steps"]["rewritten"] is None and content["table"] == "cleantail.orders"
    (request,) = ErasureStore(topic.platform).requests("orders")
    assert request.state == "certified" and "claims nothing about copies elsewhere" in content["claim"]


def test_files_that_a_topic_was_ingested_from_are_an_exclusion(topic):
    store, request = proven(topic, b"k1")
    text = issue(store, topic, request, now_ms=NOW + 10, by="ana", facts={"source": {"kind": "files"}})
    assert FILES_EXCLUSION in verified(text.encode(), PEM)["exclusions"]


@pytest.mark.parametrize("values", [True, False])
def test_alerts_that_quote_records_are_an_exclusion(topic, values):
    alert = FileAlert(type="file", path="alerts/all.jsonl", values=values)
    quoting = topic.model_copy(update={"alerts": (alert,)})
    store, request = proven(quoting, b"k1")
    text = issue(store, quoting, request, now_ms=NOW + 10, by="ana", facts={})
    assert (ALERTS_EXCLUSION in verified(text.encode(), PEM)["exclusions"]) is values


def test_an_alert_file_that_quotes_records_is_named_whatever_the_channels_have_now(topic):
    def alert(name, of_topic, *examples):
        line = {"topic": of_topic, "failures": [{"offsets": [7]} | {"examples": examples}]}
        file = topic.platform.home / "alerts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        return file

    for name in ("quoting.jsonl", "plain.jsonl"):
        alert(name, "orders")
    alert("quoting.jsonl", "orders", "offset 7: key k1")
    alert("others.jsonl", "payments", "offset 7: key k1")
    alert("cut.jsonl", "orders").write_text('{"topic": "ord')
    content = verified(certify(topic, b"k1").encode(), PEM)
    named = [
        f"alerts/{name}.jsonl in CLEANTAIL_HOME may quote records of the topic: delete it"
        for name in ("cut", "quoting")
    ]
    assert content["exclusions"] == ["<source>", *named, "tag:audit"]


def test_files_of_an_earlier_ingestion_are_an_exclusion_whatever_the_source_is_now(topic, orders_table, monkeypatch):
    orders_table.append((0, 0, 1, b"a", b"1"))
    orders_table.set_properties(**{"cleantail.ingested.0123": "1"})
    store, request = proven(topic, b"k1")
    text = issue(store, topic, request, now_ms=NOW + 10, by="ana", facts={"source": {"kind": "kafka"}})
    assert FILES_EXCLUSION in verified(text.encode(), PEM)["exclusions"]


def test_a_repeated_issue_is_the_same_certificate(topic):
    store, request = proven(topic, b"k1")
    first = issue(store, topic, request, now_ms=NOW + 10, by="ana", facts={})
    assert issue(store, topic, request, now_ms=NOW + 20, by="bo", facts={}) == first
    assert newest_certificate(store.events("orders")) == first


def test_certificates_of_a_topic_are_a_chain_in_which_none_can_be_left_out(topic):
    texts = [certify(topic, key, NOW + n * 100).encode() for n, key in enumerate((b"a", b"b", b"c"))]
    contents = [verified(text, PEM) for text in texts]
    assert [content["number"] for content in contents] == [1, 2, 3] and contents[0]["previous"] is None
    require_chain(texts, contents)
    with pytest.raises(CertificateError, match="number 3 of topic orders does not follow number 1"):
        require_chain([texts[0], texts[2]], [contents[0], contents[2]])
    with pytest.raises(CertificateError, match="a chain has the certificates of one topic"):
        require_chain(texts[:2], [contents[0] | {"topic": "payments"}, contents[1]])


def test_the_page_shows_the_certificate_and_has_the_file_to_verify(topic):
    text = certify(topic, b"k1")
    html = page(text)
    assert "<source>" not in html and "ana <b>" not in html and "<script" not in html and "&lt;source&gt;" in html
    encoded = html.split("base64,")[1].split('"')[0]
    assert base64.b64decode(encoded).decode() == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "is not set", id="missing"),
        pytest.param("AAAA", "neither a PEM text", id="short"),
        pytest.param(
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "neither a PEM text", id="bad PEM"
        ),
    ],
)
def test_a_bad_key_is_refused_without_showing_it(text, problem):
    with pytest.raises(CleantailError, match=problem) as error:
        signing_key({CERTIFICATE_KEY: text})
    assert not text or text not in str(error.value)


def test_a_key_may_be_a_pem_text():
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert public_pem(signing_key({CERTIFICATE_KEY: pem})).encode() == PEM


def test_without_a_key_no_certificate_is_recorded(topic):
    store, request = proven(topic, b"k1")
    keyless = topic.on(topic.platform.with_env({}))
    with pytest.raises(CleantailError, match="CLEANTAIL_CERTIFICATE_KEY is not set"):
        issue(store, keyless, request, now_ms=NOW, by="ana", facts={})
    assert newest_certificate(store.events("orders")) is None
