"""A real broker for the tests of a Kafka source, and its producers."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from cleantail.sources.kcat import Record
from differential.broker import LOOPBACK, Broker, free_ports, kafka_jars, running_broker
from differential.kafka_client import KafkaClient

JARS = kafka_jars(os.environ)
"""Read when the module is imported, because the session's own CLEANTAIL_HOME has no jars."""
WITHIN_S = 60
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": "reader"}
PASSWORD = "reader-secret"


@contextlib.contextmanager
def kafka_site(directory: Path) -> Iterator[KafkaSite]:
    """A broker with three listeners: one without a login, which allows everything, one with a login, and one with a login
    and TLS."""
    port, login_port, tls_port, controller_port = free_ports(4)
    here = ",".join(
        f"{name}://{LOOPBACK}:{each}"
        for name, each in (("PLAINTEXT", port), ("SASL_PLAINTEXT", login_port), ("SASL_SSL", tls_port))
    )
    authority = write_certificates(directory)
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="{PASSWORD}";'
    more = {
        "listeners": f"{here},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": here,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listener.security.protocol.map": ",".join(
            ("PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL", "CONTROLLER:PLAINTEXT")
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
        "listener.name.sasl_ssl.ssl.keystore.location": directory / "server.pem",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        # A broker that pauses for a while stays in its cluster. Otherwise it would lead no log for some time. So a
        # killed broker cannot restart on its data, but a cleanly stopped one can.
        "broker.session.timeout.ms": 600_000,
        "message.max.bytes": 4 << 20,
    }
    with running_broker(directory, JARS, extra_properties=more) as broker:
        yield KafkaSite(f"{LOOPBACK}:{port}", f"{LOOPBACK}:{login_port}", broker, f"{LOOPBACK}:{tls_port}", authority)


def write_certificates(directory: Path) -> Path:
    """Write a certificate of this machine with its key as `server.pem`. Returns the authority's certificate."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests of Cleantail")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, LOOPBACK)])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))])
    own = _certificate(issuer, issuer, authority_key, authority_key, x509.BasicConstraints(ca=True, path_length=None))
    server = _certificate(subject, issuer, key, authority_key, here)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "server.pem").write_bytes(pkcs8 + server.public_bytes(Encoding.PEM))
    file = directory / "authority.pem"
    file.write_bytes(own.public_bytes(Encoding.PEM))
    return file


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signed_by: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - day, now + day)
    return made.add_extension(extension, critical=True).sign(signed_by, hashes.SHA256())


@dataclass
class KafkaSite:
    """A broker with a client of each kind."""

    address: str
    login_address: str
    broker: Broker
    tls_address: str = ""
    authority: Path = Path()
    client: KafkaClient = field(init=False)
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = KafkaClient(self.address)
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": "2"})

    def source(self, **more: Any) -> dict[str, Any]:
        """What a topic's YAML says of this broker."""
        return {"kafka": {"bootstrap.servers": self.address, **more}}

    def create(self, topic: str, partitions: int = 1, **configs: Any) -> None:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        self.client.create(topic, partitions, {"message.timestamp.after.max.ms": (1 << 63) - 1} | dotted)

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete the topic. Create one of the same name after the broker has removed the old one."""
        self.client.delete(topic)
        until = time.monotonic() + WITHIN_S
        while True:
            try:
                return self.create(topic, partitions)
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def send(self, topic: str, records: Iterable[tuple[Any, ...]], partition: int = 0, **settings: Any) -> None:
        """Send records (key, value, headers, timestamp). Trailing values may be missing."""
        with_acks = Producer({"bootstrap.servers": self.address, "linger.ms": 5, **settings})
        for record in records:
            _produce(with_acks, topic, partition, *record)
        assert with_acks.flush(WITHIN_S) == 0

    def send_batch(self, topic: str, batch: bytes, partition: int = 0) -> None:
        """Send a batch unchanged (Produce, version 7), which no client would write."""

        def text(name: str) -> bytes:
            return struct.pack(">h", len(name)) + name.encode()

        body = struct.pack(">hhii", -1, -1, WITHIN_S * 1000, 1) + text(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        request = struct.pack(">hhi", 0, 7, 1) + text("tests") + body
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), WITHIN_S) as connection, connection.makefile("rb") as answers:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
        code = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
        assert code == 0, f"the broker refused the batch: {code}"

    def transactions(self, topic: str, name: str) -> Transactions:
        # A batch waits for the flush, so that a slow machine packs the same records into the same batches as a fast one.
        waiting = {"linger.ms": 1_000}
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": name, "log_level": 2, **waiting})
        producer.init_transactions(WITHIN_S)
        return Transactions(producer, topic)

    def add_partitions(self, topic: str, total: int) -> None:
        for done in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            done.result(WITHIN_S)

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        for done in self.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            done.result(WITHIN_S)

    def consumed(self, topic: str, partitions: int = 1, committed: bool = True) -> list[Record]:
        """Return the records that a plain consumer reads from the beginning."""
        return sorted(
            (r for rs in self.client.read(topic, range(partitions), committed=committed).values() for r in rs),
            key=lambda r: (r.partition, r.offset),
        )

    def allow(self, topic: str, *operations: AclOperation) -> None:
        """Grant the user `reader` these rights on the topic."""
        rights = [
            AclBinding(
                ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:reader", "*", o, AclPermissionType.ALLOW
            )
            for o in operations
        ]
        for done in self.admin.create_acls(rights).values():
            done.result(WITHIN_S)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let the broker answer no client during the block. It loses nothing, and leads its logs afterwards."""
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)
            self.wait_until_it_leads()

    def wait_until_it_leads(self) -> None:
        """Wait until the broker reports that it leads each log. On a slow machine a paused broker takes longer to answer
        than the client of a test waits."""
        until = time.monotonic() + WITHIN_S
        while True:
            with contextlib.suppress(KafkaException):
                topics = (
                    AdminClient({"bootstrap.servers": self.address, "log_level": "2"}).list_topics(timeout=5).topics
                )
                if all(log.leader >= 0 for topic in topics.values() for log in topic.partitions.values()):
                    return
            assert time.monotonic() < until
            time.sleep(0.1)

    def restart(self) -> subprocess.Popen[bytes]:
        """Stop the broker cleanly and start it again, with the same data and ports. The caller ends the process."""
        command = Path(f"/proc/{self.broker.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        os.kill(self.broker.pid, signal.SIGTERM)
        until = time.monotonic() + WITHIN_S
        while self.broker.output.read_text(errors="replace").count("shut down completed") == 0:
            assert time.monotonic() < until
            time.sleep(0.1)
        with self.broker.output.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def first_segment(self, topic: str, partition: int = 0) -> Path:
        return sorted((self.broker.logs / f"{topic}-{partition}").glob("*.log"))[0]

    def committed_offsets(self, group: str, topic: str, partitions: int = 1) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], WITHIN_S)
        finally:
            consumer.close()
        return {each.partition: each.offset for each in found}


@dataclass
class Transactions:
    """A transactional producer of one topic."""

    producer: Producer
    topic: str

    def begin(self, records: Iterable[tuple[Any, ...]], partition: int = 0) -> None:
        self.producer.begin_transaction()
        self.more(records, partition)

    def more(self, records: Iterable[tuple[Any, ...]], partition: int = 0) -> None:
        for record in records:
            _produce(self.producer, self.topic, partition, *record)
        assert self.producer.flush(WITHIN_S) == 0

    def commit(self, records: Iterable[tuple[Any, ...]], partition: int = 0) -> None:
        self.begin(records, partition)
        self.producer.commit_transaction(WITHIN_S)

    def abort(self, records: Iterable[tuple[Any, ...]], partition: int = 0) -> None:
        self.begin(records, partition)
        self.producer.abort_transaction(WITHIN_S)


def _produce(
    producer: Producer, topic: str, partition: int, key: Any, value: Any, headers: Any = None, timestamp: int = 0
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=_delivered, timestamp=timestamp, headers=headers)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


def _delivered(error: Any, _: Any) -> None:
    assert error is None, error


def landed_record(row: Any) -> Record:
    """Return a row of a topic's table in the form of a consumed record."""
    stamp = None if row.timestamp is None else round(row.timestamp.timestamp() * 1000)
    headers = tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers)
    key, value = (None if x is None else bytes(x) for x in (row.key, row.value))
    return Record(row.partition, row.offset, stamp, row.timestamp_type, key, value, headers)


BASE, LENGTH, MAGIC, CRC, ATTRIBUTES = 0, 8, 16, 17, 21
"""Places in a record batch of format version 2."""


def set_codec(segment: Path, codec: int) -> None:
    """Write another codec into the first batch of a segment, with the matching checksum."""
    data = bytearray(segment.read_bytes())
    end = 12 + struct.unpack_from(">i", data, LENGTH)[0]
    assert data[MAGIC] == 2
    [attributes] = struct.unpack_from(">h", data, ATTRIBUTES)
    struct.pack_into(">h", data, ATTRIBUTES, (attributes & ~7) | codec)
    struct.pack_into(">I", data, CRC, crc32c(bytes(data[ATTRIBUTES:end])))
    with segment.open("r+b") as file:
        file.write(data[:end])


def crc32c(data: bytes) -> int:
    """Return CRC-32C (Castagnoli), Kafka's checksum of a batch, computed bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
