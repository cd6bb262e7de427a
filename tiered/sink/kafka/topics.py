"""Topics of Kafka: looked up, created if that is wished, and known again by Kafka's id of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tiered.clock import Clock
from tiered.errors import Invalid, TieredError, Unavailable
from tiered.sink.kafka.client import ALL_DOWN, GONE, Heard, asking, kafka_library, made
from tiered.sink.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

_AT_ONCE = 100
"""Topics that are deleted by one request."""
_TRY_SECONDS = 1.0
_DOWN_SECONDS = 3.0
"""How long brokers that all refuse connections are asked: what is not there is said at once, not after ``timeout_ms``."""
_POLL_SECONDS = 0.1
_SIZE, _RETENTION = "max.message.bytes", "retention.ms"


class KafkaTopic(NamedTuple):
    """A topic: how many partitions it has, and Kafka's id, which another topic of the same name does not have."""

    name: str
    partitions: int
    id: str


class KafkaTopics:
    """Asks for topics as they are now. One thread. Errors as of ``Heard``."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._heard = Heard(settings.secrets)
        admin = kafka_library().admin
        self._admin = made(admin.AdminClient, settings.client(), self._heard)

    def reachable(self) -> None:
        """Ask for the brokers: nothing else. Why a login is refused the client only tells by the way, when it is polled."""
        library, begun = kafka_library(), self._clock.monotonic()
        while True:
            try:
                self._admin.list_topics(timeout=min(_TRY_SECONDS, self._settings.seconds))
                return
            except library.KafkaException as error:
                self._admin.poll(0)
                told = self._heard.error(
                    "the brokers of Kafka were asked for", error.args[0], brokers=self._settings.brokers
                )
                most = _DOWN_SECONDS if ALL_DOWN in self._heard.errors else self._settings.seconds
                if not isinstance(told, Unavailable) or self._clock.monotonic() - begun > most:
                    raise told from None

    def find(self, names: Iterable[str]) -> dict[str, KafkaTopic]:
        """Those of these topics that are there."""
        library, wanted = kafka_library(), list(names)
        found: dict[str, KafkaTopic] = {}
        if not wanted:
            return found
        with asking(self._heard, "Kafka was asked for topics"):
            answers = self._admin.describe_topics(
                library.TopicCollection(wanted), request_timeout=self._settings.seconds
            )
        for name, answer in answers.items():
            described = self._answer(answer, "Kafka was asked for a topic", name, but=GONE)
            if described is not None:
                found[name] = KafkaTopic(name, len(described.partitions), str(described.topic_id))
        return found

    def ensure(
        self, names: Iterable[str], config: Mapping[str, str], partitions: int, *, create: bool
    ) -> dict[str, KafkaTopic]:
        """These topics, created if they are not there and ``create``; ``Invalid`` if not."""
        wanted = list(names)
        found = self.find(wanted)
        absent = [name for name in wanted if name not in found]
        if absent:
            if not create:
                raise Invalid(
                    "a Kafka topic is not there, and this sink does not create any", topic=", ".join(absent[:5]),
                    count=len(absent), hint="create it, or set the sink's create_topics=true",
                )  # fmt: skip
            self._create(absent, config, partitions)
            found |= self._seen(absent)
        return found

    def delete(self, names: Iterable[str]) -> None:
        """Those of these topics that are there. What Kafka does not delete, for want of rights or for now, is logged and left:
        nobody needs them gone."""
        library, wanted = kafka_library(), list(names)
        try:
            for first in range(0, len(wanted), _AT_ONCE):
                answers = self._admin.delete_topics(
                    wanted[first : first + _AT_ONCE], request_timeout=self._settings.seconds
                )
                for name, answer in answers.items():
                    self._answer(answer, "Kafka was to delete a topic", name, but=GONE)
        except (TieredError, library.KafkaException) as error:
            log.warning("topics with positions of a backfill stay in Kafka", extra={"error": str(error)})

    def ends(self, partitions: Iterable[tuple[str, int]], *, committed: bool) -> dict[tuple[str, int], int]:
        """Behind the last record of each partition, or of those that are there for consumers at ``read_committed``."""
        library = kafka_library()
        latest = {library.TopicPartition(*at): library.admin.OffsetSpec.latest() for at in partitions}
        if not latest:
            return {}
        level = (
            library.IsolationLevel.READ_COMMITTED if committed else library.IsolationLevel.READ_UNCOMMITTED
        )
        what, seconds = "Kafka was asked for the ends of partitions", self._settings.seconds
        with asking(self._heard, what):
            answers = self._admin.list_offsets(latest, isolation_level=level, request_timeout=seconds)
        found = {}
        for at, answer in answers.items():
            found[at.topic, at.partition] = int(self._answer(answer, what, at.topic, but=()).offset)
        return found

    def check_configuration(self, names: Iterable[str], wanted: int) -> None:
        """``Invalid`` if one of these topics takes less than ``wanted`` bytes; retention that deletes old messages is logged.
        Nothing where the sink may not ask."""
        library = kafka_library()
        resources = [library.admin.ConfigResource(library.admin.ResourceType.TOPIC, name) for name in names]
        if not resources:
            return
        with asking(self._heard, "Kafka was asked for the configuration of topics"):
            answers = self._admin.describe_configs(resources, request_timeout=self._settings.seconds)
        for resource, answer in answers.items():
            try:
                entries = answer.result(self._settings.seconds)
            except library.KafkaException:  # no right to see it: then Kafka tells when a message comes
                continue
            if _RETENTION in entries and int(entries[_RETENTION].value) >= 0 and _deletes(entries):
                log.warning(
                    "Kafka deletes messages of %s by their own time, %s ms after it: older ones are gone as soon as they come; "
                    "%s=-1 keeps them", resource.name, entries[_RETENTION].value, _RETENTION,
                )  # fmt: skip
            limit = int(entries[_SIZE].value) if _SIZE in entries else wanted
            if limit < wanted:
                raise Invalid(
                    "a Kafka topic takes smaller messages than this sink sends", topic=resource.name,
                    expected=f"{_SIZE} ≥ {wanted}", found=limit,
                    hint=f"set the sink's max_message_bytes={limit}, or raise {_SIZE}",
                )  # fmt: skip

    def _create(self, names: list[str], config: Mapping[str, str], partitions: int) -> None:
        new = kafka_library().admin.NewTopic
        topics = [
            new(
                name,
                num_partitions=partitions,
                replication_factor=self._settings.replication,
                config=dict(config),
            )
            for name in names
        ]
        with asking(self._heard, "Kafka was to create topics"):
            answers = self._admin.create_topics(topics, request_timeout=self._settings.seconds)
        for name, answer in answers.items():
            self._answer(answer, "Kafka was to create a topic", name, but=("TOPIC_ALREADY_EXISTS",))

    def _seen(self, names: list[str]) -> dict[str, KafkaTopic]:
        """Topics that were just created: brokers may need a moment to know them."""
        deadline = self._clock.monotonic() + self._settings.seconds
        while len(found := self.find(names)) < len(names):
            if self._clock.monotonic() > deadline:
                raise Unavailable(
                    "a Kafka topic that was created is not seen", topic=min(set(names) - set(found))
                )
            self._clock.wait(_POLL_SECONDS)
        return found

    def _answer(self, answer: Any, what: str, topic: str, but: tuple[str, ...]) -> Any:
        """What a future holds; ``None`` for errors named in ``but``."""
        library = kafka_library()
        try:
            return answer.result(self._settings.seconds + 5)
        except library.KafkaException as error:
            if error.args[0].name() in but:
                return None
            raise self._heard.error(what, error.args[0], topic=topic) from None
        except TimeoutError:
            raise Unavailable(f"{what}: no answer", topic=topic) from None


def _deletes(entries: Mapping[str, Any]) -> bool:
    return "cleanup.policy" not in entries or "delete" in entries["cleanup.policy"].value


def check_same(before: Mapping[str, str], now: Mapping[str, KafkaTopic], refuse: bool) -> None:
    """``Invalid`` where a topic is another one than the one that has this sink's messages, or is gone, if ``refuse``."""
    for name, topic_id in before.items():
        found = now.get(name)
        if refuse and (found is None or found.id != topic_id):
            raise recreated(name, "gone" if found is None else f"id {found.id}", f"id {topic_id}")


def recreated(topic: str, found: str, expected: str) -> TieredError:
    """What to say of a topic that lost what it had."""
    return Invalid(
        "a Kafka topic that has messages of this sink was deleted, or is another one now", topic=topic,
        expected=expected, found=found,
        hint="rewind the sink to give everything again, or set recreated=go-on: what was in the old topic is not given again",
    )  # fmt: skip
