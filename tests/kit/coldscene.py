"""A real broker whose history is archived by the real daemon and then deleted by the broker itself.

::

    with cold_scene(directory, s3=server) as scene:
        scene.sent                    # every message of TOPIC, as acknowledged
        scene.minimum                 # queue -> first offset that the broker still has; far above 0
        scene.archives["posix"], scene.archives["s3"]

Two daemons archive the same store, one into a directory, one to the S3 server. They and the broker go on running: a test
may send more to topics of its own, and let the broker delete more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import cache, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.client import JavaClient
from tests.kit.daemonproc import CALM, Daemon, wait_for
from tests.kit.gatewayproc import Gateway
from tests.kit.process import TIERED
from tests.kit.realdaemon import expire, log_end, settled_minimums
from tests.kit.s3server import S3Server

TOPIC = "Cold"
QUEUES = 4
TAGS = "created,paid,shipped"


@dataclass(frozen=True, slots=True)
class Archive:
    """Where a copy of the history lies, and what a process needs in its environment to read it."""

    url: str
    environment: Mapping[str, str]
    daemon: Daemon


@dataclass(slots=True)
class ColdScene:
    """The scene; see the module."""

    directory: Path
    name_server: NameServer
    broker: Broker
    archives: dict[str, Archive] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)
    minimum: dict[int, int] = field(default_factory=dict)

    def client(self, version: str | None = None, *, name_server: str | None = None) -> JavaClient:
        """The Java client, at the broker's own name server unless told another."""
        return self.broker.client().through(name_server or self.name_server.address, version=version)

    def gateway(
        self,
        kind: str = "posix",
        *,
        url: str | None = None,
        program: Sequence[str] = TIERED,
        **settings: object,
    ) -> Gateway:
        """A gateway over one of the archives, at first not running; ``url``: the same archive by another way; ``program``: see
        ``Gateway``."""
        archive = self.archives[kind]
        name = f"gateway-{len(list(self.directory.glob('gateway-*.log'))) + 1}"
        address = self.name_server.address
        return Gateway(
            self.directory,
            address,
            url or archive.url,
            name=name,
            environment=archive.environment,
            waits=url is None,
            program=program,
            **{"source.broker": self.broker.name, **settings},  # type: ignore[arg-type]
        )

    def group(self, name: str) -> str:
        """Name of a consumer group that nobody used before."""
        return "".join(c if c.isalnum() else "-" for c in name) + f"-{time.time_ns():x}"

    def send(self, topic: str, count: int, **options: object) -> list[dict[str, Any]]:
        """Send messages with keys, tags and properties in several alphabets; what was acknowledged."""
        chosen: dict[str, object] = {"tags": TAGS, "unicode": 1, "min": 100, "max": 1000, "queues": QUEUES}
        return self.broker.client().run("produce", topic=topic, n=count, **{**chosen, **options}).lines()

    def archived(self, seconds: float = 60.0) -> None:
        """Wait until every archive has all that the broker has now."""
        end = log_end(self.broker)
        for archive in self.archives.values():
            archive.daemon.wait_archived(end, seconds)

    def expire(self, topic: str = TOPIC, seconds: float = 100.0) -> dict[int, int]:
        """Let the broker delete all it may; the minimum of each of the topic's queues, once they all have moved for good."""
        before = self.minimums(topic)
        expire(self.broker, seconds)
        minimums = settled_minimums(self.broker, topic)
        wait_for(lambda: all(low > before[q] for q, low in self.minimums(topic).items()), "new minimums", 30)
        return {**self.minimums(topic), **minimums}

    def minimums(self, topic: str = TOPIC, queues: int = QUEUES) -> dict[int, int]:
        """First offset that the broker has of each queue."""
        return {queue: self.broker.offsets(topic, queue).start for queue in range(queues)}

    def committed(self, group: str, topic: str = TOPIC, queues: int = QUEUES) -> dict[int, int]:
        """The group's offsets at the broker; 0 where it has none."""
        found = {}
        for queue in range(queues):
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
            answer = remoting.request(self.broker.address, remoting.QUERY_CONSUMER_OFFSET, fields)
            found[queue] = int(answer.fields["offset"]) if answer.code == 0 else 0
        return found

    def commit(self, group: str, offsets: Mapping[int, int], topic: str = TOPIC) -> None:
        """Make the group, and put it where it never was."""
        group_config = json.dumps({"groupName": group}).encode()
        made = remoting.request(self.broker.address, remoting.UPDATE_GROUP, body=group_config)
        assert made.code == 0, made.remark
        for queue, offset in offsets.items():
            fields = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": str(queue),
                "commitOffset": str(offset),
            }
            answer = remoting.request(self.broker.address, remoting.UPDATE_CONSUMER_OFFSET, fields)
            assert answer.code == 0, answer.remark

    def cold(self) -> int:
        """How many messages of the topic the broker has deleted."""
        return sum(line["queue_offset"] < self.minimum[line["queue_id"]] for line in self.sent)


def ending(messages: int) -> dict[str, Any]:
    """Options of a consumer that ends 3 s after so many messages, so that it may take too many, or a minute after its last."""
    return {"n": messages, "linger": 3, "idle": 60}


@contextmanager
def cold_scene(
    directory: Path,
    *,
    s3: S3Server | None = None,
    version: str = cache.ROCKETMQ_5,
    messages: int = 20_000,
    name_server: NameServer | None = None,
    broker_name: str = "broker-a",
    **conf: Any,
) -> Iterator[ColdScene]:
    """Build it below ``directory``; ``conf`` are broker settings, ``name_server`` one that others use too.

    Everything else is killed at the end.
    """
    with ExitStack() as stack:
        if name_server is None:
            name_server = stack.enter_context(NameServer(version, directory / "namesrv"))
        broker = Broker(version, directory / "broker", name_server, name=broker_name, **conf)
        stack.enter_context(broker)
        scene = ColdScene(directory, name_server, broker)
        broker.create_topic(TOPIC, QUEUES)
        places = {"posix": (f"file://{directory / 'archive'}", {})}
        if s3 is not None:
            places["s3"] = (s3.url(s3.bucket(), "archive"), s3.environment())
        for name, (url, environment) in places.items():
            settings: dict[str, Any] = {**CALM, "source.broker": broker_name}
            daemon = Daemon(directory, broker.store_dir, url, name=name, environment=environment, **settings)
            stack.callback(daemon.kill)
            scene.archives[name] = Archive(url, environment, daemon.start())
        _fill(scene, messages)
        scene.archived()
        scene.minimum = scene.expire()
        yield scene


def _fill(scene: ColdScene, messages: int) -> None:
    """Mostly plain messages; some in batches, some large enough for the client to compress."""
    special = messages // 20
    scene.sent += scene.send(TOPIC, special, batch=8)
    scene.sent += scene.send(TOPIC, special, first=special, compress_over=300, body="words")
    scene.sent += scene.send(TOPIC, messages - 2 * special, first=2 * special, threads=4)
