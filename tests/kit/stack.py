"""Everything real at once: name server, broker, S3 server with a bucket, and a load from the Java client.

::

    with real_stack(directory) as stack:
        load = start_load(stack, messages=20_000, rate=2_000)
        ...                                   # run a daemon on stack.broker.store_dir, archive to stack.archive_url
        acknowledged = load.wait().lines()    # one dict per message: queue_id, queue_offset, body_sha256 …

``load.path`` grows while the load runs; ``tests.kit.client.read_lines`` reads what is there so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.client import Running
from tests.kit.s3server import S3Server, versitygw


@dataclass(frozen=True, slots=True)
class Stack:
    """Running servers. ``environment`` holds the credentials that a process needs for ``archive_url``."""

    name_server: NameServer
    broker: Broker
    s3: S3Server
    bucket: str
    archive_url: str
    environment: dict[str, str]


@contextmanager
def real_stack(
    directory: Path, *, version: str = cache.ROCKETMQ_5, prefix: str = "archive", **conf: object
) -> Iterator[Stack]:
    """Start all of it below ``directory`` (10–15 s); ``conf`` are broker settings. Everything is killed at the end."""
    with (
        versitygw(directory / "s3") as s3,
        NameServer(version, directory / "namesrv") as name_server,
        Broker(version, directory / "broker", name_server, **conf) as broker,  # type: ignore[arg-type]
    ):
        bucket = s3.bucket()
        yield Stack(name_server, broker, s3, bucket, s3.url(bucket, prefix), s3.environment())


def start_load(
    stack: Stack,
    *,
    topic: str = "Orders",
    queues: int = 8,
    messages: int = 20_000,
    rate: int = 2_000,
    body_bytes: int = 1024,
    patience_seconds: int = 60,
    first: int = 0,
) -> Running:
    """Create the topic and let the Java client send at a steady rate, in the background.

    ``rate`` is messages per second, 0 as fast as it goes. While the broker is away the client tries again for
    ``patience_seconds``; a call that failed may have stored its message all the same and then the message is there
    twice under one ``unique_key``: lines of kind ``unknown`` name those.
    """
    stack.broker.create_topic(topic, queues)
    return stack.broker.client().start(
        "produce",
        topic=topic,
        n=messages,
        rate=rate,
        queues=queues,
        min=body_bytes,
        max=body_bytes,
        tags="created,paid,shipped",
        unicode=1,
        first=first,
        threads=4,
        retry_seconds=patience_seconds,
        timeout_ms=3000,
    )
