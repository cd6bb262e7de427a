"""Classes that Kafka's JVMs map (``classarchive.py``): written by one broker at its end, when tests first need them."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path

from tests.kit import cache
from tests.kit.classarchive import written_at_exit

_TOPIC = "classes"


def kafka_jars() -> list[Path]:
    """The broker's jars, always in the same order: classes are mapped for one class path."""
    return sorted((cache.kafka_directory() / "lib").glob("*.jar"))


@functools.cache
def mapped_classes() -> list[str]:
    """Options of a JVM whose class path is ``kafka_jars()``. None, with a warning, where no archive comes of it: then it only
    starts more slowly."""
    try:
        found = written_at_exit("kafka", kafka_jars(), _train)
    except RuntimeError as error:
        warnings.warn(f"Kafka's JVMs start more slowly: {error}", stacklevel=2)
        return []
    return [*found.split(), "-Xlog:cds*=error"]


def _train(option: str) -> None:
    """A broker that does what those of tests do, and ends in good order."""
    from confluent_kafka import Producer  # late, as in all that only some tests need

    from tests.kit.kafkabroker import KafkaBroker, committed  # it takes its options from here

    with tempfile.TemporaryDirectory(prefix="kafka-classes-") as directory:
        broker = KafkaBroker(Path(directory), classes=option.split())
        try:
            broker.start()
            broker.create(_TOPIC, 2, cleanup_policy="compact")
            producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "classes"})
            producer.init_transactions(60)
            producer.begin_transaction()
            for number in range(100):
                producer.produce(_TOPIC, b"value", b"%d" % number, headers={"name": b"value"})
            producer.commit_transaction(60)
            del producer  # before Kafka is gone, which it would look for
            committed(broker.address, _TOPIC)
            broker.delete(_TOPIC)
            broker.stop()
        finally:
            broker.remove()
