"""A real Kafka broker, one KRaft node, as a child process on loopback (installed by ``tests/kit/install.py kafka-4.4.0``); and
what a plain consumer at ``read_committed`` finds there."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.kit.kafkaclasses import kafka_jars, mapped_classes
from tests.kit.ports import free_block
from tests.kit.process import Child, Scratch

MEMORY = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
READY_SECONDS = 60.0
_PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT", "SECURED": "SASL_PLAINTEXT", "OUTSIDE": "PLAINTEXT", "CONTROLLER": "PLAINTEXT",
}  # fmt: skip
USER, PASSWORD = "stranger", "a password of tests"
"""Who may log in at ``secured`` and has no rights there."""


class KafkaBroker:
    """A broker: ``kill`` or ``stop``, and ``start`` again on its ports, with what it knew. Without a login all is allowed."""

    def __init__(self, directory: Path, *, classes: Sequence[str] | None = None, **settings: object) -> None:
        """``settings``: the broker's own, with ``_`` for ``.``. ``classes``: options of its JVM in the place of those that have
        it map its classes."""
        self.directory = directory
        self._classes = classes
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._port = free_block()
        self._scratch = Scratch(directory / "tmp")
        self._child: Child | None = None
        self.advertised = self.outside
        """What clients that come to ``outside`` are told to come to: a proxy, from the next start on."""

    @property
    def address(self) -> str:
        """What clients are told."""
        return f"127.0.0.1:{self._port}"

    @property
    def secured(self) -> str:
        """Where clients log in (SASL PLAIN)."""
        return f"127.0.0.1:{self._port + 2}"

    @property
    def outside(self) -> str:
        """A listener that a proxy may stand before."""
        return f"127.0.0.1:{self._port + 3}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._child is not None, "Kafka does not run"
        return self._child.pid

    def start(self) -> KafkaBroker:
        """Start it, formatted if it is new, and wait until it answers."""
        self._scratch.make()
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        lines = {**self._defaults(), **self._settings}
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        if not (self.directory / "data" / "meta.properties").exists():
            self._format(properties)
        self._child = Child("Kafka", self._java("kafka.Kafka", str(properties)), self.directory / "log")
        self._child.wait_until(self._answers, READY_SECONDS, "an answer about its cluster")
        return self

    def stop(self) -> None:
        """Ask it to end, and wait; fine if it does not run."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()

    def kill(self) -> None:
        """kill -9; fine if it does not run."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def remove(self) -> None:
        """Kill it, and remove what Java left behind."""
        self.kill()
        self._scratch.remove()

    def admin(self) -> AdminClient:
        """A client for topics."""
        return AdminClient({"bootstrap.servers": self.address})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """A topic."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(30)

    def configure(self, topic: str, **config: str) -> None:
        """Other configuration of a topic that is there; ``_`` stands for ``.`` in names."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        told = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        admin = self.admin()
        for done in admin.incremental_alter_configs([told]).values():
            done.result(30)

    def delete(self, topic: str) -> None:
        """No topic."""
        admin = self.admin()
        admin.delete_topics([topic], operation_timeout=30)[topic].result(30)

    def _java(self, *arguments: str) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        classes = mapped_classes() if self._classes is None else self._classes
        jars = ":".join(map(str, kafka_jars()))
        return ["java", *MEMORY, *classes, self._scratch.java_option, quiet, "-cp", jars, *arguments]

    def _format(self, properties: Path) -> None:
        # With a zero before it, or some would begin with "-".
        cluster = base64.urlsafe_b64encode(b"\0" + os.urandom(14)).decode() + "AA"
        command = self._java(
            "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), "--ignore-formatted"
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(
                f"Kafka's directory could not be formatted: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            )

    def _defaults(self) -> dict[str, object]:
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        own = f"PLAINTEXT://{self.address},SECURED://{self.secured}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"{own},OUTSIDE://{self.outside},CONTROLLER://127.0.0.1:{self._port + 1}",
            "advertised.listeners": f"{own},OUTSIDE://{self.advertised}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._port + 1}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items()
            ),
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "log.dirs": self.directory / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "num.network.threads": 2,
            "num.io.threads": 4,
        }

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", self._port)):
                return False
        return bool(self.admin().list_topics(timeout=10).brokers)


@contextmanager
def kafka_broker(directory: Path, **settings: object) -> Iterator[KafkaBroker]:
    """A running one."""
    broker = KafkaBroker(directory, **settings)
    try:
        yield broker.start()
    finally:
        broker.remove()


class Read(NamedTuple):
    """A message as a plain consumer sees it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int


def committed(address: str, topic: str, **settings: object) -> list[Read]:
    """All that a consumer at ``read_committed`` sees of a topic up to its end, each partition in its order."""
    config = {
        "bootstrap.servers": address, "group.id": "outside", "isolation.level": "read_committed",
        "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }  # fmt: skip
    consumer = Consumer(config)
    try:
        partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, open_ones = [], set(partitions)
        while open_ones:
            first = consumer.poll(90)
            if first is None:
                raise RuntimeError(f"{topic} has no end within 90 s")
            for message in (first, *consumer.consume(10_000, 0)):
                error = message.error()
                if error is None:
                    open_ones.add(message.partition())
                    found.append(_read(message))
                elif error.name() == "_PARTITION_EOF":
                    open_ones.discard(message.partition())
                else:
                    raise RuntimeError(str(error))
        return sorted(found, key=lambda read: (read.partition, read.offset))
    finally:
        consumer.close()


def _read(message: Message) -> Read:
    m = message
    return Read(m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers() or [], m.timestamp()[1])
