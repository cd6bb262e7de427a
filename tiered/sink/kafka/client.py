"""confluent-kafka: imported when a sink is checked or opened; its errors as those of this program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tiered.errors import Fenced, Invalid, TieredError, Unavailable, not_installed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger(__name__)
# A verb has no log: its error says all, and the library's own lines would stand before it.
log.addHandler(logging.NullHandler())

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED")
_REFUSED = (
    "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE",
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "_SSL", "SECURITY_DISABLED",
)  # fmt: skip
GONE = (
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
)
"""What Kafka says of a topic that is not there (any more)."""
_WRONG = (
    "_INVALID_ARG", "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "INVALID_CONFIG", "POLICY_VIOLATION",
    "TOPIC_EXCEPTION", "INVALID_TRANSACTION_TIMEOUT", "UNSUPPORTED_VERSION",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT", "INVALID_REQUIRED_ACKS",
)  # fmt: skip
_RECORD = ("INVALID_TIMESTAMP", "INVALID_RECORD")
ALL_DOWN = "_ALL_BROKERS_DOWN"
"""What the client says when no broker took its connection."""
IN_VAIN = ("_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT")
"""What the client says of records that it did not send, whatever the reason."""
TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE")


def kafka_library() -> ModuleType:
    """confluent-kafka. ``Invalid`` where it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise not_installed("sink kind 'kafka'", "confluent-kafka", "kafka") from error
    library: ModuleType = confluent_kafka
    return library


class Heard:
    """What a client heard of its brokers by the way, the last of each kind: it explains why an answer never comes. Of one
    client; called on the thread that polls it. ``secrets`` are kept out of what is told."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.errors: dict[str, str] = {}
        self._secrets = [secret for secret in secrets if secret]

    def __call__(self, error: KafkaError) -> None:
        """The client's ``error_cb``."""
        self.errors[error.name()] = self.said(error)

    def said(self, error: KafkaError) -> str:
        """The error's text."""
        text = f"{error.name()}: {error.str()}"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def error(self, what: str, error: KafkaError, **fields: Any) -> TieredError:
        """The error of this program for one of the client's: by its own code, or by what was heard before it."""
        name = error.name()
        for heard in (
            name,
            *(self.errors if name in ("_FATAL", "_TRANSPORT", "_TIMED_OUT", "_STATE") else ()),
        ):
            if heard in _FENCED:
                return Fenced(
                    f"{what}: Kafka gave this sink to another process", found=self._of(heard, error), **fields
                )
        for heard in (name, *self.errors):
            if heard in _REFUSED:
                return Invalid(
                    f"{what}: Kafka refuses it", found=self._of(heard, error), **fields,
                    hint="check the sink's kafka.security.protocol, kafka.sasl.*, kafka.ssl.*, and its rights: deploy/kafka.md",
                )  # fmt: skip
        if name in GONE:
            return Invalid(
                f"{what}: the Kafka topic is not there", found=self.said(error), **fields,
                hint="create it, or let the sink do it: create_topics=true",
            )  # fmt: skip
        if name in TOO_LARGE:
            return Invalid(
                f"{what}: a batch is larger than the Kafka topic takes", found=self.said(error), **fields,
                hint="set the sink's max_message_bytes to the topic's max.message.bytes, or raise that",
            )  # fmt: skip
        if name in _RECORD:
            return Invalid(
                f"{what}: the Kafka topic refuses a record", found=self.said(error), **fields,
                hint="if it is its time: raise the topic's message.timestamp.after.max.ms and message.timestamp.before.max.ms; "
                "a compacted topic needs a key: key=queue",
            )  # fmt: skip
        if name in _WRONG:
            return Invalid(
                f"{what}: Kafka cannot do it", found=self.said(error), **fields, hint="deploy/kafka.md"
            )
        return Unavailable(
            f"{what}: Kafka does not answer", found=self.said(error), **fields,
            hint="check the sink's option brokers, and that Kafka runs and can be reached from here",
        )  # fmt: skip

    def _of(self, heard: str, error: KafkaError) -> str:
        return self.errors.get(heard) or self.said(error)


@contextmanager
def asking(heard: Heard, what: str, **fields: Any) -> Iterator[None]:
    """Around calls of the client: its errors become those of this program."""
    library = kafka_library()
    try:
        yield
    except library.KafkaException as error:
        raise heard.error(what, error.args[0], **fields) from None


def transaction_error(producer: Any) -> KafkaError | None:
    """Why the open transaction can only be undone, if so: what Kafka said of the record that failed first, where others only
    were waited for in vain."""
    try:
        producer.begin_transaction()  # never well inside one: it says why
    except kafka_library().KafkaException as error:
        cause: KafkaError = error.args[0]
        return cause if cause.txn_requires_abort() else None
    return None


def made(
    kind: Callable[[dict[str, Any]], Any],
    told: dict[str, Any],
    heard: Heard,
    *,
    hint: str = "kafka.NAME=value",
) -> Any:
    """A client. ``Invalid`` for properties that it does not have or take. What it would write to stderr goes to the log."""
    library = kafka_library()
    try:
        return kind({**told, "error_cb": heard, "logger": log, "log_level": 4})
    except library.KafkaException as error:
        raise Invalid(
            "Kafka's client cannot be made of this sink's options",
            found=heard.said(error.args[0]),
            hint=f"check {hint}",
        ) from None
    except (TypeError, ValueError) as error:
        raise Invalid(
            "Kafka's client cannot be made of this sink's options",
            found=type(error).__name__,
            hint=f"check {hint}",
        ) from None
